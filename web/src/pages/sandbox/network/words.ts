import type { Preset } from "../../../api/types";

export const PRESET_WORDS: Record<Preset, string> = {
  none: "nothing",
  packages: "package indexes only",
  public: "the public internet",
  "public+private": "public and private networks",
  all: "everything",
};
