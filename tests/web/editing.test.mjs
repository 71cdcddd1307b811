// Nobody's work is lost: files that are there, what others write, and what was typed and not saved.
import assert from "node:assert/strict";
import { test } from "node:test";
import { goTo, openPage, shoot, signIn } from "./browser.mjs";
import { noFaults, withDaemon } from "./fixture.mjs";

const given = await withDaemon();
const { id } = await given.make("lab");
const page = await openPage(given.browser, given.daemon);
await signIn(page, given.daemon);
const files = (path = "/root") =>
  goTo(page, given.daemon, `sandboxes/${id}/files?path=${encodeURIComponent(path)}`);
const read = async (path) => (await given.run("lab", ["cat", path])).stdout.text;
const write = (path, text) => given.run("lab", ["sh", "-c", 'printf %s "$2" > "$1"', "sh", path, text]);
const button = (name) => page.getByRole("button", { name, exact: true });
const editor = page.locator(".cm-content");
const dialog = page.getByRole("dialog");
const upload = (name, content) => ({ name, mimeType: "text/plain", buffer: Buffer.from(content) });

async function edit(path, typed) {
  await files(path);
  await editor.click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type(typed);
  await page.getByText("Not saved yet.").waitFor();
}

test("a new file never empties one that is there, and has a name of its own", async () => {
  await write("notes.txt", "kept");
  await files();
  await button("New file").click();
  await dialog.getByLabel("Name").fill("notes.txt");
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").getByText("notes.txt").waitFor();
  assert.equal(await read("notes.txt"), "kept");
  for (const name of ["..", ".", "a/b", "/etc/passwd", " "]) {
    await dialog.getByLabel("Name").fill(name);
    assert.ok(await dialog.getByRole("button", { name: "Save" }).isDisabled(), name);
  }
  await dialog.getByRole("button", { name: "Cancel" }).click();
});

test("an upload over a file asks, and counts what arrived", async () => {
  const choose = (...all) => page.getByLabel("Files to upload").setInputFiles(all);
  await choose(upload("notes.txt", "from outside"), upload("other.txt", "new"));
  await page.getByText("Uploaded 1 file to /root.").waitFor();
  await dialog.getByText("notes.txt").waitFor();
  await shoot(page, "upload-replace");
  await dialog.getByRole("button", { name: "Keep what is there" }).click();
  assert.deepEqual([await read("notes.txt"), await read("other.txt")], ["kept", "new"]);
  await choose(upload("notes.txt", "from outside"));
  await dialog.getByRole("button", { name: "Replace" }).click();
  await page.getByText("Uploaded 1 file to /root.").nth(1).waitFor();
  assert.equal(await read("notes.txt"), "from outside");
  // Nothing arrives in a directory of the kernel.
  await files("/proc");
  await choose(upload("none.txt", "x"));
  await page.getByText(/^none\.txt not uploaded/).waitFor();
  assert.equal(await page.getByText(/^Uploaded .* to \/proc/).count(), 0);
});

test("what an agent writes shows in the editor, and is not overwritten unseen", async () => {
  await write("a.py", "one = 1\n");
  await files("/root/a.py");
  await editor.getByText("one = 1").waitFor();
  await write("a.py", "two = 2\n");
  await editor.getByText("two = 2").waitFor();
  await edit("/root/a.py", "mine = 3");
  await write("a.py", "theirs = 4\n");
  const notice = page.getByText("The file was changed in the sandbox since you began.");
  await notice.waitFor();
  await shoot(page, "editor-conflict");
  await page.keyboard.press("Control+s");
  assert.equal(await read("a.py"), "theirs = 4\n");
  await button("Reload").click();
  await editor.getByText("theirs = 4").waitFor();
  await notice.waitFor({ state: "detached" });
  // Who is faster than the page's watching is asked too.
  await page.evaluate(() => {
    const before = globalThis.fetch;
    globalThis.fetch = (address, ...rest) =>
      String(address).includes("/files/watch") ? new Promise(() => {}) : before(address, ...rest);
  });
  await files("/root");
  await edit("/root/a.py", "mine = 5");
  await write("a.py", "late = 6\n");
  await page.keyboard.press("Control+s");
  await notice.waitFor();
  assert.equal(await read("a.py"), "late = 6\n");
  await button("Overwrite").click();
  await page.getByText("Saved a.py.").waitFor();
  assert.equal(await read("a.py"), "theirs = 4\nmine = 5");
  await notice.waitFor({ state: "detached" });
  await page.reload();
});

test("unsaved text is there after a look at something else, and its page asks before it closes", async () => {
  await write("draft.txt", "first\n");
  await edit("/root/draft.txt", "unsaved words");
  await page.getByRole("link", { name: "Ports" }).click();
  await page.getByRole("heading", { name: "Ports" }).waitFor();
  await page.goBack();
  const back = page.getByText("What you typed here before is back.");
  await back.waitFor();
  await editor.getByText("unsaved words").waitFor();
  await button("Changes").click();
  await page.getByText("/root/draft.txt").first().waitFor();
  await button("Browse").click();
  await editor.getByText("unsaved words").waitFor();
  await shoot(page, "editor-restored");
  const asked = page.waitForEvent("dialog");
  const reloaded = page.reload({ timeout: 2000 }).catch(() => {});
  const question = await asked;
  assert.equal(question.type(), "beforeunload");
  await question.dismiss();
  await reloaded;
  await button("Discard").click();
  await page.waitForFunction(() => !document.body.textContent.includes("Not saved yet."));
  await editor.getByText("first").waitFor();
  await page.reload();
  assert.equal(await read("draft.txt"), "first\n");
  noFaults(page);
});

test("line breaks stay as the file has them", async () => {
  await write("dos.txt", "a\r\nb\r\n");
  await edit("/root/dos.txt", "c");
  await page.keyboard.press("Control+s");
  await page.getByText("Saved dos.txt.").waitFor();
  assert.equal(await read("dos.txt"), "a\r\nb\r\nc");
  noFaults(page);
});
