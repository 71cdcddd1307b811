import { useState } from "preact/hooks";
import type { Sandbox } from "../../api/types";
import { Button } from "../../components/Button";
import { actOn, allows, removeSandboxes } from "../../state/actions";
import type { SandboxAction } from "../../api/sandboxes";
import type { IconName } from "../../components/Icon";
import { RenewDialog } from "./RenewDialog";

const ACTIONS: { action: SandboxAction; label: string; icon: IconName }[] = [
  { action: "start", label: "Start", icon: "play" },
  { action: "resume", label: "Resume", icon: "play" },
  { action: "pause", label: "Pause", icon: "pause" },
  { action: "stop", label: "Stop", icon: "stop" },
];

/** Actions on all selected sandboxes. Those that fit none of them are not offered. */
export function BulkBar({ chosen, clear }: { chosen: Sandbox[]; clear: () => void }) {
  const [isRenewing, setRenewing] = useState(false);
  return (
    <div class="bulk-bar" role="region" aria-label="Selected sandboxes">
      <strong class="number">{chosen.length.toLocaleString()} selected</strong>
      {ACTIONS.filter(({ action }) => chosen.some((sandbox) => allows(sandbox, action))).map(
        ({ action, label, icon }) => (
          <Button key={action} small icon={icon} onClick={() => void actOn(chosen, action)}>
            {label}
          </Button>
        ),
      )}
      <Button small icon="clock" onClick={() => setRenewing(true)}>
        Renew
      </Button>
      <Button
        small
        kind="danger"
        icon="trash"
        onClick={() => {
          removeSandboxes(chosen);
          clear();
        }}
      >
        Remove
      </Button>
      <Button small kind="quiet" onClick={clear}>
        Clear
      </Button>
      {isRenewing && <RenewDialog sandboxes={chosen} onClose={() => setRenewing(false)} />}
    </div>
  );
}
