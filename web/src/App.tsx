import { useEffect } from "preact/hooks";
import { ApiError } from "./api/errors";
import { Empty } from "./components/Notice";
import { Button } from "./components/Button";
import { Toasts } from "./components/Toasts";
import { ShareEnded, SignIn } from "./pages/SignIn";
import { Shell } from "./Shell";
import { Watch } from "./pages/watch/Watch";
import { takeToken } from "./state/route";
import { endGuest, enter, refreshSession, signedIn } from "./state/session";
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
    const isIn = await refreshSession();
    if (!isIn && "share" in token && error instanceof ApiError) return endGuest();
    sayError("This address does not open the dashboard any more", error);
  }
}

/** Somebody may have signed in meanwhile, in another tab. */
function lookAgain(): void {
  if (signedIn.value.state === "out" && !document.hidden) void refreshSession();
}

export function App() {
  useEffect(() => {
    void begin();
    const again = () => {
      if (/^#(once|share)=/.test(location.hash)) void begin();
    };
    addEventListener("hashchange", again);
    addEventListener("storage", lookAgain);
    document.addEventListener("visibilitychange", lookAgain);
    return () => {
      removeEventListener("hashchange", again);
      removeEventListener("storage", lookAgain);
      document.removeEventListener("visibilitychange", lookAgain);
    };
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
  if (state.state === "out") return state.isGuest ? <ShareEnded /> : <SignIn why={state.why} />;
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
