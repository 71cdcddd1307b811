import { computed, signal } from "@preact/signals";
import { whenSignedOut } from "../api/client";
import { ApiError } from "../api/errors";
import { type Ability, type Credential, readSession, type Session, signIn, signOut } from "../api/session";

type SignInState =
  | { state: "unknown" }
  | { state: "in"; session: Session }
  | { state: "out"; why: string | null }
  | { state: "unreachable" };

export const signedIn = signal<SignInState>({ state: "unknown" });

export const session = computed(() => (signedIn.value.state === "in" ? signedIn.value.session : null));

/** Whether the caller may change things at all. */
export const canChange = computed(() => session.value?.may.change === true);

export function may(ability: Ability): boolean {
  return session.value?.may[ability] === true;
}

whenSignedOut(() => {
  if (signedIn.value.state === "in") {
    signedIn.value = {
      state: "out",
      why: "Your session ended: the daemon was restarted, or the key was revoked or expired.",
    };
  }
});

/** Asks the daemon who we are. Returns whether we are signed in. */
export async function refreshSession(): Promise<boolean> {
  try {
    const found = await readSession();
    signedIn.value = { state: "in", session: found };
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      const wasIn = signedIn.value.state === "in";
      const why = wasIn ? "Your session ended: the daemon was restarted, or the key was revoked or expired." : null;
      signedIn.value = { state: "out", why };
    } else if (signedIn.value.state === "unknown") {
      signedIn.value = { state: "unreachable" };
    }
    return false;
  }
}

export async function enter(credential: Credential): Promise<void> {
  signedIn.value = { state: "in", session: await signIn(credential) };
}

export async function leave(): Promise<void> {
  await signOut();
  signedIn.value = { state: "out", why: null };
}
