/** Reads `key=value` lines. Lines without a key are left out. */
export function readPairs(text: string): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const line of text.split("\n")) {
    const at = line.indexOf("=");
    const key = (at < 0 ? line : line.slice(0, at)).trim();
    if (key) pairs[key] = at < 0 ? "" : line.slice(at + 1).trim();
  }
  return pairs;
}

export function readLines(text: string): string[] {
  return text
    .split(/[\n,]/)
    .map((line) => line.trim())
    .filter(Boolean);
}
