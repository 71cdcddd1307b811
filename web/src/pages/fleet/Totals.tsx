import type { Fleet, FleetMoment } from "../../api/fleet";
import { Chart } from "../../components/chart/Chart";
import { bytes, percent } from "../../lib/format";

/** Totals now and over the last hour. */
export function Totals({ totals, history }: { totals: Fleet["totals"]; history: FleetMoment[] }) {
  const times = history.map((sample) => Date.parse(sample.at) / 1000);
  return (
    <>
      <div class="cards">
        <Card label="Sandboxes" value={count(totals.sandboxes)} />
        <Card label="Running" value={count(totals.running)} />
        <Card label="CPU" value={percent(totals.cpuPercent)} note="100 % is one core" />
        <Card label="Memory" value={bytes(totals.memoryBytes)} />
        <Card label="Disk" value={bytes(totals.diskBytes)} />
        <Card
          label="Commands"
          value={count(history.reduce((sum, moment) => sum + moment.execs, totals.execs))}
          note="begun in the last hour"
        />
      </div>
      <div class="columns charts">
        <Chart
          title="Sandboxes and those that run"
          value={count(totals.running)}
          times={times}
          lines={[
            { label: "all", token: "--chart-1", values: history.map((sample) => sample.sandboxes) },
            { label: "running", token: "--chart-2", values: history.map((sample) => sample.running) },
          ]}
          format={(value) => String(Math.round(value))}
          least={4}
        />
        <Chart
          title="CPU"
          value={percent(totals.cpuPercent)}
          times={times}
          lines={[{ label: "CPU", token: "--chart-1", values: history.map((sample) => sample.cpuPercent) }]}
          format={(value) => `${Math.round(value)} %`}
          least={20}
        />
        <Chart
          title="Memory"
          value={bytes(totals.memoryBytes)}
          times={times}
          lines={[{ label: "Memory", token: "--chart-2", values: history.map((sample) => sample.memoryBytes) }]}
          format={bytes}
          isBytes
          least={64 * 2 ** 20}
        />
        <Chart
          title="Disk"
          value={bytes(totals.diskBytes)}
          times={times}
          lines={[{ label: "Disk", token: "--chart-3", values: history.map((sample) => sample.diskBytes) }]}
          format={bytes}
          isBytes
          least={64 * 2 ** 20}
        />
      </div>
    </>
  );
}

const count = (value: number | null | undefined) =>
  value === null || value === undefined ? "–" : value.toLocaleString();

function Card({ label, value, note }: { label: string; value: string; note?: string }) {
  return (
    <div class="card">
      <span class="label">{label}</span>
      <span class="value">{value}</span>
      {note && <span class="note">{note}</span>}
    </div>
  );
}
