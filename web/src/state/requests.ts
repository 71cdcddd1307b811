import { computed, signal } from "@preact/signals";
import type { NetworkRequest } from "../api/types";
import { plainLine } from "../lib/plain";
import { go } from "./route";
import { say } from "./toasts";

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

function announce(request: NetworkRequest): void {
  const text = `${plainLine(request.name)} asks to reach ${request.rules.map(plainLine).join(", ")}.`;
  say(text, { action: { label: "Look", run: () => go("requests") } });
}

export function putRequest(request: NetworkRequest): void {
  const next = collected ?? new Map(pending.value);
  const isNew = request.state === "pending" && !next.has(request.id);
  if (request.state === "pending") next.set(request.id, request);
  else next.delete(request.id);
  if (collected) return;
  pending.value = next;
  if (isNew && request.mayGrant) announce(request);
}

/** Requests go with their sandbox. */
export function dropRequestsOf(sandbox: string): void {
  const of = collected ?? pending.value;
  if (![...of.values()].some((request) => request.sandbox === sandbox)) return;
  const left = new Map([...of].filter(([, request]) => request.sandbox !== sandbox));
  if (collected) collected = left;
  else pending.value = left;
}
