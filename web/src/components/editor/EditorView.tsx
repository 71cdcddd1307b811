import { useEffect, useRef, useState } from "preact/hooks";
import { writeFile } from "../../api/files";
import { canChange } from "../../state/session";
import { attempt, say } from "../../state/toasts";
import { baseName } from "../../lib/paths";
import { plainLine } from "../../lib/plain";
import { Button } from "../Button";
import type { EditorHandle } from "./editor";

type Props = { sandbox: string; path: string; text: string; isCut: boolean; onSaved: () => void };

/** Shows text and, where the caller may change it and all of it is here, lets it be edited. */
export function EditorView({ sandbox, path, text, isCut, onSaved }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorHandle | null>(null);
  const [isChanged, setChanged] = useState(false);
  const isReadOnly = isCut || !canChange.value;

  const save = async () => {
    const content = editor.current?.text();
    if (content === undefined || isReadOnly) return;
    if (await attempt("Not saved", () => writeFile(sandbox, path, content))) {
      setChanged(false);
      say(`Saved ${plainLine(baseName(path))}.`, { tone: "good" });
      onSaved();
    }
  };
  const saving = useRef(save);
  saving.current = save;

  useEffect(() => {
    let isGone = false;
    void import("./editor").then(({ makeEditor }) => {
      if (isGone || !host.current) return;
      editor.current = makeEditor(host.current, {
        text,
        path,
        isReadOnly,
        onChange: () => setChanged(true),
        onSave: () => void saving.current(),
      });
    });
    return () => {
      isGone = true;
      editor.current?.remove();
      editor.current = null;
    };
  }, [path, text]);

  return (
    <div class="fill">
      <div class="editor-host" ref={host} />
      <div class="row editor-foot">
        {isCut && <span class="faint small">The file is larger than what is shown, so it cannot be edited here.</span>}
        {!isReadOnly && (
          <>
            <span class="faint small">
              <kbd>Ctrl</kbd> <kbd>S</kbd> saves. {isChanged ? "Not saved yet." : ""}
            </span>
            <span class="push">
              <Button kind="primary" small disabled={!isChanged} onClick={() => void save()}>
                Save
              </Button>
            </span>
          </>
        )}
      </div>
    </div>
  );
}
