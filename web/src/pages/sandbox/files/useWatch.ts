import { useEffect, useRef } from "preact/hooks";
import { watchDirectory } from "../../../api/files";

/** Several changes in a row cost one new reading. */
const PAUSE_MS = 250;

/** Calls back when something in a directory changed, or one file of it. */
export function useWatch(sandbox: string, directory: string, onChange: () => void, file: string | null = null): void {
  const current = useRef(onChange);
  current.current = onChange;
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | null = null;
    const follow = async () => {
      for await (const change of watchDirectory(sandbox, directory, abort.signal)) {
        if (file !== null && change.path !== file && change.kind !== "overflow") continue;
        timer ??= setTimeout(() => {
          timer = null;
          current.current();
        }, PAUSE_MS);
      }
    };
    // A directory that cannot be watched is shown as it was when it was read.
    follow().catch(() => {});
    return () => {
      abort.abort();
      if (timer) clearTimeout(timer);
    };
  }, [sandbox, directory, file]);
}
