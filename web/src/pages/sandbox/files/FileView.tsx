import { useState } from "preact/hooks";
import { readFile, removeFile, renameFile } from "../../../api/files";
import type { FileEntry } from "../../../api/types";
import { Button } from "../../../components/Button";
import { ErrorNotice } from "../../../components/Notice";
import { saveFile } from "../../../lib/download";
import { bytes, dateTime } from "../../../lib/format";
import { useLoaded } from "../../../lib/hooks";
import { baseName, join, parentOf } from "../../../lib/paths";
import { plainLine } from "../../../lib/plain";
import { bytesWanted, previewOf } from "../../../lib/preview";
import { canChange } from "../../../state/session";
import { attempt } from "../../../state/toasts";
import { removeLater } from "../../../state/undo";
import { fileAddress } from "./Files";
import { NameDialog } from "./NameDialog";
import { PreviewView } from "./PreviewView";

type Props = { sandbox: string; entry: FileEntry; onChanged: () => void };

/** One file: a preview, or the editor for text, and what can be done with it. */
export function FileView({ sandbox, entry, onChanged }: Props) {
  const { path } = entry;
  const [isRenaming, setRenaming] = useState(false);
  const isFile = entry.kind === "file";
  const content = useLoaded(`read ${sandbox} ${path} ${entry.modifiedAtMs}`, async (signal) =>
    isFile ? previewOf(path, await readFile(sandbox, path, bytesWanted(path), signal), entry.size) : null,
  );
  const remove = () => {
    location.hash = fileAddress(sandbox, parentOf(path));
    removeLater(`Removing ${plainLine(baseName(path))}.`, [`${sandbox}:${path}`], async () => {
      await removeFile(sandbox, path);
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
      {content.error !== null && <ErrorNotice error={content.error} retry={content.reload} />}
      {content.value && <PreviewView sandbox={sandbox} path={path} preview={content.value} onSaved={onChanged} />}
      {!isFile && <p class="panel-body faint">This is a {entry.kind}. It has no content to show.</p>}
      {isRenaming && (
        <NameDialog
          title="Rename"
          initial={baseName(path)}
          onClose={() => setRenaming(false)}
          onName={(name) => renameFile(sandbox, path, join(parentOf(path), name))}
          onDone={(name) => {
            onChanged();
            location.hash = fileAddress(sandbox, join(parentOf(path), name));
          }}
        />
      )}
    </div>
  );
}
