import type { Sandbox } from "../../../api/types";
import { ErrorNotice } from "../../../components/Notice";
import { useRequests } from "../../../lib/useRequests";
import { RequestList } from "../../requests/Requests";

/** What was asked for beyond this sandbox's policy. */
export function RequestsPanel({ sandbox }: { sandbox: Sandbox }) {
  const { requests, error, reload } = useRequests();
  const own = requests.filter((request) => request.sandbox === sandbox.id);
  return (
    <>
      {error !== null && <ErrorNotice error={error} retry={reload} />}
      <RequestList
        title="Requests for more"
        requests={[...own.filter(isOpen), ...own.filter((request) => !isOpen(request))]}
        withSandbox={false}
      />
    </>
  );
}

const isOpen = (request: { state: string }) => request.state === "pending" || request.state === "granted";
