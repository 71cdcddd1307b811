import { useState } from "preact/hooks";
import { path, send } from "../../../api/client";
import type { Sandbox, Snapshot } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Check } from "../../../components/Check";
import { Dialog } from "../../../components/Dialog";
import { dateTime } from "../../../lib/format";
import { plainLine } from "../../../lib/plain";
import { go } from "../../../state/route";
import { putSandbox } from "../../../state/sandboxes";
import { attempt, say } from "../../../state/toasts";

type Props = { sandbox: Sandbox; snapshot: Snapshot; onClose: () => void };

/** Gives a sandbox the files of a snapshot back. What it has now is kept as another snapshot, unless that is not wanted. */
export function RestoreDialog({ sandbox, snapshot, onClose }: Props) {
  const [keeps, setKeeps] = useState(true);
  const [isBusy, setBusy] = useState(false);
  const name = plainLine(sandbox.name);
  const restore = async () => {
    setBusy(true);
    const isDone = await attempt("Not restored", async () => {
      if (keeps) await send("POST", "/v1/snapshots", { sandbox: sandbox.id });
      const asked = { name: sandbox.name, replace: true };
      const made = await send<Sandbox>("POST", path("snapshots", snapshot.id, "restore"), asked, {
        namespace: sandbox.namespace,
      });
      say(`${name} has the files of the snapshot.`, { tone: "good" });
      putSandbox(made);
      go("sandboxes", made.id, "snapshots");
    });
    setBusy(false);
    if (isDone) onClose();
  };
  return (
    <Dialog
      title={`Restore ${name}?`}
      onClose={onClose}
      onSubmit={() => void restore()}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" submit disabled={isBusy}>
            Restore
          </Button>
        </>
      }
    >
      <p>
        Its processes end, and it starts anew with the files of{" "}
        {snapshot.name ? <strong>{plainLine(snapshot.name)}</strong> : "the snapshot"}, taken on{" "}
        {dateTime(snapshot.createdAt)}. Name, settings and mounts stay.
      </p>
      <p>Its timeline, logs, contexts and time to live begin anew, and addresses that it is shared by end.</p>
      <Check label="Keep the files as they are now in another snapshot" checked={keeps} onChange={setKeeps} />
    </Dialog>
  );
}
