import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../../../api/errors";
import { entries, entryText, follow } from "../../../api/execs";
import type { Exec, ExecEntry } from "../../../api/types";
import { commandLine } from "../../../lib/format";
import { plainLine, plainText } from "../../../lib/plain";

export type Line = {
  key: string;
  exec: string;
  entry: number;
  atMs: number;
  stream: "stdout" | "stderr";
  text: string;
  /** The command that printed it. */
  from: string;
};

/** Execs read, entries of each, and lines kept. */
const MAX_EXECS = 40;
const TAIL_ENTRIES = 200;
const MAX_LINES = 20_000;
/** Running commands whose output is followed: the newest ones. The others are read when they have ended. */
const MAX_FOLLOWED = 2;
const MAX_LINE = 2000;
const BATCH_MS = 100;

/** Terminals echo every key; they have a page of their own. */
export const latestOf = (execs: Exec[]) => execs.filter((exec) => !exec.terminal).slice(-MAX_EXECS);

/** What a line is said to be from. */
export const sourceOf = (exec: Exec) =>
  plainLine(exec.cell ? exec.cell.language : commandLine(exec.command)).slice(0, 80);

type Reading = { abort: AbortController; ids: Set<string>; queue: Promise<void> };

/** The output of the latest execs as lines. Those that run are followed, until the page is left. */
export function useLogLines(sandbox: string, execs: Exec[]): Line[] {
  const [lines, setLines] = useState<Line[]>([]);
  const reading = useRef<Reading | null>(null);
  const latest = latestOf(execs);

  useEffect(() => {
    const current = { abort: new AbortController(), ids: new Set<string>(), queue: Promise.resolve() };
    reading.current = current;
    setLines([]);
    return () => current.abort.abort();
  }, [sandbox]);

  useEffect(() => {
    const current = reading.current;
    if (!current) return;
    const add = (more: Line[]) =>
      setLines((old) => [...old, ...more].sort((a, b) => a.atMs - b.atMs).slice(-MAX_LINES));
    const read = (exec: Exec) =>
      readLines(exec, add, current.abort.signal).catch((error: unknown) => {
        if (!isAbort(error)) current.ids.delete(exec.id);
      });
    const running = latest.filter((exec) => exec.state !== "done").slice(-MAX_FOLLOWED);
    for (const exec of latest.toReversed()) {
      if (current.ids.has(exec.id) || (exec.state !== "done" && !running.includes(exec))) continue;
      current.ids.add(exec.id);
      // One after the other: other requests need connections too.
      if (exec.state === "done") current.queue = current.queue.then(() => read(exec));
      else void read(exec);
    }
  }, [latest.map((exec) => `${exec.id} ${exec.state}`).join(" ")]);
  return lines;
}

async function readLines(exec: Exec, add: (lines: Line[]) => void, signal: AbortSignal): Promise<void> {
  const from = sourceOf(exec);
  let batch: Line[] = [];
  let timer: ReturnType<typeof setTimeout> | null = null;
  const flush = () => {
    if (timer) clearTimeout(timer);
    timer = null;
    if (batch.length && !signal.aborted) add(batch);
    batch = [];
  };
  const first = Math.max(1, exec.lastEntry - TAIL_ENTRIES);
  const read = exec.state === "done" ? entries : follow;
  try {
    for await (const entry of read(exec.sandbox, exec.id, first, signal)) {
      if (entry.kind !== "stdout" && entry.kind !== "stderr") continue;
      batch.push(...linesOf(exec.id, entry, from));
      if (batch.length > 2 * MAX_LINES) batch = batch.slice(-MAX_LINES);
      timer ??= setTimeout(flush, BATCH_MS);
    }
  } finally {
    flush();
  }
}

function linesOf(exec: string, entry: ExecEntry, from: string): Line[] {
  const stream = entry.kind === "stderr" ? "stderr" : "stdout";
  const parts = plainText(entryText(entry)).split("\n");
  if (parts.at(-1) === "") parts.pop();
  return parts.map((part, index) => {
    const key = `${exec} ${entry.number} ${index}`;
    return { key, exec, entry: entry.number, atMs: entry.atMs, stream, text: part.slice(0, MAX_LINE), from };
  });
}
