import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api/client";
import { isAbort } from "../api/errors";
import type { Call, CallList } from "../api/types";
import { listen, streamNumber } from "../state/live";

/** Calls read at a time, and new ones that a page holds. */
const PAGE = 500;
const MAX_NEW = 2000;
/** Typing on begins no search. */
const PAUSE_MS = 250;

export type CallResult = "all" | "done" | "refused";

export type CallSearch = {
  /** Oldest first. */
  calls: Call[];
  /** Reads those before; absent when there are none. */
  older: (() => void) | null;
  isLoading: boolean;
  error: unknown;
  reload: () => void;
};

/** Every word must be found somewhere in the call, as the daemon looks for them. */
function matches(call: Call, words: string[], result: CallResult): boolean {
  if (result !== "all" && (result === "refused") !== Boolean(call.error)) return false;
  const all = [call.action, call.frontend, call.who, call.key, call.sandbox, call.namespace, call.error, call.client];
  const haystack = all.map((part) => part ?? "").join("\n").toLowerCase();
  return words.every((word) => haystack.includes(word));
}

type Held = { read: Call[]; hasOlder: boolean; isLoading: boolean; error: unknown };
const NOTHING: Held = { read: [], hasOlder: false, isLoading: true, error: null };

/** Calls of the audit that have all the words: the daemon looks through all that it has; new ones come as they happen. */
export function useCallSearch(text: string, result: CallResult): CallSearch {
  const [held, setHeld] = useState<Held>(NOTHING);
  const [told, setTold] = useState<Call[]>([]);
  const [turn, setTurn] = useState(0);
  const abort = useRef<AbortController | null>(null);
  const stream = streamNumber.value;
  const search = text.trim();

  const read = (before: number | null) => {
    const signal = abort.current?.signal;
    if (!signal) return;
    setHeld((old) => ({ ...(before === null ? NOTHING : old), isLoading: true }));
    const query = { q: search || null, result: result === "all" ? null : result, before, limit: PAGE };
    get<CallList>("/v1/calls", query, signal).then(
      ({ calls }) =>
        setHeld((old) => ({
          read: before === null ? calls : [...calls, ...old.read],
          hasOlder: calls.length === PAGE,
          isLoading: false,
          error: null,
        })),
      (error: unknown) => {
        if (!isAbort(error)) setHeld((old) => ({ ...old, isLoading: false, error }));
      },
    );
  };

  useEffect(() => listen("call", (call) => setTold((old) => [...old, call].slice(-MAX_NEW))), []);
  useEffect(() => {
    const current = new AbortController();
    abort.current = current;
    const timer = setTimeout(() => read(null), search ? PAUSE_MS : 0);
    return () => {
      clearTimeout(timer);
      current.abort();
    };
  }, [search, result, stream, turn]);

  const calls = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const fresh = told.filter((call) => matches(call, words, result));
    const all = new Map([...held.read, ...fresh].map((call) => [call.number, call]));
    return [...all.values()].sort((a, b) => a.number - b.number);
  }, [held.read, told, search, result]);
  const first = held.read[0];
  const older = held.hasOlder && !held.isLoading && first ? () => read(first.number) : null;
  return { calls, older, isLoading: held.isLoading, error: held.error, reload: () => setTurn((old) => old + 1) };
}
