import { getDocument, GlobalWorkerOptions } from "pdfjs-dist";
import worker from "pdfjs-dist/build/pdf.worker.mjs?worker&url";

const MAX_PAGES = 30;
const MAX_WIDTH = 900;

GlobalWorkerOptions.workerSrc = worker;

/** Draws the first pages as pictures, with their text as labels. Scripts in the document are never run. */
export async function drawPages(
  bytes: Uint8Array,
  host: HTMLElement,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  // The worker takes the bytes away, so it gets a copy.
  const task = getDocument({ data: bytes.slice(), isEvalSupported: false, enableXfa: false });
  signal.addEventListener("abort", () => void task.destroy());
  const document = await task.promise;
  host.replaceChildren();
  for (let number = 1; number <= Math.min(MAX_PAGES, document.numPages); number += 1) {
    if (signal.aborted) return;
    const page = await document.getPage(number);
    const natural = page.getViewport({ scale: 1 });
    const width = Math.min(MAX_WIDTH, Math.max(200, host.clientWidth - 32));
    const viewport = page.getViewport({ scale: (width / natural.width) * devicePixelRatio });
    const canvas = host.ownerDocument.createElement("canvas");
    canvas.width = viewport.width;
    canvas.height = viewport.height;
    canvas.style.width = `${width}px`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${name}, page ${number} of ${document.numPages}`);
    host.append(canvas);
    const canvasContext = canvas.getContext("2d");
    if (canvasContext) await page.render({ canvasContext, viewport }).promise;
  }
}
