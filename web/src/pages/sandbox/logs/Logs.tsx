import { useState } from "preact/hooks";
import type { Exec, Sandbox } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { SearchInput } from "../../../components/SearchInput";
import { Segments } from "../../../components/Segments";
import { VirtualRows } from "../../../components/VirtualRows";
import { clockTime, plural } from "../../../lib/format";
import { plainText } from "../../../lib/plain";
import { useExecs } from "../../../lib/useExecs";
import { latestOf, type Line, sourceOf, useLogLines } from "./useLogLines";
import { type OutputSearch, type Stream, useOutputSearch } from "./useOutputSearch";

const LINE_HEIGHT = 22;

/** The output of the latest commands as it comes, and a search in all that is kept. */
export function Logs({ sandbox }: { sandbox: Sandbox }) {
  const { execs } = useExecs(sandbox.id);
  const lines = useLogLines(sandbox.id, execs);
  const [text, setText] = useState("");
  const [stream, setStream] = useState<Stream>("all");
  const search = useOutputSearch(sandbox.id, text, stream);

  const wanted = text.toLowerCase();
  const isWanted = (line: Line) =>
    (stream === "all" || line.stream === stream) && (!wanted || line.text.toLowerCase().includes(wanted));
  const live = lines.filter(isWanted);
  const shown = wanted ? withFound(search, execs, live) : live;
  const isWaiting = wanted !== "" && search.isSearching;
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
        <span class="faint small" role="status">
          {isWaiting
            ? "Searching…"
            : wanted
              ? `${plural(shown.length, "line")} of ${search.further ? "the output searched so far" : "all output"}`
              : `${plural(shown.length, "line")} of the last ${plural(latestOf(execs).length, "command")}`}
        </span>
        {search.further && (
          <Button small onClick={search.further}>
            Search further back
          </Button>
        )}
      </div>
      {search.error !== null && <ErrorNotice error={search.error} />}
      {shown.length === 0 ? (
        !isWaiting && <Empty title={wanted || lines.length ? "No line matches" : "No output yet"} />
      ) : (
        <VirtualRows
          label="Log"
          followsEnd
          rows={shown}
          rowHeight={LINE_HEIGHT}
          keyOf={(line) => line.key}
          render={(line) => <LogLine line={line} wanted={wanted} />}
        />
      )}
    </div>
  );
}

/** Tells whether a line that the page has is among those that the daemon found. */
function finder(found: readonly Line[]): (line: Line) => boolean {
  const texts = new Map<string, string[]>();
  for (const { exec, entry, text } of found) {
    // A line that came in parts is found in the entry in which it ends.
    for (const at of [entry - 1, entry]) {
      const key = `${exec} ${at}`;
      texts.set(key, [...(texts.get(key) ?? []), text]);
    }
  }
  // Of a long line, the part around the text is found.
  return (line) => {
    const near = texts.get(`${line.exec} ${line.entry}`) ?? [];
    return near.some((text) => text.includes(line.text) || line.text.includes(text));
  };
}

/** What the daemon found, and what it did not: what was printed since, and text with colours in it. */
function withFound(search: OutputSearch, execs: Exec[], live: Line[]): Line[] {
  const sources = new Map(execs.map((exec) => [exec.id, exec]));
  const found = search.lines.map((line, index): Line => {
    const exec = sources.get(line.exec);
    return {
      key: `found ${line.exec} ${line.entry} ${index}`,
      exec: line.exec,
      entry: line.entry,
      atMs: Date.parse(line.at),
      stream: line.stream === "stderr" ? "stderr" : "stdout",
      text: plainText(line.text).replaceAll("\n", " "),
      from: exec ? sourceOf(exec) : line.exec,
    };
  });
  const isFound = finder(found);
  const more = search.atMs > 0 ? live.filter((line) => !isFound(line)) : [];
  return [...found, ...more].sort((a, b) => a.atMs - b.atMs);
}

function LogLine({ line, wanted }: { line: Line; wanted: string }) {
  return (
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
