import { useState } from "preact/hooks";
import { CodeBlock } from "../../components/CodeBlock";
import { Notice } from "../../components/Notice";
import { Page } from "../../components/Page";
import { Segments } from "../../components/Segments";
import { to } from "../../state/route";
import { may, session } from "../../state/session";
import { type Client, overHttp, overRest, overStdio } from "./clients";

type Way = "http" | "stdio" | "rest";

/** How agents and programs reach this daemon, ready to copy. */
export function Connect() {
  const [way, setWay] = useState<Way>("http");
  const { origin } = location;
  const needsKey = session.value?.who !== "dev";
  const clients: Record<Way, Client[]> = {
    http: overHttp(origin, needsKey),
    stdio: overStdio(),
    rest: overRest(origin, needsKey),
  };
  return (
    <Page
      title="Connect"
      about={`Configuration for clients, with this daemon's address as your browser sees it: ${origin}`}
    >
      <div class="row">
        <Segments
          label="How to connect"
          value={way}
          options={[
            { value: "http", label: "MCP over HTTP" },
            { value: "stdio", label: "MCP on this machine" },
            { value: "rest", label: "REST" },
          ]}
          onChange={setWay}
        />
      </div>
      {needsKey && way !== "stdio" && (
        <Notice>
          Put a key in place of <code>wrn_…</code>.{" "}
          {may("keys") ? <a href={to("keys")}>Make a key</a> : "Ask the operator for one."}
        </Notice>
      )}
      <div class="columns">
        {clients[way].map((client) => (
          <section key={client.name} class="stack tight">
            <h2>{client.name}</h2>
            <p class="faint small">{client.where}</p>
            <CodeBlock text={client.text} label={`the configuration for ${client.name}`} />
          </section>
        ))}
      </div>
    </Page>
  );
}
