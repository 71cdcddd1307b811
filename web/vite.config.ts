import { defineConfig } from "vite";
import { smallPdfWorker } from "./build/pdf-worker.ts";
import { xtermUnderPolicy } from "./build/xterm-under-policy.ts";

/** The daemon that `npm run dev` talks to. */
const daemon = process.env["WARREN_URL"] ?? "http://127.0.0.1:5555";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [xtermUnderPolicy()],
  worker: { format: "es", plugins: () => [smallPdfWorker()] },
  build: {
    target: "es2023",
    // The content policy allows no `data:` scripts or styles, so every asset is a file.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // Licences of the libraries in the page, served with it.
    license: { fileName: "assets/licenses.txt" },
    chunkSizeWarningLimit: 1000,
  },
  server: { proxy: { "/v1": { target: daemon, ws: true } } },
});
