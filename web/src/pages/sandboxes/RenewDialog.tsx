import { useState } from "preact/hooks";
import { renew } from "../../api/sandboxes";
import type { Sandbox } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Field } from "../../components/Field";
import { plural } from "../../lib/format";
import { LIFETIMES } from "../../lib/lifetimes";
import { plainLine } from "../../lib/plain";
import { attempt, say } from "../../state/toasts";

/** Gives sandboxes a new lifetime, counted from now. */
export function RenewDialog({ sandboxes, onClose }: { sandboxes: Sandbox[]; onClose: () => void }) {
  const [lifetime, setLifetime] = useState("3600000");
  const [onExpiry, setOnExpiry] = useState<"stop" | "remove">(sandboxes[0]?.lifetime.onExpiry ?? "stop");
  const [first] = sandboxes;
  const what =
    sandboxes.length === 1 && first ? plainLine(first.name) : plural(sandboxes.length, "sandbox", "sandboxes");
  const submit = async () => {
    const ttlMs = lifetime === "" ? null : Number(lifetime);
    const isDone = await attempt("Not renewed", () =>
      Promise.all(sandboxes.map((one) => renew(one.id, { ttlMs, onExpiry, idleMs: one.lifetime.idleMs ?? null }))),
    );
    if (!isDone) return;
    say(`Renewed ${what}.`, { tone: "good" });
    onClose();
  };
  return (
    <Dialog
      title={`Renew ${what}`}
      onClose={onClose}
      onSubmit={() => void submit()}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" submit>
            Renew
          </Button>
        </>
      }
    >
      <div class="form-grid">
        <Field label="Lives for" value={lifetime} onInput={setLifetime} options={LIFETIMES} hint="Counted from now." />
        <Field
          label="Then it is"
          value={onExpiry}
          onInput={(value) => setOnExpiry(value === "remove" ? "remove" : "stop")}
          options={[
            { value: "stop", label: "stopped, with its files kept" },
            { value: "remove", label: "removed" },
          ]}
        />
      </div>
    </Dialog>
  );
}
