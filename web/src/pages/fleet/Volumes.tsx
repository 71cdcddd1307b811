import { useState } from "preact/hooks";
import { get, path, send } from "../../api/client";
import type { Volume, VolumeList } from "../../api/types";
import { Button } from "../../components/Button";
import { Name } from "../../components/Name";
import { Empty, ErrorNotice } from "../../components/Notice";
import { Panel } from "../../components/Panel";
import { bytes } from "../../lib/format";
import { useLoaded } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { useCallsDone, useEveryTenSeconds, useSandboxesChanged } from "../../lib/useChanges";
import { attempt } from "../../state/toasts";
import { leaving, removeLater } from "../../state/undo";

/** Volumes, with the sandboxes that mount them. */
export function Volumes({ canChange }: { canChange: boolean }) {
  const [name, setName] = useState("");
  const loaded = useLoaded("volumes", () => get<VolumeList>("/v1/volumes"));
  useCallsDone((call) => /volume/i.test(call.action), loaded.reload);
  useSandboxesChanged(loaded.reload);
  useEveryTenSeconds(loaded.reload);
  const volumes = (loaded.value?.volumes ?? []).filter(
    (volume) => !leaving.value.has(`volume ${volume.namespace}/${volume.name}`),
  );
  const make = (event: Event) => {
    event.preventDefault();
    void attempt("No volume", async () => {
      await send("POST", "/v1/volumes", { name: name.trim() });
      setName("");
      loaded.reload();
    });
  };
  const remove = (volume: Volume) =>
    removeLater(
      `Removing volume ${plainLine(volume.name)} with everything in it.`,
      [`volume ${volume.namespace}/${volume.name}`],
      async () => {
        await send("DELETE", path("volumes", volume.name), undefined, { namespace: volume.namespace });
        loaded.reload();
      },
    );
  return (
    <Panel
      title="Volumes"
      flush
      actions={
        canChange && (
          <form class="row tight" onSubmit={make}>
            <input
              class="input narrow"
              aria-label="Name of the new volume"
              placeholder="New volume"
              value={name}
              onInput={(event) => setName(event.currentTarget.value)}
            />
            <Button small icon="plus" submit disabled={!name.trim()}>
              Make
            </Button>
          </form>
        )
      }
    >
      {loaded.error !== null && <ErrorNotice error={loaded.error} retry={loaded.reload} />}
      {volumes.length === 0 ? (
        <Empty title="No volumes">
          <p>A volume keeps files beyond the life of a sandbox, and can be mounted by several.</p>
        </Empty>
      ) : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Volumes">
          <table class="table">
            <thead>
              <tr>
                <th>Volume</th>
                <th>Namespace</th>
                <th>Kind</th>
                <th class="number">Used</th>
                <th class="number">Limit</th>
                <th>Mounted by</th>
                <th>
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {volumes.map((volume) => (
                <tr key={`${volume.namespace}/${volume.name}`}>
                  <td>
                    <strong>
                      <Name text={volume.name} />
                    </strong>
                  </td>
                  <td class="soft">
                    <Name text={volume.namespace} />
                  </td>
                  <td class="soft">{volume.kind}</td>
                  <td class="number">{bytes(volume.used)}</td>
                  <td class="number soft">
                    {(volume.quota ?? volume.size) ? bytes(volume.quota ?? volume.size) : "none"}
                  </td>
                  <td class="soft">{volume.usedBy.map(plainLine).join(", ") || <span class="faint">nothing</span>}</td>
                  <td class="actions">
                    {canChange && volume.usedBy.length === 0 && (
                      <Button
                        small
                        kind="quiet"
                        icon="trash"
                        label={`Remove volume ${plainLine(volume.name)}`}
                        onClick={() => remove(volume)}
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
