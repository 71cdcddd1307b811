import { get, path, send } from "./client";
import type { components } from "./schema.generated";
import type { NetworkRequest } from "./types";

export const listRequests = async () =>
  (await get<components["schemas"]["NetworkRequestList"]>("/v1/network/requests")).requests;

const of = (request: NetworkRequest, step: string) =>
  path("sandboxes", request.sandbox, "network", "requests", request.id, step);

export const grantRequest = (request: NetworkRequest, forSeconds: number) =>
  send<NetworkRequest>("POST", of(request, "grant"), { forSeconds });

/** Refuses a request, or takes a grant back. */
export const refuseRequest = (request: NetworkRequest, reason: string) =>
  send<NetworkRequest>("POST", of(request, "refuse"), reason ? { reason } : {});
