import { useState } from "preact/hooks";
import { wordsOf } from "../../api/errors";
import { setSecret } from "../../api/secrets";
import type { Secret, SecretRules } from "../../api/types";
import { Button } from "../../components/Button";
import { Check } from "../../components/Check";
import { Dialog } from "../../components/Dialog";
import { Field } from "../../components/Field";
import { Notice } from "../../components/Notice";
import { plainLine } from "../../lib/plain";
import { say } from "../../state/toasts";

const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** Sets a secret: a new one, or another value and other rules for one that is there. */
export function SecretDialog(props: { secret: Secret | null; onClose: () => void; onSet: () => void }) {
  const { secret, onClose, onSet } = props;
  const [name, setName] = useState(secret?.name ?? "");
  const [namespace, setNamespace] = useState(secret?.namespace ?? "");
  const [value, setValue] = useState("");
  const [hosts, setHosts] = useState((secret?.rules.hosts ?? []).join(" "));
  const [headers, setHeaders] = useState((secret?.rules.headers ?? ["authorization"]).join(" "));
  const [methods, setMethods] = useState((secret?.rules.methods ?? []).join(" "));
  const [paths, setPaths] = useState((secret?.rules.paths ?? []).join(" "));
  const [inQuery, setInQuery] = useState(secret?.rules.query ?? false);
  const [inBody, setInBody] = useState(secret?.rules.body ?? false);
  const [error, setError] = useState<string | null>(null);

  const save = async () => {
    const rules: SecretRules = {
      hosts: words(hosts),
      headers: words(headers).map((header) => header.toLowerCase()),
      methods: words(methods).map((method) => method.toUpperCase()),
      paths: words(paths),
      query: inQuery,
      body: inBody,
    };
    try {
      await setSecret(name.trim(), namespace.trim(), rules, value);
    } catch (refused) {
      return setError(wordsOf(refused));
    }
    say(`Set the secret ${plainLine(name.trim())}.`, { tone: "good" });
    onSet();
    onClose();
  };
  return (
    <Dialog
      title={secret ? `Set ${plainLine(secret.name)}` : "New secret"}
      onClose={onClose}
      onSubmit={() => void save()}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" submit disabled={!name.trim() || !value || !hosts.trim()}>
            Set the secret
          </Button>
        </>
      }
    >
      {error && <Notice tone="bad">{error}</Notice>}
      {secret && secret.usedBy.length > 0 && (
        <p class="soft">Running sandboxes that have it use the new value at once.</p>
      )}
      <div class="form-grid">
        {!secret && (
          <>
            <Field label="Name" value={name} onInput={setName} placeholder="GITHUB_TOKEN" mono autoFocus />
            <Field label="Namespace" value={namespace} onInput={setNamespace} placeholder="default" />
          </>
        )}
        <Field
          label="Value"
          type="password"
          value={value}
          onInput={setValue}
          hint="Nobody can read it afterwards, not even you."
          wide
          autoFocus={secret !== null}
        />
        <Field
          label="Hosts"
          value={hosts}
          onInput={setHosts}
          placeholder="api.github.com"
          hint="Exact names, over TLS. The value goes nowhere else."
          wide
          mono
        />
        <Field label="Headers" value={headers} onInput={setHeaders} placeholder="none" mono />
        <Field label="Methods" value={methods} onInput={setMethods} placeholder="all" mono />
        <Field label="Paths that begin with" value={paths} onInput={setPaths} placeholder="all" mono wide />
      </div>
      <div class="stack tight">
        <Check label="Also in the query of the address" checked={inQuery} onChange={setInQuery} />
        <Check label="Also in the body" checked={inBody} onChange={setInBody} />
      </div>
    </Dialog>
  );
}
