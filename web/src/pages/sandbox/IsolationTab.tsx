import type { LimitStatement, Sandbox } from "../../api/types";
import { Empty, Notice } from "../../components/Notice";
import { Panel } from "../../components/Panel";
import { bytes } from "../../lib/format";
import { plainLine, plainText } from "../../lib/plain";
import { wallsSentence, wallsWord } from "../../lib/walls";
import { PRESET_WORDS } from "./network/words";
import { useDetail } from "./useDetail";

const HELD_BY: Record<LimitStatement["enforcement"], string> = {
  cgroupV1: "held by the kernel (cgroup v1)",
  cgroupV2: "held by the kernel (cgroup v2)",
  rlimit: "held by the kernel for each process",
  userNamespace: "held by the kernel (user namespace)",
  affinity: "held by the choice of processors",
  fileSystem: "held by a file system of that size",
  accounting: "held by measuring, and stopping what grew past it",
  notHeld: "not held on this host",
};

const LIMIT_NAMES: Record<LimitStatement["limit"], string> = {
  memory: "Memory",
  swap: "Swap",
  cpus: "CPUs",
  pids: "Processes",
  openFiles: "Open files of a process",
  disk: "Disk",
  tmp: "/tmp",
  shm: "Shared memory",
};

const NAMESPACE_WORDS: Record<string, string> = {
  user: "users and rights",
  mnt: "files and mounts",
  pid: "processes",
  net: "network",
  ipc: "shared memory and queues",
  uts: "host name",
  cgroup: "limits",
  time: "clocks",
};

function valueOf(limit: LimitStatement): string {
  if (limit.limit === "cpus") return String(limit.value / 1000);
  if (limit.limit === "pids" || limit.limit === "openFiles") return limit.value.toLocaleString();
  return limit.value === 0 ? "none" : bytes(limit.value);
}

/** What keeps the sandbox apart from the host, in plain words. */
export function IsolationTab({ sandbox }: { sandbox: Sandbox }) {
  const { detail } = useDetail(sandbox);
  const isolation = detail.isolation;
  if (!isolation) return <Empty title="The sandbox does not run">Its walls are stated while it runs.</Empty>;
  const preset = isolation.network as keyof typeof PRESET_WORDS;
  return (
    <div class="page-body">
      {(isolation.warnings ?? []).map((warning) => (
        <Notice key={warning} tone="warn">
          {plainText(warning)}
        </Notice>
      ))}
      <div class="columns">
        <Panel title="Walls">
          <div class="stack">
            <p>
              <span class={`badge ${isolation.walls === "nothing" ? "bad" : "good"}`}>{wallsWord(detail)}</span>
            </p>
            <p class="soft">{wallsSentence(isolation.walls)}</p>
            <ul class="plain-list">
              <li>
                {isolation.namespaces.length === 0
                  ? "It shares everything with the host."
                  : `It has its own ${isolation.namespaces.map((one) => NAMESPACE_WORDS[one] ?? plainLine(one)).join(", ")}.`}
              </li>
              <li>
                {isolation.rootless
                  ? "The daemon runs without root, so root inside is an ordinary user outside."
                  : null}
                {!isolation.rootless && isolation.idMap === "own-range"
                  ? "Root inside is nobody outside: the sandbox has a range of user ids of its own."
                  : null}
                {!isolation.rootless && isolation.idMap !== "own-range"
                  ? `User ids: ${plainLine(isolation.idMap)}.`
                  : null}
              </li>
              <li>
                {isolation.seccomp
                  ? `System calls pass a filter that denies by default (${plainLine(isolation.seccomp)}).`
                  : "System calls are not filtered by the host's kernel."}
              </li>
              <li>
                {isolation.noNewPrivileges
                  ? "Programs can never gain rights, not even by setuid files."
                  : "Programs may gain rights by setuid files."}
              </li>
              <li>
                {isolation.capabilities.length === 0
                  ? "It has no capabilities."
                  : `It keeps ${isolation.capabilities.length} of the kernel's 41 capabilities, and only inside: ${isolation.capabilities
                      .map((one) => plainLine(one).replace(/^CAP_/, "").toLowerCase())
                      .join(", ")}.`}
              </li>
              <li>
                {PRESET_WORDS[preset]
                  ? `Over the network it reaches ${PRESET_WORDS[preset]}.`
                  : "Over the network it reaches what its policy allows, through a process of the daemon that has no other rights."}
              </li>
            </ul>
          </div>
        </Panel>
        <Panel title="Limits" flush>
          <table class="table">
            <tbody>
              {isolation.limits.map((limit) => (
                <tr key={limit.limit}>
                  <td>{LIMIT_NAMES[limit.limit]}</td>
                  <td class="number">
                    <strong>{valueOf(limit)}</strong>
                  </td>
                  <td class={limit.enforcement === "notHeld" ? "warn" : "soft"}>
                    {HELD_BY[limit.enforcement]}
                    {limit.note && <span class="limit-note faint small">{plainText(limit.note)}</span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Panel>
      </div>
    </div>
  );
}
