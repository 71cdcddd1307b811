// What failed is said, what was refused stays to be mended, and nothing is offered that fails.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, live, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { daemon, browser } = given;
const { id } = await given.make("lab");
const page = await openPage(browser, daemon);
await signIn(page, daemon);
const open = (tab) => goTo(page, daemon, `sandboxes/${id}/${tab}`);
const button = (name) => page.getByRole("button", { name, exact: true });
const dialog = page.getByRole("dialog");
/** Nothing listens there. */
const NO_REGISTRY = "127.0.0.1:1/none/such:1";

async function withKey(secret) {
  const other = await openPage(browser, daemon);
  await other.goto(daemon.url);
  await other.getByLabel("Key").fill(secret);
  await other.getByRole("button", { name: "Sign in" }).click();
  await live(other);
  return other;
}

test("an image that cannot be fetched is said to be so, by itself and for a sandbox", async () => {
  await goTo(page, daemon, "fleet");
  await page.getByLabel("Image to fetch").fill(NO_REGISTRY);
  await button("Fetch").click();
  await page.getByText(/^Not fetched: /).waitFor({ timeout: 60_000 });
  assert.equal(await page.getByText(/^Fetched/).count(), 0);
  await goTo(page, daemon, "sandboxes");
  await button("New sandbox").click();
  await dialog.getByLabel("Name").fill("never");
  await dialog.getByLabel("Image").fill(NO_REGISTRY);
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByRole("alert").waitFor({ timeout: 60_000 });
  await shoot(page, "create-failed");
  await dialog.getByLabel("Image").fill("host");
  await dialog.getByLabel("Memory").fill("0");
  await dialog.getByRole("button", { name: "Create" }).click();
  await dialog.getByText("is not a size").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  noFaults(page);
});

test("a command that did not start says why", async () => {
  await open("timeline");
  await page.getByLabel("Command to run").fill("no-such-program");
  await button("Run").click();
  const exec = page.locator(".exec").filter({ hasText: "no-such-program" });
  await exec.getByText("not started").waitFor();
  await exec.getByRole("alert").getByText("no-such-program").waitFor();
  await shoot(page, "not-started");
  await page.getByLabel("Search commands").fill("nothing like it");
  await page.getByText("No command matches").waitFor();
  await page.getByLabel("Search commands").fill("");
});

test("a typed line means what it means to a shell", async () => {
  const lines = {
    'echo "it\'s \\"q\\"" a\\ b': 'it\'s "q" a b',
    "X=1 env | grep ^X=": "X=1",
    "X=2 env": "X=2",
    "echo plain words": "plain words",
  };
  for (const [line, printed] of Object.entries(lines)) {
    await page.getByLabel("Command to run").fill(line);
    await button("Run").click();
    await page.locator(".exec-body .output").getByText(printed).first().waitFor();
  }
});

test("a rule that is refused stays in its field", async () => {
  await open("network");
  const field = page.getByLabel("A host, wildcard, address or range");
  await field.fill("not a host!");
  await button("Allow").click();
  await page.getByText(/^The network was not changed/).waitFor();
  assert.equal(await field.inputValue(), "not a host!");
});

test("what leads to a refusal is not offered, by no address either", async () => {
  await given.run("lab", ["python3", "-m", "http.server", "8125"], false);
  const looker = await withKey(daemon.key("looker", "--namespace", "default", "--read-only"));
  await goTo(looker, daemon, `sandboxes/${id}/ports`);
  const row = looker.getByRole("row").filter({ hasText: "8125" });
  await row.waitFor();
  assert.equal(await row.getByRole("button").count(), 0);
  await goTo(looker, daemon, `sandboxes/${id}/notebook`);
  await looker.getByRole("region", { name: "Overview" }).waitFor();
  await goTo(looker, daemon, "keys");
  await looker.getByText("Your key does not open this page").waitFor();
  assert.equal(await looker.getByRole("button", { name: "New key" }).count(), 0);
  noFaults(looker);
  await looker.context().close();
  await goTo(page, daemon, "nosuchpage");
  await page.getByText("There is no such page").waitFor();
  await open("notebook");
  await page.getByLabel("Language").selectOption("bash");
  await button("New context").click();
  await button("Reset").waitFor();
  assert.equal(await button("Fork").count(), 0);
  noFaults(page);
});

test("a wrong key, and a shared address that has ended, are said in words that help", async () => {
  const stranger = await openPage(browser, daemon);
  await stranger.goto(daemon.url);
  await stranger.getByLabel("Key").fill("wrn_0123456789abc_wrong");
  await stranger.getByRole("button", { name: "Sign in" }).click();
  await stranger.getByText("This key opens nothing here").waitFor();
  const share = await daemon.call(given.key, "POST", "/v1/shares", { sandbox: "lab", expires: 600 });
  await stranger.goto(share.address);
  await stranger.getByRole("heading", { name: "Watching lab" }).waitFor();
  await daemon.call(given.key, "DELETE", `/v1/shares/${share.id}`);
  const ended = stranger.getByRole("heading", { name: "This shared address has ended" });
  await ended.waitFor();
  await shoot(stranger, "share-ended");
  assert.equal(await stranger.getByLabel("Key").count(), 0);
  const late = await openPage(browser, daemon);
  await late.goto(share.address);
  await late.getByRole("heading", { name: "This shared address has ended" }).waitFor();
  noFaults(late);
  for (const one of [stranger, late]) await one.context().close();
});
