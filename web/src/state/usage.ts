import { signal } from "@preact/signals";
import type { components } from "../api/schema.generated";

/** What one sandbox used at one moment. */
export type UsageSample = {
  at: number;
  cpuPercent: number | null;
  memoryBytes: number | null;
  diskBytes: number | null;
  rxBytes: number | null;
  txBytes: number | null;
  processes: number | null;
};

export type UsageMessage = components["schemas"]["LiveUsage"];

/** Samples kept for each sandbox: five minutes at one every two seconds. */
const MAX_SAMPLES = 150;

/** The samples of each sandbox, oldest first. The signal changes with every message. */
export const usage = signal<ReadonlyMap<string, readonly UsageSample[]>>(new Map());

export function takeUsage(message: UsageMessage): void {
  const at = Date.parse(message.at);
  const next = new Map<string, readonly UsageSample[]>();
  for (const [id, now] of Object.entries(message.sandboxes)) {
    const sample: UsageSample = {
      at,
      cpuPercent: now.cpuPercent ?? null,
      memoryBytes: now.memoryBytes ?? null,
      diskBytes: now.diskBytes ?? null,
      rxBytes: now.rxBytes ?? null,
      txBytes: now.txBytes ?? null,
      processes: now.processes ?? null,
    };
    next.set(id, [...(usage.value.get(id) ?? []).slice(1 - MAX_SAMPLES), sample]);
  }
  usage.value = next;
}

export function latestUsage(id: string): UsageSample | undefined {
  return usage.value.get(id)?.at(-1);
}

/** Bytes a second between the last two samples, in both directions. */
export function networkRate(samples: readonly UsageSample[] | undefined): { rx: number; tx: number } | null {
  const now = samples?.at(-1);
  const before = samples?.at(-2);
  if (!now || !before || now.rxBytes === null || before.rxBytes === null) return null;
  const seconds = Math.max(0.5, (now.at - before.at) / 1000);
  const rate = (a: number | null, b: number | null) => Math.max(0, ((a ?? 0) - (b ?? 0)) / seconds);
  return { rx: rate(now.rxBytes, before.rxBytes), tx: rate(now.txBytes, before.txBytes) };
}
