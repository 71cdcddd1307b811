import { get, path, send, withQuery } from "./client";
import { jsonLines } from "./lines";
import type { Exec, ExecEntry, ExecList, ExecResult } from "./types";

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

/** Yields an exec's ledger entries from a number on; with `follow`, until the exec ends. */
export function entries(sandbox: string, exec: string, from: number, follow: boolean, signal: AbortSignal) {
  return jsonLines<ExecEntry>("GET", execPath(sandbox, exec, "entries"), { query: { from, follow }, signal });
}

export const outputAddress = (sandbox: string, exec: string) =>
  withQuery(execPath(sandbox, exec, "output"), { stream: "both" });

const decoder = new TextDecoder();

/** The text of an entry; bytes that are not UTF-8 become replacement characters. */
export function entryText(entry: ExecEntry): string {
  if (entry.text) return entry.text;
  if (!entry.base64) return "";
  return decoder.decode(Uint8Array.from(atob(entry.base64), (character) => character.charCodeAt(0)));
}
