import { useState } from "preact/hooks";
import icon from "../icon.svg";
import { ApiError, wordsOf } from "../api/errors";
import { Button } from "../components/Button";
import { Field } from "../components/Field";
import { Notice } from "../components/Notice";
import { useTitle } from "../lib/hooks";
import { enter } from "../state/session";

const UNKNOWN_KEY = "This key opens nothing here: it is mistyped, revoked or expired.";
const isUnknown = (error: unknown) => error instanceof ApiError && error.kind === "unauthenticated";

/** What whoever looked on by a shared address sees when it has ended. */
export function ShareEnded() {
  useTitle("Ended");
  return (
    <main class="sign-in">
      <div class="panel sign-in-box">
        <img src={icon} alt="" width={40} height={40} />
        <h1>This shared address has ended</h1>
        <p>Ask whoever sent it to you for a new one.</p>
      </div>
    </main>
  );
}

/** Asks for a Warren key. */
export function SignIn({ why }: { why: string | null }) {
  useTitle("Sign in");
  const [key, setKey] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);

  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await enter({ key: key.trim() });
    } catch (refused) {
      setError(isUnknown(refused) ? UNKNOWN_KEY : wordsOf(refused));
      setBusy(false);
    }
  };

  return (
    <main class="sign-in">
      <form class="panel sign-in-box" onSubmit={submit}>
        <img src={icon} alt="" width={40} height={40} />
        <h1>Sign in to Warren</h1>
        {why && <Notice tone="warn">{why}</Notice>}
        <Field label="Key" type="password" value={key} onInput={setKey} placeholder="wrn_…" required autoFocus mono />
        {error && <Notice tone="bad">{error}</Notice>}
        <Button kind="primary" submit disabled={isBusy || !key.trim()}>
          Sign in
        </Button>
        <p class="faint small">
          On the machine itself, <code>warren dashboard</code> opens this page signed in. Keys are made with{" "}
          <code>warren key create</code>.
        </p>
      </form>
    </main>
  );
}
