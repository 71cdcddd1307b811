import { Audit } from "./pages/Audit";
import { Connect } from "./pages/connect/Connect";
import { Doctor } from "./pages/Doctor";
import { Fleet } from "./pages/fleet/Fleet";
import { Keys } from "./pages/keys/Keys";
import { Requests } from "./pages/requests/Requests";
import { OneSandbox } from "./pages/sandbox/OneSandbox";
import { Sandboxes } from "./pages/sandboxes/Sandboxes";
import { Secrets } from "./pages/secrets/Secrets";
import { Shares } from "./pages/shares/Shares";
import { Watch } from "./pages/watch/Watch";
import { Empty } from "./components/Notice";
import { Palette } from "./components/Palette";
import { mayGo, Side } from "./Side";
import { useTitle } from "./lib/hooks";
import { connection } from "./state/live";
import { route, to } from "./state/route";

export function Shell() {
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={skip}>
        Skip to content
      </a>
      <Side />
      <main class="main" id="content" tabIndex={-1}>
        {connection.value === "lost" && (
          <div class="banner" role="alert">
            The connection to the daemon is lost. The page shows the last state and connects again by itself.
          </div>
        )}
        <Current />
      </main>
      <Palette />
    </div>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

function Current() {
  const [page = "sandboxes", first, second] = route.value.parts;
  if (!mayGo(page)) return <Nowhere title="Your key does not open this page" />;
  switch (page) {
    case "sandboxes":
      return first ? <OneSandbox which={first} tab={second ?? "overview"} /> : <Sandboxes />;
    case "fleet":
      return <Fleet />;
    case "keys":
      return <Keys />;
    case "requests":
      return <Requests />;
    case "secrets":
      return <Secrets />;
    case "shares":
      return <Shares />;
    case "audit":
      return <Audit />;
    case "doctor":
      return <Doctor />;
    case "connect":
      return <Connect />;
    case "watch":
      return <Watch watch={first === "key" ? { key: second ?? "" } : { sandbox: second ?? "" }} />;
    default:
      return <Nowhere title="There is no such page" />;
  }
}

function Nowhere({ title }: { title: string }) {
  useTitle(title);
  return (
    <Empty title={title}>
      <a class="button" href={to("sandboxes")}>
        All sandboxes
      </a>
    </Empty>
  );
}
