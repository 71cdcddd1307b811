import type { Plugin } from "vite";

/** What xterm.js does that `style-src 'self'` forbids, what does the same within it, and how often it occurs. */
const REPLACEMENTS = [
  // `<warren-style>` (components/terminal/StyleElement.ts) puts its text into a constructed style sheet.
  { from: 'createElement("style")', to: 'createElement("warren-style")', times: 3 },
  // A style attribute is forbidden; the same text set through the style object is not.
  {
    from: 't.setAttribute("style",`${t.getAttribute("style")||""}${e};`)',
    to: "t.style.cssText+=`${e};`",
    times: 1,
  },
];

/** Makes xterm.js work under the daemon's content policy. The build fails when a new xterm.js does not fit. */
export function xtermUnderPolicy(): Plugin {
  return {
    name: "xterm-under-policy",
    enforce: "pre",
    transform(code, id) {
      if (!id.includes("@xterm/xterm/lib/xterm.mjs")) return null;
      let changed = code;
      for (const { from, to, times } of REPLACEMENTS) {
        const parts = changed.split(from);
        if (parts.length !== times + 1) {
          throw new Error(
            `xterm.js has ${parts.length - 1} of ${JSON.stringify(from)}, not ${times}: adapt ${import.meta.url}`,
          );
        }
        changed = parts.join(to);
      }
      return { code: changed, map: null };
    },
  };
}
