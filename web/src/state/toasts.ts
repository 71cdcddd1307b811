import { signal } from "@preact/signals";
import { wordsOf } from "../api/errors";

export type Toast = {
  id: number;
  tone: "plain" | "good" | "bad";
  text: string;
  action: { label: string; run: () => void } | null;
  /** When it goes away, for the bar that shows the time left. */
  forMs: number;
};

const SHOWN_MS = 6_000;
const ERROR_SHOWN_MS = 12_000;
const MAX_TOASTS = 5;

export const toasts = signal<Toast[]>([]);
let nextId = 1;

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export const isShown = (id: number) => toasts.value.some((toast) => toast.id === id);

/** Leaves room for one more. What can be taken back stays: the message is the only way. */
function latest(all: readonly Toast[]): Toast[] {
  const passing = all.filter((toast) => !toast.action);
  const surplus = new Set(passing.slice(0, Math.max(0, all.length + 1 - MAX_TOASTS)));
  return all.filter((toast) => !surplus.has(toast));
}

export function say(text: string, options: Partial<Omit<Toast, "id" | "text">> = {}): number {
  const toast: Toast = { id: nextId++, tone: "plain", action: null, forMs: SHOWN_MS, text, ...options };
  toasts.value = [...latest(toasts.value), toast];
  setTimeout(() => dismiss(toast.id), toast.forMs);
  return toast.id;
}

export function sayError(what: string, error: unknown): void {
  say(`${what}: ${wordsOf(error)}`, { tone: "bad", forMs: ERROR_SHOWN_MS });
}

/** Runs an action and says when it fails. */
export async function attempt(what: string, action: () => Promise<unknown>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    sayError(what, error);
    return false;
  }
}
