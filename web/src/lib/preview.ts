export type Preview =
  | { kind: "text"; text: string; isCut: boolean }
  | { kind: "picture"; blob: Blob }
  | { kind: "pdf"; bytes: Uint8Array<ArrayBuffer> }
  | { kind: "notebook"; cells: NotebookCell[] }
  | { kind: "html"; text: string; isCut: boolean }
  | { kind: "binary" };

export type NotebookCell = { type: string; source: string; outputs: Record<string, unknown>[]; text: string };

/** Most bytes of a text that are shown, and of a picture or document. */
export const MAX_TEXT_BYTES = 1024 * 1024;
export const MAX_PICTURE_BYTES = 32 * 1024 * 1024;

const PICTURES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  bmp: "image/bmp",
  ico: "image/x-icon",
  svg: "image/svg+xml",
};

export const extensionOf = (path: string): string => /\.([^./]+)$/.exec(path)?.[1]?.toLowerCase() ?? "";

/** How much of a file its preview needs. */
export function bytesWanted(path: string): number {
  const extension = extensionOf(path);
  return extension in PICTURES || extension === "pdf" || extension === "ipynb" ? MAX_PICTURE_BYTES : MAX_TEXT_BYTES;
}

/** Decides how a file is shown, by its name and its first bytes. The types are ours, never the file's own word. */
export function previewOf(path: string, bytes: Uint8Array<ArrayBuffer>, size: number): Preview {
  const extension = extensionOf(path);
  const picture = PICTURES[extension];
  if (picture && size <= MAX_PICTURE_BYTES) return { kind: "picture", blob: new Blob([bytes], { type: picture }) };
  if (extension === "pdf" && startsWith(bytes, "%PDF-") && size <= MAX_PICTURE_BYTES) return { kind: "pdf", bytes };
  if (bytes.subarray(0, 8192).includes(0)) return { kind: "binary" };
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: bytes.length >= size }).decode(bytes);
  } catch {
    return { kind: "binary" };
  }
  const isCut = size > bytes.length;
  if (extension === "ipynb" && !isCut) {
    const cells = readNotebook(text);
    if (cells) return { kind: "notebook", cells };
  }
  if (extension === "html" || extension === "htm") return { kind: "html", text, isCut };
  return { kind: "text", text: text.slice(0, MAX_TEXT_BYTES), isCut: isCut || text.length > MAX_TEXT_BYTES };
}

function startsWith(bytes: Uint8Array, text: string): boolean {
  return [...text].every((character, index) => bytes[index] === character.charCodeAt(0));
}

const MAX_CELLS = 200;

function readNotebook(text: string): NotebookCell[] | null {
  try {
    const document = JSON.parse(text) as { cells?: unknown };
    if (!Array.isArray(document.cells)) return null;
    return document.cells.slice(0, MAX_CELLS).map(readCell);
  } catch {
    return null;
  }
}

function joined(value: unknown): string {
  return Array.isArray(value) ? value.join("") : typeof value === "string" ? value : "";
}

function readCell(cell: { cell_type?: unknown; source?: unknown; outputs?: unknown }): NotebookCell {
  const outputs = Array.isArray(cell.outputs) ? (cell.outputs as Record<string, unknown>[]) : [];
  const bundles: Record<string, unknown>[] = [];
  let printed = "";
  for (const output of outputs) {
    printed += joined(output["text"]) + joined(output["traceback"]);
    const data = output["data"];
    if (typeof data === "object" && data !== null) {
      bundles.push(
        Object.fromEntries(
          Object.entries(data).map(([type, value]) => [type, type.endsWith("json") ? value : joined(value)]),
        ),
      );
    }
  }
  return { type: String(cell.cell_type), source: joined(cell.source), outputs: bundles, text: printed };
}
