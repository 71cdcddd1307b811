import type { NetworkRequest } from "../../api/types";
import { Empty, ErrorNotice } from "../../components/Notice";
import { Page } from "../../components/Page";
import { Panel } from "../../components/Panel";
import { useRequests } from "../../lib/useRequests";
import { waiting } from "../../state/requests";
import { RequestItem } from "./RequestItem";

/** What agents asked to reach beyond their sandboxes' policies, and what they were answered. */
export function Requests() {
  const { requests, error, reload } = useRequests();
  const granted = requests.filter((request) => request.state === "granted");
  const over = requests.filter((request) => request.state === "refused" || request.state === "ended");
  return (
    <Page
      title="Requests"
      about="Agents ask here for more network than their sandboxes have. Nothing opens before it is granted, and a grant ends by itself."
    >
      {error !== null && <ErrorNotice error={error} retry={reload} />}
      {waiting.value.length === 0 && (
        <Empty title="Nothing waits for an answer">
          <p>
            A request that an agent makes with <code>sandbox_network_request</code> appears here at once.
          </p>
        </Empty>
      )}
      <RequestList title="Waiting" requests={waiting.value} withSandbox />
      <RequestList title="Open now" requests={granted} withSandbox />
      <RequestList title="Answered before" requests={over} withSandbox />
    </Page>
  );
}

type Props = { title: string; requests: NetworkRequest[]; withSandbox: boolean };

export function RequestList({ title, requests, withSandbox }: Props) {
  if (requests.length === 0) return null;
  return (
    <Panel title={title} flush>
      <ul class="requests" aria-label={title}>
        {requests.map((request) => (
          <RequestItem key={request.id} request={request} withSandbox={withSandbox} />
        ))}
      </ul>
    </Panel>
  );
}
