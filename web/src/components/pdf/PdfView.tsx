import { useEffect, useRef, useState } from "preact/hooks";
import { wordsOf } from "../../api/errors";
import { plainLine } from "../../lib/plain";
import { Notice } from "../Notice";

type Props = { bytes: Uint8Array<ArrayBuffer>; name: string };

/** Draws a PDF page by page. The reader is our own copy of pdf.js and comes when the first PDF is opened. */
export function PdfView({ bytes, name }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    import("./draw")
      .then(({ drawPages }) => host.current && drawPages(bytes, host.current, plainLine(name), abort.signal))
      .catch((failed: unknown) => setError(wordsOf(failed)));
    return () => abort.abort();
  }, [bytes]);
  return (
    <>
      {error && <Notice tone="bad">The PDF cannot be shown: {error}</Notice>}
      <div class="pdf" ref={host} tabIndex={0} role="document" aria-label={plainLine(name)} />
    </>
  );
}
