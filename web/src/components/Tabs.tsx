import { useEffect, useRef } from "preact/hooks";

type Props = { label: string; current: string; tabs: { name: string; label: string; href: string }[] };

/** Links between the parts of a page; the current one stays in sight on a narrow screen. */
export function Tabs({ label, current, tabs }: Props) {
  const bar = useRef<HTMLElement>(null);
  useEffect(() => {
    const chosen = bar.current?.querySelector<HTMLElement>("[aria-current=page]");
    if (!bar.current || !chosen) return;
    bar.current.scrollLeft = chosen.offsetLeft - bar.current.offsetLeft - 40;
  }, [current]);
  return (
    <nav class="tabs" aria-label={label} ref={bar}>
      {tabs.map((tab) => (
        <a key={tab.name} href={tab.href} aria-current={tab.name === current ? "page" : undefined}>
          {tab.label}
        </a>
      ))}
    </nav>
  );
}
