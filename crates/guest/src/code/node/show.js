// Values as the caller sees them.
'use strict';
(function show(driver) {
  const { require, record, write } = driver;
  const { Array, Buffer, JSON, Number, Object, Reflect, String, Symbol } = driver;
  const { inspect, types } = require('util');

  const MAX_TEXT = 64 * 1024;
  const MAX_JSON = 32 * 1024;
  const MAX_JSON_NODES = 2000;
  const MAX_JSON_DEPTH = 16;
  const OPTIONS = { depth: 4, maxArrayLength: 100, maxStringLength: 16 * 1024, breakLength: 100 };
  // Methods that JavaScript notebooks call on their values.
  const RICH = Symbol.for('Jupyter.display');
  const MIME = /^[a-z]+\/[\w.+-]+$/i;

  const cap = (text, limit) =>
    text.length <= limit ? text : `${text.slice(0, limit)}… ${text.length - limit} more characters`;

  function plainText(value) {
    return cap(inspect(value, OPTIONS), MAX_TEXT);
  }

  // Whether JSON shows everything of it, and that is little. Runs no code of the value.
  function isPlainData(value, budget, depth) {
    if (--budget.left < 0 || depth > MAX_JSON_DEPTH) return false;
    if (value === null || typeof value === 'string' || typeof value === 'boolean') return true;
    if (typeof value === 'number') return Number.isFinite(value);
    if (typeof value !== 'object' || types.isProxy(value)) return false;
    const prototype = Object.getPrototypeOf(value);
    const isList = Array.isArray(value);
    if (!isList && prototype !== Object.prototype && prototype !== null) return false;
    if (isList && value.length > MAX_JSON_NODES) return false;
    for (const key of Reflect.ownKeys(value)) {
      if (isList && key === 'length') continue;
      const property = Object.getOwnPropertyDescriptor(value, key);
      if (typeof key === 'symbol' || key === 'toJSON') return false;
      if (!property.enumerable || property.get || property.set) return false;
      if (!isPlainData(property.value, budget, depth + 1)) return false;
    }
    return true;
  }

  function bundle(value) {
    const data = { __proto__: null, 'text/plain': plainText(value) };
    if (typeof value !== 'object' || value === null || types.isProxy(value)) return data;
    if (typeof value[RICH] === 'function') return { __proto__: null, ...data, ...given(value[RICH]()) };
    if (isPlainData(value, { left: MAX_JSON_NODES }, 0)) {
      const json = JSON.stringify(value);
      if (json.length <= MAX_JSON) data['application/json'] = value;
    }
    return data;
  }

  const isBytes = (value) => types.isUint8Array(value) || types.isAnyArrayBuffer(value);

  function form(mime, value) {
    if (/^text\//.test(mime)) return isBytes(value) ? Buffer.from(value).toString('utf8') : String(value);
    if (/^application\/(?:.*\+)?json$/.test(mime)) return value;
    if (isBytes(value)) return Buffer.from(value).toString('base64');
    const text = String(value);
    if (/^\s*</.test(text)) return Buffer.from(text, 'utf8').toString('base64');
    return text.replace(/^data:[^,]*,/, '').replace(/\s+/g, '');
  }

  function given(forms) {
    const data = { __proto__: null };
    for (const mime of Object.keys(forms)) {
      if (MIME.test(mime) && forms[mime] !== undefined) data[mime.toLowerCase()] = form(mime, forms[mime]);
    }
    return data;
  }

  function isBundle(value) {
    if (typeof value !== 'object' || value === null || types.isProxy(value)) return false;
    const keys = Object.keys(value);
    return keys.length > 0 && keys.every((key) => MIME.test(key));
  }

  function result(value) {
    record({ __proto__: null, type: 'result', data: bundle(value) });
  }

  function display(values, isRunning) {
    for (const value of values) {
      const data = isBundle(value) ? given(value) : bundle(value);
      if (isRunning) record({ __proto__: null, type: 'display', data });
      // There is no cell that could show it.
      else write(1, `${typeof data['text/plain'] === 'string' ? data['text/plain'] : Object.keys(data).join(', ')}\n`);
    }
  }

  return { result, display };
});
