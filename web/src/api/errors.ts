import type { ErrorDetail } from "./types";

/** A refusal by the daemon, or a request that did not reach it (`kind` is then `unreachable`). */
export class ApiError extends Error {
  readonly kind: ErrorDetail["kind"] | "unreachable";
  readonly hint: string | null;
  readonly status: number;

  constructor(kind: ApiError["kind"], message: string, hint: string | null, status: number) {
    super(message);
    this.name = "ApiError";
    this.kind = kind;
    this.hint = hint;
    this.status = status;
  }
}

/** Words for anything that was thrown. */
export function wordsOf(error: unknown): string {
  if (error instanceof ApiError) return error.hint ? `${error.message}. ${error.hint}` : error.message;
  return error instanceof Error ? error.message : String(error);
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Reads the daemon's error body; falls back to the status when the body is something else. */
export async function errorFrom(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: ErrorDetail };
    if (body.error) return new ApiError(body.error.kind, body.error.message, body.error.hint ?? null, response.status);
  } catch {
    // Not JSON: a proxy in between answered.
  }
  return new ApiError("internal", `The daemon answered with status ${response.status}`, null, response.status);
}
