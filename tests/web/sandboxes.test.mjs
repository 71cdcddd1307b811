// The list: make, find, select, act, undo.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, seriousFindings, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const row = (name) => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
const stateOf = async (name) => (await given.daemon.call(given.key, "GET", `/v1/sandboxes/${name}`)).state;

for (const [name, team] of [
  ["one", "red"],
  ["two", "red"],
  ["three", "blue"],
])
  await given.make(name, { labels: { team } });
const page = await openPage(given.browser, given.daemon);
await signIn(page, given.daemon);

test("a sandbox is made with the fields that matter", async () => {
  await page.getByRole("button", { name: "New sandbox" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("made-here");
  await dialog.getByLabel("Memory").fill("lots");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByText("is not a size").waitFor();
  await dialog.getByLabel("Memory").fill("256m");
  await dialog.getByLabel("Lives for").selectOption({ label: "1 hour" });
  await dialog.getByLabel("Also allowed").fill("api.example.org");
  await dialog.getByLabel("Labels").fill("team=green\nrun=7");
  await dialog.getByLabel("Environment").fill("MODE=test");
  await shoot(page, "create");
  assert.deepEqual(await seriousFindings(page), []);
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "made-here" }).waitFor();
  const made = await given.daemon.call(given.key, "GET", "/v1/sandboxes/made-here");
  assert.equal(made.limits.memory, 256 * 2 ** 20);
  assert.deepEqual(made.labels, { team: "green", run: "7" });
  assert.equal(made.env.MODE, "test");
  assert.ok(made.expiresAt);
  const network = await given.daemon.call(given.key, "GET", "/v1/sandboxes/made-here/network");
  assert.deepEqual(network.policy.allow, ["api.example.org"]);
});

test("labels and states find sandboxes", async () => {
  await goTo(page, given.daemon, "sandboxes");
  await page.getByLabel("Search name, image or label").fill("team=red");
  await row("one").waitFor();
  await row("three").waitFor({ state: "detached" });
  assert.equal(await row("two").count(), 1);
  await page.getByRole("group", { name: "State" }).getByRole("button", { name: "Paused" }).click();
  await page.getByText("No sandbox matches").waitFor();
  await page.getByRole("group", { name: "State" }).getByRole("button", { name: "All" }).click();
  await page.getByLabel("Search name, image or label").fill("");
  await row("three").waitFor();
});

test("several are paused, resumed, stopped and started at once", async () => {
  for (const name of ["one", "two"]) await row(name).getByRole("checkbox").check();
  const bar = page.getByRole("region", { name: "Selected sandboxes" });
  await bar.getByText("2 selected").waitFor();
  await bar.getByRole("button", { name: "Pause" }).click();
  await page.getByText("Paused 2 sandboxes.").waitFor();
  assert.deepEqual([await stateOf("one"), await stateOf("two")], ["paused", "paused"]);
  await page.getByText("Paused 2 sandboxes.").locator("..").getByRole("button", { name: "Resume" }).click();
  await row("one").getByText("running").waitFor({ state: "attached" });
  await bar.getByRole("button", { name: "Stop" }).click();
  await page.getByText("Stopped 2 sandboxes.").waitFor();
  assert.equal(await stateOf("two"), "stopped");
  await shoot(page, "selected");
  await bar.getByRole("button", { name: "Start" }).click();
  await page.getByText("Started 2 sandboxes.").waitFor();
  assert.equal(await stateOf("one"), "running");
  await bar.getByRole("button", { name: "Clear" }).click();
});

test("a sandbox is renewed", async () => {
  await row("three").getByRole("button", { name: "Actions for three" }).click();
  await page.getByRole("menuitem", { name: "Renew…" }).click();
  await page.getByRole("dialog").getByLabel("Lives for").selectOption({ label: "1 day" });
  await page.getByRole("dialog").getByRole("button", { name: "Renew" }).click();
  await page.getByText("Renewed three.").waitFor();
  const left = Date.parse((await given.daemon.call(given.key, "GET", "/v1/sandboxes/three")).expiresAt) - Date.now();
  assert.ok(left > 23 * 3_600_000 && left <= 24 * 3_600_000);
});

test("a removal is undone, and another is not", async () => {
  const removeIt = async (name) => {
    await row(name)
      .getByRole("button", { name: `Actions for ${name}` })
      .click();
    await page.getByRole("menuitem", { name: "Remove" }).click();
    await row(name).waitFor({ state: "detached" });
  };
  await removeIt("two");
  await page.getByRole("button", { name: "Undo" }).click();
  await row("two").waitFor();
  await removeIt("one");
  assert.equal(await stateOf("one"), "running", "nothing is removed while it can be undone");
  const isGone = async () =>
    !(await given.daemon.call(given.key, "GET", "/v1/sandboxes")).sandboxes.some((one) => one.name === "one");
  await page.waitForFunction(() => !document.querySelector(".toast .time-left"));
  while (!(await isGone())) await page.waitForTimeout(100);
  assert.equal(await stateOf("two"), "running");
});

test("what happens elsewhere shows at once", async () => {
  given.daemon.cli("create", "--name", "from-a-terminal");
  await row("from-a-terminal").waitFor();
  given.daemon.cli("rm", "--force", "from-a-terminal");
  await row("from-a-terminal").waitFor({ state: "detached" });
});

test("the keyboard alone is enough", async () => {
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("thre");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "three" }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("Sandboxes");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("three");
  const menu = row("three").getByRole("button", { name: "Actions for three" });
  for (let step = 0; step < 40 && !(await menu.evaluate((element) => element === document.activeElement)); step += 1) {
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Escape");
  await page.getByRole("menu").waitFor({ state: "detached" });
  assert.ok(await menu.evaluate((element) => element === document.activeElement), "the focus is back on the button");
  noFaults(page);
});
