import { useState } from "preact/hooks";
import { grantRequest, refuseRequest } from "../../api/requests";
import type { NetworkRequest } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Field } from "../../components/Field";
import { Name } from "../../components/Name";
import { Ago, Until } from "../../components/Time";
import { duration } from "../../lib/format";
import { plainLine } from "../../lib/plain";
import { to } from "../../state/route";
import { canChange } from "../../state/session";
import { attempt, say } from "../../state/toasts";

const DEFAULT_SECONDS = 3600;
const TIMES = [
  { value: 600, label: "10 minutes" },
  { value: 3600, label: "1 hour" },
  { value: 28_800, label: "8 hours" },
  { value: 86_400, label: "1 day" },
  { value: 604_800, label: "1 week" },
];
const BADGES: Record<NetworkRequest["state"], string> = {
  pending: "warn",
  granted: "good",
  refused: "bad",
  ended: "",
};

/** One request for more network, with what can be answered to it. */
export function RequestItem({ request, withSandbox }: { request: NetworkRequest; withSandbox: boolean }) {
  return (
    <li class="request">
      <div class="request-what">
        <span class={`badge ${BADGES[request.state]}`}>{request.state === "pending" ? "waits" : request.state}</span>
        {withSandbox && (
          <a href={to("sandboxes", request.sandbox, "network")}>
            <strong>
              <Name text={request.name} />
            </strong>
          </a>
        )}
        <span class="row tight">
          {request.rules.map((rule) => (
            <span key={rule} class="label-chip mono">
              <Name text={rule} mono />
            </span>
          ))}
        </span>
      </div>
      {request.reason && <p class="request-why">{plainLine(request.reason)}</p>}
      <p class="faint small">
        Asked by <Name text={request.askedBy} /> <Ago at={request.askedAt} suffix=" ago" />
        {request.forSeconds ? `, for ${duration(request.forSeconds * 1000)}` : ""}
        <Answer request={request} />
      </p>
      <Actions request={request} />
    </li>
  );
}

function Answer({ request }: { request: NetworkRequest }) {
  if (!request.answeredBy) return null;
  return (
    <>
      {" · "}
      {request.state === "refused" ? "refused" : "granted"} by <Name text={request.answeredBy} />
      {request.state === "granted" && (
        <>
          , for another <Until at={request.until} />
        </>
      )}
      {request.answer && `: ${plainLine(request.answer)}`}
    </>
  );
}

function Actions({ request }: { request: NetworkRequest }) {
  const [seconds, setSeconds] = useState(String(request.forSeconds ?? DEFAULT_SECONDS));
  const [isRefusing, setRefusing] = useState(false);
  const isOpen = request.state === "pending" || request.state === "granted";
  if (!isOpen || !canChange.value) return null;
  const isGranted = request.state === "granted";
  const what = request.rules.map(plainLine).join(", ");
  const grant = () =>
    void attempt("Not granted", async () => {
      await grantRequest(request, Number(seconds));
      say(`Granted ${what} to ${plainLine(request.name)}.`, { tone: "good" });
    });
  return (
    <div class="row tight request-actions">
      {request.mayGrant ? (
        <>
          <select
            class="input narrow"
            aria-label={`How long ${what} is open`}
            value={seconds}
            onChange={(event) => setSeconds(event.currentTarget.value)}
          >
            {timesFor(request).map((time) => (
              <option key={time.value} value={String(time.value)}>
                {time.label}
              </option>
            ))}
          </select>
          <Button small kind={isGranted ? "plain" : "primary"} onClick={grant}>
            {isGranted ? "Set the time" : "Grant"}
          </Button>
        </>
      ) : (
        !isGranted && <span class="faint small">Another key, or the daemon's owner, has to grant it.</span>
      )}
      <Button small kind="danger" onClick={() => setRefusing(true)}>
        {isGranted ? "End now" : "Refuse"}
      </Button>
      {isRefusing && <RefuseDialog request={request} onClose={() => setRefusing(false)} />}
    </div>
  );
}

/** The usual times, and the one that was asked for. */
function timesFor(request: NetworkRequest): { value: number; label: string }[] {
  const asked = request.forSeconds;
  if (!asked || TIMES.some((time) => time.value === asked)) return TIMES;
  return [{ value: asked, label: `${duration(asked * 1000)}, as asked` }, ...TIMES];
}

function RefuseDialog({ request, onClose }: { request: NetworkRequest; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const isGranted = request.state === "granted";
  const what = request.rules.map(plainLine).join(", ");
  const refuse = async () => {
    if (await attempt("Not refused", () => refuseRequest(request, reason.trim()))) {
      say(isGranted ? `${what} is closed again.` : `Refused ${what}.`);
      onClose();
    }
  };
  return (
    <Dialog
      title={isGranted ? `Close ${what} again?` : `Refuse ${what}?`}
      onClose={onClose}
      onSubmit={() => void refuse()}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" submit>
            {isGranted ? "End the grant" : "Refuse"}
          </Button>
        </>
      }
    >
      <Field
        label="Why"
        value={reason}
        onInput={setReason}
        placeholder="Nothing"
        hint="Whoever asked is told this, so that it can go on in another way."
        autoFocus
      />
    </Dialog>
  );
}
