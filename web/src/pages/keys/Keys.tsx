import { useState } from "preact/hooks";
import { path, send } from "../../api/client";
import type { Key } from "../../api/types";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Icon } from "../../components/Icon";
import { Name } from "../../components/Name";
import { Empty, ErrorNotice } from "../../components/Notice";
import { Page } from "../../components/Page";
import { Ago, Until } from "../../components/Time";
import { bytes } from "../../lib/format";
import { useLoaded } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { useOthersChanges } from "../../lib/useChanges";
import { loadKeys } from "../../state/keys";
import { to } from "../../state/route";
import { attempt, say } from "../../state/toasts";
import { NewKeyDialog } from "./NewKeyDialog";

/** Keys: who may use the daemon, and how much of it. */
export function Keys() {
  const loaded = useLoaded("keys", loadKeys);
  useOthersChanges(/key/i, loaded.reload);
  const [isMaking, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<Key | null>(null);
  const keys = [...(loaded.value ?? [])].reverse();
  return (
    <Page
      title="Keys"
      about="A key opens one namespace, or all, with limits of its own. Its secret is shown once, when it is made."
      actions={
        <Button kind="primary" icon="plus" onClick={() => setMaking(true)}>
          New key
        </Button>
      }
    >
      {loaded.error !== null && <ErrorNotice error={loaded.error} retry={loaded.reload} />}
      {loaded.value && keys.length === 0 && <Empty title="No keys yet" />}
      {keys.length > 0 && (
        <div class="panel table-scroll" tabIndex={0} role="region" aria-label="Keys">
          <table class="table">
            <thead>
              <tr>
                <th>Key</th>
                <th>Namespace</th>
                <th>May</th>
                <th>Limits</th>
                <th class="number">Last used</th>
                <th class="number">Expires</th>
                <th>
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {keys.map((key) => (
                <tr key={key.id} class={key.revokedAt ? "faint" : undefined}>
                  <td>
                    <strong>{key.label ? <Name text={key.label} /> : <span class="faint">no label</span>}</strong>
                    <div class="mono faint">{plainLine(key.id)}</div>
                  </td>
                  <td>{key.namespace ? <Name text={key.namespace} /> : "all"}</td>
                  <td>{key.readOnly ? <span class="badge">look</span> : <span class="badge accent">change</span>}</td>
                  <td class="soft">{limitsOf(key)}</td>
                  <td class="number soft">{key.lastUsedAt ? <Ago at={key.lastUsedAt} suffix=" ago" /> : "never"}</td>
                  <td class="number soft">
                    {key.revokedAt ? <span class="badge bad">revoked</span> : <Until at={key.expiresAt} />}
                  </td>
                  <td class="actions">
                    {!key.revokedAt && (
                      <span class="row tight nowrap">
                        <a class="button small" href={to("watch", "key", key.id)}>
                          <Icon name="eye" />
                          Watch
                        </a>
                        <Button small kind="danger" onClick={() => setRevoking(key)}>
                          Revoke
                        </Button>
                      </span>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {isMaking && <NewKeyDialog onClose={() => setMaking(false)} onMade={loaded.reload} />}
      {revoking && <RevokeDialog apiKey={revoking} onClose={() => setRevoking(null)} onDone={loaded.reload} />}
    </Page>
  );
}

function limitsOf(key: Key): string {
  const limits = [
    key.maxSandboxes !== null && key.maxSandboxes !== undefined ? `${key.maxSandboxes} sandboxes` : null,
    key.maxMemory ? `${bytes(key.maxMemory)} of memory` : null,
    key.network ? `network ${key.network.preset ?? "by rules"}` : null,
  ];
  return limits.filter(Boolean).join(", ") || "none";
}

function RevokeDialog({ apiKey, onClose, onDone }: { apiKey: Key; onClose: () => void; onDone: () => void }) {
  const name = plainLine(apiKey.label ?? apiKey.id);
  const revoke = async () => {
    if (await attempt("Not revoked", () => send("DELETE", path("keys", apiKey.id)))) {
      say(`Revoked ${name}.`, { tone: "good" });
      onClose();
      onDone();
    }
  };
  return (
    <Dialog
      title={`Revoke ${name}?`}
      onClose={onClose}
      onSubmit={() => void revoke()}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" submit>
            Revoke
          </Button>
        </>
      }
    >
      <p>The key opens nothing from now on, and what it holds open ends. This cannot be undone. Its sandboxes stay.</p>
    </Dialog>
  );
}
