import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "./Button";
import { Icon, type IconName } from "./Icon";

export type MenuItem = { label: string; icon: IconName; run: () => void; danger?: boolean };

type Props = { label: string; items: MenuItem[]; small?: boolean; text?: string };

/** A button with a list of actions, for mouse and arrow keys. */
export function Menu({ label, items, small, text }: Props) {
  const [isOpen, setOpen] = useState(false);
  const [isUpward, setUpward] = useState(false);
  const root = useRef<HTMLDivElement>(null);

  // Before the next key: a late focus would go to an item of a menu that is closed by then.
  useLayoutEffect(() => {
    if (!isOpen) return;
    root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const close = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, [isOpen]);

  const leave = () => {
    setOpen(false);
    root.current?.querySelector("button")?.focus();
  };
  const move = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      leave();
    }
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const all = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    all[(at + step + all.length) % all.length]?.focus();
  };
  const toggle = (event: MouseEvent) => {
    event.stopPropagation();
    const below = innerHeight - (root.current?.getBoundingClientRect().bottom ?? 0);
    setUpward(below < 40 + items.length * 32);
    setOpen(!isOpen);
  };

  return (
    <div class="menu" ref={root} onKeyDown={isOpen ? move : undefined}>
      <Button kind={text ? "plain" : "quiet"} small={small ?? false} icon="more" label={label} onClick={toggle}>
        {text}
      </Button>
      {isOpen && (
        <div class={`menu-list ${isUpward ? "upward" : ""}`} role="menu" aria-label={label}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              class={item.danger ? "danger" : undefined}
              onClick={(event) => {
                event.stopPropagation();
                leave();
                item.run();
              }}
            >
              <Icon name={item.icon} />
              {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
