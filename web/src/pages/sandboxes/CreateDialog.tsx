import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../../api/client";
import { isAbort, wordsOf } from "../../api/errors";
import { listSecrets } from "../../api/secrets";
import { create } from "../../api/sandboxes";
import type { Capabilities, ImageList, PullEvent, VolumeList } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Field } from "../../components/Field";
import { Notice } from "../../components/Notice";
import { bytes } from "../../lib/format";
import { useLoaded } from "../../lib/hooks";
import { LIFETIMES } from "../../lib/lifetimes";
import { PRESETS } from "../../lib/presets";
import { plainText } from "../../lib/plain";
import { go } from "../../state/route";
import { may } from "../../state/session";
import { say } from "../../state/toasts";
import { EMPTY_FORM, type Form, specOf } from "./createForm";

/** Makes a sandbox, with the fields that matter; the rest is in the API. */
export function CreateDialog({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState<Form>(EMPTY_FORM);
  const [progress, setProgress] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const abort = useRef<AbortController | null>(null);
  const images = useLoaded("images", () => get<ImageList>("/v1/images"));
  const capabilities = useLoaded("capabilities", () => get<Capabilities>("/v1/capabilities"));
  const volumes = useLoaded("volumes", () => get<VolumeList>("/v1/volumes"));
  const secrets = useLoaded("secrets", async () => (may("secrets") ? listSecrets() : []));
  useEffect(() => () => abort.current?.abort(), []);

  const set = (change: Partial<Form>) => setForm({ ...form, ...change });
  const field = (name: keyof Form) => ({ value: form[name], onInput: (value: string) => set({ [name]: value }) });
  const names = ["host", ...(images.value?.images.flatMap((image) => image.references) ?? [])];
  const secretNames = (secrets.value ?? []).map((secret) => secret.name);
  const backends = capabilities.value?.backends ?? [];

  const submit = async () => {
    const spec = specOf(form);
    if (typeof spec === "string") return setError(spec);
    setError(null);
    setProgress("Creating…");
    abort.current = new AbortController();
    try {
      for await (const event of create(spec, abort.current.signal)) {
        if (event.type === "created") {
          onClose();
          say(`Created ${event.sandbox.name}.`, { tone: "good" });
          go("sandboxes", event.sandbox.id);
          return;
        }
        setProgress(pullWords(event));
      }
      setError("The daemon ended without an answer.");
    } catch (refused) {
      if (!isAbort(refused)) setError(wordsOf(refused));
    } finally {
      setProgress(null);
    }
  };

  return (
    <Dialog
      title="New sandbox"
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          {progress && (
            <span class="faint push-right" role="status">
              {progress}
            </span>
          )}
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" submit disabled={progress !== null}>
            Create
          </Button>
        </>
      }
    >
      {error && <Notice tone="bad">{plainText(error)}</Notice>}
      <div class="form-grid">
        <Field label="Name" {...field("name")} placeholder="chosen by the daemon" autoFocus />
        <Field label="Image" {...field("image")} suggestions={names} hint="host is the machine's own programs." />
        <Field label="Memory" {...field("memory")} placeholder="default" hint="Such as 512m or 2g." />
        <Field label="CPUs" {...field("cpus")} placeholder="default" hint="Such as 0.5 or 2." />
        <Field label="Disk" {...field("disk")} placeholder="default" hint="Such as 10g." />
        <Field label="Lives for" {...field("ttlMs")} options={LIFETIMES} />
        <Field
          label="Ends when idle for"
          {...field("idleMs")}
          options={LIFETIMES}
          hint="Without a request or a living process."
        />
        <Field label="Network" {...field("preset")} options={PRESETS} />
        <Field label="Also allowed" {...field("allow")} placeholder="api.example.org, *.example.org:443" />
        {backends.length > 1 && (
          <Field
            label="Walls"
            {...field("backend")}
            options={[
              { value: "", label: "as the daemon chooses" },
              ...backends.map((one) => ({ value: one, label: one })),
            ]}
          />
        )}
        <Field
          label="Ports to open"
          {...field("ports")}
          placeholder="8000, 3000"
          hint="Published at free ports of the host."
        />
        {(volumes.value?.volumes.length ?? 0) > 0 && (
          <Field
            label="Volume"
            {...field("volume")}
            options={[
              { value: "", label: "none" },
              ...(volumes.value?.volumes ?? []).map((volume) => ({ value: volume.name, label: volume.name })),
            ]}
            hint="Mounted at /mnt/<name>."
          />
        )}
        {secretNames.length > 0 && (
          <Field
            label="Secrets"
            {...field("secrets")}
            suggestions={secretNames}
            placeholder={secretNames[0] ?? ""}
            hint="Their names, separated by commas. Programs see placeholders."
          />
        )}
        <Field label="Labels" {...field("labels")} lines={2} placeholder={"team=research\nrun=42"} wide />
        <Field label="Environment" {...field("env")} lines={2} placeholder={"NAME=value"} wide mono />
      </div>
    </Dialog>
  );
}

function pullWords(event: PullEvent): string {
  switch (event.type) {
    case "resolved":
      return `Fetching the image: ${event.layers.length} layers, ${bytes(event.layers.reduce((sum, layer) => sum + layer.bytes, 0))}`;
    case "layer":
      return event.total
        ? `Fetching the image: ${bytes(event.bytes ?? 0)} of ${bytes(event.total)}`
        : `Image layer: ${event.state}`;
    case "retrying":
      return `The registry does not answer; trying again (${plainText(event.why)})`;
    default:
      return "Creating…";
  }
}
