// One sandbox: terminals, timeline, notebook, files, ports, network, logs, snapshots.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, PICTURE_CODE, TABLE_CODE, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { id } = await given.make("lab", { labels: { team: "red" } });
const page = await openPage(given.browser, given.daemon);
await signIn(page, given.daemon);
const open = async (tab) => goTo(page, given.daemon, `sandboxes/${id}/${tab}`);
const read = async (path) => (await given.run("lab", ["cat", path])).stdout.text;

const screen = () => page.locator(".terminal-view:not(.hidden) .xterm-rows");
const typeLine = async (line) => {
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
};

test("a terminal runs a shell, has a size and colours, and there may be several", async () => {
  await open("terminal");
  await page.getByRole("button", { name: "Open a terminal" }).click();
  await screen().getByText("#").first().waitFor();
  await typeLine("echo sum is $((6*7)); stty size; printf '\\033[38;2;255;0;0mred text\\033[0m\\n'");
  await screen().getByText("sum is 42").waitFor();
  const [, rows, cols] = /(\d+) (\d+)/.exec(
    await screen()
      .getByText(/^\d+ \d+$/)
      .first()
      .innerText(),
  );
  assert.ok(Number(rows) > 15 && Number(cols) > 100, `${rows}×${cols}`);
  // The colour is in a style that the content policy allows.
  const red = screen().locator("span", { hasText: "red text" }).last();
  assert.notEqual(
    await red.evaluate((element) => getComputedStyle(element).color),
    await screen().evaluate((element) => getComputedStyle(element).color),
  );
  await page.setViewportSize({ width: 900, height: 700 });
  await typeLine("clear; stty size");
  await page.waitForFunction((before) => {
    const found = /(\d+) (\d+)/.exec(
      document.querySelector(".terminal-view:not(.hidden) .xterm-rows")?.textContent ?? "",
    );
    return found && Number(found[2]) < before;
  }, Number(cols));
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.getByRole("button", { name: "New terminal" }).click();
  await page.getByRole("button", { name: "Terminal 2", exact: true, pressed: true }).waitFor();
  await screen().getByText("#").first().waitFor();
  await typeLine("echo second-$((1+1))");
  await screen().getByText("second-2").waitFor();
  await page.getByRole("button", { name: "Terminal 1", exact: true }).click();
  await shoot(page, "terminal-used");
});

test("a terminal is whole again after the page is loaded anew", async () => {
  await page.reload();
  await page.getByRole("button", { name: "Terminal 2", exact: true }).waitFor();
  await screen().getByText("second-2").waitFor();
  await typeLine("echo still here; exit");
  await screen().getByText("still here").first().waitFor();
  await page.getByText("The program has ended.").first().waitFor();
});

test("a terminal that is hidden can be shown again, and one is ended from the page", async () => {
  await page.getByRole("button", { name: "Hide terminal 1" }).click();
  const hidden = page.getByRole("button", { name: /^Show \d hidden$/ });
  await hidden.click();
  await hidden.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "New terminal" }).click();
  await screen().getByText("#").first().waitFor();
  await page.getByRole("button", { name: "End this one" }).click();
  await page.locator(".terminal-view:not(.hidden)").getByText("The program has ended.").waitFor();
});

const exec = (text) => page.locator(".exec").filter({ hasText: text }).first();

test("the timeline shows output while it runs, who asked, and kills", async () => {
  await given.shell("lab", "echo first line; echo to-stderr >&2; while :; do sleep 0.2; echo tick; done", false);
  await open("timeline");
  const running = exec("first line");
  await running.getByText("running").waitFor();
  await running.locator(".exec-toggle").click();
  await running.locator(".output").getByText("first line").waitFor();
  await running.locator(".output .stderr").getByText("to-stderr").waitFor();
  const ticks = () =>
    running
      .locator(".output")
      .innerText()
      .then((text) => text.split("tick").length);
  const before = await ticks();
  await page.waitForFunction(
    (count) => (document.querySelector(".exec-body .output")?.textContent ?? "").split("tick").length > count,
    before,
  );
  await running.getByText("key ana").waitFor();
  // What the page itself runs is asked for by whoever is signed in.
  await page.getByLabel("Command to run").fill("true");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.locator(".exec").first().getByText("uid 0").waitFor();
  await page.getByLabel("Search commands").fill("key ana");
  await page.locator(".exec").filter({ hasText: "uid 0" }).waitFor({ state: "detached" });
  await page.getByLabel("Search commands").fill("");
  await shoot(page, "timeline-running");
  await running.getByRole("button", { name: "Kill" }).click();
  await running.getByText(/signal 9|killed/).waitFor();
});

test("a command is run from the timeline, with the files it made, and run again", async () => {
  await page.getByLabel("Command to run").fill("echo made > note-$RANDOM.txt; echo $$ is me");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  const made = exec("is me");
  await made.getByText("exit 0").waitFor();
  await made.getByText("Files made:").waitFor();
  const count = await page.locator(".exec").count();
  await made.getByRole("button", { name: "Run again" }).click();
  await page.waitForFunction((old) => document.querySelectorAll(".exec").length > old, count);
});

test("the notebook shows pictures, tables and errors, and forks a context", async () => {
  await open("notebook");
  const input = page.getByLabel("python code");
  const runCode = async (code) => {
    await input.fill(code);
    await input.press("Shift+Enter");
  };
  await runCode(PICTURE_CODE);
  const picture = page.locator(".cell img.picture").first();
  await picture.waitFor();
  await page.waitForFunction(() => document.querySelector(".cell img.picture")?.naturalWidth === 320);
  await page.getByRole("link", { name: /gradient\.png/ }).waitFor();
  await runCode(TABLE_CODE);
  await page.getByRole("cell", { name: "debian" }).waitFor();
  await runCode("1/0");
  await page.getByText("ZeroDivisionError: division by zero").first().waitFor();
  await page.getByLabel("Context").selectOption("python");
  await page.getByRole("button", { name: "Fork" }).click();
  await page.getByText(/Forked into/).waitFor();
  await runCode("total + 1");
  await page.getByText("135", { exact: true }).waitFor();
  await page.getByText(/forked from python/).waitFor();
  // Where one types stays in sight while cells are added above it.
  await page.waitForFunction(() => {
    const { bottom } = document.querySelector(".new-cell").getBoundingClientRect();
    return bottom <= innerHeight + 60;
  });
  await shoot(page, "notebook-forked");
});

const pdf = () => {
  const stream = "BT /F1 24 Tf 40 100 Td (Hello from a PDF) Tj ET";
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
    `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  ];
  let text = "%PDF-1.4\n";
  const offsets = objects.map((object, index) => {
    const at = text.length;
    text += `${index + 1} 0 obj\n${object}\nendobj\n`;
    return at;
  });
  const start = text.length;
  text += `xref\n0 6\n0000000000 65535 f \n${offsets.map((at) => `${String(at).padStart(10, "0")} 00000 n \n`).join("")}`;
  return Buffer.from(`${text}trailer << /Size 6 /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`);
};
const notebook = JSON.stringify({
  cells: [
    { cell_type: "markdown", source: ["# Title of it"] },
    { cell_type: "code", source: ["6*7"], outputs: [{ data: { "text/plain": ["42 it is"] } }] },
  ],
});
const upload = (name, content) => ({ name, mimeType: "application/octet-stream", buffer: Buffer.from(content) });

test("files are uploaded by choice and by drag, and previewed", async () => {
  await open("files");
  await page
    .getByLabel("Files to upload")
    .setInputFiles([
      upload("hello.py", "print('hello')\n"),
      upload("paper.pdf", pdf()),
      upload("book.ipynb", notebook),
      upload("page.html", "<h1>Heading of it</h1><script>document.title='owned'</script>"),
      upload("data.bin", Buffer.from([0, 1, 2, 255])),
    ]);
  await page.getByText("Uploaded 5 files to /root.").waitFor();
  const dropped = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(["dropped content"], "dropped.txt"));
    return transfer;
  });
  await page.locator(".files-content").dispatchEvent("drop", { dataTransfer: dropped });
  await page.getByRole("link", { name: "dropped.txt" }).waitFor();
  assert.equal(await read("dropped.txt"), "dropped content");

  const link = (name) => page.getByRole("table").getByRole("link", { name });
  const back = () => page.getByRole("navigation", { name: "Path" }).getByRole("link", { name: "root" }).click();
  await link("gradient.png").click();
  await page.waitForFunction(() => document.querySelector(".files-content img")?.naturalWidth === 320);
  await back();
  await link("paper.pdf").click();
  await page.getByRole("img", { name: "paper.pdf, page 1 of 1" }).waitFor();
  // The page was drawn: something on it is dark.
  await page.waitForFunction(() => {
    const canvas = document.querySelector(".pdf canvas");
    const pixels = canvas?.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    return pixels.some((value, index) => index % 4 === 0 && value < 80);
  });
  await shoot(page, "pdf");
  await back();
  await link("book.ipynb").click();
  await page.getByText("42 it is").waitFor();
  await back();
  await link("page.html").click();
  await page.getByRole("button", { name: "Page without scripts" }).click();
  await page.frameLocator("iframe").getByText("Heading of it").waitFor();
  assert.notEqual(await page.title(), "owned");
  await back();
  await link("data.bin").click();
  await page.getByText("No preview").waitFor();
  await back();
});

test("a file is edited, saved, downloaded, renamed and removed", async () => {
  const name = page.getByRole("table").getByRole("link", { name: "hello.py" });
  await name.click();
  const editor = page.locator(".cm-content");
  await editor.click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("print('edited')");
  await page.keyboard.press("Control+s");
  await page.getByText("Saved hello.py.").waitFor();
  assert.equal(await read("hello.py"), "print('hello')\nprint('edited')");
  await shoot(page, "editor-used");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "hello.py");
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  assert.equal(Buffer.concat(chunks).toString(), "print('hello')\nprint('edited')");
  await page.getByRole("button", { name: "Rename" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("renamed.py");
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await page.getByRole("navigation", { name: "Path" }).getByText("renamed.py").waitFor();
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("button", { name: "Undo" }).click();
  assert.equal(await read("renamed.py"), "print('hello')\nprint('edited')");
});

test("a file made inside appears by itself, and the tree opens", async () => {
  await open("files");
  await page.getByRole("table").getByRole("link", { name: "renamed.py" }).waitFor();
  await given.shell("lab", "mkdir -p deep/er && echo 1 > deep/er/leaf.txt && echo 2 > appeared.txt");
  await page.getByRole("table").getByRole("link", { name: "appeared.txt" }).waitFor();
  await page.getByRole("table").getByRole("link", { name: "deep" }).click();
  const tree = page.getByRole("tree");
  await tree.getByRole("treeitem", { name: "deep" }).waitFor();
  await tree.getByRole("treeitem", { name: "root" }).focus();
  await page.keyboard.press("ArrowDown");
  assert.notEqual(await page.evaluate(() => document.activeElement?.textContent), "root");
});

test("changes since the image are listed with a patch", async () => {
  await page.getByRole("button", { name: "Changes" }).click();
  await page.getByText("/root/appeared.txt").first().waitFor();
  await page.locator(".patch .added").getByText("+2").first().waitFor();
  await shoot(page, "diff");
});

test("a port that listens opens in a new tab", async () => {
  await given.shell("lab", "mkdir -p site && echo served from inside > site/index.html");
  await given.run("lab", ["python3", "-m", "http.server", "8123", "--directory", "site"], false);
  await open("ports");
  const row = page.getByRole("row").filter({ hasText: "8123" });
  for (let tries = 0; tries < 50 && (await row.count()) === 0; tries += 1) {
    await page.getByRole("button", { name: "Look again" }).click();
    await page.waitForTimeout(100);
  }
  const [tab] = await Promise.all([
    page.context().waitForEvent("page"),
    row.getByRole("button", { name: "Open" }).click(),
  ]);
  await tab.getByText("served from inside").waitFor();
  assert.equal(await tab.evaluate(() => window.opener), null);
  await tab.close();
});

test("the network policy changes, and what is denied is logged as it happens", async () => {
  // The owner's sandboxes may have more of a network than those of a key. Nothing here leaves the sandbox: all is
  // denied.
  given.daemon.cli("create", "--name", "netlab", "--network", "none", "--allow", "allowed.example");
  const netlab = (await given.daemon.call(given.key, "GET", "/v1/sandboxes/netlab")).id;
  await goTo(page, given.daemon, `sandboxes/${netlab}/network`);
  await page.getByRole("row").filter({ hasText: "allowed.example" }).waitFor();
  await page.getByLabel("A host, wildcard, address or range").fill("denied.example");
  await page.getByRole("button", { name: "Deny", exact: true }).click();
  await page.getByRole("row").filter({ hasText: "denied.example" }).waitFor();
  const { policy } = await given.daemon.call(given.key, "GET", "/v1/sandboxes/netlab/network");
  assert.deepEqual(policy.deny, ["denied.example"]);
  given.daemon.cli(
    "exec",
    "netlab",
    "sh",
    "-c",
    "python3 -c \"import socket; socket.create_connection(('10.9.8.7', 80), 3)\" 2>/dev/null || true",
  );
  await page.getByRole("row").filter({ hasText: "10.9.8.7:80" }).getByText("denied", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Remove the rule for denied.example" }).click();
  await page.getByRole("row").filter({ hasText: "denied.example" }).waitFor({ state: "detached" });
  await shoot(page, "network-denied");
});

test("logs are searched, also what lies further back than what the page shows", async () => {
  await given.shell("lab", "echo ancient-needle; for i in $(seq 1 400); do echo $i; sleep 0.001; done");
  for (let round = 0; round < 45; round += 1) await given.run("lab", ["true"]);
  await given.shell("lab", "seq 1 3000; echo needle-in-it; echo needle-in-errors >&2");
  await open("logs");
  await page.getByLabel("Search the output").fill("needle-in");
  await page.locator(".log-line mark").getByText("needle-in").first().waitFor();
  assert.ok((await page.locator(".log-line").count()) < 10);
  await page.getByLabel("Search the output").fill("ANCIENT-needle");
  await page.locator(".log-line").filter({ hasText: "echo ancient" }).getByText("ancient-needle").last().waitFor();
  await page.getByText("1 line of all output").waitFor();
  // What is printed while one looks is found too.
  await page.getByLabel("Search the output").fill("needle-");
  await page.getByText(/ of all output$/).waitFor();
  await given.shell("lab", "echo needle-printed-now");
  await page.locator(".log-line").getByText("printed-now").last().waitFor();
  // So is what has colours between its letters, which the daemon's search does not see through.
  await given.shell("lab", "printf 'needle\\033[31m-in-red\\033[0m\\n'");
  await page.getByLabel("Search the output").fill("needle-in-red");
  await page.locator(".log-text").getByText("needle-in-red", { exact: true }).waitFor();
  await page.getByLabel("Search the output").fill("needle-");
  await page.getByRole("group", { name: "Stream" }).getByRole("button", { name: "Errors" }).click();
  await page.getByText("1 line of all output").waitFor();
  assert.equal(await page.locator(".log-text").innerText(), "needle-in-errors");
  await shoot(page, "logs-search");
});

test("a snapshot is taken, branched from, and shown in the tree", async () => {
  await open("snapshots");
  await page.getByLabel("Name of the snapshot").fill("good-state");
  await page.getByRole("button", { name: "Take a snapshot" }).click();
  const node = page.locator(".lineage-node").filter({ hasText: "good-state" });
  await node.getByRole("button", { name: "Branch from here" }).click();
  await page.getByText(/Made .* from the snapshot/).waitFor();
  await page.locator(".lineage ul ul ul .lineage-node").first().waitFor();
  await page.getByRole("button", { name: "Fork" }).first().click();
  await page.getByText(/Forked into/).waitFor();
  await page.getByText("fork point").waitFor();
  await shoot(page, "lineage");
});

test("changes since a snapshot are listed, and the sandbox is restored to it", async () => {
  const made = await given.make("restored");
  await given.shell("restored", "echo good > notes.txt");
  await given.daemon.call(given.key, "POST", "/v1/snapshots", { sandbox: "restored", name: "before-it" });
  await given.shell("restored", "echo spoilt > notes.txt; echo more > other.txt");
  await goTo(page, given.daemon, `sandboxes/${made.id}/files`);
  await page.getByRole("button", { name: "Changes" }).click();
  await page.getByLabel("Changes since").selectOption({ label: "snapshot before-it" });
  await page.locator(".patch .removed").getByText("-good").waitFor();
  await page.getByRole("link", { name: "/root/other.txt" }).waitFor();
  await goTo(page, given.daemon, `sandboxes/${made.id}/snapshots`);
  const node = page.locator(".lineage-node").filter({ hasText: "before-it" });
  await node.getByRole("button", { name: "Restore" }).click();
  await shoot(page, "restore");
  await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
  await page.getByText("restored has the files of the snapshot.").waitFor();
  await page.locator(".lineage-node").filter({ hasText: "this sandbox" }).getByText("restored").waitFor();
  assert.equal((await given.run("restored", ["cat", "notes.txt"])).stdout.text, "good\n");
  assert.equal((await given.run("restored", ["ls"])).stdout.text, "notes.txt\n");
  // What was there before is kept.
  const { snapshots } = await given.daemon.call(given.key, "GET", "/v1/snapshots");
  assert.equal(snapshots.filter((one) => one.sourceSandbox === "restored").length, 2);
});

test("the isolation is stated in words", async () => {
  await open("isolation");
  await page.getByText("shares the host's kernel").waitFor();
  await page.getByText("System calls pass a filter that denies by default").waitFor();
  noFaults(page);
});
