import { signal } from "@preact/signals";
import { isGone } from "../api/errors";
import { dismiss, say, sayError } from "./toasts";

/** How long something can be taken back before it happens. */
export const UNDO_MS = 7_000;

/** Ids of what is about to be removed: pages leave them out. */
export const leaving = signal<ReadonlySet<string>>(new Set());

function mark(ids: readonly string[], isLeaving: boolean): void {
  const next = new Set(leaving.value);
  for (const id of ids) {
    if (isLeaving) next.add(id);
    else next.delete(id);
  }
  leaving.value = next;
}

/**
 * Removes things after a pause in which it can be undone. A page that is closed in between removes nothing.
 */
export function removeLater(text: string, ids: readonly string[], remove: () => Promise<unknown>): void {
  mark(ids, true);
  const timer = setTimeout(() => {
    dismiss(toast);
    remove()
      .catch((error: unknown) => {
        // Somebody else removed it meanwhile.
        if (!isGone(error)) sayError("Not removed", error);
      })
      .finally(() => mark(ids, false));
  }, UNDO_MS);
  const undo = () => {
    clearTimeout(timer);
    mark(ids, false);
    dismiss(toast);
  };
  const toast = say(text, { action: { label: "Undo", run: undo }, forMs: UNDO_MS });
}
