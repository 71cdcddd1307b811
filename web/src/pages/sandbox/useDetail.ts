import { useEffect, useState } from "preact/hooks";
import { get, path } from "../../api/client";
import type { Sandbox } from "../../api/types";

/** The sandbox as the daemon describes it in full, where the list leaves something out. */
export function useDetail(sandbox: Sandbox): { detail: Sandbox; error: unknown } {
  const [detail, setDetail] = useState<Sandbox | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const abort = new AbortController();
    get<Sandbox>(path("sandboxes", sandbox.id), undefined, abort.signal).then(setDetail, setError);
    return () => abort.abort();
  }, [sandbox.id, sandbox.state]);
  return { detail: detail ? { ...detail, ...sandbox, isolation: detail.isolation ?? null } : sandbox, error };
}
