import { get, path, send } from "./client";
import type { Secret, SecretList, SecretRules } from "./types";

export const listSecrets = async () => (await get<SecretList>("/v1/secrets")).secrets;

/** Sends a value to the daemon. No answer has it. */
export const setSecret = (name: string, namespace: string, rules: SecretRules, value: string) =>
  send<Secret>("PUT", path("secrets", name), { rules, value }, { namespace: namespace || null });

/** Also while sandboxes have it: whoever asks was told which. */
export const removeSecret = (secret: Secret) =>
  send("DELETE", path("secrets", secret.name), undefined, { namespace: secret.namespace, force: true });
