// What is opened holds what axe finds, works with the keyboard alone, and on a phone.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, PHONE, seriousFindings, shoot, signIn } from "./browser.mjs";
import { noFaults, PICTURE_CODE, TABLE_CODE, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { daemon } = given;
const { id } = await given.make("lab");
await given.shell("lab", "mkdir -p docs && echo one > docs/note.txt");
await given.code("lab", PICTURE_CODE);
await given.code("lab", TABLE_CODE);
await daemon.call(given.key, "POST", "/v1/snapshots", { sandbox: "lab", name: "before" });
const page = await openPage(given.browser, daemon);
await signIn(page, daemon);
const open = (place) => goTo(page, daemon, place);
const lab = (tab) => open(`sandboxes/${id}/${tab}`);
const button = (name) => page.getByRole("button", { name, exact: true });
const press = async (...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};
const hasFocus = (locator) => locator.evaluate((element) => element === element.getRootNode().activeElement);

/** Presses Tab until something has the focus. */
async function tabTo(locator) {
  await locator.waitFor();
  for (let step = 0; step < 120; step += 1) {
    if (await hasFocus(locator)) return;
    await press("Tab");
  }
  assert.fail(`Tab does not reach ${locator}`);
}

/** Opens a dialog by key, looks at it, walks around in it, and closes it: the focus is back where it was. */
async function dialogOf(opener, name) {
  await tabTo(opener);
  await press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await shoot(page, `dialog-${name}`);
  assert.deepEqual(await seriousFindings(page), [], name);
  for (let step = 0; step < 25; step += 1) {
    await press("Tab");
    const isInside = await page.evaluate(
      () => document.activeElement === document.body || document.querySelector("dialog")?.contains(document.activeElement),
    );
    assert.ok(isInside, `the focus leaves the dialog ${name}`);
  }
  await press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.ok(await hasFocus(opener), `the focus is not back after ${name}`);
}

test("dialogs are opened, walked through and left by key, and axe finds nothing serious", async () => {
  await open("keys");
  await dialogOf(button("New key"), "key");
  await dialogOf(page.getByRole("row").filter({ hasText: "ana" }).getByRole("button", { name: "Revoke" }), "revoke");
  await open("secrets");
  await dialogOf(button("New secret").first(), "secret");
  await open(`watch/sandbox/${id}`);
  await dialogOf(button("Share"), "share");
  await lab("snapshots");
  await dialogOf(button("Restore").first(), "restore");
  await lab("files");
  await dialogOf(button("New file"), "new-file");
  await lab("overview");
  await tabTo(button("More actions"));
  await press("Enter");
  await page.getByRole("menuitem", { name: "Renew…" }).focus();
  await press("Enter");
  await page.getByRole("dialog").waitFor();
  assert.deepEqual(await seriousFindings(page), []);
  await press("Escape");
  await press("Control+k");
  await page.getByRole("combobox").fill("la");
  assert.deepEqual(await seriousFindings(page), []);
  await shoot(page, "palette");
  await press("Escape");
  noFaults(page);
});

test("what others do meanwhile takes nobody's place away", async () => {
  await lab("snapshots");
  const opener = button("Restore").first();
  await tabTo(opener);
  await press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  const reloaded = page.waitForResponse((response) => response.url().endsWith("/v1/snapshots"));
  await given.make("meanwhile");
  await (await reloaded).finished();
  await press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.ok(await hasFocus(opener), "the focus is not back");
  noFaults(page);
});

test("what is in use has no serious finding either", async () => {
  await lab("terminal");
  await button("Open a terminal").click();
  await page.locator(".xterm-rows").getByText("#").first().waitFor();
  assert.deepEqual(await seriousFindings(page), []);
  await lab("notebook");
  await page.getByRole("cell", { name: "debian" }).waitFor();
  await page.locator("img.picture").waitFor();
  await page.getByLabel("python code").fill("1/0");
  await press("Shift+Enter");
  await page.getByText("ZeroDivisionError").first().waitFor();
  assert.deepEqual(await seriousFindings(page), []);
  await lab("files");
  await button("Changes").click();
  await page.locator(".patch .added").first().waitFor();
  assert.deepEqual(await seriousFindings(page), []);
  noFaults(page);
});

test("a sandbox is made by key alone", async () => {
  await open("sandboxes");
  await tabTo(button("New sandbox").first());
  await press("Enter");
  await page.getByRole("dialog").waitFor();
  // The first field has the focus.
  await page.keyboard.type("by-key");
  await press("Enter");
  await page.getByRole("heading", { name: "by-key" }).waitFor();
  assert.equal((await daemon.call(given.key, "GET", "/v1/sandboxes/by-key")).state, "running");
});

test("a terminal is opened and left by key", async () => {
  await lab("terminal");
  const isCaught = () => page.evaluate(() => document.activeElement?.closest(".terminal-host") !== null);
  await page.waitForFunction(() => document.activeElement?.closest(".terminal-host"));
  await press("Control+Shift+ArrowUp");
  await tabTo(button("New terminal"));
  await press("Enter");
  const screen = page.locator(".terminal-view:not(.hidden) .xterm-rows");
  await page.getByRole("button", { name: "Terminal 2", exact: true, pressed: true }).waitFor();
  await screen.getByText("#").first().waitFor();
  await page.keyboard.type("echo typed-$((1+1))");
  await press("Enter");
  await screen.getByText("typed-2", { exact: true }).waitFor();
  // Tab belongs to the shell; these keys lead out.
  await press("Tab");
  assert.ok(await isCaught());
  await press("Control+Shift+ArrowUp");
  assert.ok(await hasFocus(button("Terminal 2")));
  noFaults(page);
});

test("files and the notebook are used by key", async () => {
  await lab("files");
  await tabTo(page.getByRole("treeitem", { name: "root", exact: true }));
  await press("ArrowRight");
  await page.getByRole("treeitem", { name: "docs" }).waitFor();
  for (let step = 0; step < 20; step += 1) {
    if ((await page.evaluate(() => document.activeElement?.textContent)) === "docs") break;
    await press("ArrowDown");
  }
  await press("ArrowRight");
  await page.getByRole("treeitem", { name: "note.txt" }).waitFor();
  await page.getByRole("treeitem", { name: "docs" }).focus();
  await press("ArrowDown", "Enter");
  await page.locator(".cm-content").getByText("one").waitFor();
  await tabTo(page.locator(".cm-content"));
  await press("Control+End");
  await page.keyboard.type("two");
  await press("Control+s");
  await page.getByText("Saved note.txt.").waitFor();
  await lab("notebook");
  await tabTo(page.getByLabel("python code"));
  await page.keyboard.type("6 * 7");
  await press("Shift+Enter");
  await page.locator(".cell .output").getByText("42", { exact: true }).waitFor();
  noFaults(page);
});

test("charts go on as time passes", async () => {
  await lab("overview");
  const drawn = page.locator(".uplot canvas").first();
  await drawn.waitFor();
  const picture = () => drawn.evaluate((canvas) => canvas.toDataURL());
  const before = await picture();
  await given.shell("lab", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done", false);
  await page.waitForFunction(
    (old) => document.querySelector(".uplot canvas").toDataURL() !== old,
    before,
    { timeout: 20_000 },
  );
  noFaults(page);
});

test("on a phone a sandbox is stopped, started and looked into", async () => {
  const phone = await openPage(given.browser, daemon, { viewport: PHONE, hasTouch: true, isMobile: true });
  await signIn(phone, daemon);
  await phone.getByRole("button", { name: "Actions for by-key" }).tap();
  await phone.getByRole("menuitem", { name: "Stop" }).tap();
  await phone.getByText("Stopped by-key.").waitFor();
  await shoot(phone, "phone-action-before");
  await phone.getByRole("button", { name: "Start again" }).tap();
  await phone.getByRole("link", { name: "by-key" }).tap();
  await phone.getByRole("heading", { name: "by-key" }).waitFor();
  await phone.getByRole("button", { name: "Pause" }).tap();
  await phone.getByText("Paused by-key.").waitFor();
  await shoot(phone, "phone-action");
  assert.deepEqual(await seriousFindings(phone), []);
  noFaults(phone);
});
