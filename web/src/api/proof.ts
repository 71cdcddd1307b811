/**
 * The half of a session that no other port of this host can read. Cookies go to every port of a host name, so the
 * cookie alone opens nothing; this half goes along as a header.
 */
const STORED_AS = "warren.proof";

export const proof = (): string | null => localStorage.getItem(STORED_AS);

export function keepProof(value: string | null): void {
  if (value === null) localStorage.removeItem(STORED_AS);
  else localStorage.setItem(STORED_AS, value);
}
