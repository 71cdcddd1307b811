// The daemon as a whole: images, volumes, disk, keys with limits, the audit far back, sandboxes with all fields.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { goTo, openPage, seriousFindings, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const work = mkdtempSync(join(tmpdir(), "warren-fleet-"));
after(() => rmSync(work, { recursive: true, force: true }));
const given = await withDaemon();
const { daemon } = given;
const page = await openPage(given.browser, daemon);
await signIn(page, daemon);
const button = (name) => page.getByRole("button", { name, exact: true });
const row = (text) => page.getByRole("row").filter({ hasText: text });
const REMOVED = { state: "detached", timeout: 15_000 };

/** Debian's registry on loopback, with one small image. */
async function registry() {
  const config = join(work, "registry.yml");
  writeFileSync(
    config,
    `version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: ${work}/data\nhttp:\n  addr: 127.0.0.1:0\n`,
  );
  const child = spawn("docker-registry", ["serve", config], { stdio: ["ignore", "ignore", "pipe"] });
  after(() => child.kill());
  for await (const line of createInterface({ input: child.stderr })) {
    const found = /listening on ([0-9.:]+)/.exec(line);
    if (!found) continue;
    child.stderr.resume();
    return found[1];
  }
  throw new Error("docker-registry did not say where it listens");
}

function makeImage(reference) {
  const root = join(work, "rootfs");
  mkdirSync(join(root, "bin"), { recursive: true });
  cpSync("/usr/bin/busybox", join(root, "bin/sh"));
  execFileSync("tar", ["cf", join(work, "rootfs.tar"), "-C", root, "."]);
  daemon.cli("image", "import", join(work, "rootfs.tar"), reference);
}

test("an image is fetched, used and removed, and the page follows", async () => {
  const reference = `${await registry()}/team/tiny:1`;
  makeImage(reference);
  daemon.cli("image", "push", reference);
  daemon.cli("image", "rm", reference);
  await goTo(page, daemon, "fleet");
  await page.getByText("No images").waitFor();
  await page.getByLabel("Image to fetch").fill(reference);
  await button("Fetch").click();
  await page.getByText(`Fetched ${reference}.`).waitFor({ timeout: 30_000 });
  const image = row("team/tiny");
  await image.getByText("nothing").waitFor();
  await page.getByText(/^1 image, /).waitFor();
  // Somebody else uses it.
  daemon.cli("create", "--name", "tiny", "--image", reference);
  await image.getByText("sandbox tiny", { exact: true }).waitFor();
  assert.equal(await image.getByRole("button").count(), 0, "what is used is not removed");
  daemon.cli("rm", "--force", "tiny");
  await image.getByRole("button").click();
  await page.getByText(/^Removing image/).waitFor(REMOVED);
  await page.getByText("No images").waitFor();
  await page.getByText("Package cache").waitFor();
  await page.getByText(/used, .* free/).waitFor();
  noFaults(page);
});

test("volumes that are made, mounted and removed elsewhere show at once", async () => {
  daemon.cli("volume", "create", "datasets");
  const volume = row("datasets");
  await volume.getByText("nothing").waitFor();
  const mounts = [{ kind: "named", name: "datasets", guestPath: "/mnt/datasets" }];
  await given.make("reader", { mounts });
  await volume.getByText("reader").waitFor();
  assert.equal(await button("Remove volume datasets").count(), 0);
  daemon.cli("rm", "--force", "reader");
  await button("Remove volume datasets").click();
  await page.getByText(/^Removing volume datasets/).waitFor(REMOVED);
  assert.deepEqual((await daemon.call(given.key, "GET", "/v1/volumes")).volumes, []);
  noFaults(page);
});

test("keys are made with every limit", async () => {
  await goTo(page, daemon, "keys");
  const make = async (label, fill) => {
    await button("New key").click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Label").fill(label);
    await fill(dialog);
    if (label === "limited") assert.deepEqual(await seriousFindings(page), []);
    await dialog.getByRole("button", { name: "Make the key" }).click();
    const secret = await dialog.locator("pre").innerText();
    await dialog.getByRole("button", { name: "Done" }).click();
    return secret;
  };
  await make("everywhere", async (dialog) => {
    await dialog.getByLabel("It may look and change nothing").check();
    await dialog.getByLabel("It sees every namespace").check();
    await dialog.getByLabel("Expires after").selectOption({ label: "1 hour" });
  });
  await row("everywhere").getByText("look", { exact: true }).waitFor();
  await row("everywhere").getByText("all", { exact: true }).waitFor();
  await row("everywhere")
    .getByText(/^(1 h|60 min|59 min)$/)
    .waitFor();
  const secret = await make("limited", async (dialog) => {
    await dialog.getByLabel("Most network").selectOption({ label: "none" });
    await dialog.getByLabel("Also reached").fill("api.example.org, deny *.corp.example");
    await dialog.getByLabel("Expires after").selectOption({ label: "no end" });
    await shoot(page, "key-network");
  });
  await row("limited").getByText("network none").waitFor();
  const { keys } = await daemon.json("key", "list");
  const made = keys.find((key) => key.label === "limited");
  assert.deepEqual(made.network, { preset: "none", rules: ["api.example.org", "deny *.corp.example"] });
  assert.equal(made.expiresAt ?? null, null);
  const sandbox = await daemon.call(secret, "POST", "/v1/sandboxes", { name: "of-limited" });
  // Its own page names the key by its label, and not by its id.
  const own = await openPage(given.browser, daemon);
  await own.goto(daemon.url);
  await own.getByLabel("Key").fill(secret);
  await own.getByRole("button", { name: "Sign in" }).click();
  await goTo(own, daemon, `sandboxes/${sandbox.id}`);
  await own.getByText("limited,").waitFor();
  noFaults(own);
  await own.context().close();
  noFaults(page);
});

test("a sandbox is made with walls, a volume, ports, a secret and an end when idle", async () => {
  daemon.cli("volume", "create", "shared");
  daemon.setSecret("API_KEY", "api.example.org");
  await goTo(page, daemon, "sandboxes");
  await button("New sandbox").first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("everything");
  await dialog.getByLabel("Ends when idle for").selectOption({ label: "8 hours" });
  await dialog.getByLabel("Volume").selectOption("shared");
  await dialog.getByLabel("Ports to open").fill("8000, 3000");
  await dialog.getByLabel("Secrets").fill("API_KEY");
  await dialog.getByLabel("Also allowed").fill("api.example.org");
  const walls = dialog.getByLabel("Walls");
  const hasWalls = (await walls.count()) > 0;
  if (hasWalls) await walls.selectOption("namespace");
  await shoot(page, "create-everything");
  assert.deepEqual(await seriousFindings(page), []);
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "everything" }).waitFor();
  const made = await daemon.call(given.key, "GET", "/v1/sandboxes/everything");
  assert.equal(made.lifetime.idleMs, 28_800_000);
  assert.deepEqual(
    made.mounts.map((mount) => mount.guestPath),
    ["/mnt/shared"],
  );
  assert.deepEqual(made.ports.map((port) => port.port).sort(), [3000, 8000]);
  if (hasWalls) assert.equal(made.backend, "namespace");
  const printed = await given.shell("everything", "echo $API_KEY; ls -d /mnt/shared");
  assert.ok(printed.stdout.text.includes("/mnt/shared") && printed.stdout.text.length > 20, printed.stdout.text);
  noFaults(page);
});

test("the audit is searched as far back as it goes, by result too", async () => {
  await daemon.call(given.key, "POST", "/v1/sandboxes/everything/pause");
  await daemon.call(given.key, "POST", "/v1/sandboxes/everything/resume");
  await daemon.call(given.key, "POST", "/v1/sandboxes/none/stop").catch(() => {});
  // More than one page of calls that nobody looks for.
  const volume = daemon.call(given.key, "DELETE", "/v1/volumes/none").catch(() => {});
  for (let done = 0; done < 600; done += 50)
    await Promise.all(
      Array.from({ length: 50 }, () => daemon.call(given.key, "DELETE", "/v1/volumes/none").catch(() => {})),
    );
  await volume;
  await goTo(page, daemon, "audit");
  await page.getByText("500 calls, the latest").waitFor();
  await button("Load older").click();
  await page.getByText(/^[56]\d\d calls$/).waitFor();
  await page.getByLabel("Search caller, action or sandbox").fill("ana /pause everything");
  await row("POST /v1/sandboxes/{sandbox}/pause").first().waitFor();
  await page.getByText("1 call", { exact: true }).waitFor();
  await page.getByLabel("Search caller, action or sandbox").fill("/stop");
  const results = page.getByRole("group", { name: "Result" });
  await results.getByRole("button", { name: "Refused" }).click();
  await row("not_found").first().waitFor();
  await results.getByRole("button", { name: "Done" }).click();
  await page.getByText("No call matches").waitFor();
  // What comes in while one looks is held against the search too.
  await daemon.call(given.key, "POST", "/v1/sandboxes/everything/stop");
  await row("POST /v1/sandboxes/{sandbox}/stop").waitFor();
  await shoot(page, "audit-search");
  noFaults(page);
});
