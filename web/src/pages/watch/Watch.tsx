import { useState } from "preact/hooks";
import type { Watch as What } from "../../api/session";
import { Button } from "../../components/Button";
import { Icon } from "../../components/Icon";
import { Name } from "../../components/Name";
import { ShareDialog } from "../../components/ShareDialog";
import { StateBadge } from "../../components/StateBadge";
import { ThemeButton } from "../../components/ThemeButton";
import { bytes, percent } from "../../lib/format";
import { useTitle } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { makerName } from "../../state/keys";
import { connection } from "../../state/live";
import { to } from "../../state/route";
import { findSandbox, sandboxes } from "../../state/sandboxes";
import { may, session } from "../../state/session";
import { usage } from "../../state/usage";
import { Feed } from "./Feed";

/** Follows one sandbox, or one key, live: calls, commands with their output, files and pictures. */
export function Watch({ watch, isShared }: { watch: What; isShared?: boolean }) {
  const [isSharing, setSharing] = useState(false);
  const sandbox = watch.sandbox ? findSandbox(watch.sandbox) : undefined;
  const name = watch.sandbox ? (sandbox?.name ?? "sandbox") : `key ${makerName(watch.key)}`;
  useTitle(`Watching ${plainLine(name)}`);
  const what = watch.sandbox ? { sandbox: sandbox?.id ?? watch.sandbox } : { key: watch.key ?? "" };
  const ids = watch.sandbox
    ? [what.sandbox ?? ""]
    : [...sandboxes.value.values()]
        .filter((one) => one.owner === watch.key || isShared)
        .sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1))
        .map((one) => one.id);
  const page = (
    <div class="page">
      <header class="page-head">
        {!isShared && watch.sandbox && (
          <a class="button quiet icon" href={to("sandboxes", what.sandbox ?? "")} aria-label="Back to the sandbox">
            <Icon name="left" />
          </a>
        )}
        <h1 class="cut">
          <span class="faint">Watching</span> <Name text={name} />
        </h1>
        {sandbox && <StateBadge sandbox={sandbox} />}
        <span class={`pulse small faint ${connection.value}`}>
          {connection.value === "live" ? "live" : "connecting"}
        </span>
        <div class="actions row">
          {isShared && <ThemeButton />}
          {!isShared && may("share") && (
            <Button icon="link" onClick={() => setSharing(true)}>
              Share
            </Button>
          )}
        </div>
        {isShared && session.value?.expiresAt && (
          <p class="about">You look on with an address that was shared with you. It shows this and changes nothing.</p>
        )}
      </header>
      <div class="page-body">
        {sandbox && <UsageLine id={sandbox.id} />}
        <Feed ids={ids} keyId={watch.key ?? null} isForKey={!watch.sandbox} isShared={isShared ?? false} />
      </div>
      {isSharing && (
        <ShareDialog
          what={watch.sandbox ? { sandbox: what.sandbox ?? "" } : { key: watch.key ?? "" }}
          onClose={() => setSharing(false)}
        />
      )}
    </div>
  );
  return isShared ? <main class="main shared">{page}</main> : page;
}

function UsageLine({ id }: { id: string }) {
  const last = usage.value.get(id)?.at(-1);
  return (
    <div class="cards">
      <div class="card">
        <span class="label">CPU</span>
        <span class="value">{percent(last?.cpuPercent)}</span>
      </div>
      <div class="card">
        <span class="label">Memory</span>
        <span class="value">{bytes(last?.memoryBytes)}</span>
      </div>
      <div class="card">
        <span class="label">Disk</span>
        <span class="value">{bytes(last?.diskBytes)}</span>
      </div>
      <div class="card">
        <span class="label">Processes</span>
        <span class="value">{last?.processes ?? "–"}</span>
      </div>
    </div>
  );
}
