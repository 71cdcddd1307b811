import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { plainLine } from "../lib/plain";
import { places } from "../Side";
import { go } from "../state/route";
import { sandboxes } from "../state/sandboxes";
import { nextTheme } from "../state/theme";

const isOpen = signal(false);
const MAX_FOUND = 12;

type Command = { label: string; note: string; run: () => void };

function commands(): Command[] {
  return [
    ...places().map((place) => ({ label: place.label, note: "page", run: () => go(place.page) })),
    { label: "Change colours", note: "light, dark, system", run: nextTheme },
    ...[...sandboxes.value.values()].map((sandbox) => ({
      label: plainLine(sandbox.name),
      note: `${sandbox.state} · ${plainLine(sandbox.image)}`,
      run: () => go("sandboxes", sandbox.id),
    })),
  ];
}

/** Whether keys typed now belong to something else. */
function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    target.closest("input, textarea, select, dialog, .terminal-host, .editor-host") !== null
  );
}

/** Ctrl+K or Cmd+K: goes to a page or a sandbox by name. `/` moves to the search box. */
export function Palette() {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (
        (event.ctrlKey || event.metaKey) &&
        event.key === "k" &&
        !(event.target as HTMLElement).closest(".terminal-host")
      ) {
        event.preventDefault();
        isOpen.value = !isOpen.value;
      } else if (event.key === "/" && !isTyping(event.target)) {
        event.preventDefault();
        document.querySelector<HTMLInputElement>("main input[type=search]")?.focus();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return isOpen.value ? <PaletteDialog close={() => (isOpen.value = false)} /> : null;
}

function PaletteDialog({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  // As in Dialog.tsx.
  useLayoutEffect(() => {
    const element = dialog.current;
    const opener = document.activeElement;
    element?.showModal();
    return () => {
      element?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  useLayoutEffect(() => {
    dialog.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [at]);
  const wanted = text.toLowerCase();
  const found = commands()
    .filter((command) => command.label.toLowerCase().includes(wanted))
    .slice(0, MAX_FOUND);
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.run();
  };
  const press = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setAt((at + step + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[at]);
    }
  };
  return (
    <dialog
      ref={dialog}
      class="palette"
      aria-label="Go to"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => event.target === dialog.current && close()}
    >
      <input
        class="palette-input"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`palette-${at}`}
        aria-label="Go to a page or a sandbox"
        placeholder="Go to a page or a sandbox"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={press}
      />
      <div id="palette-list" role="listbox" aria-label="Places" class="palette-list">
        {found.map((command, index) => (
          <div
            key={`${command.label} ${index}`}
            id={`palette-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === at}
            class="palette-item"
            onClick={() => run(command)}
          >
            <bdi dir="ltr">{command.label}</bdi>
            <span class="faint small">{command.note}</span>
          </div>
        ))}
      </div>
    </dialog>
  );
}
