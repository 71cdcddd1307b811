import { useEffect, useMemo, useState } from "preact/hooks";
import { entries, entryText } from "../../api/execs";
import type { Exec, Sandbox } from "../../api/types";
import { Empty } from "../../components/Notice";
import { SearchInput } from "../../components/SearchInput";
import { Segments } from "../../components/Segments";
import { VirtualRows } from "../../components/VirtualRows";
import { clockTime, commandLine, plural } from "../../lib/format";
import { plainLine, plainText } from "../../lib/plain";
import { useExecs } from "../../lib/useExecs";

type Line = { key: string; atMs: number; stream: "stdout" | "stderr"; text: string; from: string };
type Stream = "all" | "stdout" | "stderr";

/** Execs read, entries of each, and lines kept. */
const MAX_EXECS = 40;
const TAIL_ENTRIES = 200;
const MAX_LINES = 20_000;
const MAX_FOLLOWED = 2;
const LINE_HEIGHT = 22;

/** The output of the latest execs as lines, with search. Those that run are followed. */
export function Logs({ sandbox }: { sandbox: Sandbox }) {
  const { execs } = useExecs(sandbox.id);
  const [lines, setLines] = useState<Line[]>([]);
  const [text, setText] = useState("");
  const [stream, setStream] = useState<Stream>("all");
  // Terminals echo every key; they have a page of their own.
  const latest = execs.filter((exec) => !exec.terminal).slice(-MAX_EXECS);
  const running = latest.filter((exec) => exec.state !== "done").slice(-MAX_FOLLOWED);

  const isRead = useMemo(() => new Set<string>(), [sandbox.id]);
  useEffect(() => {
    const add = (more: Line[]) =>
      setLines((old) => [...old, ...more].sort((a, b) => a.atMs - b.atMs).slice(-MAX_LINES));
    for (const exec of latest) {
      if (isRead.has(exec.id) || (exec.state !== "done" && !running.includes(exec))) continue;
      isRead.add(exec.id);
      void readLines(exec, add, new AbortController().signal).catch(() => isRead.delete(exec.id));
    }
  }, [latest.map((exec) => exec.id).join(" "), running.length]);

  const wanted = text.toLowerCase();
  const shown = lines.filter(
    (line) => (stream === "all" || line.stream === stream) && (!wanted || line.text.toLowerCase().includes(wanted)),
  );
  return (
    <div class="fill logs">
      <div class="row logs-bar">
        <SearchInput label="Search the output" value={text} onInput={setText} />
        <Segments
          label="Stream"
          value={stream}
          options={[
            { value: "all", label: "All" },
            { value: "stdout", label: "Output" },
            { value: "stderr", label: "Errors" },
          ]}
          onChange={setStream}
        />
        <span class="faint small">
          {plural(shown.length, "line")} of the last {plural(latest.length, "command")}
        </span>
      </div>
      {shown.length === 0 ? (
        <Empty title={lines.length ? "No line matches" : "No output yet"} />
      ) : (
        <VirtualRows
          label="Log"
          rows={shown}
          rowHeight={LINE_HEIGHT}
          keyOf={(line) => line.key}
          render={(line) => (
            <div class={`log-line mono ${line.stream}`}>
              <span role="cell" class="faint number">
                {clockTime(line.atMs)}
              </span>
              <span role="cell" class="faint cut log-from" title={line.from}>
                {line.from}
              </span>
              <span role="cell" class="log-text">
                <Marked text={line.text} wanted={wanted} />
              </span>
            </div>
          )}
        />
      )}
    </div>
  );
}

function Marked({ text, wanted }: { text: string; wanted: string }) {
  const at = wanted ? text.toLowerCase().indexOf(wanted) : -1;
  if (at < 0) return <>{text}</>;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + wanted.length)}</mark>
      {text.slice(at + wanted.length)}
    </>
  );
}

const MAX_LINE = 2000;
const BATCH_MS = 100;

async function readLines(exec: Exec, add: (lines: Line[]) => void, signal: AbortSignal): Promise<void> {
  const from = plainLine(exec.cell ? exec.cell.language : commandLine(exec.command)).slice(0, 80);
  let batch: Line[] = [];
  let last = performance.now();
  const flush = () => {
    if (batch.length) add(batch.slice(-MAX_LINES));
    batch = [];
    last = performance.now();
  };
  const first = Math.max(1, exec.lastEntry - TAIL_ENTRIES);
  for await (const entry of entries(exec.sandbox, exec.id, first, exec.state !== "done", signal)) {
    if (entry.kind !== "stdout" && entry.kind !== "stderr") continue;
    const parts = plainText(entryText(entry)).split("\n");
    if (parts.at(-1) === "") parts.pop();
    for (const [index, part] of parts.entries()) {
      batch.push({
        key: `${exec.id} ${entry.number} ${index}`,
        atMs: entry.atMs,
        stream: entry.kind,
        text: part.slice(0, MAX_LINE),
        from,
      });
    }
    if (performance.now() - last > BATCH_MS || exec.state !== "done") flush();
  }
  flush();
}
