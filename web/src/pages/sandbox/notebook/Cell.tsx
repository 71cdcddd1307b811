import { signalExec } from "../../../api/execs";
import type { Exec } from "../../../api/types";
import { Button } from "../../../components/Button";
import { ExecOutput } from "../../../components/exec/ExecOutput";
import { duration } from "../../../lib/format";
import { outcomeOf } from "../../../lib/outcome";
import { plainLine, plainText } from "../../../lib/plain";
import { useTold } from "../../../lib/useTold";
import { attempt } from "../../../state/toasts";

const SIGINT = 2;

/** One cell: its code and what it showed. */
export function Cell({ exec, number }: { exec: Exec; number: number }) {
  const { told, isReading } = useTold(exec);
  const outcome = outcomeOf(exec);
  const isRunning = exec.state !== "done";
  return (
    <article class="cell" aria-label={`Cell ${number}`}>
      <div class="cell-number faint mono">
        [{number}]
        <span class={`dot ${outcome.dot}`} />
      </div>
      <div class="stack">
        <pre class="output code" tabIndex={0} aria-label={`Code of cell ${number}`}>
          {plainText(told.code ?? exec.command.slice(1).join(" "))}
        </pre>
        <ExecOutput exec={exec} told={told} isReading={isReading} />
        <p class="row small faint">
          <span class={outcome.tone}>{outcome.words}</span>
          {!isRunning && <span>{duration(exec.durationMs)}</span>}
          {exec.cell?.context && <span>{plainLine(exec.cell.context)}</span>}
          {isRunning && (
            <Button
              small
              onClick={() => void attempt("Not interrupted", () => signalExec(exec.sandbox, exec.id, SIGINT))}
            >
              Interrupt
            </Button>
          )}
        </p>
      </div>
    </article>
  );
}
