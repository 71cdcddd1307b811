import type { ComponentChildren, VNode } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

type Props<T> = {
  rows: readonly T[];
  rowHeight: number;
  keyOf: (row: T) => string;
  render: (row: T, index: number) => ComponentChildren;
  head?: ComponentChildren;
  label: string;
  /** Begins at the end, and stays there while rows come, unless somebody scrolled away from it. */
  followsEnd?: boolean;
  /** Under this name it is remembered how far the list is scrolled, for Back and a reload. */
  place?: string;
};

/** Rows beyond the visible part, above and below, so that scrolling shows no gaps. */
const SPARE_ROWS = 8;

/** A table of rows of one height, of which only those in sight exist in the page. */
export function VirtualRows<T>({ rows, rowHeight, keyOf, render, head, label, followsEnd, place }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const [range, setRange] = useState({ first: 0, last: 40 });

  const measure = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - SPARE_ROWS);
    const last = Math.ceil((element.scrollTop + element.clientHeight) / rowHeight) + SPARE_ROWS;
    setRange((old) => (old.first === first && old.last === last ? old : { first, last }));
  };

  const scrolled = () => {
    const element = box.current;
    if (element) {
      isAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
      if (place) sessionStorage.setItem(`warren.scroll.${place}`, String(element.scrollTop));
    }
    measure();
  };
  useLayoutEffect(() => {
    const kept = place ? Number(sessionStorage.getItem(`warren.scroll.${place}`)) : 0;
    if (!box.current || !kept) return;
    box.current.scrollTop = kept;
    measure();
  }, []);
  useFocusKept(box);
  useLayoutEffect(() => {
    if (!followsEnd || !isAtEnd.current || !box.current) return;
    box.current.scrollTop = box.current.scrollHeight;
    measure();
  }, [rows]);

  useEffect(() => {
    measure();
    const observer = new ResizeObserver(measure);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, [rowHeight, rows.length]);

  const shown = useDrawn(rows, rowHeight, keyOf, render, range.first, Math.min(range.last, rows.length));
  return (
    <div
      class="virtual"
      ref={box}
      onScroll={scrolled}
      role="table"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      tabIndex={0}
    >
      {head}
      <div role="rowgroup" class="virtual-space" style={{ height: `${rows.length * rowHeight}px` }}>
        <div
          class="virtual-shown"
          style={{ transform: `translateY(${Math.min(range.first, rows.length) * rowHeight}px)` }}
        >
          {shown}
        </div>
      </div>
    </div>
  );
}

/** When the row that somebody stands on goes away, the focus stays with the list, or with the page if that goes too. */
function useFocusKept(box: { readonly current: HTMLElement | null }): void {
  const wasInside = useRef(false);
  useLayoutEffect(() => {
    if (wasInside.current && document.activeElement === document.body) box.current?.focus();
    wasInside.current = box.current?.contains(document.activeElement) ?? false;
  });
  useLayoutEffect(() => {
    const element = box.current;
    const page = location.hash.split("?")[0];
    const enter = () => (wasInside.current = true);
    const leave = ({ target, relatedTarget }: FocusEvent) => {
      if (relatedTarget instanceof Node) wasInside.current = element?.contains(relatedTarget) ?? false;
      // What goes out of the page is still in it while the browser tells.
      else queueMicrotask(() => (wasInside.current &&= !(target instanceof Node && target.isConnected)));
    };
    element?.addEventListener("focusin", enter);
    element?.addEventListener("focusout", leave);
    return () => {
      element?.removeEventListener("focusin", enter);
      element?.removeEventListener("focusout", leave);
      if (wasInside.current && location.hash.split("?")[0] === page) document.getElementById("content")?.focus();
    };
  }, []);
}

/**
 * The rows from `first` to before `last`. A row that was in sight before is the same object as then, so scrolling draws
 * only those that come in.
 */
function useDrawn<T>(
  rows: readonly T[],
  rowHeight: number,
  keyOf: (row: T) => string,
  render: (row: T, index: number) => ComponentChildren,
  first: number,
  last: number,
): VNode[] {
  const held = useRef<{ rows: readonly T[]; render: unknown; rowHeight: number; drawn: Map<number, VNode> } | null>(
    null,
  );
  const isSame = held.current?.rows === rows && held.current.render === render && held.current.rowHeight === rowHeight;
  const before = isSame ? held.current?.drawn : undefined;
  const drawn = new Map<number, VNode>();
  for (let index = first; index < last; index += 1) {
    const row = rows[index];
    if (row === undefined) break;
    const known = before?.get(index);
    drawn.set(
      index,
      known ?? (
        <div
          key={keyOf(row)}
          class="virtual-row"
          role="row"
          aria-rowindex={index + 2}
          style={{ height: `${rowHeight}px` }}
        >
          {render(row, index)}
        </div>
      ),
    );
  }
  held.current = { rows, render, rowHeight, drawn };
  return [...drawn.values()];
}
