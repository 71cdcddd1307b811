import { ApiError, errorFrom, isAbort } from "./errors";
import { proof } from "./proof";

/** Called when a request is answered with 401: the session has ended. */
let onSignedOut: () => void = () => {};

export function whenSignedOut(callback: () => void): void {
  onSignedOut = callback;
}

type Query = Record<string, string | number | boolean | string[] | null | undefined>;

export type RequestOptions = {
  query?: Query;
  body?: unknown;
  /** A body that is sent as it is, such as a file. */
  raw?: BodyInit;
  accept?: string;
  signal?: AbortSignal;
};

/** Builds a path below `/v1` from parts; each part is encoded, so a hostile name stays one part. */
export function path(...parts: (string | number)[]): string {
  return `/v1/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

export function withQuery(address: string, query: Query | undefined): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === null || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) parameters.append(name, String(one));
  }
  const text = parameters.toString();
  return text ? `${address}?${text}` : address;
}

export async function request(method: string, address: string, options: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = {
    "x-warren-dashboard": proof() ?? "1",
    accept: options.accept ?? "application/json",
  };
  let body: BodyInit | null = options.raw ?? null;
  if (options.body !== undefined) {
    headers["content-type"] = "application/json";
    body = JSON.stringify(options.body);
  } else if (options.raw !== undefined) {
    headers["content-type"] = "application/octet-stream";
  }
  let response: Response;
  try {
    const init: RequestInit = { method, headers, body, credentials: "same-origin", cache: "no-store" };
    if (options.signal) init.signal = options.signal;
    response = await fetch(withQuery(address, options.query), init);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError("unreachable", "The daemon cannot be reached", null, 0);
  }
  if (response.ok) return response;
  if (response.status === 401 && !address.startsWith("/v1/session")) onSignedOut();
  throw await errorFrom(response);
}

export async function get<T>(address: string, query?: Query, signal?: AbortSignal): Promise<T> {
  const response = await request("GET", address, { ...(query && { query }), ...(signal && { signal }) });
  return (await response.json()) as T;
}

export async function send<T = void>(method: string, address: string, body?: unknown, query?: Query): Promise<T> {
  const response = await request(method, address, { ...(body !== undefined && { body }), ...(query && { query }) });
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}
