import { useState } from "preact/hooks";
import type { Call } from "../api/types";
import { Button } from "../components/Button";
import { Name } from "../components/Name";
import { Empty, ErrorNotice } from "../components/Notice";
import { SearchInput } from "../components/SearchInput";
import { Segments } from "../components/Segments";
import { VirtualRows } from "../components/VirtualRows";
import { clockTime, dateTime, duration, plural } from "../lib/format";
import { NARROW, useMedia, useTitle } from "../lib/hooks";
import { plainLine } from "../lib/plain";
import { type CallResult, useCallSearch } from "../lib/useCallSearch";
import { to } from "../state/route";
import { findSandbox } from "../state/sandboxes";

const ROW_HEIGHT = 36;

/** Calls that changed something or were refused, newest first, as they happen. */
export function Audit() {
  useTitle("Audit");
  const isNarrow = useMedia(NARROW);
  const [text, setText] = useState("");
  const [result, setResult] = useState<CallResult>("all");
  const { calls, older, error, isLoading, reload } = useCallSearch(text, result);
  const shown = calls.toReversed();
  return (
    <div class="fill">
      <header class="page-head">
        <h1>Audit</h1>
        <p class="about">Calls that changed something or were refused, by whom and how.</p>
      </header>
      <div class="list-bar">
        <SearchInput label="Search caller, action or sandbox" value={text} onInput={setText} />
        <Segments
          label="Result"
          value={result}
          options={[
            { value: "all", label: "All" },
            { value: "done", label: "Done" },
            { value: "refused", label: "Refused" },
          ]}
          onChange={setResult}
        />
        <span class="faint small audit-count" role="status">
          {plural(shown.length, "call")}
          {older && ", the latest"}
        </span>
        {older && (
          <Button small onClick={older}>
            Load older
          </Button>
        )}
      </div>
      {error !== null && <ErrorNotice error={error} retry={reload} />}
      {shown.length === 0 ? (
        !isLoading && <Empty title={text.trim() || result !== "all" ? "No call matches" : "No calls yet"} />
      ) : (
        <VirtualRows
          label="Calls"
          place="audit"
          rows={shown}
          rowHeight={ROW_HEIGHT}
          keyOf={(call) => String(call.number)}
          head={
            <div role="rowgroup" class="list-head-group">
              <div role="row" class="audit-grid list-head">
                <span role="columnheader">Time</span>
                <span role="columnheader">Who</span>
                <span role="columnheader">Action</span>
                <span role="columnheader">Sandbox</span>
                <span role="columnheader" class="audit-client">
                  Client
                </span>
                <span role="columnheader">Result</span>
              </div>
            </div>
          }
          render={(call) => <CallRow call={call} isNarrow={isNarrow} />}
        />
      )}
    </div>
  );
}

/** The sandbox that a call named, by its name and with the way to it while there is one. */
function SandboxOf({ call }: { call: Call }) {
  if (!call.sandbox) return <span class="faint">–</span>;
  const found = findSandbox(call.sandbox, call.namespace ?? null);
  if (!found) return <Name text={call.sandbox} />;
  return (
    <a href={to("sandboxes", found.id)}>
      <Name text={found.name} />
    </a>
  );
}

function CallRow({ call, isNarrow }: { call: Call; isNarrow: boolean }) {
  return (
    <div class="audit-grid list-row">
      <span role="cell" class="number soft cut">
        <time title={dateTime(call.at)}>{isNarrow ? clockTime(call.at) : dateTime(call.at)}</time>
      </span>
      <span role="cell" class="cut">
        <Name text={call.who ?? "–"} />
      </span>
      <span role="cell" class="cut mono">
        <Name text={call.action} mono />
      </span>
      <span role="cell" class="cut">
        <SandboxOf call={call} />
      </span>
      <span role="cell" class="cut faint audit-client" title={plainLine(call.client ?? "")}>
        {call.frontend} {plainLine(call.client ?? "")}
      </span>
      <span role="cell" class={`cut ${call.error ? "bad" : "faint"}`} title={plainLine(call.error ?? "")}>
        {call.error ? plainLine(call.error) : duration(call.durationMs)}
      </span>
    </div>
  );
}
