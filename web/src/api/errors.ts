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

/** Whether what was to be removed or ended was gone already. */
export function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.kind === "not_found";
}

/** The refusal in a body or in a line of one, if it has one. */
export function errorIn(body: unknown, status: number): ApiError | null {
  const detail = (body as { error?: ErrorDetail | null } | null)?.error;
  if (typeof detail !== "object" || detail === null) return null;
  return new ApiError(detail.kind, detail.message, detail.hint ?? null, status);
}

/** Reads the daemon's error body; falls back to the status when the body is something else. */
export async function errorFrom(response: Response): Promise<ApiError> {
  try {
    const error = errorIn(await response.json(), response.status);
    if (error) return error;
  } catch {
    // Not JSON: a proxy in between answered.
  }
  return new ApiError("internal", `The daemon answered with status ${response.status}`, null, response.status);
}
