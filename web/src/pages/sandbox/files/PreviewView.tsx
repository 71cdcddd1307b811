import { useEffect, useState } from "preact/hooks";
import { EditorView } from "../../../components/editor/EditorView";
import { HtmlFrame } from "../../../components/exec/HtmlFrame";
import { RichOutput } from "../../../components/exec/RichOutput";
import { PdfView } from "../../../components/pdf/PdfView";
import { Empty } from "../../../components/Notice";
import { Segments } from "../../../components/Segments";
import { baseName } from "../../../lib/paths";
import { plainLine, plainText } from "../../../lib/plain";
import type { NotebookCell, Preview } from "../../../lib/preview";

type Props = {
  sandbox: string;
  path: string;
  preview: Preview;
  readNow: () => Promise<string | null>;
  onSaved: () => void;
};

/** A file's content. Nothing in it runs: pictures are pictures, HTML is in a sandboxed frame, the rest is text. */
export function PreviewView(props: Props) {
  const { path, preview } = props;
  switch (preview.kind) {
    case "picture":
      return <Picture blob={preview.blob} name={baseName(path)} />;
    case "pdf":
      return <PdfView bytes={preview.bytes} name={baseName(path)} />;
    case "notebook":
      return <NotebookPreview cells={preview.cells} />;
    case "html":
      return <HtmlPreview {...props} preview={preview} />;
    case "text":
      return <EditorView {...props} text={preview.text} isCut={preview.isCut} />;
    case "binary":
      return <Empty title="No preview">The file is not text. Download it to look at it.</Empty>;
  }
}

function Picture({ blob, name }: { blob: Blob; name: string }) {
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return <div class="panel-body">{address && <img class="picture" src={address} alt={plainLine(name)} />}</div>;
}

function HtmlPreview(props: Props & { preview: Extract<Preview, { kind: "html" }> }) {
  const { path, preview } = props;
  const [mode, setMode] = useState<"source" | "page">("source");
  return (
    <>
      <div class="panel-body">
        <Segments
          label="View"
          value={mode}
          options={[
            { value: "source", label: "Source" },
            { value: "page", label: "Page without scripts" },
          ]}
          onChange={setMode}
        />
      </div>
      {mode === "page" ? (
        <HtmlFrame html={preview.text} title={`The page ${plainLine(baseName(path))}`} tall />
      ) : (
        <EditorView {...props} text={preview.text} isCut={preview.isCut} />
      )}
    </>
  );
}

function NotebookPreview({ cells }: { cells: NotebookCell[] }) {
  return (
    <div class="panel-body stack">
      {cells.map((cell, index) => (
        <div key={index} class="stack">
          <pre class={`output ${cell.type === "code" ? "code" : "prose"}`}>{plainText(cell.source)}</pre>
          {cell.text && <pre class="output">{plainText(cell.text)}</pre>}
          {cell.outputs.map((output, number) => (
            <RichOutput key={number} data={output} />
          ))}
        </div>
      ))}
    </div>
  );
}
