import { path, send } from "./client";
import { jsonLines } from "./lines";
import type { Lifetime, PullEvent, Sandbox, SandboxSpec } from "./types";

export type SandboxAction = "start" | "stop" | "pause" | "resume" | "restart" | "drain";

export const act = (id: string, action: SandboxAction) => send<Sandbox>("POST", path("sandboxes", id, action));

export const renew = (id: string, lifetime: Lifetime) =>
  send<Sandbox>("POST", path("sandboxes", id, "renew"), lifetime);

export const remove = (id: string) => send("DELETE", path("sandboxes", id), undefined, { force: true });

/** Makes a sandbox; an image that has to be fetched first tells how far it is. */
export function create(spec: SandboxSpec, signal: AbortSignal) {
  return jsonLines<PullEvent>("POST", path("sandboxes"), { body: spec, signal });
}

export const fork = (id: string, count: number) =>
  send<{ forks: Sandbox[] }>("POST", path("sandboxes", id, "fork"), { count });
