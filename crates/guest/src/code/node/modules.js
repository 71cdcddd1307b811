// `import` as a cell sees it: relative to the working directory.
'use strict';
(function modules(driver) {
  const { require } = driver;
  const { Array, String, SyntaxError, process } = driver;
  const path = require('path');
  const { Module, createRequire, isBuiltin, builtinModules } = require('module');
  const { pathToFileURL } = require('url');

  const isOfNode = isBuiltin ?? ((name) => name.startsWith('node:') || builtinModules.includes(name));
  const IMPORTER = 'module.exports = (name, options) => (options ? import(name, options) : import(name));';

  // Only a module may import, and its imports are resolved relative to it.
  let importer;
  function importFrom(directory) {
    if (importer?.directory === directory) return importer.load;
    const module = new Module(path.join(directory, '[cell]'));
    module.filename = module.id;
    module.paths = Module._nodeModulePaths(directory);
    module._compile(IMPORTER, module.filename);
    importer = { __proto__: null, directory, load: module.exports };
    return importer.load;
  }

  async function imported(name, options) {
    const directory = process.cwd();
    if (!isOfNode(name) && name.endsWith('.json') && !name.includes(':')) {
      return { __proto__: null, default: createRequire(`${directory}/`)(name) };
    }
    try {
      return await importFrom(directory)(name, options);
    } catch (error) {
      if (error?.code === 'ERR_UNSUPPORTED_DIR_IMPORT' || isMissing(error, name)) {
        return withEnding(name, directory, error);
      }
      throw error;
    }
  }

  const isMissing = (error, name) => error?.code === 'ERR_MODULE_NOT_FOUND' && String(error.message).includes(name);

  // Files may be named without their extension, as `require` allows.
  async function withEnding(name, directory, error) {
    let found;
    try {
      found = createRequire(`${directory}/`).resolve(name);
    } catch {
      throw plain(error, name, directory);
    }
    return importFrom(directory)(pathToFileURL(found).href);
  }

  // Node names one of our files as the importer.
  function plain(error, name, directory) {
    error.message = `Cannot find ${/^[./]/.test(name) ? 'module' : 'package'} '${name}' from ${directory}`;
    error.stack = `Error [${error.code}]: ${error.message}`;
    return error;
  }

  // `wanted`: the names of a static import. Their existence is checked as for a real one.
  async function load(name, wanted) {
    const names = Array.isArray(wanted) ? wanted : [];
    const module = await imported(String(name), Array.isArray(wanted) ? undefined : wanted);
    for (const each of names) {
      if (!(each in module)) {
        throw new SyntaxError(`The requested module '${name}' does not provide an export named '${each}'`);
      }
    }
    return module;
  }

  load.meta = {
    get url() {
      return pathToFileURL(`${process.cwd()}/[cell]`).href;
    },
    get dirname() {
      return process.cwd();
    },
    resolve: (name) => {
      const found = isOfNode(name) ? name : createRequire(`${process.cwd()}/`).resolve(name);
      return path.isAbsolute(found) ? pathToFileURL(found).href : found;
    },
  };
  return { load };
});
