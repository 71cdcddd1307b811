// What can be done, action by action: on a sandbox as a whole, its commands, contexts, ports, network and files.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { goTo, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { daemon } = given;
const { id } = await given.make("lab");
const page = await openPage(given.browser, daemon);
await signIn(page, daemon);
const open = (tab) => goTo(page, daemon, `sandboxes/${id}/${tab}`);
const get = (path) => daemon.call(given.key, "GET", path);
const button = (name) => page.getByRole("button", { name, exact: true });
const exec = (text) => page.locator(".exec").filter({ hasText: text }).first();

test("the head of a sandbox stops, starts, pauses, resumes, restarts, forks and shares it", async () => {
  await open("overview");
  const state = (word) => page.locator(".page-head .state, .page-head").getByText(word, { exact: true }).first();
  const startedAt = async () => (await get("/v1/sandboxes/lab")).startedAt;
  await button("Pause").click();
  await page.getByText("Paused lab.").waitFor();
  await button("Resume").first().click();
  await page.getByText("Resumed lab.").waitFor();
  await button("Stop").click();
  await page.getByText("Stopped lab.").waitFor();
  await state("stopped").waitFor();
  // The message has the way back.
  await button("Start again").click();
  await button("Stop").waitFor();
  assert.equal((await get("/v1/sandboxes/lab")).state, "running");
  await button("Stop").click();
  await button("Start").click();
  await page.getByText("Started lab.").waitFor();
  const before = await startedAt();
  const more = async (item) => {
    await button("More actions").click();
    await page.getByRole("menuitem", { name: item }).click();
  };
  await more("Restart");
  await page.getByText("Restarted lab.").waitFor();
  assert.notEqual(await startedAt(), before);
  await more("Fork");
  await page.getByText(/^Forked into/).waitFor();
  assert.equal((await get("/v1/sandboxes")).sandboxes.length, 2);
  await more("Share…");
  await page.getByRole("dialog").getByLabel("Ends after").selectOption({ label: "8 hours" });
  await page.getByRole("dialog").getByRole("button", { name: "Make the address" }).click();
  const address = await page.getByRole("dialog").locator("pre").innerText();
  assert.ok(address.startsWith(`${daemon.url}/#share=`));
  await page.keyboard.press("Escape");
  noFaults(page);
});

test("a running command is interrupted", async () => {
  await given.shell("lab", "trap 'echo was interrupted; exit 7' INT; echo ready; while :; do sleep 0.1; done", false);
  await open("timeline");
  const running = exec("was interrupted");
  await running.locator(".exec-toggle").click();
  await running.locator(".output").getByText("ready").waitFor();
  await running.getByRole("button", { name: "Interrupt", exact: true }).click();
  await running.locator(".exec-outcome").getByText("exit 7").waitFor();
});

test("a command is run again with its directory, environment, user and terminal", async () => {
  const spec = { command: ["sh", "-c", "echo again in $(pwd) as $(id -u) with $MODE"], cwd: "/tmp", user: "1000" };
  await daemon.call(given.key, "POST", "/v1/sandboxes/lab/execs?wait=true", { ...spec, env: { MODE: "s3cret" } });
  await open("timeline");
  const count = await page.locator(".exec").count();
  await exec("again in").getByRole("button", { name: "Run again" }).click();
  await page.waitForFunction((old) => document.querySelectorAll(".exec").length > old, count);
  await exec("again in").locator(".exec-toggle").click();
  await exec("again in").locator(".output").getByText("again in /tmp as 1000 with s3cret").waitFor();
  const terminal = { command: ["sh", "-c", "echo size $(stty size); cat"], terminal: { rows: 20, cols: 90 } };
  const first = await daemon.call(given.key, "POST", "/v1/sandboxes/lab/execs", terminal);
  await daemon.call(given.key, "POST", `/v1/sandboxes/lab/execs/${first.id}/signal`, { signal: 9 });
  await exec("echo size").getByRole("button", { name: "Run again" }).click();
  await page.locator(".terminal-view:not(.hidden) .xterm-rows").getByText("size 20 90").waitFor();
});

test("all of a long output is downloaded", async () => {
  await given.shell("lab", "seq 1 200000; echo the very end");
  await open("timeline");
  const long = exec("seq 1 200000");
  await long.locator(".exec-toggle").click();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    long.getByRole("button", { name: "Download all" }).click(),
  ]);
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  assert.ok(text.startsWith("1\n2\n") && text.endsWith("200000\nthe very end\n"));
});

test("contexts are made, reset and ended, and other languages run", async () => {
  await open("notebook");
  const run = async (language, code) => {
    const input = page.getByLabel(`${language} code`);
    await input.fill(code);
    await input.press("Shift+Enter");
  };
  await button("New context").click();
  await button("Reset").waitFor();
  await run("python", "kept = 41");
  await run("python", "kept + 1");
  await page.locator(".cell .output").getByText("42", { exact: true }).waitFor();
  await button("Reset").click();
  await run("python", "'kept' in globals()");
  await page.locator(".cell .output").getByText("False", { exact: true }).waitFor();
  await button("End").click();
  await button("New context").waitFor();
  await page.getByLabel("Language").selectOption("bash");
  await run("bash", "echo from $((40+2)) bash");
  await page.locator(".cell .output").getByText("from 42 bash").waitFor();
  await shoot(page, "notebook-languages");
  noFaults(page);
});

test("a port appears when something listens, is made public and withdrawn", async () => {
  await open("ports");
  await page.getByText("Nothing listens").waitFor();
  const run = await given.run("lab", ["python3", "-m", "http.server", "8124"], false);
  const row = page.getByRole("row").filter({ hasText: "8124" });
  // Nobody asks to look again.
  await row.waitFor();
  await page.getByLabel("Port to make public").fill("8124");
  await button("Make public").click();
  await row.getByText("public").waitFor();
  await shoot(page, "port-public");
  await row.getByRole("button", { name: "Withdraw" }).click();
  await row.getByText("by signed address").waitFor();
  await open("overview");
  const processes = page.getByRole("region", { name: "Processes" });
  await processes.getByText("http.server").waitFor();
  await daemon.call(given.key, "POST", `/v1/sandboxes/lab/execs/${run.id}/signal`, { signal: 9 });
  await processes.getByText("http.server").waitFor({ state: "detached" });
  noFaults(page);
});

test("the network's preset changes, and what was denied is allowed from the log", async () => {
  daemon.cli("create", "--name", "netlab", "--network", "none", "--allow", "allowed.example");
  const netlab = (await get("/v1/sandboxes/netlab")).id;
  await goTo(page, daemon, `sandboxes/${netlab}/network`);
  daemon.cli("exec", "netlab", "sh", "-c", "getent hosts denied.example || true");
  const denied = page.getByRole("region", { name: "Network log" }).getByRole("row").filter({ hasText: "denied.example" });
  await denied.first().getByRole("button", { name: "Allow" }).click();
  await button("Remove the rule for denied.example").waitFor();
  await page.getByLabel("What is reached without a rule").selectOption("packages");
  const policy = async () => (await get("/v1/sandboxes/netlab/network")).policy;
  await page.waitForFunction(() => !document.querySelector(".toast.bad"));
  while ((await policy()).preset !== "packages") await page.waitForTimeout(50);
  assert.deepEqual((await policy()).allow.sort(), ["allowed.example", "denied.example"]);
  // The daemon's own socket for the sandbox's traffic is no port of the sandbox.
  await goTo(page, daemon, `sandboxes/${netlab}/ports`);
  await page.getByText("Nothing listens").waitFor();
  assert.deepEqual((await get("/v1/sandboxes/netlab/ports")).ports, []);
  // The list shows what a sandbox may reach where nothing flows.
  await goTo(page, daemon, "sandboxes");
  await page.getByRole("row").filter({ hasText: "netlab" }).locator(".cell-network").getByText("packages").waitFor();
  noFaults(page);
});

/** How long something can be taken back, and a moment more. */
const REMOVED = { state: "detached", timeout: 15_000 };

test("files and directories are made, walked through in the tree, packed and removed", async () => {
  await given.shell("lab", "mkdir -p deep/er && echo 1 > deep/er/leaf.txt");
  await open("files");
  const name = async (kind, value) => {
    await button(kind).click();
    await page.getByRole("dialog").getByLabel("Name").fill(value);
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  await name("New directory", "made-dir");
  await name("New file", "made.txt");
  const table = page.getByRole("table");
  await table.getByRole("link", { name: "made-dir" }).waitFor();
  const tree = page.getByRole("tree");
  const item = (text) => tree.getByRole("treeitem", { name: text, exact: true });
  await item("root").click();
  await item("deep").focus();
  await page.keyboard.press("ArrowRight");
  await item("er").focus();
  await page.keyboard.press("ArrowRight");
  await item("leaf.txt").waitFor();
  assert.equal(await item("er").getAttribute("aria-expanded"), "true");
  await page.keyboard.press("ArrowLeft");
  await item("leaf.txt").waitFor({ state: "detached" });
  const [download] = await Promise.all([page.waitForEvent("download"), button("As tar").click()]);
  const names = execFileSync("tar", ["t"], { input: execFileSync("cat", [await download.path()]), encoding: "utf8" });
  assert.ok(names.includes("leaf.txt"), names);
  await open("files");
  await button("Remove made.txt").click();
  await button("Remove made-dir").click();
  await page.getByText("Removing made-dir.").waitFor(REMOVED);
  assert.ok(!(await given.run("lab", ["ls"])).stdout.text.includes("made"));
  noFaults(page);
});

test("several sandboxes are renewed and removed at once", async () => {
  for (const name of ["bulk-1", "bulk-2"]) await given.make(name);
  await goTo(page, daemon, "sandboxes");
  for (const name of ["bulk-1", "bulk-2"]) await page.getByLabel(`Select ${name}`).check();
  const bar = page.getByRole("region", { name: "Selected sandboxes" });
  await bar.getByRole("button", { name: "Renew" }).click();
  await page.getByRole("dialog").getByLabel("Lives for").selectOption({ label: "8 hours" });
  await page.getByRole("dialog").getByLabel("Then it is").selectOption("remove");
  await page.getByRole("dialog").getByRole("button", { name: "Renew" }).click();
  await page.getByText("Renewed 2 sandboxes.").waitFor();
  const lifetime = async (name) => (await get(`/v1/sandboxes/${name}`)).lifetime;
  assert.deepEqual(await lifetime("bulk-2"), { ttlMs: 28_800_000, onExpiry: "remove" });
  assert.deepEqual(await lifetime("bulk-1"), await lifetime("bulk-2"));
  await bar.getByRole("button", { name: "Remove" }).click();
  await page.getByText("Removing 2 sandboxes with all files.").waitFor();
  await page.getByText("Removing 2 sandboxes with all files.").waitFor(REMOVED);
  const left = async () => (await get("/v1/sandboxes")).sandboxes.map((one) => one.name);
  while ((await left()).some((name) => name.startsWith("bulk-"))) await page.waitForTimeout(50);
  noFaults(page);
});

test("a snapshot is removed, and the colours are chosen", async () => {
  await daemon.call(given.key, "POST", "/v1/snapshots", { sandbox: "lab", name: "goes-away" });
  await open("snapshots");
  await button("Remove snapshot goes-away").click();
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const seen = new Set();
  for (const word of ["Colours: as the system", "Colours: light", "Colours: dark"]) {
    await button(word).waitFor();
    seen.add(await background());
    await button(word).click();
  }
  assert.equal(seen.size, 2, "light and dark");
  await page.reload();
  await button("Colours: as the system").waitFor();
  const snapshots = async () => (await get("/v1/snapshots")).snapshots.filter((one) => one.name === "goes-away");
  // The page that was closed removed nothing.
  assert.equal((await snapshots()).length, 1);
  await button("Remove snapshot goes-away").click();
  await page.getByText("Removing snapshot goes-away.").waitFor(REMOVED);
  while ((await snapshots()).length > 0) await page.waitForTimeout(50);
  noFaults(page);
});
