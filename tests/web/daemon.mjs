// A real daemon with a home of its own, for the tests of the dashboard.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const warren = process.env.WARREN;
if (!warren) throw new Error("WARREN must name the program to test");

/** A port that is free now; the daemon keeps it over restarts. */
function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export class Daemon {
  static async start({ dev = false, config = null } = {}) {
    const daemon = new Daemon();
    daemon.work = mkdtempSync(join(tmpdir(), "warren-web-"));
    daemon.env = {
      ...process.env,
      WARREN_HOME: join(daemon.work, "home"),
      WARREN_RUN: join(daemon.work, "run"),
      WARREN_LOG: "warn",
    };
    daemon.url = `http://127.0.0.1:${await freePort()}`;
    daemon.args = dev ? ["--dev"] : [];
    if (config) {
      const file = join(daemon.work, "config.toml");
      writeFileSync(file, config);
      daemon.args.push("--config", file);
    }
    await daemon.#run();
    return daemon;
  }

  async #run() {
    const listen = this.url.replace("http://", "");
    const args = ["serve", "--listen", listen, ...this.args];
    this.process = spawn(warren, args, { env: this.env, stdio: ["ignore", "ignore", "inherit"] });
    this.ended = new Promise((resolve) => this.process.on("exit", resolve));
    for (;;) {
      const answer = await fetch(`${this.url}/v1/health`).catch(() => null);
      if (answer?.ok) return;
      if (this.process.exitCode !== null) throw new Error(`the daemon ended with ${this.process.exitCode}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Ends the daemon; sandboxes live on. */
  async halt() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  async comeBack() {
    await this.#run();
  }

  /** Runs the command line against this daemon and returns what it printed. */
  cli(...args) {
    return execFileSync(warren, args, { env: this.env, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  }

  json(...args) {
    return JSON.parse(this.cli(...args, "--json"));
  }

  /** Sets a secret for one host, as the owner. */
  setSecret(name, host, value = "a value that nobody sees") {
    const args = ["secret", "set", "--host", host, name];
    execFileSync(warren, args, { env: this.env, input: value, stdio: ["pipe", "ignore", "inherit"] });
  }

  key(label, ...args) {
    return this.json("key", "create", "--label", label, ...args).secret;
  }

  /** The address that signs the owner in, once. */
  ownersAddress() {
    return this.cli("dashboard", "--no-open").match(/http:\S+#once=\S+/)[0];
  }

  /** A request as the holder of a key. */
  async call(key, method, path, body) {
    const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
    const answer = await fetch(`${this.url}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  async end() {
    for (const sandbox of this.json("ps", "--all").sandboxes ?? []) this.cli("rm", "--force", sandbox.name);
    await this.halt();
    rmSync(this.work, { recursive: true, force: true });
  }
}

export const distOf = () => process.env.WARREN_WEB_DIST ?? null;
export const read = (path) => readFileSync(path);
