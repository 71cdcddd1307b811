// Every page, in light and dark, at 380 and 1,440 pixels: no fault, no serious finding of axe, a picture of each.
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { goTo, openPage, PHONE, seriousFindings, shoot, signIn, WIDE } from "./browser.mjs";
import { noFaults, PICTURE_CODE, TABLE_CODE, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const ids = {};

const hour = { lifetime: { ttlMs: 3_600_000 } };
const all = {
  "agent-crawler": { labels: { team: "research", run: "42" }, ...hour },
  "web-preview": { labels: { team: "web" }, limits: { memory: 512 * 2 ** 20 } },
  "notebook-lab": { labels: { team: "research" }, limits: { memory: 2 ** 28 } },
  "nightly-tests": { labels: { ci: "true" }, ...hour },
  "data-import": { labels: { team: "data" } },
};
for (const [name, spec] of Object.entries(all)) ids[name] = (await given.make(name, spec)).id;
await given.shell(
  "notebook-lab",
  "mkdir -p src && printf 'def add(a, b):\\n    return a + b\\n' > src/main.py && echo '# Lab' > README.md && ls -la",
);
await given.shell("notebook-lab", "echo 'no such table' >&2; exit 3");
await given.code("notebook-lab", PICTURE_CODE);
await given.code("notebook-lab", TABLE_CODE);
await given.shell("agent-crawler", "i=0; while :; do i=$((i+1)); echo fetched page $i; sleep 0.3; done", false);
await given.run("web-preview", ["python3", "-m", "http.server", "8000"], false);
await given.daemon.call(given.key, "POST", "/v1/sandboxes/data-import/stop");
await given.daemon.call(given.key, "POST", "/v1/sandboxes/nightly-tests/pause");
await given.daemon.call(given.key, "POST", "/v1/snapshots", { sandbox: "notebook-lab", name: "before-change" });
await given.daemon.call(given.key, "POST", "/v1/sandboxes/notebook-lab/fork", { names: ["notebook-lab-b"] });
given.daemon.cli("volume", "create", "datasets");
const request = (name, rules, reason) =>
  given.daemon.call(given.key, "POST", `/v1/sandboxes/${name}/network/requests`, { rules, reason });
await request("agent-crawler", ["data.example.org", "*.cdn.example.org:443"], "to download the data of the last run");
const answered = await request("notebook-lab", ["api.example.org"], "to look up rates");
given.daemon.cli("network", "notebook-lab", "--grant", answered.id);
given.daemon.setSecret("GITHUB_TOKEN", "api.github.com");
await given.daemon.call(given.key, "POST", "/v1/shares", { sandbox: "notebook-lab", expires: 3600 });

const heading = (page, name) => page.getByRole("heading", { name, exact: true }).first();
const lab = (tab) => `sandboxes/${ids["notebook-lab"]}/${tab}`;

/** Name, place, and what must be in sight. */
const PLACES = [
  ["sandboxes", () => "sandboxes", (page) => page.getByRole("link", { name: "notebook-lab-b" })],
  ["fleet", () => "fleet", (page) => page.getByText("datasets")],
  ["keys", () => "keys", (page) => page.getByText("ana").first()],
  ["requests", () => "requests", (page) => page.getByText("to download the data")],
  ["secrets", () => "secrets", (page) => page.getByText("GITHUB_TOKEN")],
  ["shares", () => "shares", (page) => page.getByRole("link", { name: "notebook-lab" })],
  ["audit", () => "audit", (page) => page.getByText("POST /v1/snapshots").first()],
  ["doctor", () => "doctor", (page) => page.getByText("seccomp filters").first()],
  ["connect", () => "connect", (page) => heading(page, "Claude Code")],
  ["watch", () => `watch/sandbox/${ids["notebook-lab"]}`, (page) => page.getByRole("img").last()],
  ["overview", () => `sandboxes/${ids["web-preview"]}/overview`, (page) => page.locator(".uplot").nth(2)],
  ["timeline", () => lab("timeline"), (page) => page.locator(".exec-outcome").getByText("exit 3")],
  ["notebook", () => lab("notebook"), (page) => page.getByRole("cell", { name: "debian" })],
  ["files", () => lab("files"), (page) => page.getByRole("link", { name: "README.md" })],
  ["editor", () => `${lab("files")}?path=/root/src/main.py`, (page) => page.locator(".cm-content")],
  ["ports", () => `sandboxes/${ids["web-preview"]}/ports`, (page) => page.getByText("8000")],
  ["network", () => lab("network"), (page) => heading(page, "Policy")],
  ["logs", () => lab("logs"), (page) => page.getByText("no such table", { exact: true })],
  ["snapshots", () => lab("snapshots"), (page) => page.getByText("before-change")],
  ["isolation", () => lab("isolation"), (page) => heading(page, "Limits")],
  ["terminal", () => lab("terminal"), (page) => page.getByText("No terminal is open")],
];

for (const colorScheme of ["light", "dark"]) {
  for (const [size, viewport] of Object.entries({ 1440: WIDE, 380: PHONE })) {
    describe(`${colorScheme}, ${size} pixels`, () => {
      let page;
      before(async () => {
        page = await openPage(given.browser, given.daemon, { viewport, colorScheme });
        await signIn(page, given.daemon);
      });
      for (const [name, place, inSight] of PLACES) {
        test(name, async () => {
          await goTo(page, given.daemon, place());
          await inSight(page).waitFor();
          await shoot(page, `${name}-${colorScheme}-${size}`);
          assert.deepEqual(await seriousFindings(page), []);
          const width = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(width <= viewport.width, `the page is ${width} wide`);
          noFaults(page);
        });
      }
      test("the sign-in", async () => {
        const stranger = await openPage(given.browser, given.daemon, { viewport, colorScheme });
        await stranger.goto(given.daemon.url);
        await heading(stranger, "Sign in to Warren").waitFor();
        await shoot(stranger, `sign-in-${colorScheme}-${size}`);
        assert.deepEqual(await seriousFindings(stranger), []);
        noFaults(stranger);
        await stranger.context().close();
      });
    });
  }
}
