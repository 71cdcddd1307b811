import { path, request, send } from "../api/client";
import { plainLine } from "./plain";

function click(address: string, name: string): void {
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = plainLine(name);
  anchor.rel = "noreferrer";
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
}

const KEPT_MS = 60_000;

export function saveBlob(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  click(address, name);
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}

/** Downloads what a request answers. The session's header has to go along, so the answer passes through the page. */
export async function saveAnswer(address: string, name: string): Promise<void> {
  const response = await request("GET", address, { accept: "*/*" });
  saveBlob(new Blob([await response.arrayBuffer()], { type: "application/octet-stream" }), name);
}

/** Downloads a file of a sandbox through a signed link, of any size. */
export async function saveFile(sandbox: string, file: string): Promise<void> {
  const link = await send<{ url: string }>("POST", path("sandboxes", sandbox, "links"), {
    path: file,
    ttlSeconds: 300,
  });
  // The daemon may know itself by another address than the browser does; the path is the same.
  click(new URL(link.url).pathname, file.split("/").at(-1) ?? "file");
}
