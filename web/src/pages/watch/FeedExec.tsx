import { useState } from "preact/hooks";
import type { Exec } from "../../api/types";
import { Button } from "../../components/Button";
import { ExecOutput } from "../../components/exec/ExecOutput";
import { Name } from "../../components/Name";
import { TerminalView } from "../../components/terminal/TerminalView";
import { clockTime, commandLine, duration } from "../../lib/format";
import { outcomeOf } from "../../lib/outcome";
import { plainLine, plainText } from "../../lib/plain";
import { useTold } from "../../lib/useTold";

const MAX_LINE = 400;

type Props = { exec: Exec; isNew: boolean; sandboxName: string | null; isShared: boolean };

/** A command or cell in the feed. The newest show their output while they run. */
export function FeedExec({ exec, isNew, sandboxName, isShared }: Props) {
  const [choice, setChoice] = useState<boolean | null>(null);
  const isOpen = choice ?? isNew;
  const outcome = outcomeOf(exec);
  return (
    <article class="panel feed-exec">
      <header class="feed-head">
        <span class={`dot ${outcome.dot}`} />
        <time class="faint number">{clockTime(exec.createdAt)}</time>
        {sandboxName && (
          <strong>
            <Name text={sandboxName} />
          </strong>
        )}
        {exec.cell ? <span class="badge accent">{plainLine(exec.cell.language)}</span> : null}
        <code class="cut">
          {plainLine(exec.cell ? exec.command.slice(1).join(" ") : commandLine(exec.command)).slice(0, MAX_LINE)}
        </code>
        {exec.askedBy && <span class="faint small cut feed-who">{plainLine(exec.askedBy)}</span>}
        <span class={`push small nowrap ${outcome.tone}`}>
          {outcome.words}
          {exec.state === "done" ? ` · ${duration(exec.durationMs)}` : ""}
        </span>
        <Button
          small
          kind="quiet"
          icon={isOpen ? "up" : "down"}
          label={isOpen ? "Hide the output" : "Show the output"}
          onClick={() => setChoice(!isOpen)}
        />
      </header>
      {isOpen && <Opened exec={exec} isShared={isShared} />}
    </article>
  );
}

function Opened({ exec, isShared }: { exec: Exec; isShared: boolean }) {
  if (exec.terminal) return <Terminal exec={exec} />;
  return <Output exec={exec} isShared={isShared} />;
}

/** What happens in a terminal, as whoever uses it sees it. */
function Terminal({ exec }: { exec: Exec }) {
  return (
    <div class="panel-body" role="region" aria-label="Terminal, only to look at" tabIndex={0}>
      <TerminalView exec={exec} isShown isWatching forScreenReader={false} onTitle={() => {}} />
    </div>
  );
}

function Output({ exec, isShared }: { exec: Exec; isShared: boolean }) {
  const { told, isReading } = useTold(exec);
  return (
    <div class="panel-body stack">
      {told.code !== null && (
        <pre class="output code" tabIndex={0} aria-label="Code">
          {plainText(told.code)}
        </pre>
      )}
      <ExecOutput exec={exec} told={told} isReading={isReading} filesAreLinks={!isShared} />
    </div>
  );
}
