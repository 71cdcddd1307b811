import type { Sandbox, SandboxState } from "../../api/types";
import { makerName } from "../../state/keys";
import type { UsageSample } from "../../state/usage";

export type StateFilter = "all" | SandboxState;
const STATES: readonly StateFilter[] = ["all", "creating", "running", "paused", "stopping", "stopped", "failed"];
export type SortBy = "name" | "state" | "image" | "backend" | "cpu" | "memory" | "disk" | "age" | "expiry" | "maker";
export type Filter = { state: StateFilter; text: string; sort: SortBy; down: boolean };

export const EMPTY_FILTER: Filter = { state: "all", text: "", sort: "age", down: false };

/** A filter as the query of an address; what is as usual is left out. */
export function queryOf(filter: Filter): URLSearchParams {
  const query = new URLSearchParams();
  if (filter.text) query.set("q", filter.text);
  if (filter.state !== EMPTY_FILTER.state) query.set("state", filter.state);
  if (filter.sort !== EMPTY_FILTER.sort || filter.down) query.set("sort", `${filter.down ? "-" : ""}${filter.sort}`);
  return query;
}

/** Reads it back. Anyone can write an address: what is no filter is as usual. */
export function filterOf(query: URLSearchParams): Filter {
  const sort = (query.get("sort") ?? "").replace(/^-/, "");
  return {
    text: query.get("q") ?? "",
    state: STATES.find((state) => state === query.get("state")) ?? EMPTY_FILTER.state,
    sort: Object.hasOwn(VALUES, sort) ? (sort as SortBy) : EMPTY_FILTER.sort,
    down: (query.get("sort") ?? "").startsWith("-"),
  };
}

/** Every word must be found: in the name, id, image, namespace, maker or in a label (`key=value` or either half). */
export function matches(sandbox: Sandbox, text: string): boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const labels = Object.entries(sandbox.labels).map(([key, value]) => `${key}=${value}`);
  const maker = makerName(sandbox.owner);
  const all = [sandbox.name, sandbox.id, sandbox.image, sandbox.namespace, sandbox.backend ?? "", maker, ...labels];
  const haystack = all.join("\n").toLowerCase();
  return words.every((word) => haystack.includes(word.replace(/^label:/, "")));
}

type Last = (id: string) => UsageSample | undefined;

const VALUES: Record<SortBy, (sandbox: Sandbox, last: Last) => string | number> = {
  name: (sandbox) => sandbox.name,
  state: (sandbox) => sandbox.state,
  image: (sandbox) => sandbox.image,
  backend: (sandbox) => sandbox.backend ?? "",
  cpu: (sandbox, last) => last(sandbox.id)?.cpuPercent ?? -1,
  memory: (sandbox, last) => last(sandbox.id)?.memoryBytes ?? -1,
  disk: (sandbox, last) => last(sandbox.id)?.diskBytes ?? -1,
  age: (sandbox) => -Date.parse(sandbox.createdAt),
  expiry: (sandbox) => (sandbox.expiresAt ? Date.parse(sandbox.expiresAt) : Number.MAX_SAFE_INTEGER),
  maker: (sandbox) => makerName(sandbox.owner),
};

export function choose(
  sandboxes: Iterable<Sandbox>,
  filter: Filter,
  hidden: ReadonlySet<string>,
  last: Last,
): Sandbox[] {
  const value = VALUES[filter.sort];
  const kept: { sandbox: Sandbox; by: string | number }[] = [];
  for (const sandbox of sandboxes) {
    if (hidden.has(sandbox.id)) continue;
    if (filter.state !== "all" && sandbox.state !== filter.state) continue;
    if (matches(sandbox, filter.text)) kept.push({ sandbox, by: value(sandbox, last) });
  }
  const sign = filter.down ? -1 : 1;
  kept.sort((a, b) => {
    if (a.by !== b.by) return a.by < b.by ? -sign : sign;
    return a.sandbox.name < b.sandbox.name ? -1 : 1;
  });
  return kept.map(({ sandbox }) => sandbox);
}

export function countStates(sandboxes: Iterable<Sandbox>, hidden: ReadonlySet<string>): Map<StateFilter, number> {
  const counts = new Map<StateFilter, number>();
  for (const sandbox of sandboxes) {
    if (hidden.has(sandbox.id)) continue;
    counts.set("all", (counts.get("all") ?? 0) + 1);
    counts.set(sandbox.state, (counts.get(sandbox.state) ?? 0) + 1);
  }
  return counts;
}
