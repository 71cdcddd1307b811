import { useEffect, useState } from "preact/hooks";
import { listExecs } from "../../api/execs";
import type { Call, Exec } from "../../api/types";
import { Check } from "../../components/Check";
import { Name } from "../../components/Name";
import { Empty } from "../../components/Notice";
import { clockTime } from "../../lib/format";
import { plainLine } from "../../lib/plain";
import { useCalls } from "../../lib/useCalls";
import { listen, streamNumber } from "../../state/live";
import { sandboxes } from "../../state/sandboxes";
import { FeedExec } from "./FeedExec";

type Item = { key: string; at: string; exec: Exec } | { key: string; at: string; call: Call };

/** Items in sight; sandboxes whose past is read. */
const MAX_ITEMS = 60;
const MAX_SANDBOXES = 20;

type Props = { ids: string[]; keyId: string | null; isForKey: boolean };

/** What happens, newest first. */
export function Feed({ ids, keyId, isForKey }: Props) {
  const execs = useExecsOf(ids);
  const { calls } = useCalls();
  const [withCalls, setWithCalls] = useState(true);
  const names = new Set(ids.flatMap((id) => [id, sandboxes.value.get(id)?.name ?? id]));
  const isMine = (call: Call) =>
    isForKey ? call.key === keyId || keyId === null : call.sandbox != null && names.has(call.sandbox);
  const items: Item[] = [
    ...execs.map((exec) => ({ key: exec.id, at: exec.createdAt, exec })),
    ...(withCalls ? calls.filter(isMine).map((call) => ({ key: `call ${call.number}`, at: call.at, call })) : []),
  ];
  items.sort((a, b) => (a.at < b.at ? 1 : -1));
  const shown = items.slice(0, MAX_ITEMS);
  /** The newest execs are open; older ones open on request. */
  const newest = new Set(
    shown
      .filter((item) => "exec" in item)
      .slice(0, 3)
      .map((item) => item.key),
  );
  return (
    <>
      <Check label="Show calls too" checked={withCalls} onChange={setWithCalls} />
      {shown.length === 0 && (
        <Empty title="Nothing happened yet">Calls, commands, files and pictures appear here as they happen.</Empty>
      )}
      <ol class="feed" aria-live="off">
        {shown.map((item) => (
          <li key={item.key}>
            {"exec" in item ? (
              <FeedExec
                exec={item.exec}
                isNew={newest.has(item.key)}
                sandboxName={isForKey ? (sandboxes.value.get(item.exec.sandbox)?.name ?? null) : null}
              />
            ) : (
              <p class="feed-call">
                <time class="faint number">{clockTime(item.call.at)}</time>
                <span class="badge">{item.call.frontend}</span>
                <span class="mono cut">
                  <Name text={item.call.action} mono />
                </span>
                {item.call.who && <span class="faint nowrap">{plainLine(item.call.who)}</span>}
                {item.call.error && <span class="bad">{plainLine(item.call.error)}</span>}
              </p>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}

/** The execs of several sandboxes: read once for each, then followed. */
function useExecsOf(ids: string[]): Exec[] {
  const [held, setHeld] = useState<ReadonlyMap<string, Exec>>(new Map());
  const key = ids.slice(0, MAX_SANDBOXES).join(" ");
  const stream = streamNumber.value;
  useEffect(() => {
    const wanted = new Set(key.split(" "));
    let isGone = false;
    const add = (execs: Exec[]) => {
      if (!isGone) setHeld((old) => new Map([...old, ...execs.map((exec) => [exec.id, exec] as const)]));
    };
    for (const id of wanted) if (id) listExecs(id).then(add, () => {});
    const stop = listen("exec", (exec) => wanted.has(exec.sandbox) && add([exec]));
    return () => {
      isGone = true;
      stop();
    };
  }, [key, stream]);
  return [...held.values()].filter((exec) => ids.includes(exec.sandbox));
}
