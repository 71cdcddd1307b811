import type { Preset } from "../api/types";

/** What a network reaches without a rule, to choose from. */
export const PRESETS: { value: Preset; label: string }[] = [
  { value: "none", label: "none" },
  { value: "packages", label: "package indexes only" },
  { value: "public", label: "the public internet" },
  { value: "public+private", label: "public and private networks" },
  { value: "all", label: "everything" },
];
