import { useState } from "preact/hooks";
import { get, path, send } from "../../../api/client";
import { fork } from "../../../api/sandboxes";
import type { Sandbox, Snapshot, SnapshotList } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Icon } from "../../../components/Icon";
import { Name } from "../../../components/Name";
import { ErrorNotice } from "../../../components/Notice";
import { Panel } from "../../../components/Panel";
import { StateBadge } from "../../../components/StateBadge";
import { Ago } from "../../../components/Time";
import { bytes } from "../../../lib/format";
import { useLoaded } from "../../../lib/hooks";
import { plainLine } from "../../../lib/plain";
import { useOthersChanges } from "../../../lib/useChanges";
import { go, to } from "../../../state/route";
import { sandboxes } from "../../../state/sandboxes";
import { canChange } from "../../../state/session";
import { attempt, say } from "../../../state/toasts";
import { leaving, removeLater } from "../../../state/undo";
import { RestoreDialog } from "./RestoreDialog";
import { treeOf, type TreeNode } from "./tree";

/** Snapshots and forks as a tree, from the image down. */
export function Snapshots({ sandbox }: { sandbox: Sandbox }) {
  const [name, setName] = useState("");
  const [restoring, setRestoring] = useState<Snapshot | null>(null);
  const loaded = useLoaded("snapshots", () => get<SnapshotList>("/v1/snapshots"), sandboxes.value.size);
  useOthersChanges(/snapshot|fork/i, loaded.reload);
  const snapshots = (loaded.value?.snapshots ?? []).filter((one) => !leaving.value.has(one.id));
  const root = treeOf(sandbox, snapshots, [...sandboxes.value.values()]);

  const take = (event: Event) => {
    event.preventDefault();
    void attempt("No snapshot", async () => {
      await send("POST", "/v1/snapshots", { sandbox: sandbox.id, ...(name.trim() && { name: name.trim() }) });
      say("The snapshot is taken.", { tone: "good" });
      setName("");
      loaded.reload();
    });
  };
  const actions: Actions = {
    restore: setRestoring,
    branch: (snapshot) =>
      void attempt("Not branched", async () => {
        const made = await send<Sandbox>("POST", path("snapshots", snapshot.id, "restore"), {});
        say(`Made ${plainLine(made.name)} from the snapshot.`, {
          tone: "good",
          action: { label: "Open", run: () => go("sandboxes", made.id) },
        });
        loaded.reload();
      }),
    fork: (one) =>
      void attempt("Not forked", async () => {
        const { forks } = await fork(one.id, 1);
        if (forks[0]) say(`Forked into ${plainLine(forks[0].name)}.`, { tone: "good" });
        loaded.reload();
      }),
    remove: (snapshot) =>
      removeLater(`Removing snapshot ${plainLine(snapshot.name ?? snapshot.id)}.`, [snapshot.id], async () => {
        await send("DELETE", path("snapshots", snapshot.id));
        loaded.reload();
      }),
  };
  return (
    <div class="page-body">
      {canChange.value && (
        <form class="row" onSubmit={take}>
          <input
            class="input narrow"
            aria-label="Name of the snapshot"
            placeholder="Name, or none"
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
          <Button kind="primary" icon="camera" submit>
            Take a snapshot
          </Button>
          <Button icon="branch" onClick={() => actions.fork(sandbox)}>
            Fork
          </Button>
          <span class="faint small">
            A snapshot keeps the files as they are now. A fork is a second sandbox with them.
          </span>
        </form>
      )}
      {loaded.error !== null && <ErrorNotice error={loaded.error} retry={loaded.reload} />}
      <Panel title="Where it came from, and what came of it">
        <ul class="lineage">
          <Node node={root} current={sandbox.id} actions={actions} />
        </ul>
      </Panel>
      {restoring && <RestoreDialog sandbox={sandbox} snapshot={restoring} onClose={() => setRestoring(null)} />}
    </div>
  );
}

type Actions = {
  /** Gives this sandbox the snapshot's files back. */
  restore: (snapshot: Snapshot) => void;
  /** Makes another sandbox with the snapshot's files. */
  branch: (snapshot: Snapshot) => void;
  fork: (sandbox: Sandbox) => void;
  remove: (snapshot: Snapshot) => void;
};

const keyOf = (node: TreeNode) =>
  node.kind === "snapshot" ? node.snapshot.id : node.kind === "sandbox" ? node.sandbox.id : node.name;

function Node({ node, current, actions }: { node: TreeNode; current: string; actions: Actions }) {
  return (
    <li>
      <div class="lineage-node">
        {node.kind === "image" && (
          <>
            <Icon name="box" />
            <span>
              image <Name text={node.name} />
            </span>
          </>
        )}
        {node.kind === "past" && (
          <>
            <Icon name="branch" />
            <span class="faint">
              <Name text={node.name} />, before it was removed or restored
            </span>
          </>
        )}
        {node.kind === "sandbox" && (
          <SandboxNode sandbox={node.sandbox} isCurrent={node.sandbox.id === current} actions={actions} />
        )}
        {node.kind === "snapshot" && <SnapshotNode snapshot={node.snapshot} actions={actions} />}
      </div>
      {node.children.length > 0 && (
        <ul>
          {node.children.map((child) => (
            <Node key={keyOf(child)} node={child} current={current} actions={actions} />
          ))}
        </ul>
      )}
    </li>
  );
}

function SandboxNode({ sandbox, isCurrent, actions }: { sandbox: Sandbox; isCurrent: boolean; actions: Actions }) {
  return (
    <>
      <Icon name="branch" />
      {isCurrent ? (
        <strong>
          <Name text={sandbox.name} />
        </strong>
      ) : (
        <a href={to("sandboxes", sandbox.id, "snapshots")}>
          <Name text={sandbox.name} />
        </a>
      )}
      <StateBadge sandbox={sandbox} />
      {isCurrent && <span class="faint small">this sandbox</span>}
      {canChange.value && !isCurrent && (
        <Button small kind="quiet" icon="branch" onClick={() => actions.fork(sandbox)}>
          Fork
        </Button>
      )}
    </>
  );
}

function SnapshotNode({ snapshot, actions }: { snapshot: Snapshot; actions: Actions }) {
  return (
    <>
      <Icon name="camera" />
      {snapshot.name ? <Name text={snapshot.name} /> : <span class="faint">fork point</span>}
      <span class="faint small">
        {bytes(snapshot.sizeBytes)}, <Ago at={snapshot.createdAt} suffix=" ago" />
      </span>
      {canChange.value && (
        <>
          <Button small icon="refresh" onClick={() => actions.restore(snapshot)}>
            Restore
          </Button>
          <Button small icon="branch" onClick={() => actions.branch(snapshot)}>
            Branch from here
          </Button>
          {snapshot.usedBy.length === 0 && (
            <Button
              small
              kind="quiet"
              icon="trash"
              label={`Remove snapshot ${plainLine(snapshot.name ?? snapshot.id)}`}
              onClick={() => actions.remove(snapshot)}
            />
          )}
        </>
      )}
    </>
  );
}
