import { useEffect, useRef, useState } from "preact/hooks";
import { get, path, send } from "../../../api/client";
import type { ContextList, ContextView, ExecResult, LanguageList, Sandbox } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Empty, ErrorNotice } from "../../../components/Notice";
import { useLoaded } from "../../../lib/hooks";
import { useExecs } from "../../../lib/useExecs";
import { attempt } from "../../../state/toasts";
import { Cell } from "./Cell";
import { ContextBar, type Target } from "./ContextBar";

/** Cells shown at first; older ones on request. */
const PAGE = 20;

/** Runs code in the sandbox's contexts. The cells are the ledger's, so they are there after a reload, and for others. */
export function Notebook({ sandbox }: { sandbox: Sandbox }) {
  const isRunning = sandbox.state === "running";
  const { execs } = useExecs(sandbox.id);
  const cells = execs.filter((exec) => exec.cell);
  const contexts = useLoaded(
    `contexts ${sandbox.id} ${sandbox.state}`,
    async () => (isRunning ? (await get<ContextList>(path("sandboxes", sandbox.id, "contexts"))).contexts : []),
    cells.length,
  );
  const languages = useLoaded(`languages ${sandbox.id} ${sandbox.state}`, async () =>
    isRunning ? (await get<LanguageList>(path("sandboxes", sandbox.id, "languages"))).languages : [],
  );
  const [target, setTarget] = useState<Target>({ language: "python", context: null });
  const [count, setCount] = useState(PAGE);

  if (!isRunning) return <Empty title="The sandbox does not run">Code needs a sandbox that runs.</Empty>;
  const shown = cells.filter((exec) => target.context === null || exec.cell?.context === target.context);
  return (
    <div class="page-body notebook">
      {contexts.error !== null && <ErrorNotice error={contexts.error} retry={contexts.reload} />}
      <ContextBar
        sandbox={sandbox}
        contexts={contexts.value ?? []}
        languages={languages.value ?? []}
        target={target}
        onTarget={setTarget}
        reload={contexts.reload}
      />
      {shown.length > count && (
        <Button kind="quiet" onClick={() => setCount(count + PAGE)}>
          Show {shown.length - count} older cells
        </Button>
      )}
      {shown.slice(-count).map((exec, index) => (
        <Cell key={exec.id} exec={exec} number={Math.max(0, shown.length - count) + index + 1} />
      ))}
      <NewCell sandbox={sandbox} target={target} contexts={contexts.value ?? []} />
    </div>
  );
}

/** Pixels that the end of the page may lie below what is in sight. */
const NEAR = 60;

/** Keeps an element in sight while what is above it grows, until somebody scrolls away from it. */
function useKeptInSight(element: { readonly current: HTMLElement | null }): () => void {
  const isFollowing = useRef(true);
  const show = () => isFollowing.current && element.current?.scrollIntoView({ block: "nearest" });
  useEffect(() => {
    const page = element.current?.closest(".page");
    const above = element.current?.parentElement;
    if (!page || !above) return;
    let top = page.scrollTop;
    const scrolled = () => {
      const below = (element.current?.getBoundingClientRect().bottom ?? 0) - page.getBoundingClientRect().bottom;
      // Only people scroll up. Further down, what grows may be faster than the page.
      if (below < NEAR || page.scrollTop < top) isFollowing.current = below < NEAR;
      top = page.scrollTop;
    };
    page.addEventListener("scroll", scrolled, { passive: true });
    const observer = new ResizeObserver(show);
    observer.observe(above);
    return () => {
      page.removeEventListener("scroll", scrolled);
      observer.disconnect();
    };
  }, []);
  return () => {
    isFollowing.current = true;
    show();
  };
}

function NewCell({ sandbox, target, contexts }: { sandbox: Sandbox; target: Target; contexts: ContextView[] }) {
  const [code, setCode] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const show = useKeptInSight(form);
  const run = async () => {
    if (!code.trim()) return;
    show();
    const cell = { code, language: target.language, context: target.context };
    const isStarted = await attempt("The code did not start", () =>
      send<ExecResult>("POST", path("sandboxes", sandbox.id, "execs"), { cell, trackFiles: true }),
    );
    // What was typed meanwhile stays.
    if (isStarted) setCode((now) => (now === code ? "" : now));
  };
  const isNew = target.context !== null && !contexts.some((context) => context.name === target.context);
  return (
    <form
      ref={form}
      class="panel new-cell"
      onSubmit={(event) => {
        event.preventDefault();
        void run();
      }}
    >
      <textarea
        class="input mono"
        aria-label={`${target.language} code`}
        placeholder={`${target.language} code`}
        rows={Math.min(20, Math.max(4, code.split("\n").length))}
        value={code}
        spellcheck={false}
        onInput={(event) => setCode(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            void run();
          }
        }}
      />
      <div class="row between">
        <span class="faint small">
          <kbd>Shift</kbd> <kbd>Enter</kbd> runs it in{" "}
          {target.context ? `context ${target.context}` : `the ${target.language} context`}
          {isNew ? ", which is new" : ""}.
        </span>
        <Button kind="primary" icon="play" submit disabled={!code.trim()}>
          Run
        </Button>
      </div>
    </form>
  );
}
