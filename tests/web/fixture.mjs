// A daemon with sandboxes as a team would have them, and a browser.
import { after } from "node:test";
import assert from "node:assert/strict";
import { launch } from "./browser.mjs";
import { Daemon } from "./daemon.mjs";

/** Starts both for the tests of a file and ends them after. */
export async function withDaemon(options = {}) {
  const given = {};
  after(async () => {
    await given.browser?.close();
    await given.daemon?.end();
  });
  given.daemon = await Daemon.start(options);
  given.browser = await launch();
  if (!options.dev) given.key = given.daemon.key("ana", "--namespace", "default");
  given.make = (name, spec = {}) => given.daemon.call(given.key, "POST", "/v1/sandboxes", { name, ...spec });
  given.run = (name, command, wait = true) =>
    given.daemon.call(given.key, "POST", `/v1/sandboxes/${name}/execs?wait=${wait}`, { command, trackFiles: true });
  given.shell = (name, line, wait = true) => given.run(name, ["sh", "-c", line], wait);
  given.code = (name, code) =>
    given.daemon.call(given.key, "POST", `/v1/sandboxes/${name}/code`, { language: "python", code });
  return given;
}

export function noFaults(page) {
  assert.deepEqual(page.faults, []);
}

/** A picture, a table, files and output, with nothing but Python itself. */
export const PICTURE_CODE = `
import struct, zlib
def png(width, height, colour):
    raw = b"".join(b"\\x00" + bytes(c for x in range(width) for c in colour(x, y)) for y in range(height))
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(raw)) + part(b"IEND", b"")
class Picture:
    def __init__(self, data): self.data = data
    def _repr_png_(self): return self.data
drawn = png(320, 160, lambda x, y: (40 + x * 200 // 320, 80 + y, 220 - x // 3))
open("gradient.png", "wb").write(drawn)
Picture(drawn)
`;

export const TABLE_CODE = `
class Table:
    def _repr_html_(self):
        rows = [("alpine", 3.21, 7), ("debian", 12.5, 49), ("ubuntu", 24.04, 78)]
        body = "".join(f"<tr><td>{name}</td><td>{version}</td><td>{size}</td></tr>" for name, version, size in rows)
        return "<table><thead><tr><th>image</th><th>version</th><th>MB</th></tr></thead><tbody>" + body + "</tbody></table>"
total = 134
print("three images")
Table()
`;
