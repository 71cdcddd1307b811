import { useEffect, useRef, useState } from "preact/hooks";
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

/** Items in sight. */
const MAX_ITEMS = 60;
/** Sandboxes whose past is read: the newest ones. What happens from now on is shown of all. */
const MAX_READ = 50;
/** Commands that are remembered, since items of some kinds can be hidden. */
const MAX_HELD = 300;

type Props = { ids: string[]; keyId: string | null; isForKey: boolean; isShared: boolean };

/** What happens, newest first. */
export function Feed({ ids, keyId, isForKey, isShared }: Props) {
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
      <div class="row between">
        <Check label="Show calls too" checked={withCalls} onChange={setWithCalls} />
        {ids.length > MAX_READ && (
          <span class="faint small">
            All {ids.length.toLocaleString()} sandboxes are followed; the past is that of the {MAX_READ} newest.
          </span>
        )}
      </div>
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
                isShared={isShared}
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

/** The execs of several sandboxes: read once for each, one after the other, and followed. */
function useExecsOf(ids: string[]): Exec[] {
  const [held, setHeld] = useState<ReadonlyMap<string, Exec>>(new Map());
  const key = ids.join(" ");
  const stream = streamNumber.value;
  const read = useRef({ stream, ids: new Set<string>() });
  if (read.current.stream !== stream) read.current = { stream, ids: new Set() };
  useEffect(() => {
    const wanted = key.split(" ").filter(Boolean);
    let isGone = false;
    const readPast = async () => {
      for (const id of wanted.slice(0, MAX_READ)) {
        if (isGone) return;
        if (read.current.ids.has(id)) continue;
        read.current.ids.add(id);
        // One that is gone meanwhile has no past.
        const execs = await listExecs(id).catch(() => []);
        setHeld((old) => merged(old, execs.slice(-MAX_ITEMS)));
      }
    };
    void readPast();
    const followed = new Set(wanted);
    const stop = listen("exec", (exec) => followed.has(exec.sandbox) && setHeld((old) => merged(old, [exec])));
    return () => {
      isGone = true;
      stop();
    };
  }, [key, stream]);
  return [...held.values()].filter((exec) => ids.includes(exec.sandbox));
}

/** What was told later is newer than what was read; of very many, the newest are kept. */
function merged(old: ReadonlyMap<string, Exec>, more: Exec[]): ReadonlyMap<string, Exec> {
  const all = new Map(old);
  for (const exec of more) if (all.get(exec.id)?.state !== "done") all.set(exec.id, exec);
  if (all.size <= 2 * MAX_HELD) return all;
  const newest = [...all.values()].sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1)).slice(0, MAX_HELD);
  return new Map(newest.map((exec) => [exec.id, exec]));
}
