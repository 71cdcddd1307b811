import { useEffect, useRef, useState } from "preact/hooks";
import { writeFile } from "../../api/files";
import { draftOf, dropDraft, keepDraft } from "../../state/drafts";
import { canChange } from "../../state/session";
import { attempt, say } from "../../state/toasts";
import { baseName } from "../../lib/paths";
import { plainLine } from "../../lib/plain";
import { Button } from "../Button";
import { Notice } from "../Notice";
import type { EditorHandle } from "./editor";

type Props = {
  sandbox: string;
  path: string;
  /** What the file holds, as it was read last. */
  text: string;
  isCut: boolean;
  /** Reads what the file holds at this moment; null when that is no text, or the file is gone. */
  readNow: () => Promise<string | null>;
  onSaved: () => void;
};

/** How the editor's text stands to the file's: `conflict` when both were changed. */
type Standing = "same" | "changed" | "restored" | "conflict";

/** Shows text and, where the caller may change it and all of it is here, lets it be edited. */
export function EditorView({ sandbox, path, text, isCut, readNow, onSaved }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorHandle | null>(null);
  /** What the file held when the editor's text was last the same. */
  const base = useRef(text);
  const latest = useRef(text);
  latest.current = text;
  const [standing, setStanding] = useState<Standing>("same");
  const isReadOnly = isCut || !canChange.value;

  /** Notes what was typed. Text that is the file's again is no draft. */
  const typed = () => {
    const held = editor.current;
    if (!held) return;
    if (held.is(base.current)) {
      dropDraft(sandbox, path);
      setStanding((old) => (old === "conflict" ? old : "same"));
    } else {
      keepDraft(sandbox, path, { text: held.snapshot(), base: base.current });
      setStanding((old) => (old === "same" ? "changed" : old));
    }
  };
  /** Takes what the file holds now in place of what is in the editor. */
  const take = (now: string) => {
    base.current = now;
    dropDraft(sandbox, path);
    editor.current?.replace(now);
    setStanding("same");
  };
  const save = async (isForced = false) => {
    const content = editor.current?.text();
    if (content === undefined || isReadOnly) return;
    await attempt("Not saved", async () => {
      if (!isForced && (await readNow()) !== base.current) return setStanding("conflict");
      await writeFile(sandbox, path, content);
      base.current = content;
      setStanding("same");
      typed();
      say(`Saved ${plainLine(baseName(path))}.`, { tone: "good" });
      onSaved();
    });
  };
  const reload = () =>
    void attempt("Not read", async () => {
      const now = await readNow();
      if (now === null) throw new Error("The file is gone, or is no text any more.");
      take(now);
    });
  const acting = useRef({ typed, save });
  acting.current = { typed, save };

  useEffect(() => {
    let isGone = false;
    void import("./editor").then(({ makeEditor }) => {
      if (isGone || !host.current) return;
      const draft = isReadOnly ? undefined : draftOf(sandbox, path);
      base.current = draft?.base ?? latest.current;
      editor.current = makeEditor(host.current, {
        text: draft?.text() ?? latest.current,
        path,
        isReadOnly,
        onChange: () => acting.current.typed(),
        onSave: () => void acting.current.save(),
      });
      setStanding(!draft ? "same" : draft.base === latest.current ? "restored" : "conflict");
    });
    return () => {
      isGone = true;
      editor.current?.remove();
      editor.current = null;
    };
  }, [sandbox, path, isReadOnly]);

  useEffect(() => {
    const held = editor.current;
    if (!held) return;
    if (text === base.current) return setStanding((old) => (old === "conflict" ? "changed" : old));
    if (held.is(base.current) || held.is(text)) take(text);
    else setStanding("conflict");
  }, [text]);

  const isChanged = standing !== "same";
  return (
    <div class="fill">
      {standing === "conflict" && (
        <Notice tone="warn">
          <div class="row">
            The file was changed in the sandbox since you began.
            <span class="row tight push">
              <Button small onClick={reload}>
                Reload
              </Button>
              <Button small kind="danger" onClick={() => void save(true)}>
                Overwrite
              </Button>
            </span>
          </div>
        </Notice>
      )}
      {standing === "restored" && (
        <Notice>
          <div class="row">
            What you typed here before is back. It is not saved.
            <Button small onClick={() => take(base.current)}>
              Discard
            </Button>
          </div>
        </Notice>
      )}
      <div class="editor-host" ref={host} />
      <div class="row editor-foot">
        {isCut && <span class="faint small">The file is larger than what is shown, so it cannot be edited here.</span>}
        {!isReadOnly && (
          <>
            <span class="faint small">
              <kbd>Ctrl</kbd> <kbd>S</kbd> saves. {isChanged ? "Not saved yet." : ""}
            </span>
            <span class="push">
              <Button
                kind="primary"
                small
                disabled={!isChanged || standing === "conflict"}
                onClick={() => void save()}
              >
                Save
              </Button>
            </span>
          </>
        )}
      </div>
    </div>
  );
}
