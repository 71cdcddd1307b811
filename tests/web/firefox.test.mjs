// A short walk in Debian's Firefox, driven over WebDriver BiDi.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, test } from "node:test";
import puppeteer from "puppeteer-core";
import { withDaemon } from "./fixture.mjs";

const firefox = process.env.FIREFOX ?? "/usr/bin/firefox-esr";

// Where tests must not be left out in silence, a missing browser is a failure.
const isMissing = !existsSync(firefox) && !process.env.CI;

test(
  "Firefox shows the list, a terminal and the editor, a shared page, and goes on after a restart",
  { skip: isMissing ? "there is no firefox-esr" : false },
  async () => {
    const given = await withDaemon();
    const { id } = await given.make("lab", { labels: { team: "fox" } });
    await given.shell("lab", "printf 'x = 1\\n' > note.py");
    const browser = await puppeteer.launch({
      browser: "firefox",
      executablePath: firefox,
      headless: true,
      defaultViewport: null,
      args: ["--width=1280", "--height=800"],
    });
    after(() => browser.close());
    const page = await browser.newPage();
    const faults = [];
    page.on("pageerror", (error) => faults.push(String(error)));
    page.on("console", (message) => {
      if (/Content-Security-Policy/i.test(message.text())) faults.push(message.text());
    });
    // The page's policy forbids what `waitForFunction` is made of.
    const sees = async (page, selector, text) => {
      const look = (where, what) =>
        [...document.querySelectorAll(where)].some((one) => (one.shadowRoot ?? one).textContent.includes(what));
      for (let tries = 0; tries < 200; tries += 1) {
        if (await page.evaluate(look, selector, text)) return;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      assert.fail(
        `Firefox does not show "${text}" in ${selector}: ${await page.evaluate(() => document.body.innerText.slice(0, 500))}`,
      );
    };
    await page.goto(given.daemon.ownersAddress());
    await sees(page, ".list-row", "lab");
    await sees(page, ".list-row", "team=fox");
    await page.goto(`${given.daemon.url}/#/sandboxes/${id}/terminal`);
    await sees(page, "button", "Open a terminal");
    await page.evaluate(() =>
      [...document.querySelectorAll("button")].find((one) => one.textContent.includes("Open a terminal")).click(),
    );
    await sees(page, ".xterm-rows", "#");
    await page.keyboard.type("echo sum $((40+2))");
    await page.keyboard.press("Enter");
    await sees(page, ".xterm-rows", "sum 42");
    await page.goto(`${given.daemon.url}/#/sandboxes/${id}/files?path=/root/note.py`);
    await sees(page, ".editor-host", "x = 1");
    await page.goto(`${given.daemon.url}/#/sandboxes/${id}/overview`);
    await sees(page, ".uplot", "");

    const { address } = await given.daemon.call(given.key, "POST", "/v1/shares", { sandbox: "lab", expires: 600 });
    await given.shell("lab", "echo seen by a guest");
    const guests = await browser.createBrowserContext();
    const guest = await guests.newPage();
    await guest.goto(address);
    await sees(guest, "h1", "Watching lab");
    await sees(guest, ".output", "seen by a guest");
    // The terminal that was opened above, only to look at.
    await sees(guest, ".xterm-rows", "sum 42");
    await guests.close();

    await given.daemon.halt();
    await sees(page, ".banner", "The connection to the daemon is lost.");
    await given.daemon.comeBack();
    await sees(page, "main", "Your session ended: the daemon was restarted");
    // Whoever signs in again is where they were.
    await page.goto(given.daemon.ownersAddress());
    await sees(page, "h1", "lab");
    await sees(page, ".uplot", "");
    assert.deepEqual(faults, []);
  },
);
