import { useState } from "preact/hooks";
import type { FileEntry, Sandbox } from "../../../api/types";
import { stat } from "../../../api/files";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { Segments } from "../../../components/Segments";
import { useLoaded } from "../../../lib/hooks";
import { parentOf } from "../../../lib/paths";
import { route, to } from "../../../state/route";
import { Crumbs } from "./Crumbs";
import { DirectoryView } from "./DirectoryView";
import { DiffView } from "./DiffView";
import { FileView } from "./FileView";
import { Tree } from "./Tree";

type Mode = "browse" | "changes";

export const fileAddress = (sandbox: string, path: string) =>
  `${to("sandboxes", sandbox, "files")}?path=${encodeURIComponent(path)}`;

/** The sandbox's files: a tree, one directory or file, and what was changed since the image or a snapshot. */
export function Files({ sandbox }: { sandbox: Sandbox }) {
  const [mode, setMode] = useState<Mode>("browse");
  const [changes, setChanges] = useState(0);
  const path = route.value.query.get("path") ?? sandbox.cwd;
  return (
    <div class="files">
      <div class="files-bar">
        <Segments
          label="What to show"
          value={mode}
          options={[
            { value: "browse", label: "Browse" },
            { value: "changes", label: "Changes" },
          ]}
          onChange={setMode}
        />
        {mode === "browse" && <Crumbs sandbox={sandbox.id} path={path} />}
      </div>
      {mode === "changes" ? (
        <DiffView sandbox={sandbox} />
      ) : sandbox.state !== "running" ? (
        <Empty title="The sandbox does not run">
          Its files can be read while it runs. Changes are listed in any state.
        </Empty>
      ) : (
        <div class="files-panes">
          <Tree sandbox={sandbox.id} path={path} version={changes} />
          <Current key={path} sandbox={sandbox} path={path} onChanged={() => setChanges((old) => old + 1)} />
        </div>
      )}
    </div>
  );
}

function Current({ sandbox, path, onChanged }: { sandbox: Sandbox; path: string; onChanged: () => void }) {
  const found = useLoaded(`stat ${sandbox.id} ${path}`, () => stat(sandbox.id, path));
  // An editor stays open when its file goes away: what was typed can be saved again.
  if (found.error !== null && !found.value) {
    return (
      <div class="files-content panel-body">
        <ErrorNotice error={found.error} retry={found.reload} />
        <p class="panel-body">
          <a href={fileAddress(sandbox.id, parentOf(path))}>One directory up</a>
        </p>
      </div>
    );
  }
  if (!found.value) return <div class="files-content" />;
  const entry: FileEntry = { ...found.value, path };
  if (entry.kind === "directory") return <DirectoryView sandbox={sandbox.id} path={path} onChanged={onChanged} />;
  const { error, reload } = found;
  return <FileView sandbox={sandbox.id} entry={entry} error={error} reload={reload} onChanged={onChanged} />;
}
