const FACTORS: Record<string, number> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** Reads a size such as `512m`, `2 GiB` or `1.5g`; null when it is none. */
export function readSize(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$/i.exec(text);
  if (!found) return null;
  return Math.round(Number(found[1]) * (FACTORS[(found[2] ?? "").toLowerCase()] ?? 1));
}
