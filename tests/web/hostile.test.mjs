// A sandbox that tries everything to break the page: its names, output, file names, HTML and terminal escapes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const SCRIPT = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;
const TURNED = "invoice\u202Egnp.exe";
const { id } = await given.make("evil", {
  labels: { "x-label": SCRIPT.slice(0, 60), turned: TURNED },
  env: { EVIL: SCRIPT },
});
const page = await openPage(given.browser, given.daemon);
await signIn(page, given.daemon);
const open = (tab) => goTo(page, given.daemon, `sandboxes/${id}/${tab}`);

/** Nothing of the sandbox became an element, a title, a dialog or a request. */
const dialogs = [];
page.on("dialog", (dialog) => {
  dialogs.push(dialog.message());
  void dialog.dismiss();
});
const strangers = [];
page.on("request", (request) => {
  const { protocol, origin } = new URL(request.url());
  if (["http:", "https:", "ws:"].includes(protocol) && origin.replace("ws:", "http:") !== given.daemon.url)
    strangers.push(request.url());
});
async function unharmed() {
  assert.ok((await page.title()).endsWith("· Warren"), await page.title());
  assert.equal(await page.locator("[onerror], main script, img[src='x']").count(), 0);
  assert.deepEqual(dialogs, []);
  assert.deepEqual(strangers, []);
  noFaults(page);
}

test("labels and the environment are text, and marks that turn text show", async () => {
  await goTo(page, given.daemon, "sandboxes");
  await page.getByText("turned=invoice⟨202E⟩gnp.exe").waitFor();
  // What has no room is named where the mouse rests.
  await page.getByTitle("x-label=<img src=x").waitFor();
  await page.setViewportSize({ width: 1700, height: 900 });
  await page.getByText("x-label=<img src=x").waitFor();
  await page.setViewportSize({ width: 1440, height: 900 });
  await shoot(page, "hostile-list");
  await open("overview");
  await page.getByText("<script>").first().waitFor();
  await unharmed();
});

test("output and names of files are text", async () => {
  await given.run("evil", [
    "sh",
    "-c",
    `printf '%s\\n' '${SCRIPT.replaceAll("'", "'\\''")}'; printf 'bell\\007 null\\000 back\\010 esc\\033]0;owned\\007 \\342\\200\\256desrever\\n'`,
  ]);
  await given.code(
    "evil",
    `open("<b>bold<b>.txt", "w").write("x"); open("a\\nb\\u202egpj.exe", "w").write("x"); open("${"n".repeat(200)}", "w").write("x"); open("'; alert(1) '", "w").write("y")`,
  );
  await open("timeline");
  await page.locator(".exec").filter({ hasText: "printf" }).locator(".exec-toggle").click();
  const output = page.locator(".exec-body .output");
  await output.getByText("<script>document.title='owned'</script>").waitFor();
  const text = await output.innerText();
  assert.ok(text.includes("bell\\x07 null\\x00 back\\x08") && text.includes("⟨202E⟩desrever"), text);
  await open("files");
  await page.getByRole("table").getByText("<b>bold<b>.txt").waitFor();
  await page.getByRole("table").getByText("a\\nb⟨202E⟩gpj.exe").waitFor();
  await page.getByRole("table").getByRole("link", { name: "'; alert(1) '" }).click();
  await page.locator(".cm-content").getByText("y").waitFor();
  await shoot(page, "hostile-files");
  await unharmed();
});

test("HTML and pictures that code shows run nothing and load nothing", async () => {
  const html = `<h1 style='color: red' onclick=alert(1)>shown</h1><script>parent.document.title='owned'</script><img src=http://192.0.2.1/pixel><a href='javascript:alert(1)'>x</a><form action=http://192.0.2.1/><input></form><iframe src=http://192.0.2.1/></iframe><meta http-equiv=refresh content='0;url=http://192.0.2.1/'><style>*{background:url(http://192.0.2.1/c)}</style>`;
  const svg = `<svg xmlns='http://www.w3.org/2000/svg' width='60' height='40' onload='alert(1)'><script>alert(1)</script><image href='http://192.0.2.1/i'/><rect width='60' height='40' fill='red'/></svg>`;
  const table = `<table style='width: 1px'><tr><td onclick=alert(1)><b>bold</b><img src=x onerror=alert(1)>cell</td></tr></table>`;
  const show = (kind, content) => `class S:\n    def ${kind}(self): return ${JSON.stringify(content)}\nS()`;
  for (const [kind, content] of [
    ["_repr_html_", html],
    ["_repr_svg_", svg],
    ["_repr_html_", table],
  ])
    await given.code("evil", show(kind, content));
  await open("notebook");
  await page.frameLocator("iframe.frame").getByText("shown").waitFor();
  assert.equal(await page.locator("iframe.frame").getAttribute("sandbox"), "");
  await page.locator("img.picture").waitFor();
  await page.getByRole("cell", { name: "boldcell" }).waitFor();
  await shoot(page, "hostile-notebook");
  await unharmed();
});

test("terminal escapes set neither the clipboard nor the page's title", async () => {
  await page.evaluate(() => navigator.clipboard.writeText("mine"));
  await open("terminal");
  await page.getByRole("button", { name: "Open a terminal" }).click();
  const screen = page.locator(".terminal-view:not(.hidden) .xterm-rows");
  await screen.getByText("#").first().waitFor();
  const line = `printf '\\033]52;c;b3duZWQ=\\007\\033]0;owned <b>title\\007\\033]8;;http://192.0.2.1/\\033\\\\a link\\033]8;;\\033\\\\ \\033[5n\\033]4;0;?\\007'; echo; echo after it all`;
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
  await screen.getByText("after it all").last().waitFor();
  await page.getByRole("button", { name: "owned <b>title" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "mine");
  await screen.getByText("a link").last().click({ force: true });
  assert.equal(page.context().pages().length, 1);
  await unharmed();
});

test("a hundred megabytes of output leave the page as it was", async () => {
  await given.shell("evil", "head -c 100000000 /dev/zero | tr '\\0' 'x' | fold -w 200; echo the very end");
  await open("timeline");
  const huge = page.locator(".exec").filter({ hasText: "fold -w 200" });
  await huge.locator(".exec-toggle").click();
  await huge.getByText("The beginning of a long output is left out here.").waitFor();
  await huge.locator(".output").getByText("the very end").waitFor();
  const held = await huge.locator(".output").evaluate((element) => element.textContent.length);
  assert.ok(held < 1_000_000, `${held} characters are in the page`);
  await unharmed();
});
