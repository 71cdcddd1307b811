import { isGone } from "../api/errors";
import { act, remove, type SandboxAction } from "../api/sandboxes";
import type { Sandbox } from "../api/types";
import { plural } from "../lib/format";
import { plainLine } from "../lib/plain";
import { say, sayError } from "./toasts";
import { removeLater } from "./undo";

const DONE: Record<SandboxAction, string> = {
  start: "Started",
  stop: "Stopped",
  pause: "Paused",
  resume: "Resumed",
  restart: "Restarted",
  drain: "Drained",
};

/** What takes an action back, where something does. */
const REVERSE: Partial<Record<SandboxAction, { action: SandboxAction; label: string }>> = {
  stop: { action: "start", label: "Start again" },
  pause: { action: "resume", label: "Resume" },
  resume: { action: "pause", label: "Pause again" },
};

/** The states in which an action makes sense. */
export function allows(sandbox: Sandbox, action: SandboxAction): boolean {
  switch (action) {
    case "start":
      return sandbox.state === "stopped" || sandbox.state === "failed";
    case "resume":
      return sandbox.state === "paused";
    case "pause":
    case "restart":
    case "drain":
      return sandbox.state === "running";
    case "stop":
      return sandbox.state === "running" || sandbox.state === "paused";
  }
}

function named(sandboxes: readonly Sandbox[]): string {
  const [first] = sandboxes;
  return sandboxes.length === 1 && first ? plainLine(first.name) : plural(sandboxes.length, "sandbox", "sandboxes");
}

/** Acts on several sandboxes at once; says what was done, with the way back, and what failed. */
export async function actOn(sandboxes: readonly Sandbox[], action: SandboxAction): Promise<void> {
  const able = sandboxes.filter((sandbox) => allows(sandbox, action));
  if (able.length === 0) return;
  const results = await Promise.allSettled(able.map((sandbox) => act(sandbox.id, action)));
  const changed = able.filter((_, index) => results[index]?.status === "fulfilled");
  const failed = results.find((result) => result.status === "rejected");
  if (failed) sayError(`${plural(able.length - changed.length, "sandbox", "sandboxes")} not changed`, failed.reason);
  if (changed.length === 0) return;
  const reverse = REVERSE[action];
  say(`${DONE[action]} ${named(changed)}.`, {
    tone: "good",
    action: reverse ? { label: reverse.label, run: () => void reactOn(changed, reverse.action) } : null,
  });
}

/** The states on hand are older than the change, so the daemon decides. */
async function reactOn(sandboxes: readonly Sandbox[], action: SandboxAction): Promise<void> {
  for (const sandbox of sandboxes) {
    await act(sandbox.id, action).catch((error: unknown) => sayError(plainLine(sandbox.name), error));
  }
}

/** Somebody else removed it meanwhile. */
function unlessGone(error: unknown): void {
  if (!isGone(error)) throw error;
}

export function removeSandboxes(sandboxes: readonly Sandbox[]): void {
  const ids = sandboxes.map((sandbox) => sandbox.id);
  removeLater(`Removing ${named(sandboxes)} with all files.`, ids, async () => {
    const results = await Promise.allSettled(ids.map((id) => remove(id).catch(unlessGone)));
    const failed = results.find((result) => result.status === "rejected");
    if (failed) throw failed.reason;
  });
}
