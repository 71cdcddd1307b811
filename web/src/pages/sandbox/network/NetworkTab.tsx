import { get, path } from "../../../api/client";
import type { NetworkView, Sandbox } from "../../../api/types";
import { ErrorNotice } from "../../../components/Notice";
import { useLoaded } from "../../../lib/hooks";
import { useOthersChanges } from "../../../lib/useChanges";
import { NetworkLogPanel } from "./NetworkLogPanel";
import { PolicyPanel } from "./PolicyPanel";
import { RequestsPanel } from "./RequestsPanel";

/** The network policy of a sandbox, and what was decided by it. */
export function NetworkTab({ sandbox }: { sandbox: Sandbox }) {
  const view = useLoaded(`network ${sandbox.id}`, () => get<NetworkView>(path("sandboxes", sandbox.id, "network")));
  useOthersChanges(/network|grant/i, view.reload);
  return (
    <div class="page-body">
      {view.error !== null && <ErrorNotice error={view.error} retry={view.reload} />}
      {view.value && <PolicyPanel sandbox={sandbox} view={view.value} reload={view.reload} />}
      <RequestsPanel sandbox={sandbox} />
      <NetworkLogPanel sandbox={sandbox} onPolicyChanged={view.reload} />
    </div>
  );
}
