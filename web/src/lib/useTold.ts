import { useEffect, useState } from "preact/hooks";
import { entries, follow } from "../api/execs";
import { isAbort } from "../api/errors";
import type { Exec } from "../api/types";
import { LedgerReader, NOTHING_TOLD, type Told } from "./ledger";

/** Entries read from the end of a long exec. */
const TAIL_ENTRIES = 300;

export type Reading = { told: Told; isReading: boolean; error: unknown };

/**
 * Reads what an exec told so far and follows it to its end. Of a very long one, the beginning (the code of a cell) and
 * the end are read.
 */
export function useTold(exec: Exec): Reading {
  const [reading, setReading] = useState<Reading>({ told: NOTHING_TOLD, isReading: true, error: null });

  useEffect(() => {
    const abort = new AbortController();
    const isLong = exec.lastEntry > TAIL_ENTRIES * 2;
    const reader = new LedgerReader(exec.cell !== null && exec.cell !== undefined, isLong);
    let frame: number | null = null;
    const show = () => {
      frame ??= requestAnimationFrame(() => {
        frame = null;
        setReading((old) => ({ ...old, told: reader.value }));
      });
    };
    const read = async () => {
      let from = 1;
      if (isLong) {
        for await (const entry of entries(exec.sandbox, exec.id, 1, abort.signal)) {
          if (entry.kind !== "stdin") break;
          reader.take(entry);
        }
        from = exec.lastEntry - TAIL_ENTRIES;
      }
      const read = exec.state === "done" ? entries : follow;
      for await (const entry of read(exec.sandbox, exec.id, from, abort.signal)) {
        reader.take(entry);
        show();
      }
    };
    read().then(
      () => setReading({ told: reader.value, isReading: false, error: null }),
      (error: unknown) => {
        if (!isAbort(error)) setReading({ told: reader.value, isReading: false, error });
      },
    );
    return () => {
      abort.abort();
      if (frame !== null) cancelAnimationFrame(frame);
    };
    // A running exec is followed by one stream to its end, so a change of its state starts nothing new.
  }, [exec.sandbox, exec.id]);
  return reading;
}
