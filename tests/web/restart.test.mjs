// The daemon goes away and comes back: the page says so, connects again, and terminals lose nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, live, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon({ dev: true });
const { id } = await given.make("lab");
const page = await openPage(given.browser, given.daemon);
await page.goto(given.daemon.url);
await live(page);

/** Fewer than the screen has rows. */
const LINES = 30;

test("the list and a terminal go on after a restart", async () => {
  await goTo(page, given.daemon, `sandboxes/${id}/terminal`);
  await page.getByRole("button", { name: "Open a terminal" }).click();
  const screen = page.locator(".terminal-view:not(.hidden) .xterm-rows");
  await screen.getByText("#").first().waitFor();
  await page.keyboard.type(`clear; for i in $(seq 1 ${LINES}); do echo line-$i; sleep 0.2; done; echo all-done`);
  await page.keyboard.press("Enter");
  await screen.getByText("line-5", { exact: true }).waitFor();
  await given.daemon.halt();
  await page.getByText("The connection to the daemon is lost.").waitFor();
  await page.getByText("nothing is lost from the output").waitFor();
  await shoot(page, "restart-lost");
  await given.daemon.comeBack();
  await page.getByText("The daemon was restarted. The page is connected again.").waitFor();
  await screen.getByText("all-done", { exact: true }).waitFor({ timeout: 30_000 });
  // Every line once: the ledger's numbers say where the page goes on.
  const rows = await screen.locator("> div").allInnerTexts();
  const seen = rows
    .map((row) => /^line-(\d+)$/.exec(row.trim())?.[1])
    .filter(Boolean)
    .map(Number);
  assert.deepEqual(
    seen,
    Array.from({ length: LINES }, (_, index) => index + 1),
  );
  noFaults(page);
});

test("what was typed stays through a restart, also after it was saved once", async () => {
  await given.shell("lab", "echo first > typed.txt");
  await goTo(page, given.daemon, `sandboxes/${id}/files?path=/root/typed.txt`);
  const editor = page.locator(".cm-content");
  await editor.click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("saved");
  await page.keyboard.press("Control+s");
  await page.getByText("Saved typed.txt.").waitFor();
  await page.keyboard.type(" and typed on");
  await given.daemon.halt();
  await page.getByText("The connection to the daemon is lost.").waitFor();
  const isRead = page.waitForResponse((answer) => answer.url().includes("/files/content"));
  await given.daemon.comeBack();
  await isRead;
  await page.waitForTimeout(300);
  await editor.getByText("saved and typed on").waitFor();
  assert.equal(await page.getByText("The file was changed in the sandbox").count(), 0);
  await page.keyboard.press("Control+s");
  await page.getByText("Not saved yet.").waitFor({ state: "detached" });
  noFaults(page);
});

test("with keys, a restart asks to sign in again and says why", async () => {
  const keyed = await withDaemon();
  const other = await openPage(keyed.browser, keyed.daemon);
  await signIn(other, keyed.daemon);
  await keyed.daemon.halt();
  await other.getByText("The connection to the daemon is lost.").waitFor();
  await keyed.daemon.comeBack();
  await other.getByText("Your session ended: the daemon was restarted").waitFor();
  await other.goto(keyed.daemon.ownersAddress());
  await live(other);
});
