import { useState } from "preact/hooks";
import icon from "../icon.svg";
import { wordsOf } from "../api/errors";
import { Button } from "../components/Button";
import { Field } from "../components/Field";
import { Notice } from "../components/Notice";
import { useTitle } from "../lib/hooks";
import { enter } from "../state/session";

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
      setError(wordsOf(refused));
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
