import { useState } from "preact/hooks";
import { listSecrets, removeSecret } from "../../api/secrets";
import type { Secret } from "../../api/types";
import { Button } from "../../components/Button";
import { Name } from "../../components/Name";
import { Empty, ErrorNotice } from "../../components/Notice";
import { Page } from "../../components/Page";
import { Ago } from "../../components/Time";
import { plural } from "../../lib/format";
import { useLoaded } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { useOthersChanges, useSandboxesChanged } from "../../lib/useChanges";
import { to } from "../../state/route";
import { sandboxes } from "../../state/sandboxes";
import { may } from "../../state/session";
import { leaving, removeLater } from "../../state/undo";
import { SecretDialog } from "./SecretDialog";

const idOf = (secret: Secret) => `secret ${secret.namespace}/${secret.name}`;

/** Secrets: where their values may go and what uses them. The values themselves never come back to a browser. */
export function Secrets() {
  const loaded = useLoaded("secrets", listSecrets);
  useOthersChanges(/secret/i, loaded.reload);
  useSandboxesChanged(loaded.reload);
  const [editing, setEditing] = useState<Secret | "new" | null>(null);
  const canManage = may("manageSecrets");
  const secrets = (loaded.value ?? []).filter((secret) => !leaving.value.has(idOf(secret)));
  const remove = (secret: Secret) => {
    const users = secret.usedBy.length;
    const loses = users ? ` ${plural(users, "sandbox loses", "sandboxes lose")} it.` : "";
    removeLater(`Removing the secret ${plainLine(secret.name)}.${loses}`, [idOf(secret)], async () => {
      await removeSecret(secret);
      loaded.reload();
    });
  };
  return (
    <Page
      title="Secrets"
      about="A sandbox sees a placeholder. The daemon puts the value in its place, on the way to the hosts that the secret is for. Values are shown nowhere."
      actions={
        canManage && (
          <Button kind="primary" icon="plus" onClick={() => setEditing("new")}>
            New secret
          </Button>
        )
      }
    >
      {loaded.error !== null && <ErrorNotice error={loaded.error} retry={loaded.reload} />}
      {loaded.value && secrets.length === 0 && <NoSecrets canManage={canManage} />}
      {secrets.length > 0 && (
        <div class="panel table-scroll" tabIndex={0} role="region" aria-label="Secrets">
          <table class="table">
            <thead>
              <tr>
                <th>Secret</th>
                <th>Namespace</th>
                <th>For</th>
                <th>Used by</th>
                <th class="number">Last used</th>
                <th class="number">Set</th>
                <th>
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {secrets.map((secret) => (
                <Row
                  key={idOf(secret)}
                  secret={secret}
                  onEdit={canManage ? () => setEditing(secret) : null}
                  onRemove={() => remove(secret)}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {editing && (
        <SecretDialog
          secret={editing === "new" ? null : editing}
          onClose={() => setEditing(null)}
          onSet={loaded.reload}
        />
      )}
    </Page>
  );
}

function NoSecrets({ canManage }: { canManage: boolean }) {
  return (
    <Empty title="No secrets yet">
      <p>
        {canManage
          ? "A secret lets code in a sandbox use a service, such as an API, without ever seeing its key."
          : "The user who runs the daemon sets secrets."}
      </p>
    </Empty>
  );
}

type RowProps = { secret: Secret; onEdit: (() => void) | null; onRemove: () => void };

function Row({ secret, onEdit, onRemove }: RowProps) {
  return (
    <tr>
      <td>
        <strong>
          <Name text={secret.name} mono />
        </strong>
      </td>
      <td class="soft">
        <Name text={secret.namespace} />
      </td>
      <td>
        {secret.rules.hosts.map((host) => (
          <div key={host} class="mono">
            <Name text={host} mono />
          </div>
        ))}
        <div class="faint small">{placesOf(secret)}</div>
      </td>
      <td>
        <Users secret={secret} />
      </td>
      <td class="number soft">{secret.lastUsedAt ? <Ago at={secret.lastUsedAt} suffix=" ago" /> : "never"}</td>
      <td class="number soft">
        <Ago at={secret.updatedAt} suffix=" ago" />
      </td>
      <td class="actions">
        {onEdit && (
          <span class="row tight nowrap">
            <Button small onClick={onEdit}>
              Set
            </Button>
            <Button
              small
              kind="quiet"
              icon="trash"
              label={`Remove the secret ${plainLine(secret.name)}`}
              onClick={onRemove}
            />
          </span>
        )}
      </td>
    </tr>
  );
}

/** Where in a request the value stands. */
function placesOf({ rules }: Secret): string {
  const places = [
    ...(rules.headers ?? []).map((header) => `header ${plainLine(header)}`),
    rules.query ? "query" : null,
    rules.body ? "body" : null,
    rules.methods?.length ? rules.methods.map(plainLine).join(" ") : null,
    rules.paths?.length ? rules.paths.map(plainLine).join(" ") : null,
  ];
  return places.filter(Boolean).join(" · ");
}

function Users({ secret }: { secret: Secret }) {
  if (secret.usedBy.length === 0) return <span class="faint">nothing</span>;
  const all = [...sandboxes.value.values()].filter((sandbox) => sandbox.namespace === secret.namespace);
  return (
    <span class="row tight">
      {secret.usedBy.map((name) => {
        const found = all.find((sandbox) => sandbox.name === name);
        return found ? (
          <a key={name} href={to("sandboxes", found.id)}>
            <Name text={name} />
          </a>
        ) : (
          <Name key={name} text={name} />
        );
      })}
    </span>
  );
}
