// A real browser in which nothing may go wrong unseen: errors of the page and of its content policy fail the test.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const screenshots = process.env.WARREN_SCREENSHOTS ?? "../../target/web-screenshots";
mkdirSync(screenshots, { recursive: true });
const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const WIDE = { width: 1440, height: 900 };
export const PHONE = { width: 380, height: 780 };

export function launch() {
  // A page from disk has no address, so the browser would take the daemon for a stranger in the local network.
  const fromDisk = process.env.WARREN_WEB_DIST ? ["--disable-features=LocalNetworkAccessChecks"] : [];
  const args = ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb", ...fromDisk];
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
}

/** What a browser says when the daemon is away or refuses; the page shows it in words. */
const EXPECTED = [/Failed to load resource/, /WebSocket connection to .* failed/, /net::ERR_/];

/** Opens a page whose faults are collected in `page.faults`. */
export async function openPage(browser, daemon, options = {}) {
  const context = await browser.newContext({ viewport: WIDE, reducedMotion: "reduce", ...options });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: daemon.url });
  await servePagesFromDisk(context, daemon);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(`error: ${error.stack ?? error}`));
  page.on("console", (message) => {
    if (message.type() !== "error" || EXPECTED.some((pattern) => pattern.test(message.text()))) return;
    page.faults.push(`console: ${message.text()}`);
  });
  return page;
}

/**
 * With WARREN_WEB_DIST, the page's files come from a directory, under the daemon's own headers: a fresh build of the
 * page can be tried without building the daemon.
 */
async function servePagesFromDisk(context, daemon) {
  const dist = process.env.WARREN_WEB_DIST;
  if (!dist) return;
  const answer = await fetch(`${daemon.url}/`, { headers: { accept: "text/html" } });
  const policy = answer.headers.get("content-security-policy");
  const types = {
    html: "text/html",
    js: "text/javascript",
    mjs: "text/javascript",
    css: "text/css",
    svg: "image/svg+xml",
    woff2: "font/woff2",
  };
  await context.route(
    (url) => url.origin === daemon.url && (url.pathname === "/" || url.pathname.startsWith("/assets/")),
    (route) => {
      const path = new URL(route.request().url()).pathname;
      const file = path === "/" ? "/index.html" : path;
      const contentType = types[file.split(".").at(-1)] ?? "application/octet-stream";
      return route.fulfill({
        body: readFileSync(join(dist, file)),
        contentType,
        headers: { "content-security-policy": policy },
      });
    },
  );
}

export async function signIn(page, daemon) {
  await page.goto(daemon.ownersAddress());
  await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
  await live(page);
}

export const live = (page) => page.locator(".pulse.live").first().waitFor({ state: "attached" });

export async function goTo(page, daemon, place) {
  await page.goto(`${daemon.url}/#/${place}`);
}

export const shoot = (page, name) => page.screenshot({ path: join(screenshots, `${name}.png`) });

/** Findings of axe that keep people from using the page. */
export async function seriousFindings(page) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(
      ({ id, help, nodes }) =>
        `${id}: ${help}: ${nodes
          .slice(0, 3)
          .map((node) => `${node.target.join(" ")} (${node.failureSummary?.split("\n")[1]?.trim() ?? ""})`)
          .join(" | ")}`,
    );
}
