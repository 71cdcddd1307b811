/**
 * Text from sandboxes, made harmless and visible. Preact never reads text as HTML; what is left are characters that
 * change how text around them looks: controls, and marks that turn the direction of writing.
 */

// eslint-disable-next-line no-control-regex -- controls are what is looked for
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]/gu;
const NEWLINES = /[\t\n]/g;

function visible(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code === 0x0a) return "\\n";
  if (code === 0x09) return "\\t";
  if (code < 0xa0) return `\\x${code.toString(16).padStart(2, "0")}`;
  return `\u27e8${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

/** One line: names, paths, labels. */
export function plainLine(text: string): string {
  return text.replace(NEWLINES, visible).replace(INVISIBLE, visible);
}

/** Terminal sequences that only colour or move; they are left out of text that is not shown in a terminal. */
// eslint-disable-next-line no-control-regex -- escape sequences are what is looked for
const SEQUENCES = /\u001b\[[0-9;:?]*[ -/]*[@-~]|\u001b[()][A-Za-z0-9]/g;

/** Several lines: output and files. Carriage returns at the end of a line are dropped, others show as a new line. */
export function plainText(text: string): string {
  return text.replace(SEQUENCES, "").replace(/\r+\n/g, "\n").replace(/\r/g, "\n").replace(INVISIBLE, visible);
}
