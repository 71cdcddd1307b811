import { useEffect, useRef } from "preact/hooks";
import type { Call } from "../api/types";
import { listen } from "../state/live";
import { sandboxes } from "../state/sandboxes";
import { may } from "../state/session";
import { usage } from "../state/usage";

/** Changes that come together cost one new reading. */
const PAUSE_MS = 400;
/** What a change begins may take some samples to show, such as a server that is not listening yet. */
const SETTLING_SAMPLES = 4;

const SAMPLES_IN_TEN_SECONDS = 5;

function useLatest(callback: () => void): () => void {
  const held = useRef(callback);
  held.current = callback;
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(
    () => () => {
      if (timer.current) clearTimeout(timer.current);
    },
    [],
  );
  return () => {
    timer.current ??= setTimeout(() => {
      timer.current = null;
      held.current();
    }, PAUSE_MS);
  };
}

/** Calls back when a call of a kind succeeded: whoever made it, the audit tells of it. */
export function useCallsDone(isWanted: (call: Call) => boolean, callback: () => void): void {
  const soon = useLatest(callback);
  useEffect(() => listen("call", (call) => !call.error && isWanted(call) && soon()), []);
}

/** Calls back with every fifth sample of the stream: for what changes without a call, or long after it, such as a pull. */
export function useEveryTenSeconds(callback: () => void): void {
  const soon = useLatest(callback);
  const count = useRef(0);
  const samples = usage.value;
  useEffect(() => {
    count.current += 1;
    if (count.current % SAMPLES_IN_TEN_SECONDS === 0) soon();
  }, [samples]);
}

/**
 * Calls back when somebody may have changed things of a kind: with calls whose action has its name, and every ten
 * seconds for whoever does not hear of the calls of others.
 */
export function useOthersChanges(kind: RegExp, callback: () => void): void {
  useCallsDone((call) => kind.test(call.action), callback);
  useEveryTenSeconds(() => !may("audit") && callback());
}

/** Calls back when sandboxes came or went, and with them what they use. */
export function useSandboxesChanged(callback: () => void): void {
  const soon = useLatest(callback);
  const count = sandboxes.value.size;
  const before = useRef(count);
  useEffect(() => {
    if (before.current !== count) soon();
    before.current = count;
  }, [count]);
}

/**
 * Calls back with some samples, which come every two seconds, and again when processes of a sandbox came or went. A
 * sandbox in which nothing changes is left alone after that: looking inside would count as use.
 */
export function useProcessesChanged(sandbox: string, callback: () => void): void {
  const soon = useLatest(callback);
  const last = usage.value.get(sandbox)?.at(-1);
  // Whoever comes to a page may come right after a change.
  const known = useRef<{ processes: number | null; settling: number }>({
    processes: null,
    settling: SETTLING_SAMPLES,
  });
  useEffect(() => {
    if (!last) return;
    const { processes, settling } = known.current;
    const isNew = processes !== null && processes !== last.processes;
    known.current = { processes: last.processes, settling: isNew ? SETTLING_SAMPLES : Math.max(0, settling - 1) };
    if (isNew || settling > 0) soon();
  }, [last]);
}
