import { get, path, send } from "./client";
import { keepProof } from "./proof";
import type { components } from "./schema.generated";

type Schemas = components["schemas"];

/** Who is signed in, and what they may do. */
export type Session = Schemas["Session"];

/** What is offered only to those who may; the daemon refuses the others whatever a page offers. */
export type Ability = keyof Session["may"];

/** What is watched: a sandbox or a key. */
export type Watch = Partial<Schemas["Watch"]>;

export type Credential = { key: string } | { once: string } | { share: string };

export const readSession = () => get<Session>("/v1/session");

export async function signIn(credential: Credential): Promise<Session> {
  keepProof(null);
  const { proof, ...session } = await send<Schemas["NewSession"]>("POST", "/v1/session", credential);
  keepProof(proof);
  return session;
}

export async function signOut(): Promise<void> {
  await send("DELETE", "/v1/session");
  keepProof(null);
}

export type Share = Schemas["NewShare"];
export type ShareView = Schemas["Share"];
export const share = (what: { sandbox: string } | { key: string }, expires: number) =>
  send<Share>("POST", "/v1/shares", { ...what, expires });

export const listShares = async () => (await get<Schemas["ShareList"]>("/v1/shares")).shares;

export const revokeShare = (id: string) => send("DELETE", path("shares", id));
