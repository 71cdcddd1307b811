import { useState } from "preact/hooks";
import type { Sandbox } from "../../api/types";
import { fork } from "../../api/sandboxes";
import { Button } from "../../components/Button";
import { CopyButton } from "../../components/CopyButton";
import { Icon } from "../../components/Icon";
import { Menu, type MenuItem } from "../../components/Menu";
import { Name } from "../../components/Name";
import { ShareDialog } from "../../components/ShareDialog";
import { StateBadge } from "../../components/StateBadge";
import { actOn, allows, removeSandboxes } from "../../state/actions";
import { go, to } from "../../state/route";
import { canChange, may } from "../../state/session";
import { attempt, say } from "../../state/toasts";
import { RenewDialog } from "../sandboxes/RenewDialog";

/** The name, the state and what can be done with the sandbox as a whole. */
export function SandboxHead({ sandbox }: { sandbox: Sandbox }) {
  const [dialog, setDialog] = useState<"renew" | "share" | null>(null);
  const close = () => setDialog(null);
  return (
    <header class="page-head">
      <a class="button quiet icon" href={to("sandboxes")} aria-label="All sandboxes" title="All sandboxes">
        <Icon name="left" />
      </a>
      <h1 class="cut">
        <Name text={sandbox.name} />
      </h1>
      <StateBadge sandbox={sandbox} />
      <span class="row tight faint mono nowrap head-id">
        {sandbox.id}
        <CopyButton text={sandbox.id} label="Copy the id" />
      </span>
      <div class="actions row">
        {canChange.value && <MainAction sandbox={sandbox} />}
        <a class="button" href={to("watch", "sandbox", sandbox.id)}>
          <Icon name="eye" />
          Watch
        </a>
        <Menu label="More actions" items={more(sandbox, setDialog)} />
      </div>
      {dialog === "renew" && <RenewDialog sandboxes={[sandbox]} onClose={close} />}
      {dialog === "share" && <ShareDialog what={{ sandbox: sandbox.id }} onClose={close} />}
    </header>
  );
}

function MainAction({ sandbox }: { sandbox: Sandbox }) {
  if (allows(sandbox, "start")) {
    return (
      <Button kind="primary" icon="play" onClick={() => void actOn([sandbox], "start")}>
        Start
      </Button>
    );
  }
  return (
    <>
      {allows(sandbox, "resume") && (
        <Button kind="primary" icon="play" onClick={() => void actOn([sandbox], "resume")}>
          Resume
        </Button>
      )}
      {allows(sandbox, "pause") && (
        <Button icon="pause" onClick={() => void actOn([sandbox], "pause")}>
          Pause
        </Button>
      )}
      {allows(sandbox, "stop") && (
        <Button icon="stop" onClick={() => void actOn([sandbox], "stop")}>
          Stop
        </Button>
      )}
    </>
  );
}

function more(sandbox: Sandbox, open: (dialog: "renew" | "share") => void): MenuItem[] {
  const items: MenuItem[] = [];
  if (canChange.value) {
    if (allows(sandbox, "restart"))
      items.push({ label: "Restart", icon: "refresh", run: () => void actOn([sandbox], "restart") });
    items.push({ label: "Renew…", icon: "clock", run: () => open("renew") });
    items.push({ label: "Fork", icon: "branch", run: () => void forkIt(sandbox) });
  }
  if (may("share")) items.push({ label: "Share…", icon: "link", run: () => open("share") });
  if (canChange.value) {
    items.push({
      label: "Remove",
      icon: "trash",
      danger: true,
      run: () => {
        removeSandboxes([sandbox]);
        go("sandboxes");
      },
    });
  }
  return items;
}

async function forkIt(sandbox: Sandbox): Promise<void> {
  await attempt("Not forked", async () => {
    const { forks } = await fork(sandbox.id, 1);
    const [made] = forks;
    if (!made) return;
    say(`Forked into ${made.name}.`, { tone: "good", action: { label: "Open", run: () => go("sandboxes", made.id) } });
  });
}
