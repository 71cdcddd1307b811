import { useState } from "preact/hooks";
import type { Sandbox } from "../../api/types";
import { Menu, type MenuItem } from "../../components/Menu";
import { plainLine } from "../../lib/plain";
import { actOn, allows, removeSandboxes } from "../../state/actions";
import { go } from "../../state/route";
import { canChange } from "../../state/session";
import { RenewDialog } from "./RenewDialog";

/** What can be done with one sandbox now. */
export function SandboxMenu({ sandbox }: { sandbox: Sandbox }) {
  const [isRenewing, setRenewing] = useState(false);
  const items: MenuItem[] = [];
  if (canChange.value) {
    if (allows(sandbox, "start"))
      items.push({ label: "Start", icon: "play", run: () => void actOn([sandbox], "start") });
    if (allows(sandbox, "resume"))
      items.push({ label: "Resume", icon: "play", run: () => void actOn([sandbox], "resume") });
    if (allows(sandbox, "pause"))
      items.push({ label: "Pause", icon: "pause", run: () => void actOn([sandbox], "pause") });
    if (allows(sandbox, "stop")) items.push({ label: "Stop", icon: "stop", run: () => void actOn([sandbox], "stop") });
    if (allows(sandbox, "pause"))
      items.push({ label: "Open a terminal", icon: "terminal", run: () => go("sandboxes", sandbox.id, "terminal") });
    items.push({ label: "Renew…", icon: "clock", run: () => setRenewing(true) });
  }
  items.push({ label: "Watch along", icon: "eye", run: () => go("watch", "sandbox", sandbox.id) });
  if (canChange.value)
    items.push({ label: "Remove", icon: "trash", danger: true, run: () => removeSandboxes([sandbox]) });
  return (
    <>
      <Menu label={`Actions for ${plainLine(sandbox.name)}`} items={items} small />
      {isRenewing && <RenewDialog sandboxes={[sandbox]} onClose={() => setRenewing(false)} />}
    </>
  );
}
