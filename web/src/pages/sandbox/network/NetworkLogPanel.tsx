import { useEffect, useState } from "preact/hooks";
import { get, path } from "../../../api/client";
import type { NetworkLog, NetworkLogEntry, Sandbox } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Name } from "../../../components/Name";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { Panel } from "../../../components/Panel";
import { Segments } from "../../../components/Segments";
import { clockTime, dateTime } from "../../../lib/format";
import { useLoaded } from "../../../lib/hooks";
import { plainLine } from "../../../lib/plain";
import { listen } from "../../../state/live";
import { canChange } from "../../../state/session";
import { attempt } from "../../../state/toasts";
import { patchNetwork } from "./PolicyPanel";

type Kind = "all" | NetworkLogEntry["kind"];

const MAX_ENTRIES = 500;
const TONES: Record<NetworkLogEntry["kind"], string> = { allowed: "good", denied: "bad", failed: "warn" };

/** What was allowed and denied, newest first, as it happens. */
export function NetworkLogPanel({ sandbox, onPolicyChanged }: { sandbox: Sandbox; onPolicyChanged: () => void }) {
  const loaded = useLoaded(`network log ${sandbox.id}`, () =>
    get<NetworkLog>(path("sandboxes", sandbox.id, "network", "log"), { limit: MAX_ENTRIES }),
  );
  const [told, setTold] = useState<NetworkLogEntry[]>([]);
  const [kind, setKind] = useState<Kind>("all");
  useEffect(() => {
    setTold([]);
    return listen("network", (entry) => {
      if (entry.sandbox === sandbox.id) setTold((old) => [...old, entry].slice(-MAX_ENTRIES));
    });
  }, [sandbox.id]);

  const byNumber = new Map([...(loaded.value?.entries ?? []), ...told].map((entry) => [entry.number, entry]));
  const all = [...byNumber.values()].sort((a, b) => b.number - a.number).slice(0, MAX_ENTRIES);
  const shown = all.filter((entry) => kind === "all" || entry.kind === kind);
  const allow = (target: string) =>
    void attempt("Not allowed", async () => {
      await patchNetwork(sandbox.id, { allow: [target] });
      onPolicyChanged();
    });
  return (
    <Panel
      title="Log"
      flush
      actions={
        <Segments
          label="Kind"
          value={kind}
          options={[
            { value: "all", label: "All", count: all.length },
            { value: "allowed", label: "Allowed" },
            { value: "denied", label: "Denied" },
            { value: "failed", label: "Failed" },
          ]}
          onChange={setKind}
        />
      }
    >
      {loaded.error !== null && <ErrorNotice error={loaded.error} retry={loaded.reload} />}
      {shown.length === 0 ? (
        <Empty title={all.length > 0 ? "Nothing of this kind" : "No traffic"}>
          <p>Connections and name lookups of the sandbox appear here as they are decided.</p>
        </Empty>
      ) : (
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Network log">
          <table class="table">
            <thead>
              <tr>
                <th>Time</th>
                <th>Decision</th>
                <th>To</th>
                <th>Rule</th>
                <th class="number">Times</th>
                <th>
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((entry) => (
                <tr key={entry.number}>
                  <td class="number soft">
                    <time title={dateTime(entry.at)}>{clockTime(entry.at)}</time>
                  </td>
                  <td>
                    <span class={`badge ${TONES[entry.kind]}`}>{entry.kind}</span>
                  </td>
                  <td class="mono rule-target">
                    <Name text={`${entry.name ?? entry.address ?? "?"}:${entry.port}`} mono />
                    <span class="faint"> {entry.protocol}</span>
                  </td>
                  <td class="mono soft">{plainLine(entry.rule)}</td>
                  <td class="number soft">{entry.count}</td>
                  <td class="actions">
                    {canChange.value && entry.kind === "denied" && entry.name && (
                      <Button small onClick={() => allow(entry.name ?? "")}>
                        Allow
                      </Button>
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
