import type { Preset, Sandbox } from "../../api/types";
import { Check } from "../../components/Check";
import { Meter } from "../../components/Meter";
import { Name } from "../../components/Name";
import { Sparkline } from "../../components/Sparkline";
import { Ago, Until } from "../../components/Time";
import { bytes, percent } from "../../lib/format";
import { plainLine } from "../../lib/plain";
import { wallsWord } from "../../lib/walls";
import { makerName } from "../../state/keys";
import { to } from "../../state/route";
import { canChange } from "../../state/session";
import { networkRate, usage } from "../../state/usage";
import { SandboxMenu } from "./SandboxMenu";

type Props = { sandbox: Sandbox; isSelected: boolean; onSelect: () => void; mostLabels: number };

/** Samples in the small line: one minute. */
const SPARK_SAMPLES = 30;

export function Row({ sandbox, isSelected, onSelect, mostLabels }: Props) {
  return (
    <div class={`list-grid list-row ${isSelected ? "selected" : ""}`} role="presentation">
      <div role="cell" class="cell-check">
        {canChange.value && (
          <Check label={`Select ${plainLine(sandbox.name)}`} hideLabel checked={isSelected} onChange={onSelect} />
        )}
      </div>
      <div role="cell" class="cell-name">
        <span class={`dot ${sandbox.state}`} title={sandbox.state} />
        <span class="visually-hidden">{sandbox.state}</span>
        <a href={to("sandboxes", sandbox.id)} class="cut strong">
          <Name text={sandbox.name} />
        </a>
        <Labels labels={sandbox.labels} most={mostLabels} />
      </div>
      <div role="cell" class="cell-image cut">
        <Name text={sandbox.image} />
      </div>
      <div role="cell" class="cell-walls soft">
        <span class="cut">{sandbox.backend ?? "–"}</span>
        <span class="cut faint small" title="What separates it from the host">
          {wallsWord(sandbox)}
        </span>
      </div>
      <UsageCells sandbox={sandbox} />
      <div role="cell" class="cell-age soft">
        <Ago at={sandbox.createdAt} />
      </div>
      <div role="cell" class="cell-expiry soft">
        <Until at={sandbox.expiresAt} />
      </div>
      <div role="cell" class="cell-maker cut soft">
        <Name text={makerName(sandbox.owner)} />
      </div>
      <div role="cell" class="cell-actions">
        <SandboxMenu sandbox={sandbox} />
      </div>
    </div>
  );
}

/** The first labels; the others are counted, and named where the mouse rests. */
function Labels({ labels, most }: { labels: Record<string, string>; most: number }) {
  const all = Object.entries(labels).map(([key, value]) => (value ? `${key}=${value}` : key));
  if (all.length === 0) return null;
  const rest = all.slice(most);
  return (
    <span class="labels row-labels">
      {all.slice(0, most).map((label) => (
        <span key={label} class="label-chip">
          <Name text={label} />
        </span>
      ))}
      {rest.length > 0 && (
        <span class="label-chip more" title={rest.map(plainLine).join("\n")}>
          +{rest.length}
        </span>
      )}
    </span>
  );
}

/** Follows the samples alone, so that a sample does not draw the whole row anew. */
function UsageCells({ sandbox }: { sandbox: Sandbox }) {
  const isAlive = sandbox.state === "running" || sandbox.state === "paused";
  const samples = isAlive ? usage.value.get(sandbox.id) : undefined;
  const last = samples?.at(-1);
  const rate = networkRate(samples);
  return (
    <>
      <div role="cell" class="cell-cpu number">
        <Sparkline values={(samples ?? []).slice(-SPARK_SAMPLES).map((sample) => sample.cpuPercent ?? 0)} least={20} />
        <span>{percent(last?.cpuPercent)}</span>
      </div>
      <div role="cell" class="cell-memory number">
        <span>{bytes(last?.memoryBytes)}</span>
        <Meter value={last?.memoryBytes} limit={sandbox.limits.memory} />
      </div>
      <div role="cell" class="cell-disk number">
        <span>{bytes(last?.diskBytes)}</span>
        <Meter value={last?.diskBytes} limit={sandbox.limits.disk} />
      </div>
      <div role="cell" class="cell-network number soft">
        {(rate === null || rate.rx + rate.tx < 1) && (
          <span class="faint cut" title="What its network policy reaches">
            {networkWord(sandbox)}
          </span>
        )}
        {rate !== null && rate.rx + rate.tx >= 1 && (
          <>
            <span>↓ {bytes(rate.rx)}/s</span>
            <span>↑ {bytes(rate.tx)}/s</span>
          </>
        )}
      </div>
    </>
  );
}

const NETWORK_WORDS: Record<Preset, string> = {
  none: "none",
  packages: "packages",
  public: "public",
  "public+private": "public, private",
  all: "all",
};

function networkWord(sandbox: Sandbox): string {
  return sandbox.networkPreset ? NETWORK_WORDS[sandbox.networkPreset] : "–";
}
