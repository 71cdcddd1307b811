// Whoever looks on sees terminals and files, and nothing that leads nowhere.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, PHONE, seriousFindings, shoot, signIn } from "./browser.mjs";
import { noFaults, PICTURE_CODE, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { daemon, browser } = given;
const { id } = await given.make("lab");
const owner = await openPage(browser, daemon);
await signIn(owner, daemon);
const share = async () => (await daemon.call(given.key, "POST", "/v1/shares", { sandbox: "lab", expires: 600 })).address;
const guest = await openPage(browser, daemon);
await guest.goto(await share());
await guest.getByRole("heading", { name: "Watching lab" }).waitFor();

const rowsOf = (page) => page.locator(".terminal-view:not(.hidden) .xterm-rows");

test("a terminal is seen as whoever uses it sees it, and takes no keys", async () => {
  await goTo(owner, daemon, `sandboxes/${id}/terminal`);
  await owner.getByRole("button", { name: "Open a terminal" }).click();
  await rowsOf(owner).getByText("#").first().waitFor();
  await owner.keyboard.type("echo seen-$((40+2))");
  await owner.keyboard.press("Enter");
  await rowsOf(guest).getByText("seen-42").waitFor();
  const columns = (page) => rowsOf(page).evaluate((rows) => rows.childElementCount);
  assert.equal(await columns(guest), await columns(owner));
  // The size follows.
  await owner.setViewportSize({ width: 1100, height: 600 });
  await owner.keyboard.type("clear; stty size");
  await owner.keyboard.press("Enter");
  await rowsOf(owner)
    .getByText(/^\d+ \d+$/)
    .waitFor();
  const count = await columns(owner);
  await guest.waitForFunction(
    (wanted) => document.querySelector(".xterm-rows")?.childElementCount === wanted,
    count,
  );
  await guest.locator(".terminal-host").click();
  await guest.keyboard.type("echo intruder");
  await guest.keyboard.press("Enter");
  await owner.keyboard.type("echo after-it");
  await owner.keyboard.press("Enter");
  await rowsOf(guest).getByText("after-it").last().waitFor();
  assert.equal(await rowsOf(owner).getByText("intruder").count(), 0);
  await shoot(guest, "watch-terminal");
  assert.deepEqual(await seriousFindings(guest), []);
  await owner.keyboard.type("exit");
  await owner.keyboard.press("Enter");
  await guest.getByText("The program has ended.").waitFor();
});

test("files that were made are downloaded, and nothing leads to pages that are not shown", async () => {
  await given.code("lab", PICTURE_CODE);
  const chip = guest.getByRole("button", { name: /gradient\.png/ });
  const [download] = await Promise.all([guest.waitForEvent("download"), chip.click()]);
  assert.equal(download.suggestedFilename(), "gradient.png");
  assert.deepEqual(await guest.locator("a").evaluateAll((links) => links.map((link) => link.href)), []);
  assert.deepEqual(await seriousFindings(guest), []);
  await shoot(guest, "watch-guest");
  noFaults(guest);
});

test("it fits a phone", async () => {
  const phone = await openPage(browser, daemon, { viewport: PHONE, colorScheme: "dark" });
  await phone.goto(await share());
  await phone.locator("img.picture").waitFor();
  assert.ok((await phone.evaluate(() => document.documentElement.scrollWidth)) <= PHONE.width);
  await shoot(phone, "watch-guest-phone");
  noFaults(phone);
});

test("a key that may only look sees a terminal too", async () => {
  // Whoever may type gives a terminal the size of his own page.
  await goTo(owner, daemon, "sandboxes");
  const exec = await daemon.call(given.key, "POST", "/v1/sandboxes/lab/execs", {
    command: ["sh", "-c", "echo for everyone; cat"],
    terminal: { rows: 12, cols: 60 },
  });
  const looker = await openPage(browser, daemon);
  await looker.goto(daemon.url);
  await looker.getByLabel("Key").fill(daemon.key("looker", "--namespace", "default", "--read-only"));
  await looker.getByRole("button", { name: "Sign in" }).click();
  await looker.getByRole("link", { name: "lab" }).waitFor();
  await goTo(looker, daemon, `sandboxes/${id}/terminal`);
  await rowsOf(looker).getByText("for everyone").waitFor();
  assert.equal(await rowsOf(looker).evaluate((rows) => rows.childElementCount), 12);
  await daemon.call(given.key, "POST", `/v1/sandboxes/lab/execs/${exec.id}/signal`, { signal: 9 });
  await looker.getByText("The program has ended.").waitFor();
  noFaults(looker);
  noFaults(owner);
});
