// The heart of the driver: takes cells from the channel, runs them, reports how they ended. Everything it needs while
// cells run is taken from the globals once, at the start: a cell may patch or delete any of them.
'use strict';
(function core({ part, require, clock }) {
  const { Array, Buffer, Error, JSON, Map, Math, Number, Object, Reflect, RegExp, Set, String, Symbol } = globalThis;
  const { SyntaxError, TypeError, Uint8Array, process } = globalThis;
  const fs = require('fs');
  const vm = require('vm');
  const { Socket } = require('net');

  const CHANNEL = 3;
  const READ_BYTES = 64 * 1024;
  // Longest record that the host reads is 16 MiB.
  const MAX_RECORD_BYTES = 15 * 1024 * 1024;
  const INTERRUPTED = 130;
  // Too few to be worth loading another of Node's modules.
  const FEW_SCRIPTS = 20;

  const { fstatSync, openSync, closeSync, writeSync } = fs;
  const { stringify } = JSON;
  const { apply, ownKeys, getOwnPropertyDescriptor, defineProperty } = Reflect;
  const { hasOwnProperty } = Object.prototype;
  const { copy, utf8Slice, readUInt32LE, readBigUInt64LE } = Buffer.prototype;
  const { charCodeAt, slice: sliceText, padStart } = String.prototype;
  const numberText = Number.prototype.toString;
  const newBuffer = Buffer.allocUnsafeSlow;
  const newBytes = Buffer.from;
  const latin1 = (text) => newBytes(text, 'latin1');
  const { wait } = Atomics;
  const { reallyExit, _tickCallback: runMicrotasks } = process;
  const cwd = process.cwd;
  const toNumber = Number;
  const { setImmediate } = globalThis;

  const intrinsics = { Array, Buffer, Error, JSON, Map, Math, Number, Object, Reflect, Set, String, Symbol };
  const shared = { __proto__: null, ...intrinsics, SyntaxError, process, require, record, write: writeText };
  const loaded = { __proto__: null };
  function need(name) {
    loaded[name] ??= part(name)(shared);
    return loaded[name];
  }
  shared.need = need;

  // ---- writing

  function writeAll(fd, bytes) {
    for (let at = 0; at < bytes.length; ) {
      try {
        at += writeSync(fd, bytes, at, bytes.length - at);
      } catch (error) {
        if (error.code !== 'EAGAIN') return false;
        // The pipe was made non-blocking; the channel always is.
        wait(clock, 0, 0, 1);
      }
    }
    return true;
  }

  function writeText(fd, text) {
    writeAll(fd, newBytes(text, 'utf8'));
  }

  function tell(line) {
    // Without its channel an interpreter is useless: the guest reports its death.
    if (!writeAll(CHANNEL, latin1(line))) apply(reallyExit, process, [70]);
  }

  // A record may be passed to readers that cannot handle lone surrogates.
  function ascii(json) {
    let out = '';
    let from = 0;
    for (let i = 0; i < json.length; i++) {
      const code = apply(charCodeAt, json, [i]);
      const isLone = code === 92 && isLoneSurrogate(json, i);
      if (code < 127 && !isLone) {
        // An escaped backslash does not begin an escape.
        if (code === 92) i++;
        continue;
      }
      const written = isLone ? '\\ufffd' : `\\u${apply(padStart, apply(numberText, code, [16]), [4, '0'])}`;
      out += apply(sliceText, json, [from, i]) + written;
      if (isLone) i += 5;
      from = i + 1;
    }
    return from === 0 ? json : out + apply(sliceText, json, [from]);
  }

  // `JSON.stringify` escapes lone ones, and only those, as \udxxx.
  function isLoneSurrogate(json, i) {
    const at = (offset) => apply(charCodeAt, json, [i + offset]);
    return at(1) === 117 && at(2) === 100 && (at(3) > 57 || at(3) === 56 || at(3) === 57);
  }

  function record(fields) {
    const json = ascii(stringify(fields));
    if (json.length <= MAX_RECORD_BYTES) return tell(`r${json}\n`);
    const size = `${(json.length / 1048576).toFixed(1)} MiB`;
    const message = `An output of ${size} was left out; write it to a file instead.`;
    tell(`r${stringify({ __proto__: null, type: 'warning', message })}\n`);
  }

  // ---- standard output and error

  const spares = { __proto__: null };
  for (const fd of [1, 2]) {
    const { dev, ino } = fstatSync(fd);
    let spare = -1;
    try {
      spare = openSync(`/proc/self/fd/${fd}`, fs.constants.O_WRONLY);
    } catch {
      // The pipe belongs to another user. Then a cell that closes it stays silent.
    }
    spares[fd] = { __proto__: null, dev, ino, spare };
  }

  // A cell may have closed it, and opened something else since.
  function repair(fd) {
    const { dev, ino, spare } = spares[fd];
    try {
      const now = fstatSync(fd);
      if (now.ino === ino && now.dev === dev) return;
      if (spare >= 0) closeSync(fd);
    } catch {
      // Closed.
    }
    if (spare < 0) return;
    let got = openSync(`/proc/self/fd/${spare}`, fs.constants.O_WRONLY);
    if (got < fd) {
      const low = got;
      repair(fd);
      closeSync(low);
    } else if (got > fd) {
      closeSync(got);
    }
  }

  function asBytes(chunk) {
    if (chunk instanceof Uint8Array) return chunk;
    const wrong = new TypeError('The "chunk" argument must be of type string or an instance of Buffer or Uint8Array');
    wrong.code = 'ERR_INVALID_ARG_TYPE';
    throw wrong;
  }

  function makeStream(fd) {
    const { Writable } = require('stream');
    const stream = new Writable({
      destroy(error, done) {
        done(error);
        this._undestroy();
      },
    });
    // Everything is written when `write` returns. The stream outlives each cell, so it has no state that an interrupt
    // in the middle of a write could leave behind.
    const write = (chunk, encoding, done) => {
      if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
      writeAll(fd, typeof chunk === 'string' ? newBytes(chunk, encoding) : asBytes(chunk));
      if (typeof done === 'function') process.nextTick(done);
      return true;
    };
    stream.write = write;
    stream.end = (...given) => {
      const done = typeof given.at(-1) === 'function' ? given.pop() : undefined;
      if (given[0] != null) write(...given);
      if (done) process.nextTick(done);
      return stream;
    };
    stream.cork = stream.uncork = () => {};
    stream.fd = fd;
    stream._type = 'pipe';
    stream._isStdio = true;
    return { __proto__: null, stream, write };
  }

  const streams = { __proto__: null };
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    const get = () => (streams[name] ??= makeStream(fd)).stream;
    const descriptor = { __proto__: null, configurable: true, enumerable: true, get, set: undefined };
    defineProperty(process, name, descriptor);
    spares[fd].name = name;
    spares[fd].descriptor = descriptor;
  }

  function restoreStreams() {
    try {
      fstatSync(0);
    } catch {
      // The next file that Node opens must not become its standard input.
      openSync('/dev/null', fs.constants.O_RDONLY);
    }
    for (let fd = 1; fd <= 2; fd++) {
      repair(fd);
      const { name, descriptor } = spares[fd];
      if (getOwnPropertyDescriptor(process, name)?.get !== descriptor.get) defineProperty(process, name, descriptor);
      const made = streams[name];
      if (made && made.stream.write !== made.write) made.stream.write = made.write;
    }
  }

  // ---- globals

  const globals = globalThis;
  const show = (...values) => need('show').display(values, current !== undefined);
  defineProperty(globals, 'display', { value: show, writable: true, configurable: true, enumerable: false });
  const importModule = (...asked) => need('modules').load(...asked);
  defineProperty(importModule, 'meta', { get: () => need('modules').load.meta });
  defineProperty(globals, '__import', { value: importModule, writable: false, configurable: false, enumerable: false });

  const names = ownKeys(globals);
  const descriptors = { __proto__: null };
  for (const name of names) descriptors[name] = getOwnPropertyDescriptor(globals, name);

  function restoreGlobals() {
    for (let i = 0; i < names.length; i++) {
      const name = names[i];
      if (!apply(hasOwnProperty, globals, [name])) defineProperty(globals, name, descriptors[name]);
    }
  }

  let requireDirectory = cwd();
  let ourRequire = globals.require;
  function followDirectory() {
    let directory;
    try {
      directory = apply(cwd, process, []);
    } catch {
      return;
    }
    if (directory === requireDirectory || globals.require !== ourRequire) return;
    requireDirectory = directory;
    ourRequire = require('module').createRequire(`${directory}/`);
    globals.require = ourRequire;
  }

  // ---- the end of a cell

  // The running cell, until it has ended.
  let current;

  function finish(cell, code) {
    if (cell.isDone) return;
    cell.isDone = true;
    if (current === cell) current = undefined;
    let exitCode = cell.exit ?? code;
    try {
      if (process.exitCode !== undefined) {
        if (exitCode === 0) exitCode = toNumber(process.exitCode) & 255;
        process.exitCode = undefined;
      }
    } catch {
      // That is the cell's own affair.
    }
    ending = `d{"cell":${cell.number},"code":${exitCode}}\n`;
    if (!isGuarded) tellEnding();
  }

  // An end is reported only outside of the guard: a later interrupt must not hit the next cell.
  let isGuarded = false;
  let ending;
  function tellEnding() {
    const line = ending;
    ending = undefined;
    if (line) tell(line);
  }

  function showValue(cell, value, isShown) {
    if (cell.isDone) return;
    if (isShown && value !== undefined && cell.exit === undefined) need('show').result(value);
  }

  // Node reports unhandled rejections after the callbacks have run; they belong to this cell.
  function finishSoon(cell) {
    setImmediate(() => finish(cell, 0));
  }

  function hintAtPackage(error) {
    try {
      const message = need('errors').missingPackage(error);
      if (message) record({ __proto__: null, type: 'warning', message });
    } catch {
      // Only a hint.
    }
  }

  function fail(cell, error, code = 1) {
    if (cell.isDone) return;
    if (cell.exit === undefined || !isExit(error)) {
      let described;
      try {
        described = need('errors').describe(error);
      } catch {
        described = { __proto__: null, name: 'Error', value: 'an error that cannot be shown', traceback: '' };
      }
      hintAtPackage(error);
      record({ __proto__: null, type: 'error', ...described });
      cell.exit = undefined;
    }
    finish(cell, code);
  }

  function interrupt(cell) {
    if (cell.isDone) return;
    const value = 'the cell was interrupted';
    record({ __proto__: null, type: 'error', name: 'Interrupted', value, traceback: `Interrupted: ${value}` });
    cell.exit = undefined;
    finish(cell, INTERRUPTED);
  }

  class ExitOfCell extends Error {
    #isExit = true;
    static is(error) {
      return typeof error === 'object' && error !== null && #isExit in error;
    }
  }
  const isExit = ExitOfCell.is;

  process.exit = function exit(code) {
    const wanted = code === undefined ? (process.exitCode ?? 0) : code;
    const cell = current;
    if (cell) {
      cell.exit ??= toNumber(wanted) & 255;
      // Its own code is not on the stack: nothing will pass our exception to us.
      if (cell.isPending) finish(cell, cell.exit);
    }
    throw new ExitOfCell(`process.exit(${wanted}) ended the cell`);
  };

  // ---- what happens outside of a cell's own code

  function late(error) {
    if (isExit(error)) return;
    if (process.listenerCount('uncaughtException') > 0) {
      process.emit('uncaughtException', error, 'uncaughtException');
      return;
    }
    const { name, value, traceback } = need('errors').describe(error);
    writeText(2, `Uncaught ${traceback}\n`);
    if (!current) return;
    const message = `An exception outside of the cell's own code was not caught: ${name}: ${value}`;
    record({ __proto__: null, type: 'warning', message });
  }

  process.setUncaughtExceptionCaptureCallback((error) => {
    try {
      late(error);
    } catch {
      writeText(2, 'Uncaught exception that cannot be shown\n');
    }
  });

  const signals = need('signals');

  // ---- running

  // `breakOnSigint` stops a loop that never yields, but only inside a script; so everything that may run a cell's code
  // runs beneath this one.
  let work;
  defineProperty(globals, '__warren', {
    value: () => {
      const now = work;
      work = undefined;
      now?.();
    },
    writable: false,
    configurable: false,
    enumerable: false,
  });
  const trampoline = new vm.Script('__warren()', { filename: 'warren:run' });
  const { runInThisContext } = trampoline;
  const plainly = { __proto__: null, displayErrors: false };
  const guarded = { __proto__: null, breakOnSigint: true, displayErrors: false };

  // Whether it was interrupted.
  function guard(doThis) {
    work = doThis;
    isGuarded = true;
    try {
      apply(runInThisContext, trampoline, [guarded]);
      return false;
    } catch (error) {
      if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') return true;
      if (work === undefined) throw error;
    } finally {
      isGuarded = false;
      tellEnding();
    }
    // It could not even begin. Better without the guard than not at all.
    work = undefined;
    doThis();
    return false;
  }

  const preparations = [restoreStreams, restoreGlobals, followDirectory, signals.prepare];
  // Undoes whatever earlier cells did to it.
  function prepare() {
    for (let i = 0; i < preparations.length; i++) {
      try {
        preparations[i]();
      } catch {
        // Then the cell has to do without.
      }
    }
  }

  function runCell(number, code, isTypeScript) {
    const cell = { __proto__: null, number, exit: undefined, isDone: false, isFollowed: false, isPending: false };
    current = cell;
    prepare();
    try {
      if (guard(() => begin(cell, code, isTypeScript))) {
        interrupt(cell);
        // Possibly in the middle of a callback. Node only discards those when an exception comes through.
        throw new ExitOfCell('interrupted');
      }
    } catch (error) {
      // Every cell ends, whatever happened to Node's own functions.
      if (cell.isFollowed || cell.isDone) throw error;
      fail(cell, error);
    } finally {
      // From here on only the event loop can end it.
      cell.isPending = true;
      if (!cell.isDone) signals.lookOut(() => !cell.isDone, () => interrupt(cell));
    }
  }

  function begin(cell, code, isTypeScript) {
    let isAsync;
    try {
      const program = compile(cell.number, code, isTypeScript);
      const value = program.run();
      if (program.isAsync) follow(cell, value);
      else showValue(cell, value, program.isShown);
      isAsync = program.isAsync;
      cell.isFollowed = true;
    } catch (error) {
      return fail(cell, error);
    }
    // Here rather than after this call, so that a loop after an `await` can be interrupted too. An exception in a
    // callback of the next tick has to reach Node, which would otherwise lose count of its callbacks.
    try {
      runMicrotasks();
    } catch (error) {
      if (!isAsync) finishSoon(cell);
      throw error;
    }
    if (!isAsync) finish(cell, 0);
  }

  async function follow(cell, promise) {
    let settle;
    try {
      const outcome = await promise;
      settle = () => {
        showValue(cell, outcome?.[0], outcome !== undefined);
        finishSoon(cell);
      };
    } catch (error) {
      settle = () => fail(cell, error);
    }
    // Showing a value may run its own code.
    if (!cell.isPending) settle();
    else if (!cell.isDone && guard(settle)) interrupt(cell);
  }

  // Code without any of these is a script as it stands; all other code goes through a parser, which costs a start.
  const needsParser = /\b(?:let|const|class|import|export|await|for|while|do|if|switch|try|with)\b|^\s*\{/;
  defineProperty(needsParser, 'exec', { value: RegExp.prototype.exec });
  const testPattern = RegExp.prototype.test;

  function compile(number, code, isTypeScript) {
    const filename = `<cell ${number}>`;
    if (isTypeScript) code = need('typescript').strip(code, filename);
    if (!apply(testPattern, needsParser, [code])) {
      const script = newScript(code, { filename });
      return { __proto__: null, isAsync: false, isShown: true, run: () => run(script) };
    }
    const program = need('transform').transform(code, filename, isTypeScript);
    if (program.shifts.length > 0) need('errors').remember(number, program.shifts);
    const script = newScript(program.code, { filename, columnOffset: program.columnOffset });
    for (let i = 0; i < program.declared.length; i++) makeAssignable(program.declared[i]);
    return { __proto__: null, isAsync: program.isAsync, isShown: program.isShown, run: () => run(script) };
  }

  // The engine keeps compiled code forever, in case it comes again. There is no end of cells.
  const { Script } = vm;
  let nScripts = 0;
  let setFlags;
  function newScript(code, options) {
    if (++nScripts < FEW_SCRIPTS) return new Script(code, options);
    setFlags ??= require('v8').setFlagsFromString;
    setFlags('--no-compilation-cache');
    try {
      return new Script(code, options);
    } finally {
      setFlags('--compilation-cache');
    }
  }

  function run(script) {
    return apply(runInThisContext, script, [plainly]);
  }

  // `const crypto = require('crypto')` must win over a read-only global.
  function makeAssignable(name) {
    const now = getOwnPropertyDescriptor(globals, name);
    if (!now?.configurable || ('value' in now && now.writable)) return;
    defineProperty(globals, name, { value: undefined, writable: true, configurable: true, enumerable: true });
  }

  // ---- reading the channel

  const header = newBuffer(5);
  let nHeader = 0;
  let payload;
  let nPayload = 0;

  function take(n, bytes) {
    let thrown;
    for (let at = 0; at < n; ) {
      if (!payload) {
        const more = apply(copy, bytes, [header, nHeader, at, n]);
        nHeader += more;
        at += more;
        if (nHeader < header.length) break;
        payload = newBuffer(apply(readUInt32LE, header, [0]) - 1);
        nPayload = 0;
      }
      const more = apply(copy, bytes, [payload, nPayload, at, n]);
      nPayload += more;
      at += more;
      if (nPayload < payload.length) break;
      const frame = payload;
      payload = undefined;
      nHeader = 0;
      try {
        onFrame(header[4], frame);
      } catch (error) {
        thrown = { __proto__: null, error };
      }
    }
    if (thrown) throw thrown.error;
    return true;
  }

  const CELL = 'C'.charCodeAt(0);
  const TYPESCRIPT_CELL = 'T'.charCodeAt(0);
  const FORK = 'F'.charCodeAt(0);

  function onFrame(type, frame) {
    if (type === FORK) {
      const reason = 'An interpreter of JavaScript cannot be forked; only Python can.';
      return tell(`f${stringify({ __proto__: null, ok: false, reasons: [reason] })}\n`);
    }
    if (type !== CELL && type !== TYPESCRIPT_CELL) return;
    const number = toNumber(apply(readBigUInt64LE, frame, [0]));
    runCell(number, apply(utf8Slice, frame, [8, frame.length]), type === TYPESCRIPT_CELL);
  }

  const socket = new Socket({
    fd: CHANNEL,
    readable: true,
    writable: false,
    onread: { buffer: Buffer.allocUnsafeSlow(READ_BYTES), callback: take },
  });
  const leave = () => apply(reallyExit, process, [0]);
  socket.on('end', leave);
  socket.on('error', leave);
  socket.on('close', leave);
  tell('i\n');
});
