import { useState } from "preact/hooks";
import { get, path, send } from "../../api/client";
import type { Endpoint, Port, PortList, Sandbox } from "../../api/types";
import { Button } from "../../components/Button";
import { Empty, ErrorNotice } from "../../components/Notice";
import { Panel } from "../../components/Panel";
import { useLoaded } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { useProcessesChanged } from "../../lib/useChanges";
import { canChange } from "../../state/session";
import { attempt, say } from "../../state/toasts";

/** What listens inside, and the ways to it from outside. */
export function Ports({ sandbox }: { sandbox: Sandbox }) {
  const ports = useLoaded(
    `ports ${sandbox.id} ${sandbox.state}`,
    () => get<PortList>(path("sandboxes", sandbox.id, "ports")),
    sandbox.runningExecs,
  );
  useProcessesChanged(sandbox.id, ports.reload);
  const all = ports.value?.ports ?? [];
  return (
    <div class="page-body">
      {canChange.value && <OpenPort sandbox={sandbox} reload={ports.reload} />}
      {ports.error !== null && <ErrorNotice error={ports.error} retry={ports.reload} />}
      <Panel
        title="Ports"
        flush
        actions={
          <Button small kind="quiet" icon="refresh" onClick={ports.reload}>
            Look again
          </Button>
        }
      >
        {all.length === 0 ? (
          ports.value && (
            <Empty title="Nothing listens">
              <p>When a program in the sandbox opens a port, it appears here and can be opened in the browser.</p>
            </Empty>
          )
        ) : (
          <div class="table-scroll" tabIndex={0} role="region" aria-label="Ports">
            <table class="table">
              <thead>
                <tr>
                  <th class="number">Port</th>
                  <th>Program</th>
                  <th>Addresses</th>
                  <th>From outside</th>
                  <th>
                    <span class="visually-hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {all.map((port) => (
                  <PortRow key={`${port.protocol} ${port.port}`} sandbox={sandbox} port={port} reload={ports.reload} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
    </div>
  );
}

function PortRow({ sandbox, port, reload }: { sandbox: Sandbox; port: Port; reload: () => void }) {
  const ways = [
    port.public ? "public" : null,
    port.published ? `published at ${plainLine(port.published)}` : null,
  ].filter(Boolean);
  const isTcp = (port.protocol ?? "tcp") === "tcp";
  return (
    <tr>
      <td class="number">
        <strong>{port.port}</strong>
        <span class="faint">/{port.protocol ?? "tcp"}</span>
      </td>
      <td>
        {port.process ? (
          plainLine(port.process)
        ) : (
          <span class="faint">{port.listening === false ? "nothing listens" : "–"}</span>
        )}
        {port.pid ? <span class="faint"> · {port.pid}</span> : null}
      </td>
      <td class="mono">{(port.addresses ?? []).map(plainLine).join(", ") || "–"}</td>
      <td>
        {port.failed ? (
          <span class="bad">{plainLine(port.failed)}</span>
        ) : ways.length ? (
          ways.join(", ")
        ) : (
          <span class="faint">by signed address</span>
        )}
      </td>
      <td class="actions">
        <span class="row tight nowrap">
          {canChange.value && isTcp && port.listening !== false && (
            <Button small icon="out" onClick={() => void openPort(sandbox, port.port)}>
              Open
            </Button>
          )}
          {canChange.value && ways.length > 0 && (
            <Button
              small
              kind="danger"
              onClick={() =>
                void attempt("Not withdrawn", async () => {
                  await send("DELETE", path("sandboxes", sandbox.id, "ports", port.port));
                  reload();
                })
              }
            >
              Withdraw
            </Button>
          )}
        </span>
      </td>
    </tr>
  );
}

/** Opens a port's own address in a new tab that knows nothing of this one. */
async function openPort(sandbox: Sandbox, port: number): Promise<void> {
  await attempt("Not opened", async () => {
    const endpoint = await send<Endpoint>("POST", path("sandboxes", sandbox.id, "ports"), { port });
    if (endpoint.url) window.open(endpoint.url, "_blank", "noopener,noreferrer");
    else say("The daemon does not listen on TCP, so there is no address for browsers.", { tone: "bad" });
  });
}

function OpenPort({ sandbox, reload }: { sandbox: Sandbox; reload: () => void }) {
  const [port, setPort] = useState("");
  const expose = (event: Event) => {
    event.preventDefault();
    void attempt("Not exposed", async () => {
      await send<Endpoint>("POST", path("sandboxes", sandbox.id, "ports"), { port: Number(port), public: true });
      setPort("");
      reload();
    });
  };
  return (
    <form class="row" onSubmit={expose}>
      <input
        class="input narrow"
        type="number"
        min={1}
        max={65535}
        aria-label="Port to make public"
        placeholder="Port"
        value={port}
        onInput={(event) => setPort(event.currentTarget.value)}
      />
      <Button submit disabled={!port}>
        Make public
      </Button>
      <span class="faint small">
        A public port is open to everyone who can reach the daemon. Others need a signed address.
      </span>
    </form>
  );
}
