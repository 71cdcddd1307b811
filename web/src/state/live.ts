import { effect, signal } from "@preact/signals";
import { isAbort } from "../api/errors";
import { jsonLines } from "../api/lines";
import type { components } from "../api/schema.generated";
import type { Call, Exec, NetworkLogEntry, NetworkRequest } from "../api/types";
import { refreshSession, session } from "./session";
import { beginRequests, dropRequestsOf, endRequests, putRequest } from "./requests";
import { beginCollecting, dropSandbox, endCollecting, putSandbox } from "./sandboxes";
import { say } from "./toasts";
import { takeUsage } from "./usage";

export type LiveNetworkEntry = NetworkLogEntry & { sandbox: string };

type Messages = { exec: Exec; call: Call; network: LiveNetworkEntry; request: NetworkRequest };
type Topic = keyof Messages;

export type Connection = "connecting" | "live" | "lost";

/** Whether the page hears from the daemon at this moment. */
export const connection = signal<Connection>("connecting");
export const daemonVersion = signal<string | null>(null);
/** Grows with every new stream: pages that show what the stream does not repeat load it again. */
export const streamNumber = signal(0);

const TOPICS = "sandboxes,usage,execs,calls,network,pending";
const MAX_RETRY_MS = 8_000;
const FIRST_RETRY_MS = 500;
/** A hidden page gives its connection back after this long; browsers open only six to one host. */
const HIDDEN_MS = 60_000;

const listeners: { [T in Topic]: Set<(message: Messages[T]) => void> } = {
  exec: new Set(),
  call: new Set(),
  network: new Set(),
  request: new Set(),
};

/** Calls back for each message of a topic until the returned function is called. */
export function listen<T extends Topic>(topic: T, callback: (message: Messages[T]) => void): () => void {
  listeners[topic].add(callback);
  return () => listeners[topic].delete(callback);
}

/** Ends the open stream, if there is one. */
let current: AbortController | null = null;
let retry: ReturnType<typeof setTimeout> | null = null;
let retryMs = FIRST_RETRY_MS;
let startedAt: string | null = null;

type Message = components["schemas"]["LiveMessage"];

function pass<T extends Topic>(topic: T, message: Messages[T]): void {
  for (const listener of listeners[topic]) listener(message);
}

function greet(hello: { version: string; startedAt: string }): void {
  const wasLost = connection.value === "lost";
  const isRestarted = startedAt !== null && startedAt !== hello.startedAt;
  if (isRestarted) say("The daemon was restarted. The page is connected again.", { tone: "good" });
  else if (wasLost) say("The page is connected again.", { tone: "good" });
  startedAt = hello.startedAt;
  daemonVersion.value = hello.version;
  retryMs = FIRST_RETRY_MS;
  beginCollecting();
  beginRequests();
}

function ready(): void {
  endCollecting();
  endRequests();
  connection.value = "live";
  streamNumber.value += 1;
}

function take(message: Message): void {
  switch (message.event) {
    case "hello":
      return greet(message.data);
    case "ready":
      return ready();
    case "sandbox":
      return putSandbox(message.data);
    case "gone":
      dropRequestsOf(message.data.id);
      return dropSandbox(message.data.id);
    case "usage":
      return takeUsage(message.data);
    case "exec":
      return pass("exec", message.data);
    case "call":
      return pass("call", message.data);
    case "network":
      return pass("network", message.data);
    case "request":
      putRequest(message.data);
      return pass("request", message.data);
    case "lagged":
      // The daemon left messages out: a new stream tells everything again.
      return void open();
  }
}

async function open(): Promise<void> {
  close();
  const abort = new AbortController();
  current = abort;
  try {
    const options = { query: { topics: TOPICS }, signal: abort.signal };
    for await (const message of jsonLines<Message>("GET", "/v1/live", options)) {
      if (abort.signal.aborted) return;
      take(message);
    }
  } catch (error) {
    if (isAbort(error)) return;
  }
  if (!abort.signal.aborted) lose();
}

function close(): void {
  current?.abort();
  current = null;
  if (retry) clearTimeout(retry);
  retry = null;
}

/** The stream broke: asks who we are, since the session may have ended, and tries again. */
function lose(): void {
  close();
  connection.value = "lost";
  retry = setTimeout(async () => {
    const isIn = await refreshSession();
    if (isIn) void open();
    else if (session.value) lose();
  }, retryMs);
  retryMs = Math.min(MAX_RETRY_MS, retryMs * 2);
}

async function reopen(): Promise<void> {
  if (!current && session.value && (await refreshSession())) await open();
}

let hiding: ReturnType<typeof setTimeout> | null = null;

/** Keeps the one stream open while someone is signed in and looks at the page. */
export function startLive(): void {
  let openFor: string | null = null;
  effect(() => {
    const who = session.value ? `${session.value.who} ${session.value.keyId ?? ""}` : null;
    if (who === openFor) return;
    openFor = who;
    if (who) void open();
    else close();
  });
  document.addEventListener("visibilitychange", () => {
    if (hiding) clearTimeout(hiding);
    hiding = null;
    if (document.hidden) hiding = setTimeout(close, HIDDEN_MS);
    else void reopen();
  });
  addEventListener("online", () => void reopen());
}
