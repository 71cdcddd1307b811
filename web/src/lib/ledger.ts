import { entryText } from "../api/execs";
import type { CellError, ExecEntry, ExecOutcome } from "../api/types";

/** Text kept of an exec's output; the daemon keeps all of it. */
const MAX_TEXT = 256 * 1024;
const MAX_OUTPUTS = 50;
const MAX_FILES = 200;

export type Chunk = { stream: "stdout" | "stderr" | "stdin"; text: string; atMs: number };
export type MimeBundle = Record<string, unknown>;
export type Shown = { kind: "result" | "display"; data: MimeBundle };
export type ChangedFile = { path: string; size: number; change: string };

/** What an exec's entries tell, as far as they were read. */
export type Told = {
  code: string | null;
  chunks: Chunk[];
  shown: Shown[];
  error: CellError | null;
  warnings: string[];
  files: ChangedFile[];
  outcome: ExecOutcome | null;
  /** Whether text before the first chunk was left out. */
  isCut: boolean;
};

export const NOTHING_TOLD: Told = {
  code: null,
  chunks: [],
  shown: [],
  error: null,
  warnings: [],
  files: [],
  outcome: null,
  isCut: false,
};

type RichRecord =
  | { type: "result" | "display"; data: MimeBundle }
  | ({ type: "error" } & CellError)
  | { type: "warning"; message: string }
  | { type: "files"; files: ChangedFile[] }
  | { type: "state" };

/** Folds entries of the ledger into what a person wants to see. */
export class LedgerReader {
  private told: Told;
  private size = 0;
  private richRest = "";

  constructor(
    private readonly isCell: boolean,
    startsLate: boolean,
  ) {
    this.told = { ...NOTHING_TOLD, isCut: startsLate };
  }

  take(entry: ExecEntry): void {
    const text = entryText(entry);
    switch (entry.kind) {
      case "stdin":
        if (this.isCell) this.told = { ...this.told, code: (this.told.code ?? "") + text };
        return;
      case "stdout":
      case "stderr":
        return this.addText({ stream: entry.kind, text, atMs: entry.atMs });
      case "rich":
        return this.addRich(text);
      case "exited":
        this.told = { ...this.told, outcome: (entry.data as { outcome?: ExecOutcome } | null)?.outcome ?? null };
        return;
      default:
        return;
    }
  }

  get value(): Told {
    return this.told;
  }

  private addText(chunk: Chunk): void {
    const text = chunk.text.length > MAX_TEXT ? chunk.text.slice(-MAX_TEXT) : chunk.text;
    const chunks = [...this.told.chunks, { ...chunk, text }];
    this.size += text.length;
    let isCut = this.told.isCut || text.length < chunk.text.length;
    while (this.size > MAX_TEXT && chunks.length > 1) {
      this.size -= chunks.shift()?.text.length ?? 0;
      isCut = true;
    }
    this.told = { ...this.told, chunks, isCut };
  }

  /** Records are lines of JSON, and one record may come in several entries. */
  private addRich(text: string): void {
    const lines = (this.richRest + text).split("\n");
    this.richRest = lines.pop() ?? "";
    for (const line of lines) {
      try {
        this.addRecord(JSON.parse(line) as RichRecord);
      } catch {
        // The workload wrote it: whatever is no record is left out.
      }
    }
  }

  private addRecord(record: RichRecord): void {
    const told = this.told;
    switch (record.type) {
      case "result":
      case "display":
        if (typeof record.data !== "object" || record.data === null || told.shown.length >= MAX_OUTPUTS) return;
        this.told = { ...told, shown: [...told.shown, { kind: record.type, data: record.data }] };
        return;
      case "error":
        this.told = {
          ...told,
          error: { name: String(record.name), value: String(record.value), traceback: String(record.traceback) },
        };
        return;
      case "warning":
        this.told = { ...told, warnings: [...told.warnings, String(record.message)] };
        return;
      case "files":
        if (Array.isArray(record.files)) this.told = { ...told, files: record.files.slice(0, MAX_FILES) };
        return;
      default:
        return;
    }
  }
}
