// An agent asks for more network: a person sees it at once, grants it for a time, or refuses.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, live, openPage, PHONE, seriousFindings, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

// Keys may grant what they may reach themselves; by default that is package indexes only.
const given = await withDaemon({ config: '[network]\nceiling = "public"\n' });
const { daemon, browser } = given;
const { id } = await given.make("lab");
const owner = await openPage(browser, daemon);
await signIn(owner, daemon);

const ask = (rules, reason, more = {}) =>
  daemon.call(given.key, "POST", `/v1/sandboxes/lab/network/requests`, { rules, reason, ...more });
const state = async (request) =>
  (await daemon.call(given.key, "GET", `/v1/sandboxes/lab/network/requests/${request.id}`)).state;
const badge = (page) => page.getByRole("navigation", { name: "Dashboard" }).locator(".waiting");
const item = (page, text) => page.getByRole("listitem").filter({ hasText: text });

async function withKey(secret) {
  const page = await openPage(browser, daemon);
  await page.goto(daemon.url);
  await page.getByLabel("Key").fill(secret);
  await page.getByRole("button", { name: "Sign in" }).click();
  await live(page);
  return page;
}

test("a request shows at once wherever one is, and is granted for a time", async () => {
  assert.equal(await badge(owner).count(), 0);
  const asked = await ask(["api.example.org"], "to read the weather", { forSeconds: 1200 });
  await owner.getByText("lab asks to reach api.example.org.").waitFor();
  assert.equal(await badge(owner).textContent(), "1 waiting");
  await owner.getByRole("button", { name: "Look" }).click();
  const one = item(owner, "api.example.org");
  await one.getByText("to read the weather").waitFor();
  await one.getByText("Asked by key ana").waitFor();
  assert.deepEqual(await seriousFindings(owner), []);
  await shoot(owner, "requests-waiting");
  // The time that was asked for is the one that is offered first.
  assert.equal(await one.getByLabel("How long api.example.org is open").inputValue(), "1200");
  await one.getByLabel("How long api.example.org is open").selectOption({ label: "8 hours" });
  await one.getByRole("button", { name: "Grant" }).click();
  await owner.getByRole("list", { name: "Open now" }).getByText("api.example.org").waitFor();
  await badge(owner).waitFor({ state: "detached" });
  const granted = await daemon.call(given.key, "GET", `/v1/sandboxes/lab/network/requests/${asked.id}`);
  const hours = (Date.parse(granted.until) - Date.now()) / 3_600_000;
  assert.ok(granted.state === "granted" && hours > 7.9 && hours <= 8, JSON.stringify(granted));
  // A grant is taken back before its time.
  await one.getByRole("button", { name: "End now" }).click();
  await owner.getByRole("dialog").getByRole("button", { name: "End the grant" }).click();
  await owner.getByRole("list", { name: "Answered before" }).getByText("api.example.org").waitFor();
  assert.equal(await state(asked), "refused");
  noFaults(owner);
});

test("many requests make one message, and none where they are in sight", async () => {
  await goTo(owner, daemon, "sandboxes");
  const all = [await ask(["one.example.org"], "one"), await ask(["two.example.org"], "two")];
  await owner.getByText("2 requests for more network wait for an answer.").waitFor();
  assert.equal(await owner.locator(".toast").filter({ hasText: "asks to reach" }).count(), 0);
  for (const { id: request } of all) {
    await daemon.call(given.key, "POST", `/v1/sandboxes/lab/network/requests/${request}/refuse`, {});
  }
  await owner.getByText(/requests? for more network wait/).waitFor({ state: "detached", timeout: 3_000 });
  await goTo(owner, daemon, "requests");
  await owner.getByText("Nothing waits for an answer").waitFor();
  const last = await ask(["three.example.org"], "three");
  await item(owner, "three.example.org").getByText("waits").waitFor();
  assert.equal(await owner.locator(".toast").filter({ hasText: "asks to reach" }).count(), 0);
  await daemon.call(given.key, "POST", `/v1/sandboxes/lab/network/requests/${last.id}/refuse`, {});
  noFaults(owner);
});

test("a request is refused with a reason, on the sandbox's own page", async () => {
  await goTo(owner, daemon, `sandboxes/${id}/network`);
  const asked = await ask(["crawl.example.org"], "to fetch everything");
  const one = item(owner, "crawl.example.org");
  await one.getByRole("button", { name: "Refuse" }).click();
  await owner.getByRole("dialog").getByLabel("Why").fill("use the index instead");
  await shoot(owner, "requests-refuse");
  await owner.getByRole("dialog").getByRole("button", { name: "Refuse" }).click();
  await one.getByText("use the index instead").waitFor();
  const answer = await daemon.call(given.key, "GET", `/v1/sandboxes/lab/network/requests/${asked.id}`);
  assert.deepEqual([answer.state, answer.answer], ["refused", "use the index instead"]);
  assert.equal(await one.getByRole("button").count(), 0, "nothing is left to answer");
  noFaults(owner);
});

test("what a key may not grant is not offered", async () => {
  const asked = await ask(["own.example.org"], "mine");
  // Whoever asked may not answer with yes; whoever only looks, not at all; another key may.
  const pages = {
    asker: await withKey(given.key),
    looker: await withKey(daemon.key("looker", "--namespace", "default", "--read-only")),
    other: await withKey(daemon.key("other", "--namespace", "default", "--network", "public")),
    narrow: await withKey(daemon.key("narrow", "--namespace", "default", "--network", "none")),
  };
  const offered = {};
  for (const [name, page] of Object.entries(pages)) {
    await goTo(page, daemon, "requests");
    const one = item(page, "own.example.org");
    await one.getByText("mine").waitFor();
    offered[name] = await one.getByRole("button").allInnerTexts();
    noFaults(page);
  }
  assert.deepEqual(offered, {
    asker: ["Refuse"],
    looker: [],
    other: ["Grant", "Refuse"],
    narrow: ["Refuse"],
  });
  await item(pages.other, "own.example.org").getByRole("button", { name: "Grant" }).click();
  await pages.asker.getByRole("list", { name: "Open now" }).getByText("own.example.org").waitFor();
  assert.equal(await state(asked), "granted");
  // A key of another namespace sees none of it.
  const stranger = await withKey(daemon.key("stranger", "--namespace", "elsewhere"));
  await goTo(stranger, daemon, "requests");
  await stranger.getByText("Nothing waits for an answer").waitFor();
  assert.equal(await stranger.getByText("own.example.org").count(), 0);
  for (const page of [...Object.values(pages), stranger]) await page.context().close();
});

test("words of an agent are text, and requests go with their sandbox", async () => {
  await given.make("short");
  const reason = '<img src=x onerror="document.title=1"> \u202egnp.exe';
  await daemon.call(given.key, "POST", "/v1/sandboxes/short/network/requests", { rules: ["a.example"], reason });
  const phone = await openPage(browser, daemon, { viewport: PHONE, colorScheme: "dark" });
  await signIn(phone, daemon);
  await goTo(phone, daemon, "requests");
  await phone.getByText('<img src=x onerror="document.title=1">').waitFor();
  assert.equal(await phone.locator("main img").count(), 0);
  assert.ok(!(await phone.locator("main").innerText()).includes("\u202e"));
  await shoot(phone, "requests-phone");
  assert.deepEqual(await seriousFindings(phone), []);
  // What has no place at the foot of a phone is in a menu there.
  await phone.getByRole("button", { name: "More pages" }).click();
  await shoot(phone, "phone-more");
  await phone.getByRole("menuitem", { name: "Connect" }).click();
  await phone.getByRole("heading", { name: "Connect" }).waitFor();
  await goTo(phone, daemon, "requests");
  daemon.cli("rm", "--force", "short");
  await phone.getByText("a.example").waitFor({ state: "detached" });
  await badge(phone).waitFor({ state: "detached" });
  noFaults(phone);
});
