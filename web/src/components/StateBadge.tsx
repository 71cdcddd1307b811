import type { Sandbox } from "../api/types";

const TONES: Record<Sandbox["state"], string> = {
  creating: "accent",
  running: "good",
  paused: "warn",
  stopping: "accent",
  stopped: "",
  failed: "bad",
};

export function StateBadge({ sandbox }: { sandbox: Sandbox }) {
  const word = sandbox.unreachable ? "unreachable" : sandbox.draining ? "draining" : sandbox.state;
  return (
    <span class={`badge ${sandbox.unreachable ? "bad" : TONES[sandbox.state]}`}>
      <span class={`dot ${sandbox.state}`} />
      {word}
    </span>
  );
}
