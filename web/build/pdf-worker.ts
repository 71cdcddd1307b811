import type { Plugin } from "vite";

/** A part of pdf.js begins with a line that names the file it was made from. */
const PART = /^;\/\/ (\S+)$/m;

/** Forms of the XFA sort, which we switch off. */
const FORMS = "./src/core/xfa/";

/** What stands in for a part that is left out, where others call it. */
const STAND_INS: Record<string, string> = {
  // A decoder of JPEG 2000 in WebAssembly, which the content policy does not let run.
  "./external/openjpeg/openjpeg.js":
    'const openjpeg = () => ({ decode: () => "pictures in JPEG 2000 are not shown" });',
  [`${FORMS}factory.js`]: "class XFAFactory { static getRichTextAsHtml() { return null; } }",
};

/** Leaves out of pdf.js what cannot run here, two fifths of it. The build fails when a new pdf.js does not fit. */
export function smallPdfWorker(): Plugin {
  return {
    name: "small-pdf-worker",
    enforce: "pre",
    transform(code, id) {
      if (!id.includes("pdfjs-dist/build/pdf.worker.mjs")) return null;
      const [head = "", ...rest] = code.split(PART);
      const missing = new Set(Object.keys(STAND_INS));
      let kept = head;
      for (let at = 0; at < rest.length; at += 2) {
        const [name = "", body = ""] = [rest[at], rest[at + 1]];
        missing.delete(name);
        kept += STAND_INS[name] ?? (name.startsWith(FORMS) ? "" : body);
      }
      if (missing.size > 0) {
        throw new Error(`pdf.js has no part ${[...missing].join(", ")}: adapt ${import.meta.url}`);
      }
      return { code: kept, map: null };
    },
  };
}
