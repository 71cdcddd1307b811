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
  size: () => Size;
  /** Draws it so large, however much room there is. */
  resize: (size: Size) => void;
};

export type Size = { cols: number; rows: number };

export type ScreenOptions = {
  onData: (text: string) => void;
  onBinary: (text: string) => void;
  onResize: (cols: number, rows: number) => void;
  /** A program named itself; only the terminal's own tab shows it. */
  onTitle: (title: string) => void;
  isReadOnly: boolean;
  forScreenReader: boolean;
  /** The keys that leave the terminal were pressed: Tab and Escape belong to the program in it. */
  onLeave: () => void;
  /** The size that others gave the terminal. Without it, the screen fills its place. */
  size: Size | null;
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
    cursorBlink: !options.isReadOnly,
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
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== "ArrowUp" || !event.ctrlKey || !event.shiftKey) return true;
    if (event.type === "keydown") options.onLeave();
    return false;
  });
  terminal.open(host);
  const observer = new ResizeObserver(() => fit.fit());
  if (options.size) {
    terminal.resize(options.size.cols, options.size.rows);
  } else {
    fit.fit();
    observer.observe(host);
  }
  return {
    write: (bytes) => terminal.write(bytes),
    paint: () => {
      terminal.options.theme = colours();
    },
    focus: () => terminal.focus(),
    size: () => ({ cols: terminal.cols, rows: terminal.rows }),
    resize: ({ cols, rows }) => terminal.resize(cols, rows),
    remove: () => {
      observer.disconnect();
      terminal.dispose();
    },
  };
}
