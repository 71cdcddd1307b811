import { runAgain, signalExec } from "../../../api/execs";
import type { Exec } from "../../../api/types";
import { Button } from "../../../components/Button";
import { ExecOutput } from "../../../components/exec/ExecOutput";
import { Icon } from "../../../components/Icon";
import { ErrorNotice } from "../../../components/Notice";
import { clockTime, commandLine, dateTime, duration } from "../../../lib/format";
import { outcomeOf } from "../../../lib/outcome";
import { plainLine, plainText } from "../../../lib/plain";
import { useTold } from "../../../lib/useTold";
import { now } from "../../../state/clock";
import { go } from "../../../state/route";
import { attempt } from "../../../state/toasts";

const SIGKILL = 9;
const SIGINT = 2;
const MAX_LINE = 300;

type Props = { exec: Exec; isOpen: boolean; onToggle: () => void; canRun: boolean };

/** One exec in the timeline; opened, it shows its output while it runs. */
export function ExecRow({ exec, isOpen, onToggle, canRun }: Props) {
  const isRunning = exec.state !== "done";
  const outcome = outcomeOf(exec);
  return (
    <li class="exec">
      <div class="exec-line">
        <button type="button" class="exec-toggle" aria-expanded={isOpen} onClick={onToggle}>
          <Icon name={isOpen ? "down" : "right"} />
          <span class={`dot ${outcome.dot}`} />
          <span class="exec-what">
            {exec.cell && <span class="badge accent">{plainLine(exec.cell.language)}</span>}
            <code class="cut">{plainLine(titleOf(exec)).slice(0, MAX_LINE)}</code>
          </span>
          <span class={`exec-outcome ${outcome.tone}`}>{outcome.words}</span>
          <span class="exec-time faint number">
            {isRunning ? <Running since={exec.startedAt ?? exec.createdAt} /> : duration(exec.durationMs)}
          </span>
          <span class="exec-who faint cut" title={exec.askedBy ? `Asked by ${plainLine(exec.askedBy)}` : undefined}>
            {exec.askedBy ? plainLine(exec.askedBy) : ""}
          </span>
          <time class="exec-at faint number" title={dateTime(exec.createdAt)}>
            {clockTime(exec.createdAt)}
          </time>
        </button>
        <span class="row tight nowrap exec-actions">
          {canRun && isRunning && (
            <>
              <Button
                small
                onClick={() => void attempt("Not interrupted", () => signalExec(exec.sandbox, exec.id, SIGINT))}
              >
                Interrupt
              </Button>
              <Button
                small
                kind="danger"
                onClick={() => void attempt("Not killed", () => signalExec(exec.sandbox, exec.id, SIGKILL))}
              >
                Kill
              </Button>
            </>
          )}
          {canRun && !isRunning && (
            <Button
              small
              icon="refresh"
              kind="quiet"
              label="Run again"
              onClick={() => void attempt("Not started", () => again(exec))}
            />
          )}
        </span>
      </div>
      {isOpen && <Opened exec={exec} />}
    </li>
  );
}

function titleOf(exec: Exec): string {
  return exec.cell ? exec.command.slice(1).join(" ") : commandLine(exec.command);
}

function Running({ since }: { since: string }) {
  return <>{duration(Math.max(0, now.value - Date.parse(since)))}</>;
}

function Opened({ exec }: { exec: Exec }) {
  const { told, isReading, error } = useTold(exec);
  return (
    <div class="exec-body stack">
      {told.code !== null && (
        <pre class="output code" tabIndex={0} aria-label="Code">
          {plainText(told.code)}
        </pre>
      )}
      <ExecOutput exec={exec} told={told} isReading={isReading} />
      {error !== null && <ErrorNotice error={error} />}
    </div>
  );
}

/** Starts the same; a terminal is shown where terminals are. */
async function again(exec: Exec): Promise<void> {
  const started = await runAgain(exec);
  if (started.terminal) go("sandboxes", exec.sandbox, "terminal");
}
