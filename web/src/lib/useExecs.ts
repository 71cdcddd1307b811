import { useEffect, useMemo, useState } from "preact/hooks";
import { listExecs } from "../api/execs";
import type { Exec } from "../api/types";
import { listen } from "../state/live";
import { useLoaded } from "./hooks";

/** Most execs that a page holds; the oldest are left out. */
const MAX_EXECS = 1000;

export type Execs = { execs: Exec[]; error: unknown; isLoading: boolean; reload: () => void };

/** The execs of a sandbox, oldest first: read once, then followed. */
export function useExecs(sandbox: string): Execs {
  const loaded = useLoaded(`execs ${sandbox}`, () => listExecs(sandbox));
  const [changed, setChanged] = useState<ReadonlyMap<string, Exec>>(new Map());

  useEffect(() => {
    setChanged(new Map());
    return listen("exec", (exec) => {
      if (exec.sandbox === sandbox) setChanged((old) => new Map(old).set(exec.id, exec));
    });
  }, [sandbox]);

  const execs = useMemo(() => {
    const all = new Map((loaded.value ?? []).map((exec) => [exec.id, exec]));
    for (const [id, exec] of changed) {
      // What was read later may be newer than what was told.
      if (all.get(id)?.state !== "done" || exec.state === "done") all.set(id, exec);
    }
    return [...all.values()].sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1)).slice(-MAX_EXECS);
  }, [loaded.value, changed]);
  return { execs, error: loaded.error, isLoading: loaded.isLoading, reload: loaded.reload };
}
