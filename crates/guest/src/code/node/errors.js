// Exceptions as the caller sees them: without the lines of Node and of this driver.
'use strict';
(function errors(driver) {
  const { require } = driver;
  const { Array, Error, Map, Math, Number, Object, String, process } = driver;
  const { inspect, types } = require('util');
  const { existsSync } = require('fs');
  const { join } = require('path');
  const { createRequire } = require('module');

  const MAX_VALUE = 4 * 1024;
  const MAX_TRACEBACK = 16 * 1024;
  const MAX_DEPTH = 5;
  const MAX_TOGETHER = 10;
  const MAX_FRAMES = 50;
  const MAX_REMEMBERED = 500;

  const cap = (text, limit) => (text.length <= limit ? text : `${text.slice(0, limit)}…`);
  const isError = (value) => types.isNativeError(value) || value instanceof Error;
  const isFrame = (line) => /^\s+at /.test(line);
  const isOurs = (line) => /\(?(?:node:|warren:|internal\/|\[eval)|\bnew Script \(/.test(line);

  function text(of) {
    try {
      return String(of());
    } catch {
      return '';
    }
  }

  function show(value) {
    try {
      return inspect(value, { depth: 2 });
    } catch {
      return 'a value that cannot be shown';
    }
  }

  // Cells run in a transformed form; positions are reported as in the caller's text.
  const shiftsOf = new Map();

  function remember(cell, shifts) {
    shiftsOf.set(String(cell), shifts);
    if (shiftsOf.size > MAX_REMEMBERED) shiftsOf.delete(shiftsOf.keys().next().value);
  }

  function asWritten(stack) {
    return stack.replace(/<cell (\d+)>:(\d+):(\d+)/g, (place, cell, line, column) => {
      const isBefore = (shift) => shift.line === Number(line) && shift.column <= Number(column);
      const shift = shiftsOf.get(cell)?.filter(isBefore).at(-1);
      return shift ? `<cell ${cell}>:${line}:${Math.max(1, column - shift.by)}` : place;
    });
  }

  function trimmed(error, header) {
    const stack = text(() => error.stack);
    // The engine's message of a syntax error comes above its own frames.
    const lines = asWritten(stack || header).split('\n');
    const kept = lines.filter((line) => !isFrame(line) || !isOurs(line)).slice(0, MAX_FRAMES);
    while (kept.length > 0 && kept.at(-1).trim() === '') kept.pop();
    return kept.join('\n') || header;
  }

  const indent = (block) => block.replace(/\n/g, '\n  ');

  function traceback(error, header, depth) {
    let out = trimmed(error, header);
    if (depth >= MAX_DEPTH) return out;
    const inner = (label, value) => {
      const told = isError(value) ? traceback(value, headerOf(value), depth + 1) : show(value);
      out += `\n  [${label}]: ${indent(told)}`;
    };
    if (Object.prototype.hasOwnProperty.call(error, 'cause')) inner('cause', error.cause);
    if (Array.isArray(error.errors)) {
      error.errors.slice(0, MAX_TOGETHER).forEach((each, i) => inner(`errors ${i}`, each));
    }
    return out;
  }

  function headerOf(error) {
    const name = text(() => error.name) || 'Error';
    const message = text(() => error.message);
    return message ? `${name}: ${message}` : name;
  }

  function describe(error) {
    if (!isError(error)) {
      const value = cap(show(error), MAX_VALUE);
      return { __proto__: null, name: 'Uncaught', value, traceback: `Uncaught ${value}` };
    }
    const name = cap(text(() => error.name) || 'Error', 256);
    const value = cap(text(() => error.message), MAX_VALUE);
    return { __proto__: null, name, value, traceback: cap(traceback(error, headerOf(error), 0), MAX_TRACEBACK) };
  }

  // What to install if a package is missing; nothing if only a file of it is missing.
  function missingPackage(error) {
    if (error?.code !== 'MODULE_NOT_FOUND' && error?.code !== 'ERR_MODULE_NOT_FOUND') return undefined;
    const asked = /^Cannot find (?:module|package) '((?:@[\w.-]+\/)?[\w-][\w.-]*)[/']/.exec(text(() => error.message))?.[1];
    if (!asked) return undefined;
    const places = createRequire(`${process.cwd()}/`).resolve.paths(asked) ?? [];
    if (places.some((place) => existsSync(join(place, asked)))) return undefined;
    return `The package ${asked} is not installed; install the npm package ${asked}.`;
  }

  return { describe, missingPackage, remember };
});
