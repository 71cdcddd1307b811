import { request, type RequestOptions } from "./client";
import { errorIn } from "./errors";

/** Longest line that is read. The daemon's own lines are far shorter. */
const MAX_LINE_CHARACTERS = 32 * 1024 * 1024;

/** What a line says. An answer that began well can still end with a refusal as its last line, which is thrown. */
function read<T>(line: string, status: number): T {
  const value = JSON.parse(line) as T;
  const error = errorIn(value, status);
  if (error) throw error;
  return value;
}

/** Sends a request and yields each line of the answer as JSON while it arrives. */
export async function* jsonLines<T>(method: string, address: string, options: RequestOptions): AsyncGenerator<T> {
  const response = await request(method, address, { ...options, accept: "application/x-ndjson" });
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += value;
      if (rest.length > MAX_LINE_CHARACTERS) throw new Error("The daemon sent a line that is too long");
      const lines = rest.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.trim()) yield read<T>(line, response.status);
    }
    if (rest.trim()) yield read<T>(rest, response.status);
  } finally {
    // Whoever leaves early gives the connection back.
    reader.cancel().catch(() => {});
  }
}
