import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { StreamLanguage, type StreamParser } from "@codemirror/language";
import { c, cpp, java } from "@codemirror/legacy-modes/mode/clike";
import { css } from "@codemirror/legacy-modes/mode/css";
import { dockerFile } from "@codemirror/legacy-modes/mode/dockerfile";
import { go } from "@codemirror/legacy-modes/mode/go";
import { properties } from "@codemirror/legacy-modes/mode/properties";
import { rust } from "@codemirror/legacy-modes/mode/rust";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { sqlite } from "@codemirror/legacy-modes/mode/sql";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { html, xml } from "@codemirror/legacy-modes/mode/xml";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";
import type { Extension } from "@codemirror/state";
import { baseName } from "../../lib/paths";
import { extensionOf } from "../../lib/preview";

const STREAMS: Record<string, StreamParser<unknown>> = {
  sh: shell,
  bash: shell,
  yaml,
  yml: yaml,
  toml,
  rs: rust,
  go,
  c,
  h: c,
  cc: cpp,
  cpp,
  hpp: cpp,
  java,
  css,
  html,
  htm: html,
  xml,
  svg: xml,
  sql: sqlite,
  ini: properties,
  conf: properties,
  env: properties,
} as Record<string, StreamParser<unknown>>;

/** The language of a file by its name. */
export function languageOf(path: string): Extension {
  const extension = extensionOf(path);
  if (["py", "pyi"].includes(extension)) return python();
  if (["js", "mjs", "cjs", "jsx"].includes(extension)) return javascript({ jsx: true });
  if (["ts", "tsx", "mts"].includes(extension)) return javascript({ jsx: true, typescript: true });
  if (["json", "ipynb"].includes(extension)) return json();
  const name = baseName(path).toLowerCase();
  const parser =
    name === "dockerfile"
      ? (dockerFile as StreamParser<unknown>)
      : (STREAMS[extension] ?? STREAMS[name.replace(/^\./, "").replace(/rc$/, "")]);
  return parser ? StreamLanguage.define(parser) : [];
}
