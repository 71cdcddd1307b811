import type { Exec, ExecOutcome } from "../api/types";

export type OutcomeWords = { words: string; tone: "good" | "bad" | "warn" | "soft"; dot: string };

type KillReason = Extract<ExecOutcome, { type: "killed" }>["reason"];

const KILLED: Record<KillReason, string> = {
  timeLimit: "time limit",
  memoryLimit: "out of memory",
  diskLimit: "disk full",
  sandboxStopped: "sandbox stopped",
  request: "killed",
  sandboxLost: "sandbox lost",
};

/** How an exec ended, in a word or two. */
export function outcomeOf(exec: Exec): OutcomeWords {
  if (exec.state !== "done" || !exec.outcome) {
    return exec.state === "done"
      ? { words: "done", tone: "soft", dot: "" }
      : { words: exec.state, tone: "soft", dot: "busy" };
  }
  const outcome = exec.outcome;
  switch (outcome.type) {
    case "exited":
      if (outcome.code === 0) return { words: "exit 0", tone: "soft", dot: "running" };
      return {
        words: outcome.memoryLimitHit ? `exit ${outcome.code}, out of memory` : `exit ${outcome.code}`,
        tone: "bad",
        dot: "failed",
      };
    case "signaled":
      return { words: `signal ${outcome.signal}`, tone: "warn", dot: "paused" };
    case "notStarted":
      return { words: "not started", tone: "bad", dot: "failed" };
    case "killed":
      return { words: KILLED[outcome.reason], tone: "warn", dot: "paused" };
  }
}
