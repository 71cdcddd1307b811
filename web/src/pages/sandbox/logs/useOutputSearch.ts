import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../../../api/errors";
import { searchOutput } from "../../../api/execs";
import type { OutputLine } from "../../../api/types";

export type Stream = "all" | "stdout" | "stderr";

export type OutputSearch = {
  lines: OutputLine[];
  /** When the search began: later output comes from elsewhere. */
  atMs: number;
  /** Searches further back; absent when all output was searched. */
  further: (() => void) | null;
  isSearching: boolean;
  error: unknown;
};

/** Typing on begins no search. */
const PAUSE_MS = 250;

type Held = { lines: OutputLine[]; atMs: number; next: string | null; isSearching: boolean; error: unknown };
const NOTHING: Held = { lines: [], atMs: 0, next: null, isSearching: false, error: null };

/** Lets the daemon look for a text in all output that it has, a part at a time. */
export function useOutputSearch(sandbox: string, wanted: string, stream: Stream): OutputSearch {
  const [held, setHeld] = useState(NOTHING);
  const abort = useRef<AbortController | null>(null);

  const search = (cursor: string | null) => {
    const signal = abort.current?.signal;
    if (!signal) return;
    setHeld((old) => ({ ...(cursor ? old : NOTHING), isSearching: true }));
    const query = { q: wanted, stream: stream === "all" ? ("both" as const) : stream, cursor };
    searchOutput(sandbox, query, signal).then(
      (found) =>
        setHeld((old) => ({
          lines: [...old.lines, ...found.lines],
          atMs: old.atMs || Date.parse(found.at),
          next: found.next ?? null,
          isSearching: false,
          error: null,
        })),
      (error: unknown) => {
        if (!isAbort(error)) setHeld((old) => ({ ...old, isSearching: false, error }));
      },
    );
  };

  useEffect(() => {
    setHeld({ ...NOTHING, isSearching: wanted !== "" });
    if (!wanted) return;
    const current = new AbortController();
    abort.current = current;
    const timer = setTimeout(() => search(null), PAUSE_MS);
    return () => {
      clearTimeout(timer);
      current.abort();
    };
  }, [sandbox, wanted, stream]);

  const { next, ...found } = held;
  return { ...found, further: next && !held.isSearching ? () => search(next) : null };
}
