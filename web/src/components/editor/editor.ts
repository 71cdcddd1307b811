import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { languageOf } from "./languages";

export type EditorHandle = {
  text: () => string;
  /** The text as it is now, which costs nothing until it is asked for. */
  snapshot: () => () => string;
  is: (text: string) => boolean;
  /** Replaces what differs, so that the cursor and what is in sight stay. */
  replace: (text: string) => void;
  remove: () => void;
};

type Options = { text: string; path: string; isReadOnly: boolean; onChange: () => void; onSave: () => void };

/** Characters that hide or turn text are shown as marks. */
const SPECIAL =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffc]/g;

const theme = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "12.5px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--text-faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--hover) 60%, transparent)" },
  ".cm-cursor": { borderLeftColor: "var(--accent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { background: "var(--selected) !important" },
  ".cm-panels": { backgroundColor: "var(--sunken)", color: "var(--text)" },
  ".cm-specialChar": { color: "var(--bad)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--warn)" },
  { tag: [tags.comment, tags.meta], color: "var(--text-faint)", fontStyle: "italic" },
  {
    tag: [tags.definition(tags.variableName), tags.function(tags.variableName), tags.typeName, tags.className],
    color: "var(--info)",
  },
  { tag: [tags.heading], fontWeight: "600" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

/** An editor has lines; a file keeps the breaks between them that it has. */
const lineBreakOf = (text: string) => (text.includes("\r\n") ? "\r\n" : "\n");
const unified = (text: string) => text.replace(/\r\n?/g, "\n");

/** The one part in which two texts differ. */
function difference(before: string, after: string): { from: number; to: number; insert: string } {
  const most = Math.min(before.length, after.length);
  let from = 0;
  while (from < most && before[from] === after[from]) from += 1;
  let end = 0;
  while (end < most - from && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  return { from, to: before.length - end, insert: after.slice(from, after.length - end) };
}

/**
 * Puts an editor into an element. It lives in a shadow root, where CodeMirror uses constructed style sheets: a
 * `<style>` element would be forbidden by the content policy.
 */
export function makeEditor(host: HTMLElement, options: Options): EditorHandle {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const save = () => {
    options.onSave();
    return true;
  };
  const state = EditorState.create({
    doc: options.text,
    extensions: [
      lineNumbers(),
      highlightSpecialChars({ specialChars: SPECIAL }),
      history(),
      drawSelection(),
      indentOnInput(),
      bracketMatching(),
      highlightActiveLine(),
      highlightSelectionMatches(),
      search({ top: true }),
      keymap.of([
        { key: "Mod-s", run: save, preventDefault: true },
        ...defaultKeymap,
        ...historyKeymap,
        ...searchKeymap,
        indentWithTab,
      ]),
      EditorState.readOnly.of(options.isReadOnly),
      EditorView.contentAttributes.of({
        "aria-label": options.isReadOnly ? "The file's text" : "The file's text, to edit",
      }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) options.onChange();
      }),
      theme,
      syntaxHighlighting(colours),
      languageOf(options.path),
    ],
  });
  const view = new EditorView({ state, parent: root as unknown as Element, root });
  let lineBreak = lineBreakOf(options.text);
  const snapshot = () => {
    const { doc } = view.state;
    return () => doc.sliceString(0, doc.length, lineBreak);
  };
  return {
    text: () => snapshot()(),
    snapshot,
    is: (text) => unified(text) === view.state.doc.toString(),
    replace: (text) => {
      lineBreak = lineBreakOf(text);
      view.dispatch({ changes: difference(view.state.doc.toString(), unified(text)) });
    },
    remove: () => {
      view.destroy();
      root.replaceChildren();
    },
  };
}
