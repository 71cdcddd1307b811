import { useEffect } from "preact/hooks";
import { Empty } from "./components/Notice";
import { Button } from "./components/Button";
import { Toasts } from "./components/Toasts";
import { SignIn } from "./pages/SignIn";
import { Shell } from "./Shell";
import { Watch } from "./pages/watch/Watch";
import { takeToken } from "./state/route";
import { enter, refreshSession, signedIn } from "./state/session";
import { sayError } from "./state/toasts";

/** Enters with a one-time address where the page was opened with one, or with the session that is there. */
async function begin(): Promise<void> {
  const token = takeToken();
  if (!token) {
    await refreshSession();
    return;
  }
  try {
    await enter(token);
  } catch (error) {
    sayError("This address does not open the dashboard any more", error);
    await refreshSession();
  }
}

export function App() {
  useEffect(() => {
    void begin();
    const again = () => {
      if (/^#(once|share)=/.test(location.hash)) void begin();
    };
    addEventListener("hashchange", again);
    return () => removeEventListener("hashchange", again);
  }, []);
  return (
    <>
      <Inside />
      <Toasts />
    </>
  );
}

function Inside() {
  const state = signedIn.value;
  if (state.state === "unknown") return null;
  if (state.state === "out") return <SignIn why={state.why} />;
  if (state.state === "unreachable") {
    return (
      <main>
        <Empty title="The daemon cannot be reached">
          <Button kind="primary" onClick={() => void refreshSession()}>
            Try again
          </Button>
        </Empty>
      </main>
    );
  }
  const watch = state.session.watch;
  if (watch) return <Watch watch={watch} isShared />;
  return <Shell />;
}
