// `warren dashboard` opens the browser.
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, watch, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { openPage } from "./browser.mjs";
import { withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const work = mkdtempSync(join(tmpdir(), "warren-opener-"));
after(() => rmSync(work, { recursive: true, force: true }));

test("it asks the desktop to open a page that signs in", async () => {
  const told = join(work, "told");
  writeFileSync(join(work, "xdg-open"), `#!/bin/sh\nprintf '%s\\n' "$@" >${told}.new\nmv ${told}.new ${told}\n`);
  chmodSync(join(work, "xdg-open"), 0o755);
  const isTold = new Promise((resolve) => {
    const watcher = watch(work, (_, name) => {
      if (name !== "told") return;
      watcher.close();
      resolve();
    });
  });
  const env = { ...given.daemon.env, DISPLAY: ":0", PATH: `${work}:${process.env.PATH}` };
  execFileSync(process.env.WARREN, ["dashboard"], { env, encoding: "utf8" });
  await isTold;
  const [opened, ...more] = readFileSync(told, "utf8").trim().split("\n");
  assert.deepEqual(more, []);
  const page = await openPage(given.browser, given.daemon);
  await page.goto(opened.startsWith("/") ? `file://${opened}` : opened);
  await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
  assert.ok(page.url().startsWith(given.daemon.url));
});
