// The pages follow what others do, keep what can be taken back, and lose neither a secret nor one's place.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { daemon } = given;
const { id } = await given.make("lab", { labels: { team: "red", run: "42" } });
const page = await openPage(given.browser, daemon);
await signIn(page, daemon);
const button = (name) => page.getByRole("button", { name, exact: true });
const row = (text) => page.getByRole("row").filter({ hasText: text });
const dialog = page.getByRole("dialog");
const names = async () => (await daemon.call(given.key, "GET", "/v1/sandboxes")).sandboxes.map((one) => one.name);

test("the secret of a new key stays until it is put away", async () => {
  await goTo(page, daemon, "keys");
  await button("New key").click();
  await dialog.getByLabel("Label").fill("careful");
  // A form is not closed by a click beside it, nor by one that selects text to beyond its edge.
  await page.mouse.click(5, 5);
  const field = await dialog.getByLabel("Label").boundingBox();
  await page.mouse.move(field.x + 5, field.y + 5);
  await page.mouse.down();
  await page.mouse.move(5, 5);
  await page.mouse.up();
  assert.equal(await dialog.getByLabel("Label").inputValue(), "careful");
  await dialog.getByRole("button", { name: "Make the key" }).click();
  const secret = await dialog.locator("pre").innerText();
  await page.mouse.click(5, 5);
  for (let times = 0; times < 3; times += 1) await page.keyboard.press("Escape");
  assert.equal(await dialog.locator("pre").innerText(), secret);
  await dialog.getByRole("button", { name: "Done" }).click();
  await dialog.waitFor({ state: "detached" });
  noFaults(page);
});

test("what others change shows on every page at once", async () => {
  await row("careful").waitFor();
  daemon.key("from-a-terminal", "--namespace", "default");
  await row("from-a-terminal").waitFor();
  await goTo(page, daemon, "secrets");
  await page.getByText("No secrets yet").waitFor();
  daemon.setSecret("ELSEWHERE", "api.example.org");
  await row("ELSEWHERE").waitFor();
  await goTo(page, daemon, "shares");
  await page.getByText("Nothing is shared").waitFor();
  await daemon.call(given.key, "POST", "/v1/shares", { sandbox: "lab", expires: 600 });
  await row("lab").waitFor();
  await goTo(page, daemon, `sandboxes/${id}/snapshots`);
  await page.getByText("this sandbox").waitFor();
  await daemon.call(given.key, "POST", "/v1/snapshots", { sandbox: "lab", name: "by-somebody" });
  await page.locator(".lineage-node").filter({ hasText: "by-somebody" }).waitFor();
  await goTo(page, daemon, `sandboxes/${id}/network`);
  await page.getByText("Without a rule").waitFor();
  daemon.cli("network", "lab", "--deny", "elsewhere.example");
  await row("elsewhere.example").waitFor();
  noFaults(page);
});

test("all of many removals can be taken back for their time", async () => {
  const many = Array.from({ length: 7 }, (_, index) => `many-${index}`);
  for (const name of many) await given.make(name);
  await goTo(page, daemon, "sandboxes");
  await row("many-6").waitFor();
  for (const name of many) {
    await button(`Actions for ${name}`).click();
    await page.getByRole("menuitem", { name: "Remove" }).click();
  }
  const messages = page.locator(".toast").filter({ hasText: "Removing many-" });
  assert.equal(await messages.count(), 7);
  await shoot(page, "many-toasts");
  // Somebody else is faster with one of them; that is no failure.
  await messages.filter({ hasText: "many-0" }).getByRole("button", { name: "Undo" }).click();
  await row("many-0").waitFor();
  daemon.cli("rm", "--force", "many-1");
  await messages.first().waitFor({ state: "detached", timeout: 15_000 });
  await page.waitForFunction(() => !document.querySelector(".toast .time-left"));
  while ((await names()).length > 2) await page.waitForTimeout(100);
  assert.deepEqual((await names()).sort(), ["lab", "many-0"]);
  assert.equal(await page.locator(".toast.bad").count(), 0);
  noFaults(page);
});

test("the list comes back as it was left", async () => {
  await page.getByLabel("Search name, image or label").fill("team=red");
  await page.getByRole("group", { name: "State" }).getByRole("button", { name: "Running" }).click();
  await row("many-0").waitFor({ state: "detached" });
  await page.reload();
  await row("lab").waitFor();
  assert.equal(await page.getByLabel("Search name, image or label").inputValue(), "team=red");
  assert.equal(await row("many-0").count(), 0);
  await page.getByRole("link", { name: "lab", exact: true }).click();
  await page.getByRole("heading", { name: "lab" }).waitFor();
  await page.goBack();
  await row("lab").waitFor();
  assert.equal(await row("many-0").count(), 0);
  // The row that one acts on goes out of sight; the focus does not go to nothing.
  await button("Actions for lab").click();
  await page.getByRole("menuitem", { name: "Pause" }).click();
  await page.getByText("No sandbox matches").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "content");
  await page.getByText("Paused lab.").locator("..").getByRole("button", { name: "Resume" }).click();
  await row("lab").waitFor();
  await page.getByLabel("Search name, image or label").fill("");
  await page.getByRole("group", { name: "State" }).getByRole("button", { name: "All" }).click();
  // An address may say anything: an order that there is not is the usual one.
  for (const sort of ["__proto__", "constructor", "nonesuch"]) {
    await goTo(page, daemon, `sandboxes?sort=${sort}`);
    await row("lab").waitFor();
  }
  noFaults(page);
});

test("a fresh address leads to where one was", async () => {
  await goTo(page, daemon, `sandboxes/${id}/timeline`);
  await page.getByText("Nothing ran yet").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to Warren" }).waitFor();
  const second = await page.context().newPage();
  await second.goto(daemon.ownersAddress());
  await second.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
  // The other tab notices, and is where it was.
  await page.getByText("Nothing ran yet").waitFor();
  await second.getByRole("button", { name: "Sign out" }).click();
  await second.getByRole("heading", { name: "Sign in to Warren" }).waitFor();
  await second.close();
  await page.reload();
  await page.getByRole("heading", { name: "Sign in to Warren" }).waitFor();
  await page.goto(daemon.ownersAddress());
  await page.getByText("Nothing ran yet").waitFor();
  noFaults(page);
});

test("between a phone and a desk nothing is squeezed away", async () => {
  await given.shell("lab", "mkdir -p src; echo hello > README.md; echo in the middle");
  for (const width of [800, 900]) {
    await page.setViewportSize({ width, height: 800 });
    const wide = async (selector, least) => {
      const box = await page.locator(selector).first().boundingBox();
      assert.ok(box.width >= least, `${selector} has ${box.width} of ${least} pixels at ${width}`);
    };
    await goTo(page, daemon, `sandboxes/${id}/timeline`);
    await page.getByText("in the middle").first().waitFor();
    await wide(".exec-what", 150);
    await goTo(page, daemon, `sandboxes/${id}/files`);
    await page.getByRole("link", { name: "README.md" }).waitFor();
    await wide(".file-name", 150);
    await goTo(page, daemon, "audit");
    await page.getByText("POST /v1/sandboxes").first().waitFor();
    await wide(".list-row.audit-grid > :nth-child(3)", 100);
    await wide(".list-row.audit-grid > :nth-child(4)", 60);
    await shoot(page, `audit-${width}`);
  }
  // A call names its sandbox, and leads to it.
  await page.getByRole("table").getByRole("link", { name: "lab" }).first().click();
  await page.getByRole("heading", { name: "lab" }).waitFor();
  noFaults(page);
});
