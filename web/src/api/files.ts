import { get, path, request, send, withQuery } from "./client";
import { jsonLines } from "./lines";
import { takePlace } from "./places";
import type { Diff, FileEntry, FileList } from "./types";

const filesPath = (sandbox: string, what: string) => path("sandboxes", sandbox, "files", what);

export const listDirectory = (sandbox: string, directory: string) =>
  get<FileList>(filesPath(sandbox, "list"), { path: directory, limit: 1000 });

export const stat = (sandbox: string, file: string) =>
  get<FileEntry>(filesPath(sandbox, "stat"), { path: file, follow: true });

/** Reads at most `length` bytes of a file. */
export async function readFile(
  sandbox: string,
  file: string,
  length: number,
  signal: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  const query = { path: file, length };
  const response = await request("GET", filesPath(sandbox, "content"), { query, accept: "*/*", signal });
  return new Uint8Array(await response.arrayBuffer());
}

type WriteMode = "replace" | "createNew";

export const writeFile = (sandbox: string, file: string, content: BodyInit, write: WriteMode = "replace") =>
  request("PUT", filesPath(sandbox, "content"), { query: { path: file, parents: true, write }, raw: content });

export const removeFile = (sandbox: string, file: string) =>
  send("POST", filesPath(sandbox, "remove"), { path: file, recursive: true });

export const renameFile = (sandbox: string, from: string, to: string) =>
  send("POST", filesPath(sandbox, "rename"), { from, to });

export const makeDirectory = (sandbox: string, directory: string) =>
  send("POST", filesPath(sandbox, "mkdir"), { path: directory, parents: true });

/** Yields something whenever the directory changes. */
export async function* watchDirectory(sandbox: string, directory: string, signal: AbortSignal) {
  const leave = await takePlace(signal);
  try {
    const query = { path: directory };
    yield* jsonLines<{ kind: string; path: string }>("GET", filesPath(sandbox, "watch"), { query, signal });
  } finally {
    leave();
  }
}

export const readDiff = (sandbox: string, since: string | null) =>
  get<Diff>(path("sandboxes", sandbox, "diff"), { since, patch: true, limit: 2000, maxBytes: 512 * 1024 });

export const archiveAddress = (sandbox: string, file: string) =>
  `${filesPath(sandbox, "archive")}?path=${encodeURIComponent(file)}`;

export const contentAddress = (sandbox: string, file: string) => withQuery(filesPath(sandbox, "content"), { path: file });
