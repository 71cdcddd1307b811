import { useState } from "preact/hooks";
import { share, type Share } from "../api/session";
import { dateTime } from "../lib/format";
import { to } from "../state/route";
import { attempt } from "../state/toasts";
import { Button } from "./Button";
import { CodeBlock } from "./CodeBlock";
import { Dialog } from "./Dialog";
import { Field } from "./Field";

const TIMES = [
  { value: "900", label: "15 minutes" },
  { value: "3600", label: "1 hour" },
  { value: "28800", label: "8 hours" },
  { value: "86400", label: "1 day" },
];

/** The daemon's own word for its address may differ from what the browser uses; the fragment is what counts. */
function asSeenHere(address: string): string {
  const { hash } = new URL(address, location.href);
  return `${location.origin}/${hash}`;
}

/** Makes an address with which others watch along, without a key and without changing anything. */
export function ShareDialog({ what, onClose }: { what: { sandbox: string } | { key: string }; onClose: () => void }) {
  const [expires, setExpires] = useState("3600");
  const [made, setMade] = useState<Share | null>(null);
  const make = () => void attempt("Not shared", async () => setMade(await share(what, Number(expires))));
  return (
    <Dialog
      title="Share a read-only address"
      onClose={onClose}
      onSubmit={make}
      foot={
        made ? (
          <Button kind="primary" onClick={onClose}>
            Done
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Cancel</Button>
            <Button kind="primary" submit>
              Make the address
            </Button>
          </>
        )
      }
    >
      <p class="soft">
        Whoever has the address sees {"sandbox" in what ? "this sandbox" : "what this key does"} live, and can change
        nothing.
      </p>
      {made ? (
        <>
          <CodeBlock text={asSeenHere(made.address)} label="the address" />
          <p class="faint">It ends on {dateTime(made.expiresAt)}, with your key, or when you <a href={to("shares")}>revoke it</a>.</p>
        </>
      ) : (
        <Field label="Ends after" value={expires} onInput={setExpires} options={TIMES} />
      )}
    </Dialog>
  );
}
