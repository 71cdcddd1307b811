import { useState } from "preact/hooks";
import { get, path, send } from "../../api/client";
import { jsonLines } from "../../api/lines";
import type { Image, ImageList, PullEvent } from "../../api/types";
import { Button } from "../../components/Button";
import { Name } from "../../components/Name";
import { Empty, ErrorNotice } from "../../components/Notice";
import { Panel } from "../../components/Panel";
import { Ago } from "../../components/Time";
import { bytes, plural } from "../../lib/format";
import { useLoaded } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { useCallsDone, useEveryTenSeconds, useSandboxesChanged } from "../../lib/useChanges";
import { attempt, say } from "../../state/toasts";
import { leaving, removeLater } from "../../state/undo";

/** Images on this host, with what uses them. */
export function Images({ canChange }: { canChange: boolean }) {
  const loaded = useLoaded("images", () => get<ImageList>("/v1/images"));
  useCallsDone((call) => /image|build/i.test(call.action), loaded.reload);
  useSandboxesChanged(loaded.reload);
  useEveryTenSeconds(loaded.reload);
  const images = (loaded.value?.images ?? []).filter((image) => !leaving.value.has(image.digest));
  const remove = (image: Image) =>
    removeLater(`Removing image ${plainLine(image.references[0] ?? image.digest)}.`, [image.digest], async () => {
      await send("DELETE", path("images", image.digest));
      loaded.reload();
    });
  return (
    <Panel title="Images" flush actions={canChange && <Pull onDone={loaded.reload} />}>
      {loaded.error !== null && <ErrorNotice error={loaded.error} retry={loaded.reload} />}
      {images.length === 0 ? (
        <Empty title="No images">
          <p>The built-in image host needs none. Others are fetched when a sandbox asks for them.</p>
        </Empty>
      ) : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Images">
          <table class="table">
            <thead>
              <tr>
                <th>Image</th>
                <th class="number">Size</th>
                <th class="number">Layers</th>
                <th>Platform</th>
                <th>Used by</th>
                <th class="number">Last used</th>
                <th>
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {images.map((image) => (
                <tr key={image.digest}>
                  <td>
                    {image.references.length ? (
                      image.references.map((reference) => (
                        <div key={reference}>
                          <Name text={reference} />
                        </div>
                      ))
                    ) : (
                      <span class="mono faint">{plainLine(image.digest).slice(0, 19)}</span>
                    )}
                  </td>
                  <td class="number">{bytes(image.sizeBytes)}</td>
                  <td class="number">{image.layerCount}</td>
                  <td class="soft">
                    {plainLine(image.os)}/{plainLine(image.architecture)}
                  </td>
                  <td class="soft" title={image.usedBy.map(plainLine).join(", ")}>
                    {usersOf(image) || <span class="faint">nothing</span>}
                  </td>
                  <td class="number soft">
                    <Ago at={image.lastUsedAt} />
                  </td>
                  <td class="actions">
                    {canChange && image.usedBy.length === 0 && (
                      <Button
                        small
                        kind="quiet"
                        icon="trash"
                        label={`Remove image ${plainLine(image.references[0] ?? image.digest)}`}
                        onClick={() => remove(image)}
                      />
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

/** Names shown of what uses an image; the rest is counted. */
const MAX_USERS = 3;

function usersOf(image: Image): string {
  const names = image.usedBy.slice(0, MAX_USERS).map(plainLine).join(", ");
  const rest = image.usedBy.length - MAX_USERS;
  return rest > 0 ? `${names} and ${plural(rest, "other")}` : names;
}

function Pull({ onDone }: { onDone: () => void }) {
  const [reference, setReference] = useState("");
  const [progress, setProgress] = useState<string | null>(null);
  const pull = async (event: Event) => {
    event.preventDefault();
    setProgress("Asking the registry…");
    const isDone = await attempt("Not fetched", async () => {
      for await (const told of jsonLines<PullEvent>("POST", "/v1/images/pull", { body: { reference } })) {
        if (told.type === "done") return;
        if (told.type === "layer" && told.total) setProgress(`${bytes(told.bytes ?? 0)} of ${bytes(told.total)}`);
      }
      throw new Error("The daemon ended without an answer.");
    });
    setProgress(null);
    if (!isDone) return;
    say(`Fetched ${plainLine(reference)}.`, { tone: "good" });
    setReference("");
    onDone();
  };
  return (
    <form class="row tight" onSubmit={pull}>
      <input
        class="input narrow"
        aria-label="Image to fetch"
        placeholder="python:3.13-slim"
        value={reference}
        spellcheck={false}
        onInput={(event) => setReference(event.currentTarget.value)}
      />
      <Button small icon="download" submit disabled={!reference.trim() || progress !== null}>
        {progress ?? "Fetch"}
      </Button>
    </form>
  );
}
