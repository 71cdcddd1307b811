// What is committed is what the sources make, in types and in bytes, and the first page is small.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const web = join(import.meta.dirname, "../../web");
const run = (...args) =>
  execFileSync("npx", ["--no-install", ...args], { cwd: web, stdio: ["ignore", "pipe", "pipe"] });
const scratch = mkdtempSync(join(tmpdir(), "warren-dist-"));
test.after(() => rmSync(scratch, { recursive: true, force: true }));

function files(directory) {
  return readdirSync(directory, { recursive: true })
    .map((name) => join(directory, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => relative(directory, path))
    .sort();
}

test("the sources hold to their types", () => {
  run("tsc", "--noEmit");
});

test("the types of the API are those of openapi.json", () => {
  const made = join(scratch, "schema.ts");
  run("openapi-typescript", "../docs/reference/openapi.json", "--output", made, "--alphabetize");
  const kept = readFileSync(join(web, "src/api/schema.generated.ts"), "utf8");
  assert.ok(readFileSync(made, "utf8") === kept, "run `npm run types` in web/ and commit the result");
});

test("a fresh build is what is committed", () => {
  const made = join(scratch, "dist");
  run("vite", "build", "--outDir", made, "--logLevel", "error");
  const kept = join(web, "dist");
  assert.deepEqual(files(made), files(kept), "run `npm run build` in web/ and commit dist/");
  for (const file of files(made)) {
    assert.ok(
      readFileSync(join(made, file)).equals(readFileSync(join(kept, file))),
      `${file} differs: run \`npm run build\` in web/`,
    );
  }
});

/** What the browser loads before anyone clicks: the page, its script, its styles and both fonts. */
const MOST_FIRST_BYTES = 350 * 1024;

test("the first page is small", () => {
  const dist = join(web, "dist");
  const index = readFileSync(join(dist, "index.html"), "utf8");
  const named = [...index.matchAll(/(?:src|href)="\/([^"]+)"/g)].map(([, path]) => path);
  const fonts = files(dist).filter((file) => file.endsWith(".woff2"));
  const all = ["index.html", ...named, ...fonts];
  const size = all.reduce((sum, file) => sum + gzipSync(readFileSync(join(dist, file))).length, 0);
  console.log(`first page: ${(size / 1024).toFixed(0)} KiB compressed, ${all.length} files`);
  assert.ok(named.length >= 2 && fonts.length === 2);
  assert.ok(size <= MOST_FIRST_BYTES, `the first page has ${size} bytes`);
});
