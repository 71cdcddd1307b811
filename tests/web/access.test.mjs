// Who may enter and what is offered to them: keys, one-time addresses, shares; keys, audit, doctor and connect pages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, live, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, PICTURE_CODE, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { daemon, browser } = given;
const { id } = await given.make("lab");
await given.shell("lab", "echo watched output");
const owner = await openPage(browser, daemon);
await signIn(owner, daemon);

async function withKey(secret) {
  const page = await openPage(browser, daemon);
  await page.goto(daemon.url);
  await page.getByLabel("Key").fill(secret);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
  await live(page);
  return page;
}

test("a wrong key is refused in words, a right one enters", async () => {
  const page = await openPage(browser, daemon);
  await page.goto(daemon.url);
  await page.getByLabel("Key").fill("wrn_0123456789abc_wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Key").fill(given.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("link", { name: "lab" }).waitFor();
  // A key of one namespace makes no keys.
  assert.equal(await page.getByRole("link", { name: "Keys" }).count(), 0);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to Warren" }).waitFor();
  await page.reload();
  await page.getByRole("heading", { name: "Sign in to Warren" }).waitFor();
  noFaults(page);
  await page.context().close();
});

test("a one-time address opens once, and leaves the address bar", async () => {
  const address = daemon.ownersAddress();
  const page = await openPage(browser, daemon);
  await page.goto(address);
  await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
  assert.ok(!page.url().includes("once="));
  const second = await openPage(browser, daemon);
  await second.goto(address);
  await second.getByText("This address does not open the dashboard any more").waitFor();
  await page.context().close();
  await second.context().close();
});

test("what a key may not do is not offered", async () => {
  const page = await withKey(daemon.key("looker", "--namespace", "default", "--read-only"));
  assert.equal(await page.getByRole("button", { name: "New sandbox" }).count(), 0);
  assert.equal(await page.getByRole("checkbox").count(), 0);
  const offered = {};
  const inSight = {
    overview: "Environment",
    terminal: "No terminal is open",
    timeline: "echo watched output",
    files: "As tar",
    ports: "Nothing listens",
    network: "Without a rule",
    snapshots: "this sandbox",
  };
  for (const [tab, text] of Object.entries(inSight)) {
    await goTo(page, daemon, `sandboxes/${id}/${tab}`);
    await page.getByText(text).first().waitFor();
    const names = await page
      .locator("main button")
      .evaluateAll((all) => all.map((one) => one.textContent || one.ariaLabel));
    offered[tab] = names.filter((name) =>
      /stop|pause|start|remove|fork|upload|run|kill|new|allow|deny|snapshot|public|branch|rename|save|edit/i.test(name),
    );
  }
  assert.deepEqual(offered, {
    overview: [],
    terminal: [],
    timeline: [],
    files: [],
    ports: [],
    network: ["Allowed"],
    snapshots: [],
  });
  assert.equal(await page.getByRole("link", { name: "Notebook" }).count(), 0);
  noFaults(page);
  await page.context().close();
});

test("a key is made, shown once, used, and revoked with its sessions", async () => {
  await goTo(owner, daemon, "keys");
  await owner.getByRole("button", { name: "New key" }).click();
  const dialog = owner.getByRole("dialog");
  await dialog.getByLabel("Label").fill("bob");
  await dialog.getByRole("textbox", { name: "Namespace" }).fill("bobs");
  await dialog.getByLabel("Most sandboxes").fill("3");
  await dialog.getByLabel("Most memory").fill("2g");
  await dialog.getByRole("button", { name: "Make the key" }).click();
  const secret = await dialog.locator("pre").innerText();
  assert.match(secret, /^wrn_/);
  await shoot(owner, "key-made");
  await dialog.getByRole("button", { name: "Done" }).click();
  const row = owner.getByRole("row").filter({ hasText: "bob" });
  await row.getByText("3 sandboxes, 2.0 GiB of memory").waitFor();
  const bob = await withKey(secret);
  await bob.getByText("No sandboxes yet").waitFor();
  await row.getByRole("button", { name: "Revoke" }).click();
  await owner.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await row.getByText("revoked").waitFor();
  await bob.getByText("Your session ended").waitFor();
  await bob.context().close();
});

test("the audit is searched and follows", async () => {
  await goTo(owner, daemon, "audit");
  await owner.getByLabel("Search caller, action or sandbox").fill("ana execs");
  await owner.getByText("POST /v1/sandboxes/{sandbox}/execs").first().waitFor();
  const count = await owner.locator(".virtual-row").count();
  await given.shell("lab", "true");
  await owner.waitForFunction((old) => document.querySelectorAll(".virtual-row").length > old, count);
});

test("the configuration for clients has the address of the browser", async () => {
  await goTo(owner, daemon, "connect");
  await owner.getByRole("button", { name: "Copy the configuration for Claude Code" }).click();
  const copied = await owner.evaluate(() => navigator.clipboard.readText());
  assert.equal(
    copied,
    `claude mcp add --transport http warren ${daemon.url}/mcp --header "Authorization: Bearer wrn_…"`,
  );
  await owner.getByRole("button", { name: "MCP on this machine" }).click();
  await owner.getByText("claude mcp add warren -- warren mcp").waitFor();
});

test("the doctor tells what the host can do", async () => {
  await goTo(owner, daemon, "doctor");
  await owner.getByText("user namespaces").first().waitFor({ timeout: 60_000 });
});

test("a shared address follows one sandbox live, and nothing else", async () => {
  await goTo(owner, daemon, `watch/sandbox/${id}`);
  await owner.getByText("watched output").first().waitFor();
  await owner.getByRole("button", { name: "Share" }).click();
  await owner.getByRole("dialog").getByRole("button", { name: "Make the address" }).click();
  const address = await owner.getByRole("dialog").locator("pre").innerText();
  assert.ok(address.startsWith(`${daemon.url}/#share=`));
  await given.make("secret-one");
  const guest = await openPage(browser, daemon);
  await guest.goto(address);
  await guest.getByRole("heading", { name: "Watching lab" }).waitFor();
  await guest.getByText("watched output").first().waitFor();
  await given.code("lab", PICTURE_CODE);
  await guest.locator("img.picture").first().waitFor();
  await given.shell("lab", "echo later output", false);
  await guest.locator(".output").getByText("later output").waitFor();
  assert.equal(await guest.getByText("secret-one").count(), 0);
  assert.equal(await guest.getByRole("navigation").count(), 0);
  await shoot(guest, "watch-shared");
  await guest.goto(`${daemon.url}/#/sandboxes`);
  await guest.getByRole("heading", { name: "Watching lab" }).waitFor();
  noFaults(guest);
  await guest.context().close();
  noFaults(owner);
});

test("shares are listed, and one of them is revoked alone", async () => {
  await goTo(owner, daemon, "shares");
  const rows = owner.getByRole("row").filter({ hasText: "lab" });
  await rows.first().waitFor();
  const before = await rows.count();
  const shared = async () => {
    const made = await daemon.call(given.key, "POST", "/v1/shares", { sandbox: "lab", expires: 600 });
    const guest = await openPage(browser, daemon);
    await guest.goto(made.address);
    await guest.getByRole("heading", { name: "Watching lab" }).waitFor();
    return { id: made.id, guest };
  };
  const [first, second] = [await shared(), await shared()];
  await owner.reload();
  const row = owner.getByRole("row").filter({ hasText: first.id });
  await row.getByText("key ana").waitFor();
  await shoot(owner, "shares");
  await row.getByRole("button", { name: "Revoke" }).click();
  await owner.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await first.guest.getByRole("heading", { name: "This shared address has ended" }).waitFor();
  await row.waitFor({ state: "detached" });
  assert.equal(await rows.count(), before + 1);
  await given.shell("lab", "echo still shown");
  await second.guest.locator(".output").getByText("still shown").waitFor();
  // A key sees the shares that it made.
  const ana = await withKey(given.key);
  await goTo(ana, daemon, "shares");
  await ana.getByRole("row").filter({ hasText: second.id }).waitFor();
  assert.equal(await ana.getByRole("button", { name: "Revoke" }).count(), 1);
  for (const page of [ana, first.guest, second.guest]) await page.context().close();
  noFaults(owner);
});

test("a secret is set, used, set anew and removed, and its value is never shown", async () => {
  const value = "hunter2-and-more";
  const answers = [];
  owner.on("response", async (answer) => {
    if (new URL(answer.url()).pathname.startsWith("/v1/secrets")) answers.push(await answer.text().catch(() => ""));
  });
  await goTo(owner, daemon, "secrets");
  await owner.getByText("No secrets yet").waitFor();
  await owner.getByRole("button", { name: "New secret" }).click();
  const dialog = owner.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill("API_KEY");
  await dialog.getByLabel("Value").fill(value);
  await dialog.getByLabel("Hosts").fill("not a host!");
  await dialog.getByRole("button", { name: "Set the secret" }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Hosts").fill("api.example.org");
  await shoot(owner, "secret-new");
  await dialog.getByRole("button", { name: "Set the secret" }).click();
  const row = owner.getByRole("row").filter({ hasText: "API_KEY" });
  await row.getByText("api.example.org").waitFor();
  await row.getByText("header authorization").waitFor();
  await row.getByText("nothing").waitFor();
  daemon.cli("create", "--name", "with-secret", "--secret", "API_KEY", "--allow", "api.example.org");
  await owner.reload();
  await row.getByRole("link", { name: "with-secret" }).waitFor();
  await row.getByRole("button", { name: "Set" }).click();
  assert.equal(await dialog.getByLabel("Value").inputValue(), "", "a value does not come back");
  assert.equal(await dialog.getByLabel("Hosts").inputValue(), "api.example.org");
  await dialog.getByLabel("Value").fill(`${value}-2`);
  await dialog.getByLabel("Methods").fill("get post");
  await dialog.getByRole("button", { name: "Set the secret" }).click();
  await row.getByText("GET POST").waitFor();
  await shoot(owner, "secrets");
  // Others see that it is there, and cannot change it.
  const ana = await withKey(given.key);
  await goTo(ana, daemon, "secrets");
  await ana.getByText("API_KEY").waitFor();
  assert.equal(await ana.locator("main").getByRole("button").count(), 0);
  await ana.context().close();
  await row.getByRole("button", { name: "Remove the secret API_KEY" }).click();
  await owner.getByText("1 sandbox loses it").waitFor();
  await owner.getByRole("button", { name: "Undo" }).click();
  await row.waitFor();
  assert.ok(answers.length >= 4 && answers.every((text) => !text.includes("hunter2")), answers.join("\n"));
  assert.ok(!(await owner.content()).includes("hunter2"));
  noFaults(owner);
});

test("the fleet follows what happens", async () => {
  await goTo(owner, daemon, "fleet");
  const card = owner.locator(".card").filter({ hasText: "Sandboxes" }).first().locator(".value");
  const count = Number(await card.innerText());
  await given.make("one-more");
  await owner.waitForFunction(
    ([selector, wanted]) => document.querySelector(selector)?.textContent === wanted,
    [".card .value", String(count + 1)],
  );
  await owner.locator(".uplot").nth(3).waitFor();
  await owner.getByText("namespace", { exact: true }).first().waitFor();
  daemon.cli("rm", "--force", "one-more");
  noFaults(owner);
});

test("what one key does is followed, and shared", async () => {
  await goTo(owner, daemon, "keys");
  await owner.getByRole("row").filter({ hasText: "ana" }).getByRole("link", { name: "Watch" }).click();
  await owner.getByRole("heading", { name: "Watching key ana" }).waitFor();
  await given.shell("lab", "echo for whoever watches the key");
  await owner.locator(".output").getByText("for whoever watches the key").waitFor();
  await owner.getByRole("button", { name: "Share" }).click();
  await owner.getByRole("dialog").getByRole("button", { name: "Make the address" }).click();
  const address = await owner.getByRole("dialog").locator("pre").innerText();
  daemon.cli("create", "--name", "not-anas");
  const guest = await openPage(browser, daemon);
  await guest.goto(address);
  await guest.locator(".output").getByText("for whoever watches the key").waitFor();
  await guest.getByText("POST /v1/sandboxes/{sandbox}/execs").first().waitFor();
  assert.equal(await guest.getByText("not-anas").count(), 0);
  noFaults(guest);
  await guest.context().close();
});

test("volumes are made and removed, with an undo", async () => {
  await goTo(owner, daemon, "fleet");
  await owner.getByLabel("Name of the new volume").fill("results");
  await owner.getByRole("button", { name: "Make" }).click();
  const row = owner.getByRole("row").filter({ hasText: "results" });
  await row.getByRole("button", { name: "Remove volume results" }).click();
  await row.waitFor({ state: "detached" });
  await owner.getByRole("button", { name: "Undo" }).click();
  await row.waitFor();
  assert.ok(JSON.stringify(await daemon.json("volume", "ls")).includes("results"));
  noFaults(owner);
});
