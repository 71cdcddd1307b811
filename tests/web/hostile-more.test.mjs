// The same sandbox goes on: logs, watch-along, names of processes, changes, hosts and clients, files with previews, and
// a hundred megabytes wherever output is shown.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { daemon } = given;
const SCRIPT = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;
const TURN = "\u202e";
const { id } = await given.make("evil");
const page = await openPage(given.browser, daemon);
await signIn(page, daemon);
const open = (tab) => goTo(page, daemon, `sandboxes/${id}/${tab}`);
const write = (name, content) =>
  given.code("evil", `open(${JSON.stringify(name)}, "wb").write(bytes.fromhex("${Buffer.from(content).toString("hex")}"))`);

const dialogs = [];
page.on("dialog", (dialog) => {
  dialogs.push(dialog.message());
  void dialog.dismiss();
});
const strangers = [];
page.on("request", (request) => {
  const { protocol, origin } = new URL(request.url());
  if (["http:", "https:", "ws:"].includes(protocol) && origin.replace("ws:", "http:") !== daemon.url)
    strangers.push(request.url());
});
/** Nothing of the sandbox became an element, a title, a dialog or a request, and no mark turns the text around it. */
async function unharmed() {
  assert.ok((await page.title()).endsWith("· Warren"), await page.title());
  assert.equal(await page.locator("[onerror], main script, img[src='x']").count(), 0);
  assert.ok(!(await page.locator("main").innerText()).includes(TURN));
  assert.deepEqual(dialogs, []);
  assert.deepEqual(strangers, []);
  noFaults(page);
}

test("logs and their search show text", async () => {
  await given.run("evil", ["printf", "%s\\n", `needle ${SCRIPT} ${TURN}txt`]);
  await open("logs");
  await page.locator(".log-text").getByText("needle <img src=x").first().waitFor();
  await unharmed();
  await page.getByLabel("Search the output").fill(`<script>document`);
  await page.locator(".log-line mark").getByText("<script>document").first().waitFor();
  await page.getByText("1 line of all output").waitFor();
  await shoot(page, "hostile-logs");
  await unharmed();
});

test("whoever watches along sees text, of commands, files and terminals", async () => {
  await write(`${SCRIPT.replaceAll("/", "_")}${TURN}`, "x");
  await goTo(page, daemon, `watch/sandbox/${id}`);
  await page.locator(".output").getByText("needle <img").first().waitFor();
  await page.evaluate(() => navigator.clipboard.writeText("mine"));
  await daemon.call(given.key, "POST", "/v1/sandboxes/evil/execs", {
    command: ["sh", "-c", "printf '\\033]52;c;b3duZWQ=\\007\\033]0;owned\\007\\033]8;;http://192.0.2.1/\\033\\\\a link\\033]8;;\\033\\\\ after it all'; cat"],
    terminal: { rows: 10, cols: 60 },
  });
  const screen = page.locator(".terminal-view .xterm-rows");
  await screen.getByText("after it all").waitFor();
  await screen.getByText("a link").click({ force: true });
  assert.equal(page.context().pages().length, 1);
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "mine");
  await shoot(page, "hostile-watch");
  await unharmed();
});

test("names of processes and of programs behind ports are text", async () => {
  const name = "<b>x</b>'\"";
  const code = `
import ctypes, os, socket
if os.fork() == 0:
    ctypes.CDLL(None).prctl(15, ${JSON.stringify(name)}.encode(), 0, 0, 0)
    server = socket.create_server(("127.0.0.1", 8666))
    os.execv("/proc/self/exe", [${JSON.stringify(SCRIPT)} + ${JSON.stringify(TURN)}, "-c", "import socket,ctypes,time; ctypes.CDLL(None).prctl(15, b'<b>x</b>', 0, 0, 0); s = socket.create_server(('127.0.0.1', 8667)); time.sleep(1000)"])
`;
  await given.run("evil", ["python3", "-c", code], true);
  await open("ports");
  await page.getByRole("row").filter({ hasText: "8667" }).waitFor();
  assert.equal(await page.locator("main td b").count(), 0);
  await unharmed();
  await open("overview");
  await page.getByRole("region", { name: "Processes" }).getByText("<script>").first().waitFor();
  await shoot(page, "hostile-processes");
  await unharmed();
});

test("changes show names and lines as text", async () => {
  await write("lines.txt", `${SCRIPT}\n${TURN}turned\n`);
  await open("files");
  await page.getByRole("button", { name: "Changes" }).click();
  await page.locator(".patch .added").getByText("document.title='owned'").first().waitFor();
  await page.locator(".patch .added").getByText("⟨202E⟩turned").waitFor();
  await unharmed();
});

test("a PDF, a notebook and a picture with scripts run none of them", async () => {
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >> /AA << /WC << /S /URI /URI (http://192.0.2.1/) >> >> >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Annots [<< /Type /Annot /Subtype /Link /Rect [0 0 300 200] /A << /S /URI /URI (javascript:alert\\(1\\)) >> >>] >>",
  ];
  let text = "%PDF-1.4\n";
  const offsets = objects.map((object, index) => {
    const at = text.length;
    text += `${index + 1} 0 obj\n${object}\nendobj\n`;
    return at;
  });
  const start = text.length;
  text += `xref\n0 4\n0000000000 65535 f \n${offsets.map((at) => `${String(at).padStart(10, "0")} 00000 n \n`).join("")}`;
  await write("evil.pdf", `${text}trailer << /Size 4 /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`);
  await write("broken.pdf", `%PDF-1.4\n${"\u0000\u00ff".repeat(5000)}`);
  const outputs = [{ data: { "text/html": `<h1>shown</h1>${SCRIPT}`, "text/plain": "x" } }, { text: [SCRIPT] }];
  const cells = [
    { cell_type: "markdown", source: [`# ${SCRIPT} [a](javascript:alert(1))`] },
    { cell_type: "code", source: [SCRIPT, TURN], outputs },
  ];
  await write("evil.ipynb", JSON.stringify({ cells }));
  await write("nonsense.ipynb", JSON.stringify({ cells: [{ source: 7 }, null, { outputs: "x", source: {} }] }));
  await write(
    "evil.svg",
    `<svg xmlns="http://www.w3.org/2000/svg" width="60" height="40" onload="alert(1)"><script>alert(1)</script><image href="http://192.0.2.1/i"/><rect width="60" height="40" fill="red"/></svg>`,
  );
  const show = (name) => open(`files?path=${encodeURIComponent(`/root/${name}`)}`);
  await open("overview");
  await show("evil.pdf");
  await page.getByRole("img", { name: "evil.pdf, page 1 of 1" }).waitFor();
  assert.equal(await page.locator(".pdf a").count(), 0);
  await unharmed();
  await show("broken.pdf");
  await page.locator(".files-content").getByRole("alert").or(page.getByText("No preview")).first().waitFor();
  await show("evil.ipynb");
  await page.getByText("document.title='owned'").first().waitFor();
  assert.equal(await page.locator(".files-content a[href^='javascript']").count(), 0);
  await shoot(page, "hostile-notebook-file");
  await unharmed();
  await show("nonsense.ipynb");
  await page.locator(".files-content").waitFor();
  await unharmed();
  await show("evil.svg");
  await page.locator(".files-content img").waitFor();
  assert.equal(await page.locator(".files-content svg script").count(), 0);
  await unharmed();
});

test("hosts in the network's log and clients in the audit are text", async () => {
  await given.shell("evil", `getent hosts "$(printf 'x<b>y')" || true; getent hosts denied.example || true`);
  await open("network");
  await page.getByRole("heading", { name: "Policy" }).waitFor();
  await unharmed();
  const headers = {
    authorization: `Bearer ${given.key}`,
    "content-type": "application/json",
    "user-agent": SCRIPT,
  };
  await fetch(`${daemon.url}/v1/sandboxes/evil/execs`, { method: "POST", headers, body: '{"command":["true"]}' });
  await goTo(page, daemon, "audit");
  await page.getByText("rest <img src=x").first().waitFor();
  await page.getByLabel("Search caller, action or sandbox").fill("onerror= owned");
  await page.getByText("1 call", { exact: true }).waitFor();
  await unharmed();
});

test("a hundred megabytes in a terminal, in logs and while one watches leave the pages as they were", async () => {
  const flood = (size) => `head -c ${size} /dev/zero | tr '\\0' 'x' | fold -w 200; echo; echo the very end`;
  await open("terminal");
  const address = (await daemon.call(given.key, "POST", "/v1/shares", { sandbox: "evil", expires: 600 })).address;
  const guest = await openPage(given.browser, daemon);
  guest.setDefaultTimeout(120_000);
  await guest.goto(address);
  await guest.getByRole("heading", { name: "Watching evil" }).waitFor();
  const run = given.shell("evil", flood(100_000_000));
  const terminal = await daemon.call(given.key, "POST", "/v1/sandboxes/evil/execs", {
    // A terminal passes on 4 KB at a time; of so much it keeps five thousand lines as of more.
    command: ["sh", "-c", `${flood(20_000_000)}; cat`],
    terminal: { rows: 24, cols: 100 },
  });
  page.setDefaultTimeout(120_000);
  await guest.locator(".output").getByText("the very end").first().waitFor();
  await page.locator(".terminal-view:not(.hidden) .xterm-rows").getByText("the very end", { exact: true }).waitFor();
  await daemon.call(given.key, "POST", `/v1/sandboxes/evil/execs/${terminal.id}/signal`, { signal: 9 });
  await run;
  await open("logs");
  await page.locator(".log-text").getByText("the very end", { exact: true }).waitFor();
  const rows = await page.locator(".log-line").count();
  assert.ok(rows < 200, `${rows} rows`);
  for (const one of [page, guest]) {
    const held = await one.locator("main").evaluate((element) => element.textContent.length);
    assert.ok(held < 2_000_000, `${held} characters are in the page`);
    noFaults(one);
  }
  await unharmed();
});
