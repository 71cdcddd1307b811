import { useEffect, useState } from "preact/hooks";
import { listDirectory } from "../../../api/files";
import type { FileEntry } from "../../../api/types";
import { Icon } from "../../../components/Icon";
import { Name } from "../../../components/Name";
import { baseName, steps } from "../../../lib/paths";
import { fileAddress } from "./Files";

type Props = { sandbox: string; path: string; version: number };
type Node = { entry: FileEntry; depth: number; isOpen: boolean };

const MAX_NODES = 3000;

/** Directories before files, each by name. */
export function ordered(entries: FileEntry[]): FileEntry[] {
  const rank = (entry: FileEntry) => (entry.kind === "directory" ? 0 : 1);
  return [...entries].sort((a, b) => rank(a) - rank(b) || (a.path < b.path ? -1 : 1));
}

/** Directories and files as a tree. Directories are read when they are opened. */
export function Tree({ sandbox, path, version }: Props) {
  const [listings, setListings] = useState<ReadonlyMap<string, FileEntry[]>>(new Map());
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set(["/"]));

  const read = (directory: string) =>
    listDirectory(sandbox, directory).then(
      (list) => setListings((old) => new Map(old).set(directory, ordered(list.entries))),
      () => setListings((old) => new Map(old).set(directory, [])),
    );
  useEffect(() => {
    const way = steps(path);
    setOpen((old) => new Set([...old, ...way.slice(0, -1)]));
    for (const directory of way.slice(0, -1)) void read(directory);
    if (open.has(path)) void read(path);
  }, [sandbox, path]);
  useEffect(() => {
    if (version > 0) for (const directory of open) void read(directory);
  }, [version]);

  const toggle = (directory: string) => {
    const next = new Set(open);
    if (!next.delete(directory)) {
      next.add(directory);
      if (!listings.has(directory)) void read(directory);
    }
    setOpen(next);
  };

  const nodes: Node[] = [];
  const add = (directory: string, depth: number) => {
    for (const entry of listings.get(directory) ?? []) {
      if (nodes.length >= MAX_NODES) return;
      const isOpen = entry.kind === "directory" && open.has(entry.path);
      nodes.push({ entry, depth, isOpen });
      if (isOpen) add(entry.path, depth + 1);
    }
  };
  add("/", 0);

  return (
    <nav class="tree" aria-label="Files">
      <ul role="tree" aria-label="Files" onKeyDown={moveFocus}>
        {nodes.map(({ entry, depth, isOpen }) => (
          <li
            key={entry.path}
            role="treeitem"
            aria-level={depth + 1}
            aria-selected={entry.path === path}
            aria-expanded={entry.kind === "directory" ? isOpen : undefined}
            tabIndex={entry.path === path ? 0 : -1}
            class="tree-item"
            style={{ paddingLeft: `${8 + depth * 14}px` }}
            data-path={entry.path}
            onClick={() => {
              if (entry.kind === "directory") toggle(entry.path);
              location.hash = fileAddress(sandbox, entry.path);
            }}
          >
            <Icon name={entry.kind === "directory" ? "folder" : entry.kind === "symlink" ? "link" : "file"} />
            <Name text={baseName(entry.path)} />
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** Arrow keys walk through the tree; right and left open and close a directory. */
function moveFocus(event: KeyboardEvent & { currentTarget: HTMLElement }): void {
  const items = [...event.currentTarget.querySelectorAll<HTMLElement>("[role=treeitem]")];
  const at = items.indexOf(document.activeElement as HTMLElement);
  const item = items[at];
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  if (step) items[Math.min(items.length - 1, Math.max(0, at + step))]?.focus();
  else if (event.key === "Enter" || event.key === " ") item?.click();
  else if (event.key === "ArrowRight" && item?.ariaExpanded === "false") item.click();
  else if (event.key === "ArrowLeft" && item?.ariaExpanded === "true") item.click();
  else return;
  event.preventDefault();
}
