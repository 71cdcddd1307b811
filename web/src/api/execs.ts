import { get, path, send, withQuery } from "./client";
import { jsonLines } from "./lines";
import { hasPlace, takePlace } from "./places";
import type { Exec, ExecEntry, ExecList, ExecResult, OutputFound } from "./types";

export const execPath = (sandbox: string, exec: string, ...rest: string[]) =>
  path("sandboxes", sandbox, "execs", exec, ...rest);

export const listExecs = async (sandbox: string) => (await get<ExecList>(path("sandboxes", sandbox, "execs"))).execs;

export const signalExec = (sandbox: string, exec: string, signal: number) =>
  send("POST", execPath(sandbox, exec, "signal"), { signal });

export const startCommand = (sandbox: string, command: string[]) =>
  send<ExecResult>("POST", path("sandboxes", sandbox, "execs"), { command, trackFiles: true });

export const startTerminal = (sandbox: string, command: string[], size: { cols: number; rows: number }) =>
  send<Exec>("POST", path("sandboxes", sandbox, "execs"), {
    command,
    terminal: size,
    stdin: true,
    env: { TERM: "xterm-256color", COLORTERM: "truecolor" },
  });

/** Yields an exec's ledger entries so far, from a number on. */
export function entries(sandbox: string, exec: string, from: number, signal: AbortSignal) {
  return read(sandbox, exec, { from, follow: false }, signal);
}

/**
 * Yields an exec's ledger entries from a number on, until it ends. While too many streams are open, those that are
 * there come at once, and the others when a stream ends.
 */
export async function* follow(sandbox: string, exec: string, from: number, signal: AbortSignal) {
  let next = from;
  if (!hasPlace()) {
    for await (const entry of entries(sandbox, exec, from, signal)) {
      next = entry.number + 1;
      yield entry;
      if (entry.kind === "exited") return;
    }
  }
  const leave = await takePlace(signal);
  try {
    yield* read(sandbox, exec, { from: next, follow: true }, signal);
  } finally {
    leave();
  }
}

function read(sandbox: string, exec: string, query: { from: number; follow: boolean }, signal: AbortSignal) {
  return jsonLines<ExecEntry>("GET", execPath(sandbox, exec, "entries"), { query, signal });
}

/** Starts the same once more. The daemon knows its directory, environment, user and terminal. */
export const runAgain = (exec: Exec) => send<Exec>("POST", execPath(exec.sandbox, exec.id, "again"));

/** Lines that the sandbox's commands printed and that contain a text, the newest command first. */
export const searchOutput = (sandbox: string, query: OutputQuery, signal: AbortSignal) =>
  get<OutputFound>(path("sandboxes", sandbox, "output"), query, signal);

type OutputQuery = { q: string; stream: "both" | "stdout" | "stderr"; cursor: string | null };

export const outputAddress = (sandbox: string, exec: string) =>
  withQuery(execPath(sandbox, exec, "output"), { stream: "both" });

const decoder = new TextDecoder();

/** The text of an entry; bytes that are not UTF-8 become replacement characters. */
export function entryText(entry: ExecEntry): string {
  if (entry.text) return entry.text;
  if (!entry.base64) return "";
  return decoder.decode(Uint8Array.from(atob(entry.base64), (character) => character.charCodeAt(0)));
}
