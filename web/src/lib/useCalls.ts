import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "../api/client";
import type { Call, CallList } from "../api/types";
import { listen } from "../state/live";
import { may } from "../state/session";
import { useLoaded } from "./hooks";

/** Calls that a page holds. */
const MAX_CALLS = 2000;

/** The latest calls of the audit, oldest first: read once, then followed. */
export function useCalls(): { calls: Call[]; error: unknown; isLoading: boolean; reload: () => void } {
  const loaded = useLoaded("calls", async () =>
    may("audit") ? get<CallList>("/v1/calls", { limit: MAX_CALLS }) : { calls: [] },
  );
  const [told, setTold] = useState<Call[]>([]);
  useEffect(() => listen("call", (call) => setTold((old) => [...old, call].slice(-MAX_CALLS))), []);
  const calls = useMemo(() => {
    const all = new Map([...(loaded.value?.calls ?? []), ...told].map((call) => [call.number, call]));
    return [...all.values()].sort((a, b) => a.number - b.number).slice(-MAX_CALLS);
  }, [loaded.value, told]);
  return { calls, error: loaded.error, isLoading: loaded.isLoading, reload: loaded.reload };
}
