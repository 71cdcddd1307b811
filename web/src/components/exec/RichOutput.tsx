import type { MimeBundle } from "../../lib/ledger";
import { plainText } from "../../lib/plain";
import { HtmlOutput } from "./HtmlOutput";

const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MAX_TEXT = 64 * 1024;

/** One thing that code showed, in its best form. Everything in it was written by the workload. */
export function RichOutput({ data }: { data: MimeBundle }) {
  for (const type of PICTURES) {
    const base64 = data[type];
    if (typeof base64 === "string" && /^[A-Za-z0-9+/=\s]+$/.test(base64)) {
      return <img class="picture" src={`data:${type};base64,${base64.replace(/\s/g, "")}`} alt={described(data)} />;
    }
  }
  const svg = data["image/svg+xml"];
  if (typeof svg === "string") {
    // A picture of this kind runs no scripts and loads nothing.
    return (
      <img class="picture" src={`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`} alt={described(data)} />
    );
  }
  const html = data["text/html"];
  if (typeof html === "string") return <HtmlOutput html={html} />;
  const json = data["application/json"];
  const text = textOf(data["text/markdown"]) ?? textOf(data["text/plain"]) ?? textOf(data["text/latex"]);
  return <pre class="output">{plainText((text ?? JSON.stringify(json ?? data, null, 2)).slice(0, MAX_TEXT))}</pre>;
}

function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function described(data: MimeBundle): string {
  return plainText(textOf(data["text/plain"]) ?? "A picture that the code showed").slice(0, 200);
}
