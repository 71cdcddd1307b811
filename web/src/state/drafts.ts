import { sandboxes, sandboxesKnown } from "./sandboxes";
import { session } from "./session";

/** Text that somebody typed and did not save, and what it began from. */
export type Draft = { text: () => string; base: string };

/** By who typed, sandbox and path: an editor that is left gives its text back when one returns. */
const drafts = new Map<string, { sandbox: string; draft: Draft }>();

const keyOf = (sandbox: string, path: string) => `${session.peek()?.keyId ?? "owner"} ${sandbox} ${path}`;

export const draftOf = (sandbox: string, path: string): Draft | undefined => drafts.get(keyOf(sandbox, path))?.draft;

export function keepDraft(sandbox: string, path: string, draft: Draft): void {
  drafts.set(keyOf(sandbox, path), { sandbox, draft });
}

export function dropDraft(sandbox: string, path: string): void {
  drafts.delete(keyOf(sandbox, path));
}

export function moveDraft(sandbox: string, from: string, to: string): void {
  const draft = draftOf(sandbox, from);
  if (!draft) return;
  dropDraft(sandbox, from);
  keepDraft(sandbox, to, draft);
}

/** Of a sandbox that is gone there is nothing left to save. */
const isLost = (sandbox: string) => sandboxesKnown.value && !sandboxes.value.has(sandbox);

addEventListener("beforeunload", (event) => {
  if ([...drafts.values()].some(({ sandbox }) => !isLost(sandbox))) event.preventDefault();
});
