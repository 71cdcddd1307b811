import type { Sandbox, Snapshot } from "../../../api/types";

/** A node of the tree of snapshots and the sandboxes that came from them. */
export type TreeNode =
  | { kind: "image"; name: string; children: TreeNode[] }
  /** A sandbox that was removed or replaced. */
  | { kind: "past"; name: string; children: TreeNode[] }
  | { kind: "snapshot"; snapshot: Snapshot; children: TreeNode[] }
  | { kind: "sandbox"; sandbox: Sandbox; children: TreeNode[] };

const MAX_DEPTH = 40;

function isSnapshot(one: Snapshot | Sandbox): one is Snapshot {
  return "treeDigest" in one;
}

/** Which sandbox a snapshot was taken of, by name. */
const pastOf = (snapshot: Snapshot) => `${snapshot.namespace}/${snapshot.sourceSandbox}`;

/**
 * The tree that a sandbox belongs to: from its image down, the snapshots that it took or came from, theirs, and the
 * sandboxes made from them. Branches that have nothing to do with it are left out.
 */
export function treeOf(sandbox: Sandbox, snapshots: readonly Snapshot[], sandboxes: readonly Sandbox[]): TreeNode {
  const byName = new Map(sandboxes.map((one) => [`${one.namespace}/${one.name}`, one]));
  const byKey = new Map(
    snapshots.flatMap((one) => [one.id, one.digest, ...(one.name ? [one.name] : [])].map((key) => [key, one] as const)),
  );
  const parentOf = (snapshot: Snapshot) => (snapshot.parent ? byKey.get(snapshot.parent) : undefined);

  /** A sandbox hangs below the newest snapshot that lists it as a user. */
  const origin = new Map<string, Snapshot>();
  for (const snapshot of snapshots) {
    for (const user of snapshot.usedBy) {
      const found = byName.get(`${snapshot.namespace}/${user.replace(/^sandbox /, "")}`);
      if (user.startsWith("sandbox ") && found) {
        const old = origin.get(found.id);
        if (!old || old.createdAt < snapshot.createdAt) origin.set(found.id, snapshot);
      }
    }
  }
  /** A snapshot hangs below the sandbox that it was taken of. One of that name that is younger is another sandbox. */
  const source = (snapshot: Snapshot) => {
    const found = byName.get(pastOf(snapshot));
    return found && found.createdAt <= snapshot.createdAt ? found : undefined;
  };
  const above = (snapshot: Snapshot) => source(snapshot) ?? parentOf(snapshot);

  const nodeOf = (snapshot: Snapshot, depth: number): TreeNode => ({
    kind: "snapshot",
    snapshot,
    children: children(snapshot, depth),
  });
  const children = (of: Snapshot | Sandbox, depth: number): TreeNode[] => {
    if (depth > MAX_DEPTH) return [];
    const taken = snapshots.filter((snapshot) => above(snapshot)?.id === of.id);
    const made = sandboxes.filter((one) => origin.get(one.id)?.id === of.id);
    return [
      ...taken.map((snapshot) => nodeOf(snapshot, depth + 1)),
      ...made.map((one): TreeNode => ({ kind: "sandbox", sandbox: one, children: children(one, depth + 1) })),
    ];
  };

  /** Goes up to where it all began. */
  let top: Sandbox | Snapshot = sandbox;
  for (let step = 0; step < MAX_DEPTH; step += 1) {
    const next: Sandbox | Snapshot | undefined = isSnapshot(top) ? above(top) : origin.get(top.id);
    if (!next) break;
    top = next;
  }
  return { kind: "image", name: sandbox.image, children: [rootOf(top)] };

  /** Of a sandbox that is gone its snapshots are left: those of one sandbox stay together. */
  function rootOf(top: Sandbox | Snapshot): TreeNode {
    if (!isSnapshot(top)) return { kind: "sandbox", sandbox: top, children: children(top, 0) };
    const past = pastOf(top);
    const together = snapshots.filter((one) => !above(one) && pastOf(one) === past);
    return { kind: "past", name: top.sourceSandbox, children: together.map((one) => nodeOf(one, 0)) };
  }
}
