import { effect, signal } from "@preact/signals";
import { get } from "../api/client";
import type { Key, KeyList } from "../api/types";
import { streamNumber } from "./live";
import { may, session } from "./session";

/** Keys by id, for those who may see them; they turn a sandbox's owner into a name. */
export const keys = signal<ReadonlyMap<string, Key>>(new Map());

export async function loadKeys(): Promise<Key[]> {
  const found = (await get<KeyList>("/v1/keys")).keys;
  keys.value = new Map(found.map((key) => [key.id, key]));
  return found;
}

effect(() => {
  if (streamNumber.value > 0 && may("keys")) loadKeys().catch(() => {});
});

/** Who made something, by the id of the key. */
export function makerName(owner: string | null | undefined): string {
  if (!owner) return "owner";
  const own = session.value;
  if (owner === own?.keyId) return own.label.replace(/^key /, "");
  return keys.value.get(owner)?.label ?? owner;
}
