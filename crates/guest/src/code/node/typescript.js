// Compiles TypeScript to JavaScript with whatever exists: Node itself, or an installed package.
'use strict';
(function typescript(driver) {
  const { require, need } = driver;
  const { Error, Number, Object, String, SyntaxError, process } = driver;
  const path = require('path');
  const module = require('module');

  const MISSING =
    'TypeScript needs Node.js 22.13 or newer, or one of the packages esbuild, typescript@5, sucrase, @swc/core. ' +
    'Install the npm package esbuild, or run the code as javascript. ' +
    'The package typescript has no compiler that can be called since version 7.';

  // A module without `needed` is an unusable version; another one may be found further on.
  function find(name, needed) {
    const here = module.createRequire(`${process.cwd()}/`);
    const global = [
      path.join(process.execPath, '../../lib/node_modules'),
      '/usr/local/lib/node_modules',
      '/usr/lib/node_modules',
      '/usr/share/nodejs',
    ];
    if (process.env.npm_config_prefix) global.unshift(path.join(process.env.npm_config_prefix, 'lib/node_modules'));
    for (const options of [undefined, { paths: global }, { paths: global.map((place) => path.dirname(place)) }]) {
      try {
        const loaded = here(options ? here.resolve(name, options) : name);
        if (typeof loaded?.[needed] === 'function') return loaded;
      } catch (error) {
        if (error?.code !== 'MODULE_NOT_FOUND') throw error;
      }
    }
    return undefined;
  }

  function quietly(doThis) {
    const { emitWarning } = process;
    process.emitWarning = () => {};
    try {
      return doThis();
    } finally {
      process.emitWarning = emitWarning;
    }
  }

  function byNode(code, filename) {
    try {
      return quietly(() => module.stripTypeScriptTypes(code));
    } catch (error) {
      if (error?.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw told(error, code, filename);
      return rewritten(code, filename, error);
    }
  }

  // Enums and the like have to be rewritten, which moves lines, and which not every Node can do.
  function rewritten(code, filename, refusal) {
    try {
      return quietly(() => module.stripTypeScriptTypes(code, { mode: 'transform' }));
    } catch (error) {
      if (error?.code !== 'ERR_INVALID_ARG_VALUE') throw told(error, code, filename);
    }
    const byPackage = findPackage();
    if (!byPackage) throw told(refusal, code, filename);
    return byPackage(code, filename);
  }

  function told(error, code, filename) {
    const message = String(error?.message ?? error).split('\n').map((line) => line.trim()).filter(Boolean).at(-1);
    const { startLine: line, startColumn: column } = error ?? {};
    const loc = typeof line === 'number' ? { line, column } : error?.loc;
    return need('transform').wrongSyntax(code, filename, { message, loc });
  }

  const packages = {
    typescript: (ts, code, filename) => {
      const compilerOptions = {
        target: ts.ScriptTarget.ESNext,
        module: ts.ModuleKind.ESNext,
        ...(Number.parseInt(ts.version, 10) >= 5
          ? { verbatimModuleSyntax: true }
          : { importsNotUsedAsValues: 1, preserveValueImports: true, isolatedModules: true }),
      };
      const { outputText, diagnostics = [] } = ts.transpileModule(code, { compilerOptions, reportDiagnostics: true });
      const wrong = diagnostics.find(({ category, start }) => category === 1 && start !== undefined);
      if (wrong) {
        const before = code.slice(0, wrong.start).split('\n');
        const message = ts.flattenDiagnosticMessageText(wrong.messageText, ' ');
        const loc = { line: before.length, column: before.at(-1).length };
        throw need('transform').wrongSyntax(code, filename, { message, loc });
      }
      return outputText;
    },
    sucrase: (sucrase, code) =>
      sucrase.transform(code, { transforms: ['typescript'], disableESTransforms: true, keepUnusedImports: true }).code,
    esbuild: (esbuild, code) => {
      const tsconfigRaw = { compilerOptions: { verbatimModuleSyntax: true, preserveValueImports: true } };
      return esbuild.transformSync(code, { loader: 'ts', target: 'esnext', tsconfigRaw, logLevel: 'silent' }).code;
    },
    '@swc/core': (swc, code) =>
      swc.transformSync(code, {
        jsc: { parser: { syntax: 'typescript' }, target: 'esnext', transform: { verbatimModuleSyntax: true } },
        isModule: true,
      }).code,
  };

  const needed = { typescript: 'transpileModule', sucrase: 'transform', esbuild: 'transformSync', '@swc/core': 'transformSync' };

  let found;
  function findPackage() {
    for (const name of Object.keys(packages)) {
      if (found) break;
      const loaded = find(name, needed[name]);
      if (loaded) found = (code, filename) => packages[name](loaded, code, filename);
    }
    return found;
  }

  function strip(code, filename) {
    if (module.stripTypeScriptTypes) return byNode(code, filename);
    const byPackage = findPackage();
    if (!byPackage) {
      const missing = new Error(MISSING);
      missing.name = 'TypeScriptMissing';
      missing.stack = `TypeScriptMissing: ${MISSING}`;
      throw missing;
    }
    try {
      return byPackage(code, filename);
    } catch (error) {
      throw error instanceof SyntaxError && error.stack?.startsWith(filename) ? error : told(error, code, filename);
    }
  }

  return { strip };
});
