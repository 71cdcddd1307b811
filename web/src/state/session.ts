import { computed, signal } from "@preact/signals";
import { whenSignedOut } from "../api/client";
import { ApiError } from "../api/errors";
import { type Ability, type Credential, readSession, type Session, signIn, signOut } from "../api/session";

type SignInState =
  | { state: "unknown" }
  | { state: "in"; session: Session }
  /** `isGuest`: whoever looked on by a shared address, and has no key. */
  | { state: "out"; why: string | null; isGuest: boolean }
  | { state: "unreachable" };

export const signedIn = signal<SignInState>({ state: "unknown" });

export const session = computed(() => (signedIn.value.state === "in" ? signedIn.value.session : null));

/** Whether the caller may change things at all. */
export const canChange = computed(() => session.value?.may.change === true);

export function may(ability: Ability): boolean {
  return session.value?.may[ability] === true;
}

/** Notes that nobody is signed in any more, and why, where somebody was. */
function end(): void {
  const before = signedIn.value;
  if (before.state === "in") {
    const isGuest = Boolean(before.session.watch);
    const why = "Your session ended: the daemon was restarted, or the key was revoked or expired.";
    signedIn.value = { state: "out", why: isGuest ? null : why, isGuest };
  } else if (before.state !== "out") {
    signedIn.value = { state: "out", why: null, isGuest: false };
  }
}

whenSignedOut(() => {
  if (signedIn.value.state === "in") end();
});

/** A shared address that opens nothing: its reader has no key to sign in with. */
export function endGuest(): void {
  signedIn.value = { state: "out", why: null, isGuest: true };
}

/** Asks the daemon who we are. Returns whether we are signed in. */
export async function refreshSession(): Promise<boolean> {
  try {
    const found = await readSession();
    signedIn.value = { state: "in", session: found };
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      end();
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
  signedIn.value = { state: "out", why: null, isGuest: false };
}
