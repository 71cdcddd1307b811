import type { Sandbox } from "../../api/types";
import { Empty } from "../../components/Notice";
import { Tabs } from "../../components/Tabs";
import { useTitle } from "../../lib/hooks";
import { plainLine } from "../../lib/plain";
import { to } from "../../state/route";
import { findSandbox, sandboxesKnown } from "../../state/sandboxes";
import { canChange } from "../../state/session";
import { Files } from "./files/Files";
import { SandboxHead } from "./SandboxHead";
import { IsolationTab } from "./IsolationTab";
import { Logs } from "./logs/Logs";
import { NetworkTab } from "./network/NetworkTab";
import { Notebook } from "./notebook/Notebook";
import { Overview } from "./Overview";
import { Ports } from "./Ports";
import { Snapshots } from "./snapshots/Snapshots";
import { Terminals } from "./terminal/Terminals";
import { Timeline } from "./timeline/Timeline";

type Tab = { name: string; label: string; changes?: boolean };

/** Shown too where an address names a part that there is not, or not for the caller. */
const OVERVIEW: Tab = { name: "overview", label: "Overview" };

const TABS: Tab[] = [
  OVERVIEW,
  { name: "terminal", label: "Terminal" },
  { name: "timeline", label: "Timeline" },
  { name: "notebook", label: "Notebook", changes: true },
  { name: "files", label: "Files" },
  { name: "ports", label: "Ports" },
  { name: "network", label: "Network" },
  { name: "logs", label: "Logs" },
  { name: "snapshots", label: "Snapshots" },
  { name: "isolation", label: "Isolation" },
];

export function OneSandbox({ which, tab }: { which: string; tab: string }) {
  const listed = findSandbox(which);
  useTitle(listed ? plainLine(listed.name) : "Sandbox");
  if (!listed) return sandboxesKnown.value ? <Gone /> : <Empty title="Loading the sandbox" />;
  const tabs = TABS.filter((one) => !one.changes || canChange.value);
  const current = tabs.find((one) => one.name === tab) ?? OVERVIEW;
  return (
    <div class="fill">
      <SandboxHead sandbox={listed} />
      <Tabs
        label="Parts of the sandbox"
        current={current.name}
        tabs={tabs.map((one) => ({ ...one, href: to("sandboxes", listed.id, one.name) }))}
      />
      <div
        class="page"
        key={`${listed.id} ${current.name}`}
        tabIndex={0}
        role="region"
        aria-label={current.label}
      >
        <Content sandbox={listed} tab={current.name} />
      </div>
    </div>
  );
}

function Gone() {
  return (
    <Empty title="There is no such sandbox">
      <p>It was removed, or it belongs to another namespace.</p>
      <a class="button" href={to("sandboxes")}>
        All sandboxes
      </a>
    </Empty>
  );
}

function Content({ sandbox, tab }: { sandbox: Sandbox; tab: string }) {
  switch (tab) {
    case "terminal":
      return <Terminals sandbox={sandbox} />;
    case "timeline":
      return <Timeline sandbox={sandbox} />;
    case "notebook":
      return <Notebook sandbox={sandbox} />;
    case "files":
      return <Files sandbox={sandbox} />;
    case "ports":
      return <Ports sandbox={sandbox} />;
    case "network":
      return <NetworkTab sandbox={sandbox} />;
    case "logs":
      return <Logs sandbox={sandbox} />;
    case "snapshots":
      return <Snapshots sandbox={sandbox} />;
    case "isolation":
      return <IsolationTab sandbox={sandbox} />;
    default:
      return <Overview sandbox={sandbox} />;
  }
}
