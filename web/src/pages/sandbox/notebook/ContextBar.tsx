import { path, send } from "../../../api/client";
import type { ContextView, LanguageList, Sandbox } from "../../../api/types";
import { Button } from "../../../components/Button";
import { bytes, plural } from "../../../lib/format";
import { plainLine } from "../../../lib/plain";
import { attempt, say } from "../../../state/toasts";

export type Target = { language: string; context: string | null };

/** The languages whose interpreters can be branched. */
const FORKED: ReadonlySet<string> = new Set(["python"]);

type Props = {
  sandbox: Sandbox;
  contexts: ContextView[];
  languages: LanguageList["languages"];
  target: Target;
  onTarget: (target: Target) => void;
  reload: () => void;
};

/** Chooses where code runs: in a language's own context, or in a named one. */
export function ContextBar({ sandbox, contexts, languages, target, onTarget, reload }: Props) {
  const chosen = contexts.find((context) => context.name === target.context);
  const contextPath = (...rest: string[]) => path("sandboxes", sandbox.id, "contexts", chosen?.name ?? "", ...rest);
  const change = (what: string, action: () => Promise<unknown>) =>
    void attempt(what, async () => {
      await action();
      reload();
    });
  return (
    <div class="row">
      <select
        class="input narrow"
        aria-label="Language"
        value={target.language}
        onChange={(event) => onTarget({ language: event.currentTarget.value, context: null })}
      >
        {(languages.length ? languages : [{ name: target.language }]).map((language) => (
          <option key={language.name} value={language.name}>
            {language.name}
          </option>
        ))}
      </select>
      <select
        class="input narrow"
        aria-label="Context"
        value={target.context ?? ""}
        onChange={(event) => {
          const name = event.currentTarget.value;
          const found = contexts.find((context) => context.name === name);
          onTarget({ language: found?.language ?? target.language, context: name || null });
        }}
      >
        <option value="">all contexts</option>
        {contexts.map((context) => (
          <option key={context.name} value={context.name}>
            {plainLine(context.name)} ({context.language}, {context.state})
          </option>
        ))}
      </select>
      {chosen ? (
        <>
          {FORKED.has(chosen.language) && (
            <Button
              small
              icon="branch"
              onClick={() =>
                change("Not forked", async () => {
                  const made = await send<ContextView>("POST", contextPath("fork"), {});
                  onTarget({ language: made.language, context: made.name });
                  say(`Forked into ${plainLine(made.name)}: both go on with the same variables.`, { tone: "good" });
                })
              }
            >
              Fork
            </Button>
          )}
          <Button small onClick={() => change("Not reset", () => send("POST", contextPath("reset")))}>
            Reset
          </Button>
          <Button
            small
            kind="danger"
            onClick={() =>
              change("Not ended", async () => {
                await send("DELETE", contextPath());
                onTarget({ language: chosen.language, context: null });
              })
            }
          >
            End
          </Button>
          <span class="faint small">
            {plural(chosen.cells, "cell")}, {bytes(chosen.memoryBytes)}
            {chosen.parent ? `, forked from ${plainLine(chosen.parent)}` : ""}
          </span>
        </>
      ) : (
        <Button
          small
          icon="plus"
          onClick={() =>
            change("No new context", async () => {
              const made = await send<ContextView>("POST", path("sandboxes", sandbox.id, "contexts"), {
                language: target.language,
              });
              onTarget({ language: made.language, context: made.name });
            })
          }
        >
          New context
        </Button>
      )}
    </div>
  );
}
