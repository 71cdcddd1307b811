import { get } from "../api/client";
import type { Isolation } from "../api/types";
import { Button } from "../components/Button";
import { CodeBlock } from "../components/CodeBlock";
import { Empty, ErrorNotice } from "../components/Notice";
import { Page } from "../components/Page";
import { useLoaded } from "../lib/hooks";
import { plainLine, plainText } from "../lib/plain";

type Finding = { name: string; status: string; detail: string; mend?: string | null };
type Report = { ok: boolean; checks: Finding[]; isolation?: Isolation | null };

const TONES: Record<string, string> = { works: "good", weak: "warn", missing: "bad", fails: "bad", broken: "bad" };
const RANK = (finding: Finding) => (finding.status === "works" ? 1 : 0);

/** What this host can do for sandboxes, and how to mend what it cannot. */
export function Doctor() {
  const report = useLoaded("doctor", () => get<Report>("/v1/doctor"));
  const checks = [...(report.value?.checks ?? [])].sort((a, b) => RANK(a) - RANK(b));
  return (
    <Page
      title="Doctor"
      about="What this host can do for sandboxes, and how to mend what it cannot."
      actions={
        <Button icon="refresh" onClick={report.reload} disabled={report.isLoading}>
          {report.isLoading ? "Checking…" : "Check again"}
        </Button>
      }
    >
      {report.error !== null && <ErrorNotice error={report.error} retry={report.reload} />}
      {!report.value && report.isLoading && <Empty title="Checking the host" />}
      {checks.length > 0 && (
        <ul class="panel findings">
          {checks.map((finding, index) => (
            <li key={index} class="finding">
              <span class={`badge ${TONES[finding.status] ?? ""}`}>{plainLine(finding.status)}</span>
              <div class="stack tight">
                <strong>{plainLine(finding.name)}</strong>
                <span class="soft">{plainText(finding.detail)}</span>
                {finding.mend && <CodeBlock text={finding.mend} label="the command that mends it" />}
              </div>
            </li>
          ))}
        </ul>
      )}
    </Page>
  );
}
