import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { colour } from "../../state/theme";
import "./StyleElement";

/** Lines kept above the screen. */
const SCROLLBACK_LINES = 5_000;
const MAX_TITLE = 60;

export type Screen = {
  write: (bytes: Uint8Array) => void;
  paint: () => void;
  focus: () => void;
  remove: () => void;
  size: () => { cols: number; rows: number };
};

export type ScreenOptions = {
  onData: (text: string) => void;
  onBinary: (text: string) => void;
  onResize: (cols: number, rows: number) => void;
  /** A program named itself; only the terminal's own tab shows it. */
  onTitle: (title: string) => void;
  isReadOnly: boolean;
  forScreenReader: boolean;
};

function colours() {
  return {
    background: colour("--sunken"),
    foreground: colour("--text"),
    cursor: colour("--accent"),
    selectionBackground: colour("--line-strong"),
  };
}

/** Puts a terminal into an element and keeps it as large as that. */
export function makeScreen(host: HTMLElement, options: ScreenOptions): Screen {
  const terminal = new Terminal({
    scrollback: SCROLLBACK_LINES,
    fontFamily: '"JetBrains Mono Variable", ui-monospace, monospace',
    fontSize: 13,
    lineHeight: 1.2,
    cursorBlink: true,
    disableStdin: options.isReadOnly,
    screenReaderMode: options.forScreenReader,
    minimumContrastRatio: 4.5,
    theme: colours(),
    // Addresses that programs attach to text stay text.
    linkHandler: { activate: () => {} },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  // OSC 52 would let a program set the clipboard.
  terminal.parser.registerOscHandler(52, () => true);
  terminal.onData(options.onData);
  terminal.onBinary(options.onBinary);
  terminal.onResize(({ cols, rows }) => options.onResize(cols, rows));
  terminal.onTitleChange((title) => options.onTitle(title.slice(0, MAX_TITLE)));
  terminal.open(host);
  fit.fit();
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(host);
  return {
    write: (bytes) => terminal.write(bytes),
    paint: () => {
      terminal.options.theme = colours();
    },
    focus: () => terminal.focus(),
    size: () => ({ cols: terminal.cols, rows: terminal.rows }),
    remove: () => {
      observer.disconnect();
      terminal.dispose();
    },
  };
}
