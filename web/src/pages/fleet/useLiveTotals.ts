import { useEffect, useState } from "preact/hooks";
import type { Fleet, FleetMoment } from "../../api/fleet";
import { listen } from "../../state/live";
import { sandboxes } from "../../state/sandboxes";
import { usage, type UsageSample } from "../../state/usage";

/** Samples in the charts: an hour of one every ten seconds. */
const MAX_SAMPLES = 360;
const BETWEEN_MS = 10_000;

/** Adds the stream's samples up to totals of now, and to the history that the daemon told. */
export function useLiveTotals(fleet: Fleet | null): { totals: Fleet["totals"]; history: FleetMoment[] } | null {
  const [added, setAdded] = useState<FleetMoment[]>([]);
  const [execs, setExecs] = useState(0);
  const samples = usage.value;

  useEffect(() => {
    setAdded([]);
    setExecs(0);
    return listen("exec", (exec) => {
      if (exec.state !== "done") setExecs((old) => old + 1);
    });
  }, [fleet]);
  useEffect(() => {
    if (!fleet || samples.size === 0) return;
    const last = added.at(-1) ?? fleet.history.at(-1);
    const at = Math.max(...[...samples.values()].map((one) => one.at(-1)?.at ?? 0));
    if (last && at - Date.parse(last.at) < BETWEEN_MS) return;
    setAdded([...added.slice(1 - MAX_SAMPLES), { ...now(samples), at: new Date(at).toISOString() }]);
  }, [samples]);

  if (!fleet) return null;
  const totals =
    samples.size > 0 ? { ...fleet.totals, ...now(samples), execs: (fleet.totals.execs ?? 0) + execs } : fleet.totals;
  return { totals, history: [...fleet.history, ...added].slice(-MAX_SAMPLES) };
}

function now(samples: ReadonlyMap<string, readonly UsageSample[]>): Omit<FleetMoment, "at"> {
  const last = [...samples.values()].map((one) => one.at(-1));
  const sum = (value: (sample: UsageSample) => number | null) =>
    last.reduce((total, sample) => total + (sample ? (value(sample) ?? 0) : 0), 0);
  return {
    sandboxes: sandboxes.value.size,
    running: [...sandboxes.value.values()].filter((sandbox) => sandbox.state === "running").length,
    cpuPercent: sum((sample) => sample.cpuPercent),
    memoryBytes: sum((sample) => sample.memoryBytes),
    diskBytes: sum((sample) => sample.diskBytes),
    creates: 0,
    execs: 0,
  };
}
