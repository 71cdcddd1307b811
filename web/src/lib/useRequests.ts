import { useEffect, useMemo, useState } from "preact/hooks";
import { listRequests } from "../api/requests";
import type { NetworkRequest } from "../api/types";
import { listen, streamNumber } from "../state/live";
import { sandboxes } from "../state/sandboxes";
import { useLoaded } from "./hooks";

/** All requests that the daemon remembers, newest first: read once, then followed. */
export function useRequests(): { requests: NetworkRequest[]; error: unknown; reload: () => void } {
  const loaded = useLoaded("network requests", listRequests);
  const [told, setTold] = useState<ReadonlyMap<string, NetworkRequest>>(new Map());
  const stream = streamNumber.value;
  // All is read anew with a new stream; from then on it tells everything, so that what it told last is the newest.
  useEffect(() => setTold(new Map()), [stream]);
  useEffect(() => listen("request", (request) => setTold((old) => new Map(old).set(request.id, request))), []);
  const known = sandboxes.value;
  const requests = useMemo(() => {
    const all = new Map((loaded.value ?? []).map((request) => [request.id, request]));
    for (const [id, request] of told) all.set(id, request);
    const there = [...all.values()].filter((request) => known.has(request.sandbox));
    return there.sort((a, b) => (a.askedAt < b.askedAt ? 1 : -1));
  }, [loaded.value, told, known]);
  return { requests, error: loaded.error, reload: loaded.reload };
}
