import { useState } from "preact/hooks";
import { path, send } from "../../../api/client";
import type { NetworkPatch, NetworkView, Preset, Sandbox } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Name } from "../../../components/Name";
import { Panel } from "../../../components/Panel";
import { plainLine } from "../../../lib/plain";
import { canChange } from "../../../state/session";
import { attempt, say } from "../../../state/toasts";
import { PRESET_WORDS } from "./words";

type Props = { sandbox: Sandbox; view: NetworkView; reload: () => void };
type Rule = { action: "allow" | "deny"; target: string };

export const patchNetwork = (sandbox: string, patch: NetworkPatch) =>
  send<NetworkView>("PATCH", path("sandboxes", sandbox, "network"), patch);

/** What the sandbox may reach, rule by rule; the first that matches decides. */
export function PolicyPanel({ sandbox, view, reload }: Props) {
  const { policy } = view;
  const preset: Preset = policy.preset ?? "packages";
  const rules: Rule[] = [
    ...(policy.deny ?? []).map((target) => ({ action: "deny" as const, target })),
    ...(policy.rules ?? []).map(({ action, target }) => ({ action, target })),
    ...(policy.allow ?? []).map((target) => ({ action: "allow" as const, target })),
  ];
  const change = (patch: NetworkPatch) =>
    attempt("The network was not changed", async () => {
      await patchNetwork(sandbox.id, patch);
      reload();
    });
  const remove = (rule: Rule) => {
    void change({ remove: [rule.target] });
    say(`Removed the rule for ${plainLine(rule.target)}.`, {
      action: { label: "Undo", run: () => void change({ [rule.action]: [rule.target] }) },
    });
  };
  return (
    <Panel title="Policy" flush>
      <div class="panel-body stack">
        <div class="row">
          <span>Without a rule, the sandbox reaches</span>
          {canChange.value ? (
            <select
              class="input narrow"
              aria-label="What is reached without a rule"
              value={preset}
              onChange={(event) => void change({ preset: event.currentTarget.value as Preset })}
            >
              {Object.entries(PRESET_WORDS).map(([value, label]) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          ) : (
            <strong>{PRESET_WORDS[preset]}</strong>
          )}
        </div>
        {(view.ceilings ?? []).length > 0 && (
          <p class="faint small">
            The operator's ceiling holds above these rules:{" "}
            <span class="mono">{(view.ceilings ?? []).map(plainLine).join(", ")}</span>
          </p>
        )}
        {canChange.value && <NewRule onRule={(rule) => change({ [rule.action]: [rule.target] })} />}
      </div>
      {rules.length > 0 && (
        <table class="table">
          <tbody>
            {rules.map((rule) => (
              <tr key={`${rule.action} ${rule.target}`}>
                <td>
                  <span class={`badge ${rule.action === "allow" ? "good" : "bad"}`}>{rule.action}</span>
                </td>
                <td class="mono rule-target">
                  <Name text={rule.target} mono />
                </td>
                <td class="actions">
                  {canChange.value && (
                    <Button
                      small
                      kind="quiet"
                      icon="trash"
                      label={`Remove the rule for ${plainLine(rule.target)}`}
                      onClick={() => remove(rule)}
                    />
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

function NewRule({ onRule }: { onRule: (rule: Rule) => Promise<boolean> }) {
  const [target, setTarget] = useState("");
  const add = async (action: Rule["action"]) => {
    if (!target.trim()) return;
    // What was refused stays, to be mended, and so does what was typed meanwhile.
    const isDone = await onRule({ action, target: target.trim() });
    if (isDone) setTarget((now) => (now === target ? "" : now));
  };
  return (
    <form
      class="row"
      onSubmit={(event) => {
        event.preventDefault();
        void add("allow");
      }}
    >
      <input
        class="input mono rule-input"
        aria-label="A host, wildcard, address or range"
        placeholder="api.example.org, *.example.org:443, 10.2.0.0/16"
        value={target}
        spellcheck={false}
        onInput={(event) => setTarget(event.currentTarget.value)}
      />
      <Button submit disabled={!target.trim()}>
        Allow
      </Button>
      <Button kind="danger" disabled={!target.trim()} onClick={() => void add("deny")}>
        Deny
      </Button>
    </form>
  );
}
