import { useMemo } from "preact/hooks";
import { inert } from "../../lib/inert";

/** Elements that could do nothing in the frame anyway; without them the browser has nothing to complain about. */
const USELESS = "script, style, link, meta, base, iframe, frame, object, embed, form, template, noscript";

function cleaned(html: string): string {
  const content = inert(html);
  for (const element of content.querySelectorAll(USELESS)) element.remove();
  for (const element of content.querySelectorAll("*")) {
    for (const attribute of [...element.attributes]) {
      const isKept = /^(alt|colspan|rowspan|title|lang)$/.test(attribute.name);
      const isPicture = attribute.name === "src" && /^data:image\//.test(attribute.value);
      if (!isKept && !isPicture) element.removeAttribute(attribute.name);
    }
  }
  const box = document.createElement("template");
  box.content.append(content);
  return `<!doctype html><html lang="en"><body>${box.innerHTML}</body></html>`;
}

/**
 * HTML that was made in a sandbox. The frame has an origin of its own and may run, send, open and load nothing; it
 * inherits the page's content policy too.
 */
export function HtmlFrame({ html, title, tall }: { html: string; title: string; tall?: boolean }) {
  const source = useMemo(() => cleaned(html), [html]);
  return <iframe class={`frame ${tall ? "tall" : ""}`} sandbox="" srcdoc={source} title={title} />;
}
