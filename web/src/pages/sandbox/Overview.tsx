import { get, path } from "../../api/client";
import type { ProcessList, Sandbox } from "../../api/types";
import { Chart } from "../../components/chart/Chart";
import { Name } from "../../components/Name";
import { Notice } from "../../components/Notice";
import { Panel } from "../../components/Panel";
import { Ago, Until } from "../../components/Time";
import { bytes, commandLine, duration, percent, plural } from "../../lib/format";
import { useLoaded } from "../../lib/hooks";
import { plainLine, plainText } from "../../lib/plain";
import { useProcessesChanged } from "../../lib/useChanges";
import { wallsSentence, wallsWord } from "../../lib/walls";
import { makerName } from "../../state/keys";
import { to } from "../../state/route";
import { networkRate, usage } from "../../state/usage";
import { useDetail } from "./useDetail";

export function Overview({ sandbox }: { sandbox: Sandbox }) {
  const { detail } = useDetail(sandbox);
  return (
    <div class="page-body">
      {sandbox.reason && <Notice tone="warn">{plainText(sandbox.reason)}</Notice>}
      {(sandbox.warnings ?? []).map((warning) => (
        <Notice key={warning} tone="warn">
          {plainText(warning)}
        </Notice>
      ))}
      <Charts sandbox={sandbox} />
      <div class="columns">
        <About sandbox={detail} />
        <Walls sandbox={detail} />
        {sandbox.state === "running" && <Processes sandbox={sandbox} />}
        <Environment sandbox={detail} />
      </div>
    </div>
  );
}

function Charts({ sandbox }: { sandbox: Sandbox }) {
  const samples = usage.value.get(sandbox.id) ?? [];
  if (samples.length === 0 && sandbox.state !== "running") return null;
  const last = samples.at(-1);
  const times = samples.map((sample) => sample.at / 1000);
  const rates = samples.map((_, index) => (index === 0 ? null : networkRate(samples.slice(index - 1, index + 1))));
  const rate = networkRate(samples);
  const { limits } = sandbox;
  return (
    <div class="columns charts">
      <Chart
        title={`CPU of ${plural(limits.cpus, "core")}`}
        value={percent(last?.cpuPercent)}
        times={times}
        lines={[{ label: "CPU", token: "--chart-1", values: samples.map((sample) => sample.cpuPercent) }]}
        format={(value) => `${Math.round(value)} %`}
        least={20}
      />
      <Chart
        title={`Memory of ${bytes(limits.memory)}`}
        value={bytes(last?.memoryBytes)}
        times={times}
        lines={[{ label: "Memory", token: "--chart-2", values: samples.map((sample) => sample.memoryBytes) }]}
        format={bytes}
        isBytes
        least={16 * 2 ** 20}
      />
      <Chart
        title={`Disk of ${bytes(limits.disk)}`}
        value={bytes(last?.diskBytes)}
        times={times}
        lines={[{ label: "Disk", token: "--chart-3", values: samples.map((sample) => sample.diskBytes) }]}
        format={bytes}
        isBytes
        least={2 ** 20}
      />
      {samples.some((sample) => sample.rxBytes !== null) && (
        <Chart
          title="Network, in and out"
          value={rate ? `↓ ${bytes(rate.rx)}/s ↑ ${bytes(rate.tx)}/s` : "–"}
          times={times}
          lines={[
            { label: "in", token: "--chart-1", values: rates.map((one) => one?.rx ?? null) },
            { label: "out", token: "--chart-2", values: rates.map((one) => one?.tx ?? null) },
          ]}
          format={(value) => `${bytes(value)}/s`}
          isBytes
          least={1024}
        />
      )}
    </div>
  );
}

function About({ sandbox }: { sandbox: Sandbox }) {
  const labels = Object.entries(sandbox.labels);
  return (
    <Panel title="About">
      <dl class="facts">
        <dt>Image</dt>
        <dd>
          <Name text={sandbox.image} />
        </dd>
        <dt>Back end</dt>
        <dd>{sandbox.backend ?? "–"}</dd>
        <dt>Namespace</dt>
        <dd>
          <Name text={sandbox.namespace} />
        </dd>
        <dt>Made by</dt>
        <dd>
          <Name text={makerName(sandbox.owner)} />, <Ago at={sandbox.createdAt} suffix=" ago" />
        </dd>
        <dt>Expires</dt>
        <dd>
          {sandbox.expiresAt ? "in " : ""}
          <Until at={sandbox.expiresAt} />
          {sandbox.expiresAt && `, then it is ${sandbox.lifetime.onExpiry === "remove" ? "removed" : "stopped"}`}
          {sandbox.lifetime.idleMs ? `; after ${duration(sandbox.lifetime.idleMs)} idle` : ""}
        </dd>
        <dt>User</dt>
        <dd class="mono">{plainLine(sandbox.user)}</dd>
        <dt>Directory</dt>
        <dd class="mono">{plainLine(sandbox.cwd)}</dd>
        <dt>Limits</dt>
        <dd>
          {plural(sandbox.limits.pids, "process", "processes")}, {plural(sandbox.limits.openFiles, "open file")}
        </dd>
        {(sandbox.mounts ?? []).length > 0 && (
          <>
            <dt>Mounts</dt>
            <dd class="mono">{(sandbox.mounts ?? []).map((mount) => plainLine(mount.guestPath)).join(", ")}</dd>
          </>
        )}
        <dt>Labels</dt>
        <dd>
          {labels.length === 0 ? <span class="faint">none</span> : null}
          <span class="labels">
            {labels.map(([key, value]) => (
              <span key={key} class="label-chip">
                <Name text={`${key}=${value}`} />
              </span>
            ))}
          </span>
        </dd>
      </dl>
    </Panel>
  );
}

function Walls({ sandbox }: { sandbox: Sandbox }) {
  const walls = sandbox.isolation?.walls;
  return (
    <Panel title="Walls" actions={<a href={to("sandboxes", sandbox.id, "isolation")}>All of it</a>}>
      <div class="stack">
        <p>
          <span class={`badge ${walls === "nothing" ? "bad" : "good"}`}>{wallsWord(sandbox)}</span>
        </p>
        {walls ? (
          <p class="soft">{wallsSentence(walls)}</p>
        ) : (
          <p class="faint">A sandbox that does not run has no walls to speak of.</p>
        )}
      </div>
    </Panel>
  );
}

const MAX_PROCESSES = 8;

function Processes({ sandbox }: { sandbox: Sandbox }) {
  const { value, reload } = useLoaded(
    `processes ${sandbox.id}`,
    () => get<ProcessList>(path("sandboxes", sandbox.id, "processes")),
    sandbox.runningExecs,
  );
  useProcessesChanged(sandbox.id, reload);
  const all = value?.processes ?? [];
  return (
    <Panel
      title="Processes"
      flush
      actions={
        <button type="button" class="button quiet small" onClick={reload}>
          Look again
        </button>
      }
    >
      <div class="table-scroll" tabIndex={0} role="region" aria-label="Processes">
        <table class="table">
          <thead>
            <tr>
              <th class="number">PID</th>
              <th>Command</th>
              <th class="number">Memory</th>
            </tr>
          </thead>
          <tbody>
            {all.slice(0, MAX_PROCESSES).map((process) => (
              <tr key={process.pid}>
                <td class="number">{process.pid}</td>
                <td class="mono cell-command">{plainLine(commandLine(process.command)).slice(0, 200)}</td>
                <td class="number">{bytes(process.memoryBytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {all.length > MAX_PROCESSES && <p class="faint small panel-body">{all.length - MAX_PROCESSES} more</p>}
    </Panel>
  );
}

function Environment({ sandbox }: { sandbox: Sandbox }) {
  const all = Object.entries(sandbox.env);
  return (
    <Panel title="Environment">
      <dl class="facts mono">
        {all.map(([name, value]) => (
          <>
            <dt key={name}>{plainLine(name)}</dt>
            <dd key={`${name}=`}>{plainLine(value)}</dd>
          </>
        ))}
      </dl>
    </Panel>
  );
}
