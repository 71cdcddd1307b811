import { outputAddress } from "../../api/execs";
import { contentAddress } from "../../api/files";
import type { Exec } from "../../api/types";
import { saveAnswer } from "../../lib/download";
import { bytes } from "../../lib/format";
import type { ChangedFile, Told } from "../../lib/ledger";
import { plainText } from "../../lib/plain";
import { to } from "../../state/route";
import { attempt } from "../../state/toasts";
import { Button } from "../Button";
import { Name } from "../Name";
import { Notice } from "../Notice";
import { RichOutput } from "./RichOutput";

type Props = {
  exec: Exec;
  told: Told;
  isReading: boolean;
  /** Whoever looks on with a shared address has no page of files; the chips download there. */
  filesAreLinks?: boolean;
};

/** Everything that an exec told: output, results, pictures, tables, its error and the files it made. */
export function ExecOutput({ exec, told, isReading, filesAreLinks = true }: Props) {
  const isSilent = told.chunks.length === 0 && told.shown.length === 0 && !told.error;
  const outcome = told.outcome ?? exec.outcome;
  const whyNotStarted = outcome?.type === "notStarted" ? outcome.message : null;
  return (
    <div class="stack exec-output">
      {told.isCut && (
        <div class="row small faint">
          The beginning of a long output is left out here.
          <Button
            small
            onClick={() =>
              void attempt("Not downloaded", () => saveAnswer(outputAddress(exec.sandbox, exec.id), `${exec.id}.log`))
            }
          >
            Download all
          </Button>
        </div>
      )}
      {told.chunks.length > 0 && (
        <pre class="output" tabIndex={0} aria-label="Output">
          {told.chunks.map((chunk, index) => (
            <span key={index} class={chunk.stream}>
              {plainText(chunk.text)}
            </span>
          ))}
        </pre>
      )}
      {told.shown.map((shown, index) => (
        <RichOutput key={index} data={shown.data} />
      ))}
      {told.error && (
        <pre class="output bad" tabIndex={0} aria-label="Error">
          {plainText(told.error.traceback || `${told.error.name}: ${told.error.value}`)}
        </pre>
      )}
      {told.warnings.map((warning, index) => (
        <p key={index} class="small warn">
          {plainText(warning)}
        </p>
      ))}
      {told.files.length > 0 && (
        <p class="row small">
          <span class="faint">Files made:</span>
          {told.files.map((file) => (
            <FileChip key={file.path} sandbox={exec.sandbox} file={file} isLink={filesAreLinks} />
          ))}
        </p>
      )}
      {whyNotStarted !== null && <Notice tone="bad">{plainText(whyNotStarted)}</Notice>}
      {isSilent && whyNotStarted === null && (
        <p class="small faint">
          {isReading && exec.state !== "done" ? "No output yet." : isReading ? "Reading…" : "No output."}
        </p>
      )}
    </div>
  );
}

function FileChip({ sandbox, file, isLink }: { sandbox: string; file: ChangedFile; isLink: boolean }) {
  const words = (
    <>
      <Name text={file.path} /> {bytes(file.size)}
    </>
  );
  if (isLink) {
    return (
      <a class="label-chip" href={`${to("sandboxes", sandbox, "files")}?path=${encodeURIComponent(file.path)}`}>
        {words}
      </a>
    );
  }
  const name = file.path.split("/").at(-1) ?? "file";
  return (
    <button
      type="button"
      class="label-chip"
      title="Download"
      onClick={() => void attempt("Not downloaded", () => saveAnswer(contentAddress(sandbox, file.path), name))}
    >
      {words}
    </button>
  );
}
