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
import { Palette } from "./components/Palette";
import { Side } from "./Side";
import { connection } from "./state/live";
import { route } from "./state/route";

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
  const [page, first, second] = route.value.parts;
  switch (page) {
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
      return first ? <OneSandbox which={first} tab={second ?? "overview"} /> : <Sandboxes />;
  }
}
