// Passed to `node -e` in the environment. Reads the driver's sources from descriptor 3 and runs the part called `core`.
(() => {
  'use strict';
  const fs = require('fs');
  const vm = require('vm');
  const CHANNEL = 3;

  const clock = new Int32Array(new SharedArrayBuffer(4));
  const read = (length) => {
    const bytes = Buffer.allocUnsafe(length);
    for (let at = 0; at < length; ) {
      let n;
      try {
        n = fs.readSync(CHANNEL, bytes, at, length - at, null);
      } catch (error) {
        if (error.code !== 'EAGAIN') throw error;
        Atomics.wait(clock, 0, 0, 1);
        continue;
      }
      if (n === 0) process.reallyExit(0);
      at += n;
    }
    return bytes;
  };

  const frame = read(read(4).readUInt32LE(0));
  const parts = { __proto__: null };
  for (let at = 1; at < frame.length; ) {
    const nameEnd = at + 2 + frame.readUInt16LE(at);
    const sourceEnd = nameEnd + 4 + frame.readUInt32LE(nameEnd);
    parts[frame.latin1Slice(at + 2, nameEnd)] = frame.utf8Slice(nameEnd + 4, sourceEnd);
    at = sourceEnd;
  }
  const part = (name) => new vm.Script(parts[name], { filename: `warren:${name}` }).runInThisContext();
  part('core')({ part, require, clock });
})();
