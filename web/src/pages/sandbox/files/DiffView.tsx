import { useState } from "preact/hooks";
import { get } from "../../../api/client";
import { readDiff } from "../../../api/files";
import type { DiffChange, Sandbox, SnapshotList } from "../../../api/types";
import { Field } from "../../../components/Field";
import { Name } from "../../../components/Name";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { Panel } from "../../../components/Panel";
import { Patch } from "../../../components/Patch";
import { bytes, plural } from "../../../lib/format";
import { useLoaded } from "../../../lib/hooks";
import { plainLine } from "../../../lib/plain";
import { fileAddress } from "./Files";

const TONES: Record<DiffChange["change"], string> = { added: "good", modified: "warn", removed: "bad" };

/** What the sandbox changed since its image or since a snapshot. */
export function DiffView({ sandbox }: { sandbox: Sandbox }) {
  const [since, setSince] = useState("");
  const snapshots = useLoaded("snapshots", () => get<SnapshotList>("/v1/snapshots"));
  const diff = useLoaded(`diff ${sandbox.id} ${since}`, () => readDiff(sandbox.id, since || null));
  const options = (snapshots.value?.snapshots ?? [])
    .filter((snapshot) => snapshot.image === sandbox.image)
    .map((snapshot) => ({ value: snapshot.id, label: `snapshot ${plainLine(snapshot.name ?? snapshot.id)}` }));
  const changes = diff.value?.changes ?? [];
  return (
    <div class="page-body">
      <div class="form-grid">
        <Field
          label="Changes since"
          value={since}
          onInput={setSince}
          options={[{ value: "", label: `the image ${plainLine(sandbox.image)}` }, ...options]}
        />
      </div>
      {diff.error !== null && <ErrorNotice error={diff.error} retry={diff.reload} />}
      {diff.value && changes.length === 0 && <Empty title="Nothing was changed" />}
      {changes.length > 0 && (
        <Panel title={`${plural(changes.length, "change")}${diff.value?.changesCut ? " and more" : ""}`} flush>
          <div class="table-scroll diff-list" tabIndex={0} role="region" aria-label="Changed files">
            <table class="table">
              <tbody>
                {changes.map((change) => (
                  <tr key={change.path}>
                    <td>
                      <span class={`badge ${TONES[change.change]}`}>{change.change}</span>
                    </td>
                    <td class="mono">
                      {change.change === "removed" ? (
                        <Name text={change.path} />
                      ) : (
                        <a href={fileAddress(sandbox.id, change.path)}>
                          <Name text={change.path} />
                        </a>
                      )}
                    </td>
                    <td class="number soft">{change.kind === "file" ? bytes(change.size) : change.kind}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Panel>
      )}
      {diff.value?.patch && (
        <Panel title="Text changes" flush>
          <Patch text={diff.value.patch} />
          {diff.value.patchCut && <p class="faint panel-body">The patch is longer than what is shown.</p>}
        </Panel>
      )}
    </div>
  );
}
