import { useEffect, useRef, useState } from "preact/hooks";
import type { Exec } from "../../api/types";
import { canChange } from "../../state/session";
import { paint } from "../../state/theme";
import { TerminalConnection, type TerminalState } from "./connection";
import type { Screen } from "./screen";

/** Entries of an older terminal that are shown again. */
const TAIL_ENTRIES = 2_000;

const WORDS: Record<TerminalState, string> = {
  connecting: "Connecting…",
  open: "Ctrl+Shift+↑ leaves the terminal by key.",
  lost: "The connection is lost. It is made again, and nothing is lost from the output.",
  ended: "The program has ended.",
};

type Props = {
  exec: Exec;
  isShown: boolean;
  forScreenReader: boolean;
  onTitle: (title: string) => void;
  /** Shows what others do, in the size that they see it. */
  isWatching?: boolean;
};

/** One terminal of a sandbox. It keeps running when the page is left. */
export function TerminalView({ exec, isShown, forScreenReader, onTitle, isWatching }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const screen = useRef<Screen | null>(null);
  const [state, setState] = useState<TerminalState>("connecting");
  const painted = paint.value;
  const isReadOnly = isWatching || !canChange.value;
  const size = isReadOnly ? (exec.terminalSize ?? null) : null;

  useEffect(() => {
    let isGone = false;
    let connection: TerminalConnection | null = null;
    void import("./screen").then(({ makeScreen }) => {
      if (isGone || !host.current) return;
      const made = makeScreen(host.current, {
        onData: (text) => connection?.send(text),
        onBinary: (text) => connection?.sendBytes(text),
        onResize: (cols, rows) => !isReadOnly && connection?.resize(cols, rows),
        onTitle,
        onLeave: () => leave(host.current),
        isReadOnly,
        forScreenReader,
        size,
      });
      screen.current = made;
      const from = Math.max(1, exec.lastEntry - TAIL_ENTRIES);
      connection = new TerminalConnection(exec.sandbox, exec.id, from, { onOutput: made.write, onState: setState });
      if (isReadOnly) return;
      const { cols, rows } = made.size();
      connection.resize(cols, rows);
      if (isShown) made.focus();
    });
    return () => {
      isGone = true;
      connection?.close();
      screen.current?.remove();
      screen.current = null;
    };
  }, [exec.id, forScreenReader, isReadOnly]);

  useEffect(() => screen.current?.paint(), [painted]);
  useEffect(() => {
    if (isShown && !isReadOnly) screen.current?.focus();
  }, [isShown]);
  useEffect(() => {
    if (size) screen.current?.resize(size);
  }, [size?.cols, size?.rows]);

  return (
    <div class={`terminal-view ${isShown ? "" : "hidden"} ${isWatching ? "watched" : ""}`} aria-hidden={!isShown}>
      <div class="terminal-host" ref={host} />
      <p class={`terminal-state ${state === "lost" ? "warn" : "faint"}`} role="status">
        {isReadOnly && state === "open" ? "" : WORDS[state]}
      </p>
    </div>
  );
}

/** Moves the focus to the buttons above the terminal. */
function leave(host: HTMLElement | null): void {
  host?.closest(".terminals")?.querySelector<HTMLElement>(".terminal-tab.chosen button")?.focus();
}
