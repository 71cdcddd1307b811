import { useState } from "preact/hooks";
import { startCommand } from "../../../api/execs";
import type { Exec, Sandbox } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { SearchInput } from "../../../components/SearchInput";
import { commandLine, commandOf, plural } from "../../../lib/format";
import { useExecs } from "../../../lib/useExecs";
import { canChange } from "../../../state/session";
import { attempt } from "../../../state/toasts";
import { ExecRow } from "./ExecRow";

/** Rows drawn at first; older ones on request. */
const PAGE = 100;

/** Every exec and cell of the sandbox, newest first. */
export function Timeline({ sandbox }: { sandbox: Sandbox }) {
  const { execs, error, isLoading, reload } = useExecs(sandbox.id);
  const [open, setOpen] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [count, setCount] = useState(PAGE);
  const wanted = text.toLowerCase();
  const isFound = (exec: Exec) =>
    `${commandLine(exec.command)} ${exec.askedBy ?? ""}`.toLowerCase().includes(wanted);
  const found = execs.filter(isFound).reverse();
  return (
    <div class="page-body">
      <div class="row">
        <SearchInput label="Search commands" value={text} onInput={setText} />
        <span class="faint">{plural(found.length, "command")}</span>
      </div>
      {canChange.value && sandbox.state === "running" && <RunLine sandbox={sandbox} onStarted={setOpen} />}
      {error !== null && <ErrorNotice error={error} retry={reload} />}
      {found.length === 0 && !isLoading && (
        <Empty title={execs.length > 0 ? "No command matches" : "Nothing ran yet"}>
          <p>Commands and code that agents and people run in the sandbox appear here as they start.</p>
        </Empty>
      )}
      {found.length > 0 && (
        <ol class="timeline panel">
          {found.slice(0, count).map((exec) => (
            <ExecRow
              key={exec.id}
              exec={exec}
              isOpen={exec.id === open}
              onToggle={() => setOpen(exec.id === open ? null : exec.id)}
              canRun={canChange.value && sandbox.state === "running"}
            />
          ))}
        </ol>
      )}
      {found.length > count && <Button onClick={() => setCount(count + PAGE)}>Show older</Button>}
    </div>
  );
}

function RunLine({ sandbox, onStarted }: { sandbox: Sandbox; onStarted: (exec: string) => void }) {
  const [line, setLine] = useState("");
  const run = async (event: Event) => {
    event.preventDefault();
    if (!line.trim()) return;
    const start = async () => onStarted((await startCommand(sandbox.id, commandOf(line))).id);
    const isStarted = await attempt("Not started", start);
    // What was typed meanwhile stays.
    if (isStarted) setLine((now) => (now === line ? "" : now));
  };
  return (
    <form class="row nowrap" onSubmit={run}>
      <input
        class="input mono"
        aria-label="Command to run"
        placeholder="Run a command, such as ls -la"
        value={line}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => setLine(event.currentTarget.value)}
      />
      <Button kind="primary" icon="play" submit disabled={!line.trim()}>
        Run
      </Button>
    </form>
  );
}
