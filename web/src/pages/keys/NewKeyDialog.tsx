import { useState } from "preact/hooks";
import { send } from "../../api/client";
import type { KeyRequest, NewKey, Preset } from "../../api/types";
import { wordsOf } from "../../api/errors";
import { Button } from "../../components/Button";
import { Check } from "../../components/Check";
import { CodeBlock } from "../../components/CodeBlock";
import { Dialog } from "../../components/Dialog";
import { Field } from "../../components/Field";
import { Notice } from "../../components/Notice";
import { LIFETIMES } from "../../lib/lifetimes";
import { readLines } from "../../lib/pairs";
import { PRESETS } from "../../lib/presets";
import { readSize } from "../../lib/sizes";

/** Makes a key and shows its secret, once. */
export function NewKeyDialog({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
  const [label, setLabel] = useState("");
  const [namespace, setNamespace] = useState("");
  const [isForAll, setForAll] = useState(false);
  const [isReadOnly, setReadOnly] = useState(false);
  const [maxSandboxes, setMaxSandboxes] = useState("");
  const [maxMemory, setMaxMemory] = useState("");
  const [expires, setExpires] = useState("2592000000");
  const [preset, setPreset] = useState("");
  const [rules, setRules] = useState("");
  const [made, setMade] = useState<NewKey | null>(null);
  const [error, setError] = useState<string | null>(null);

  const make = async () => {
    const memory = maxMemory ? readSize(maxMemory) : undefined;
    if (memory === null || memory === 0) return setError(`"${maxMemory}" is not a size. Write it like 8g.`);
    const asked: KeyRequest = {
      ...(label.trim() && { label: label.trim() }),
      ...(isForAll ? { allNamespaces: true } : namespace.trim() && { namespace: namespace.trim() }),
      ...(maxSandboxes && { maxSandboxes: Number(maxSandboxes) }),
      ...(memory && { maxMemory: memory }),
      ...(expires && { expiresInMs: Number(expires) }),
      ...(preset && { network: { preset: preset as Preset, rules: readLines(rules) } }),
      readOnly: isReadOnly,
    };
    try {
      setMade(await send<NewKey>("POST", "/v1/keys", asked));
      onMade();
    } catch (refused) {
      setError(wordsOf(refused));
    }
  };

  if (made) {
    return (
      <Dialog
        title="The key is made"
        onClose={onClose}
        sticky
        foot={
          <Button kind="primary" onClick={onClose}>
            Done
          </Button>
        }
      >
        <Notice tone="warn">This is the only time that the secret is shown. Copy it now.</Notice>
        <CodeBlock text={made.secret} label="the secret" />
        <p class="faint">
          Clients send it as <code>Authorization: Bearer …</code>
        </p>
      </Dialog>
    );
  }
  return (
    <Dialog
      title="New key"
      onClose={onClose}
      onSubmit={() => void make()}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" submit>
            Make the key
          </Button>
        </>
      }
    >
      {error && <Notice tone="bad">{error}</Notice>}
      <div class="form-grid">
        <Field label="Label" value={label} onInput={setLabel} placeholder="ana" autoFocus />
        <Field
          label="Namespace"
          value={isForAll ? "" : namespace}
          onInput={setNamespace}
          placeholder={isForAll ? "all" : "default"}
        />
        <Field
          label="Most sandboxes"
          type="number"
          value={maxSandboxes}
          onInput={setMaxSandboxes}
          placeholder="no limit"
        />
        <Field
          label="Most memory"
          value={maxMemory}
          onInput={setMaxMemory}
          placeholder="no limit"
          hint="Of all its sandboxes together, such as 8g."
        />
        <Field label="Expires after" value={expires} onInput={setExpires} options={LIFETIMES} />
        <Field
          label="Most network"
          value={preset}
          onInput={setPreset}
          options={[{ value: "", label: "no limit of its own" }, ...PRESETS]}
          hint="What its sandboxes reach at most, whatever they ask for."
        />
        {preset && (
          <Field
            label="Also reached"
            value={rules}
            onInput={setRules}
            placeholder="api.example.org, deny *.corp.example"
          />
        )}
      </div>
      <div class="stack tight">
        <Check label="It may look and change nothing" checked={isReadOnly} onChange={setReadOnly} />
        <Check label="It sees every namespace" checked={isForAll} onChange={setForAll} />
      </div>
    </Dialog>
  );
}
