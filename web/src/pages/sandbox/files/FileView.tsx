import { useState } from "preact/hooks";
import { isGone } from "../../../api/errors";
import { readFile, removeFile, renameFile, stat } from "../../../api/files";
import type { FileEntry } from "../../../api/types";
import { Button } from "../../../components/Button";
import { ErrorNotice } from "../../../components/Notice";
import { saveFile } from "../../../lib/download";
import { bytes, dateTime } from "../../../lib/format";
import { useLoaded } from "../../../lib/hooks";
import { baseName, join, parentOf } from "../../../lib/paths";
import { plainLine } from "../../../lib/plain";
import { bytesWanted, previewOf } from "../../../lib/preview";
import { dropDraft, moveDraft } from "../../../state/drafts";
import { canChange } from "../../../state/session";
import { attempt } from "../../../state/toasts";
import { removeLater } from "../../../state/undo";
import { fileAddress } from "./Files";
import { NameDialog } from "./NameDialog";
import { PreviewView } from "./PreviewView";
import { useWatch } from "./useWatch";

type Props = {
  sandbox: string;
  /** The file as it was found last, and why it was not found since. */
  entry: FileEntry;
  error: unknown;
  reload: () => void;
  onChanged: () => void;
};

/** One file: a preview, or the editor for text, and what can be done with it. */
export function FileView({ sandbox, entry, error, reload, onChanged }: Props) {
  const { path } = entry;
  const [isRenaming, setRenaming] = useState(false);
  const isFile = entry.kind === "file";
  const read = async (signal: AbortSignal, size: number) =>
    previewOf(path, await readFile(sandbox, path, bytesWanted(path), signal), size);
  const content = useLoaded(
    `read ${sandbox} ${path}`,
    async (signal) => (isFile ? read(signal, entry.size) : null),
    `${entry.modifiedAtMs} ${entry.size}`,
  );
  useWatch(sandbox, parentOf(path), reload, path);
  /** What an editor compares with before it writes. */
  const readNow = async () => {
    const now = await stat(sandbox, path).catch(nullIfGone);
    if (now?.kind !== "file") return null;
    const preview = await read(new AbortController().signal, now.size);
    return "text" in preview ? preview.text : null;
  };
  const saved = () => {
    reload();
    onChanged();
  };
  const remove = () => {
    location.hash = fileAddress(sandbox, parentOf(path));
    removeLater(`Removing ${plainLine(baseName(path))}.`, [`${sandbox}:${path}`], async () => {
      await removeFile(sandbox, path);
      dropDraft(sandbox, path);
      onChanged();
    });
  };
  return (
    <div class="files-content fill">
      <div class="row files-actions">
        <span class="faint small">
          {isFile ? bytes(entry.size) : entry.kind} · {dateTime(entry.modifiedAtMs)} ·{" "}
          <span class="mono">{entry.mode}</span>
        </span>
        <span class="push row">
          {isFile && (
            <Button small icon="download" onClick={() => void attempt("Not downloaded", () => saveFile(sandbox, path))}>
              Download
            </Button>
          )}
          {canChange.value && (
            <>
              <Button small onClick={() => setRenaming(true)}>
                Rename
              </Button>
              <Button small kind="danger" icon="trash" onClick={remove}>
                Remove
              </Button>
            </>
          )}
        </span>
      </div>
      {error !== null && <ErrorNotice error={error} retry={reload} />}
      {content.error !== null && <ErrorNotice error={content.error} retry={content.reload} />}
      {content.value && (
        <PreviewView sandbox={sandbox} path={path} preview={content.value} readNow={readNow} onSaved={saved} />
      )}
      {!isFile && <p class="panel-body faint">This is a {entry.kind}. It has no content to show.</p>}
      {isRenaming && (
        <NameDialog
          title="Rename"
          initial={baseName(path)}
          onClose={() => setRenaming(false)}
          onName={(name) => renameFile(sandbox, path, join(parentOf(path), name))}
          onDone={(name) => {
            moveDraft(sandbox, path, join(parentOf(path), name));
            onChanged();
            location.hash = fileAddress(sandbox, join(parentOf(path), name));
          }}
        />
      )}
    </div>
  );
}

function nullIfGone(error: unknown): null {
  if (!isGone(error)) throw error;
  return null;
}
