import { signal } from "@preact/signals";
import type { Sandbox } from "../api/types";

/** Every sandbox that the caller sees, by id, as the stream told it last. */
export const sandboxes = signal<ReadonlyMap<string, Sandbox>>(new Map());

/** False until the stream has told all sandboxes once. */
export const sandboxesKnown = signal(false);

/** Changes since the last frame; a thousand of them cost one rendering. */
let changes = new Map<string, Sandbox | null>();
let frame: number | null = null;
/** While a stream begins, all sandboxes are collected here, and replace the old ones at once. */
let collected: Map<string, Sandbox> | null = null;

function flush(): void {
  frame = null;
  const next = new Map(sandboxes.value);
  for (const [id, sandbox] of changes) {
    if (sandbox) next.set(id, sandbox);
    else next.delete(id);
  }
  changes = new Map();
  sandboxes.value = next;
}

function change(id: string, sandbox: Sandbox | null): void {
  if (collected) {
    if (sandbox) collected.set(id, sandbox);
    else collected.delete(id);
    return;
  }
  changes.set(id, sandbox);
  frame ??= requestAnimationFrame(flush);
}

export const beginCollecting = () => {
  collected = new Map();
};

export function endCollecting(): void {
  if (!collected) return;
  changes = new Map();
  sandboxes.value = collected;
  collected = null;
  sandboxesKnown.value = true;
}

export const putSandbox = (sandbox: Sandbox) => change(sandbox.id, sandbox);
export const dropSandbox = (id: string) => change(id, null);

/** Finds a sandbox by id or by name, where a namespace is known in that. */
export function findSandbox(which: string, namespace: string | null = null): Sandbox | undefined {
  const byId = sandboxes.value.get(which);
  if (byId) return byId;
  for (const sandbox of sandboxes.value.values()) {
    if (sandbox.name === which && (namespace === null || sandbox.namespace === namespace)) return sandbox;
  }
  return undefined;
}
