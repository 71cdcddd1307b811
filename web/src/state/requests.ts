import { computed, signal } from "@preact/signals";
import type { NetworkRequest } from "../api/types";
import { plainLine } from "../lib/plain";
import { go, route } from "./route";
import { dismiss, isShown, say } from "./toasts";

/** Requests for more network that wait for an answer, by id, as the stream told them. */
export const pending = signal<ReadonlyMap<string, NetworkRequest>>(new Map());

/** Those that wait, oldest first. */
export const waiting = computed(() => [...pending.value.values()].sort((a, b) => (a.askedAt < b.askedAt ? -1 : 1)));

/** While a stream begins, all requests are collected here, and replace the old ones at once. */
let collected: Map<string, NetworkRequest> | null = null;

export const beginRequests = () => {
  collected = new Map();
};

export function endRequests(): void {
  if (collected) pending.value = collected;
  collected = null;
}

/** The one message that tells of requests, and those that it is about. */
let announced: { toast: number; ids: ReadonlySet<string> } | null = null;

/** Tells of a new request, except where all of them are in sight. Several make one message. */
function announce(request: NetworkRequest): void {
  if (route.peek().parts[0] === "requests") return;
  const before = announced;
  const ids = new Set([...(before && isShown(before.toast) ? before.ids : []), request.id]);
  if (before) dismiss(before.toast);
  const text =
    ids.size > 1
      ? `${ids.size} requests for more network wait for an answer.`
      : `${plainLine(request.name)} asks to reach ${request.rules.map(plainLine).join(", ")}.`;
  announced = { toast: say(text, { action: { label: "Look", run: look } }), ids };
}

function look(): void {
  if (announced) dismiss(announced.toast);
  go("requests");
}

/** An answered request needs no message. */
function answered(request: NetworkRequest): void {
  if (!announced?.ids.has(request.id)) return;
  const ids = new Set([...announced.ids].filter((id) => id !== request.id));
  if (ids.size === 0) dismiss(announced.toast);
  announced = { ...announced, ids };
}

export function putRequest(request: NetworkRequest): void {
  const next = collected ?? new Map(pending.value);
  const isNew = request.state === "pending" && !next.has(request.id);
  if (request.state === "pending") next.set(request.id, request);
  else next.delete(request.id);
  if (collected) return;
  pending.value = next;
  if (isNew && request.mayGrant) announce(request);
  if (request.state !== "pending") answered(request);
}

/** Requests go with their sandbox. */
export function dropRequestsOf(sandbox: string): void {
  const of = collected ?? pending.value;
  if (![...of.values()].some((request) => request.sandbox === sandbox)) return;
  const left = new Map([...of].filter(([, request]) => request.sandbox !== sandbox));
  if (collected) collected = left;
  else pending.value = left;
}
