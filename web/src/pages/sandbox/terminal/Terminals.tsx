import { useState } from "preact/hooks";
import { signalExec, startTerminal } from "../../../api/execs";
import type { Exec, Sandbox } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Check } from "../../../components/Check";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { TerminalView } from "../../../components/terminal/TerminalView";
import { plainLine } from "../../../lib/plain";
import { useExecs } from "../../../lib/useExecs";
import { canChange } from "../../../state/session";
import { attempt } from "../../../state/toasts";

/** A first size; the terminal tells its own as soon as it is on the screen. */
const FIRST_SIZE = { cols: 100, rows: 30 };
/** What a program is told when its terminal goes away. */
const SIGHUP = 1;
const SCREEN_READER = "warren.screen-reader";

/** The sandbox's terminals: those that run, from wherever they were opened, and those opened here. */
export function Terminals({ sandbox }: { sandbox: Sandbox }) {
  const { execs, error, isLoading, reload } = useExecs(sandbox.id);
  const [opened, setOpened] = useState<Exec[]>([]);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [chosen, setChosen] = useState<string | null>(null);
  const [titles, setTitles] = useState<Record<string, string>>({});
  const [forScreenReader, setForScreenReader] = useState(localStorage.getItem(SCREEN_READER) === "yes");

  const running = execs.filter((exec) => exec.terminal && exec.state !== "done");
  const all = [...new Map([...running, ...opened].map((exec) => [exec.id, exec])).values()].filter(
    (exec) => !hidden.has(exec.id),
  );
  const current = all.find((exec) => exec.id === chosen) ?? all.at(-1);
  // A terminal that ended stays until it is closed.
  for (const exec of running) if (!opened.some((one) => one.id === exec.id)) setOpened([...opened, exec]);

  const open = () =>
    attempt("No terminal", async () => {
      const shell = sandbox.shell ?? "bash";
      const command =
        shell === "bash" ? ["sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l"] : [shell];
      const exec = await startTerminal(sandbox.id, command, FIRST_SIZE);
      setOpened((old) => [...old, exec]);
      setChosen(exec.id);
    });
  const isRunning = (exec: Exec) => running.some((one) => one.id === exec.id);
  const hiddenCount = running.filter((exec) => hidden.has(exec.id)).length;
  const end = (exec: Exec) => attempt("Not ended", () => signalExec(sandbox.id, exec.id, SIGHUP));
  const canOpen = canChange.value && sandbox.state === "running";

  return (
    <div class="terminals">
      <div class="terminal-bar">
        <div class="row tight" role="group" aria-label="Terminals">
          {all.map((exec, index) => (
            <span key={exec.id} class={`terminal-tab ${exec.id === current?.id ? "chosen" : ""}`}>
              <button type="button" aria-pressed={exec.id === current?.id} onClick={() => setChosen(exec.id)}>
                {plainLine(titles[exec.id] ?? "") || `Terminal ${index + 1}`}
              </button>
              <Button
                kind="quiet"
                small
                icon="close"
                label={`Hide terminal ${index + 1}`}
                onClick={() => setHidden(new Set(hidden).add(exec.id))}
              />
            </span>
          ))}
        </div>
        {hiddenCount > 0 && (
          <Button small kind="quiet" onClick={() => setHidden(new Set())}>
            {`Show ${hiddenCount} hidden`}
          </Button>
        )}
        {canOpen && (
          <Button small icon="plus" onClick={() => void open()}>
            New terminal
          </Button>
        )}
        {canChange.value && current && isRunning(current) && (
          <Button small onClick={() => void end(current)}>
            End this one
          </Button>
        )}
        <span class="push small">
          <Check
            label="Screen reader"
            checked={forScreenReader}
            onChange={(isOn) => {
              localStorage.setItem(SCREEN_READER, isOn ? "yes" : "no");
              setForScreenReader(isOn);
            }}
          />
        </span>
      </div>
      {error !== null && <ErrorNotice error={error} retry={reload} />}
      {all.map((exec) => (
        <TerminalView
          key={exec.id}
          exec={exec}
          isShown={exec.id === current?.id}
          forScreenReader={forScreenReader}
          onTitle={(title) => setTitles((old) => ({ ...old, [exec.id]: title }))}
        />
      ))}
      {all.length === 0 && !isLoading && (
        <Empty title="No terminal is open">
          <p>
            {sandbox.state === "running"
              ? "A terminal keeps running when you leave this page, and shows everything when you come back."
              : `The sandbox is ${sandbox.state}. Terminals need it to run.`}
          </p>
          {canOpen && (
            <Button kind="primary" icon="terminal" onClick={() => void open()}>
              Open a terminal
            </Button>
          )}
        </Empty>
      )}
    </div>
  );
}
