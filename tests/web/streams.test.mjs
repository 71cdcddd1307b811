// Browsers open six connections to one host. However many commands run and however many pages are visited, the page
// leaves room for requests.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const NAMES = ["one", "two", "three", "four"];
const RUNNING_EACH = 3;
const MAX_OPEN = 4;

const ids = {};
for (const name of NAMES) {
  ids[name] = (await given.make(name)).id;
  for (let index = 1; index <= RUNNING_EACH; index += 1)
    await given.shell(name, `while :; do echo ${name}-${index} goes on; sleep 0.2; done`, false);
}
const page = await openPage(given.browser, given.daemon);

/** Streams of output that are open now, and the most at once. */
const open = new Set();
let most = 0;
page.on("request", (request) => {
  if (!request.url().includes("follow=true")) return;
  open.add(request);
  most = Math.max(most, open.size);
});
for (const event of ["requestfinished", "requestfailed"]) page.on(event, (request) => open.delete(request));
await signIn(page, given.daemon);

/** The browser tells of the end of a stream a moment after the page has left it. */
async function fallsTo(count) {
  while (open.size > count) await page.waitForTimeout(20);
}

test("logs of several sandboxes with running commands are left behind", async () => {
  for (const name of [...NAMES, ...NAMES]) {
    await goTo(page, given.daemon, `sandboxes/${ids[name]}/logs`);
    await page.getByText(`${name}-${RUNNING_EACH} goes on`).first().waitFor();
    await fallsTo(2);
  }
  await goTo(page, given.daemon, `sandboxes/${ids.one}/files`);
  await page.getByRole("button", { name: "As tar" }).waitFor();
  await page.getByRole("link", { name: "Overview" }).click();
  await page.getByRole("region", { name: "Processes" }).getByText("sleep").first().waitFor();
  await fallsTo(0);
});

test("many open outputs share a few streams, and those that wait show what there is", async () => {
  await goTo(page, given.daemon, "keys");
  await page.getByRole("row").filter({ hasText: "ana" }).getByRole("link", { name: "Watch" }).click();
  await page.locator(".output").nth(2).waitFor();
  for (let shown = 3; shown < 7; shown += 1) {
    await page.getByRole("button", { name: "Show the output" }).first().click();
    await page.locator(".output").nth(shown).getByText("goes on").first().waitFor();
  }
  assert.equal(open.size, MAX_OPEN);
  // There is a connection left to ask by.
  await page.getByRole("link", { name: "Shares" }).click();
  await page.getByRole("heading", { name: "Shares" }).waitFor();
  await fallsTo(0);
  assert.equal(most, MAX_OPEN);
  noFaults(page);
});
