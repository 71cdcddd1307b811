import { useState } from "preact/hooks";
import { listShares, revokeShare, type ShareView } from "../../api/session";
import { Button } from "../../components/Button";
import { Dialog } from "../../components/Dialog";
import { Name } from "../../components/Name";
import { Empty, ErrorNotice } from "../../components/Notice";
import { Page } from "../../components/Page";
import { Ago, Until } from "../../components/Time";
import { useLoaded } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { useOthersChanges } from "../../lib/useChanges";
import { to } from "../../state/route";
import { attempt, say } from "../../state/toasts";

/** Addresses with which others watch along, and the way to end one of them. */
export function Shares() {
  const loaded = useLoaded("shares", listShares);
  useOthersChanges(/share/i, loaded.reload);
  const [revoking, setRevoking] = useState<ShareView | null>(null);
  const shares = [...(loaded.value ?? [])].reverse();
  return (
    <Page
      title="Shares"
      about="Whoever has a shared address sees one sandbox, or what one key does, and changes nothing. The address itself is shown once, when it is made."
    >
      {loaded.error !== null && <ErrorNotice error={loaded.error} retry={loaded.reload} />}
      {loaded.value && shares.length === 0 && (
        <Empty title="Nothing is shared">
          <p>"Share" on a sandbox, or where a key is watched, makes an address for others.</p>
        </Empty>
      )}
      {shares.length > 0 && (
        <div class="panel table-scroll" tabIndex={0} role="region" aria-label="Shares">
          <table class="table">
            <thead>
              <tr>
                <th>Shows</th>
                <th>Shared by</th>
                <th class="number">Made</th>
                <th class="number">Ends in</th>
                <th>
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shares.map((share) => (
                <tr key={share.id}>
                  <td>
                    <span class="faint">{share.sandbox ? "sandbox " : "key "}</span>
                    <a href={share.sandbox ? to("sandboxes", share.sandbox) : to("watch", "key", share.shownKey ?? "")}>
                      <strong>
                        <Name text={share.name} />
                      </strong>
                    </a>
                    <div class="mono faint small">{share.id}</div>
                  </td>
                  <td class="soft">
                    <Name text={share.madeBy} />
                  </td>
                  <td class="number soft">
                    <Ago at={share.createdAt} suffix=" ago" />
                  </td>
                  <td class="number soft">
                    <Until at={share.expiresAt} />
                  </td>
                  <td class="actions">
                    <Button small kind="danger" onClick={() => setRevoking(share)}>
                      Revoke
                    </Button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {revoking && <RevokeDialog share={revoking} onClose={() => setRevoking(null)} onDone={loaded.reload} />}
    </Page>
  );
}

function RevokeDialog({ share, onClose, onDone }: { share: ShareView; onClose: () => void; onDone: () => void }) {
  const name = plainLine(share.name);
  const revoke = async () => {
    if (await attempt("Not revoked", () => revokeShare(share.id))) {
      say(`Nobody watches ${name} by that address any more.`, { tone: "good" });
      onClose();
      onDone();
    }
  };
  return (
    <Dialog
      title={`Revoke this share of ${name}?`}
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
      <p>Whoever watches by it sees nothing more, at once. Other shares stay.</p>
    </Dialog>
  );
}
