import { useRef, useState } from "preact/hooks";
import {
  archiveAddress,
  listDirectory,
  makeDirectory,
  removeFile,
  writeFile,
} from "../../../api/files";
import { Button } from "../../../components/Button";
import { Icon } from "../../../components/Icon";
import { Name } from "../../../components/Name";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { Ago } from "../../../components/Time";
import { saveAnswer } from "../../../lib/download";
import { bytes, plural } from "../../../lib/format";
import { useLoaded } from "../../../lib/hooks";
import { baseName, join } from "../../../lib/paths";
import { plainLine } from "../../../lib/plain";
import { canChange } from "../../../state/session";
import { attempt, say } from "../../../state/toasts";
import { leaving, removeLater } from "../../../state/undo";
import { NameDialog } from "./NameDialog";
import { ordered } from "./Tree";
import { ReplaceDialog } from "./ReplaceDialog";
import { uploadAll } from "./upload";
import { useWatch } from "./useWatch";
import { fileAddress } from "./Files";

type Props = { sandbox: string; path: string; onChanged: () => void };

/** One directory: its entries, uploads by drag and by choice, a new directory or file. */
export function DirectoryView({ sandbox, path, onChanged }: Props) {
  const list = useLoaded(`list ${sandbox} ${path}`, () => listDirectory(sandbox, path));
  const [isOver, setOver] = useState(false);
  const [asking, setAsking] = useState<"directory" | "file" | null>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const changed = () => {
    list.reload();
    onChanged();
  };
  useWatch(sandbox, path, changed);

  const [taken, setTaken] = useState<File[]>([]);
  const upload = async (files: File[], write: "createNew" | "replace" = "createNew") => {
    const result = await uploadAll(sandbox, path, files, write);
    if (result.count) say(`Uploaded ${plural(result.count, "file")} to ${plainLine(path)}.`, { tone: "good" });
    setTaken(result.taken);
    changed();
  };
  const remove = (file: string) =>
    removeLater(`Removing ${plainLine(baseName(file))}.`, [`${sandbox}:${file}`], async () => {
      await removeFile(sandbox, file);
      changed();
    });

  const entries = ordered(list.value?.entries ?? []).filter((entry) => !leaving.value.has(`${sandbox}:${entry.path}`));
  return (
    <div
      class={`files-content ${isOver ? "drop" : ""}`}
      onDragOver={(event) => {
        if (!canChange.value) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        if (canChange.value) void upload([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <div class="row files-actions">
        <span class="faint">{plural(entries.length, "entry", "entries")}</span>
        <span class="push row">
          {canChange.value && (
            <>
              <Button small icon="upload" onClick={() => chooser.current?.click()}>
                Upload
              </Button>
              <Button small onClick={() => setAsking("file")}>
                New file
              </Button>
              <Button small onClick={() => setAsking("directory")}>
                New directory
              </Button>
            </>
          )}
          <Button
            small
            icon="download"
            onClick={() =>
              void attempt("Not downloaded", () => saveAnswer(archiveAddress(sandbox, path), `${baseName(path)}.tar`))
            }
          >
            As tar
          </Button>
        </span>
        <input
          ref={chooser}
          type="file"
          multiple
          class="visually-hidden"
          tabIndex={-1}
          aria-label="Files to upload"
          onChange={(event) => {
            void upload([...(event.currentTarget.files ?? [])]);
            // The same file can be chosen once more.
            event.currentTarget.value = "";
          }}
        />
      </div>
      {list.error !== null && <ErrorNotice error={list.error} retry={list.reload} />}
      {list.value && entries.length === 0 && (
        <Empty title="The directory is empty">{canChange.value && <p>Drop files here to upload them.</p>}</Empty>
      )}
      {entries.length > 0 && (
        <table class="table">
          <thead>
            <tr>
              <th>Name</th>
              <th class="number">Size</th>
              <th class="number">Changed</th>
              <th class="wide-only">Mode</th>
              <th>
                <span class="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {entries.map((entry) => (
              <tr key={entry.path}>
                <td class="file-name">
                  <a href={fileAddress(sandbox, entry.path)}>
                    <Icon name={entry.kind === "directory" ? "folder" : entry.kind === "symlink" ? "link" : "file"} />
                    <Name text={baseName(entry.path)} />
                    {entry.target && (
                      <span class="faint">
                        → <Name text={entry.target} />
                      </span>
                    )}
                  </a>
                </td>
                <td class="number soft">{entry.kind === "directory" ? "" : bytes(entry.size)}</td>
                <td class="number soft">
                  <Ago at={entry.modifiedAtMs} />
                </td>
                <td class="mono faint wide-only">{entry.mode}</td>
                <td class="actions">
                  {canChange.value && (
                    <Button
                      small
                      kind="quiet"
                      icon="trash"
                      label={`Remove ${plainLine(baseName(entry.path))}`}
                      onClick={() => remove(entry.path)}
                    />
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {list.value?.truncated && <p class="faint panel-body">The directory has more entries than the 1,000 shown.</p>}
      {isOver && <div class="drop-hint">Drop to upload to {plainLine(path)}</div>}
      {taken.length > 0 && (
        <ReplaceDialog
          names={taken.map((file) => file.name)}
          onClose={() => setTaken([])}
          onReplace={() => void upload(taken, "replace")}
        />
      )}
      {asking && (
        <NameDialog
          title={asking === "file" ? "New file" : "New directory"}
          onClose={() => setAsking(null)}
          onName={(name) =>
            asking === "file"
              ? writeFile(sandbox, join(path, name), "", "createNew")
              : makeDirectory(sandbox, join(path, name))
          }
          onDone={changed}
        />
      )}
    </div>
  );
}
