// Turns a cell into a script: its top-level declarations become global and may be repeated, and `await` and `import`
// work there. Line numbers stay the same. Node's own parser (acorn) reads it.
'use strict';
(function transform(driver) {
  const { require } = driver;
  const { Array, Object, Reflect, Set, String, SyntaxError, process } = driver;
  const vm = require('vm');

  const IMPORT = '__import';

  function loadParser() {
    const source = process.binding('natives')['internal/deps/acorn/acorn/dist/acorn'];
    const module = { exports: {} };
    const wrapped = vm.compileFunction(source, ['exports', 'module', 'require'], { filename: 'warren:parser' });
    Reflect.apply(wrapped, module.exports, [module.exports, module, require]);
    return module.exports;
  }
  const { parse } = loadParser();
  const OPTIONS = {
    ecmaVersion: 'latest',
    sourceType: 'script',
    allowAwaitOutsideFunction: true,
    allowImportExportEverywhere: true,
    allowHashBang: true,
  };

  // The text of a cell with pieces replaced.
  class Edits {
    #edits = [];

    replace(start, end, text) {
      this.#edits.push({ start, end, text, order: this.#edits.length });
    }

    insert(at, text) {
      this.replace(at, at, text);
    }

    // The new text, and where its columns differ from the old: from `column` of `line` on they are `by` further.
    apply(code) {
      const sorted = this.#edits.sort((a, b) => a.start - b.start || a.order - b.order);
      const shifts = [];
      const pieces = [];
      let at = 0;
      let line = 1;
      let column = 1;
      let originalColumn = 1;
      const pass = (text, was) => {
        const n = text.split('\n').length - 1;
        line += n;
        column = n > 0 ? text.length - text.lastIndexOf('\n') : column + text.length;
        originalColumn = was.includes('\n') ? was.length - was.lastIndexOf('\n') : originalColumn + was.length;
        pieces.push(text);
      };
      for (const { start, end, text } of sorted) {
        const between = code.slice(at, start);
        pass(between, between);
        pass(text, code.slice(start, end));
        at = end;
        if (column !== originalColumn) shifts.push({ line, column, by: column - originalColumn });
      }
      pieces.push(code.slice(at));
      return { text: pieces.join(''), shifts };
    }
  }

  function isFunction(node) {
    return /^(?:Function(?:Declaration|Expression)|ArrowFunctionExpression)$/.test(node.type);
  }

  // Visits every node beneath `root`. `isInside`: beneath a function or a class body, where the top-level rules do not
  // apply.
  function walk(root, visit) {
    const waiting = [{ node: root, parent: null, isInside: false }];
    while (waiting.length > 0) {
      const { node, parent, isInside } = waiting.pop();
      visit(node, parent, isInside);
      const isBeneath = isInside || isFunction(node) || node.type === 'PropertyDefinition' || node.type === 'StaticBlock';
      for (const key of Object.keys(node)) {
        const value = node[key];
        for (const child of Array.isArray(value) ? value : [value]) {
          if (typeof child?.type === 'string') waiting.push({ node: child, parent: node, isInside: isBeneath });
        }
      }
    }
  }

  function survey(program) {
    const found = { isAsync: false, imports: [], metas: [], vars: [] };
    walk(program, (node, parent, isInside) => {
      if (node.type === 'ImportExpression') found.imports.push(node);
      if (node.type === 'MetaProperty' && node.meta.name === 'import') found.metas.push(node);
      if (isInside) return;
      if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await)) found.isAsync = true;
      if (node.type === 'ImportDeclaration' || (node.type.startsWith('Export') && node.source)) found.isAsync = true;
      if (node.type === 'VariableDeclaration' && node.kind === 'var') found.vars.push({ node, parent });
    });
    return found;
  }

  function namesIn(pattern, names) {
    if (!pattern) return;
    switch (pattern.type) {
      case 'Identifier':
        names.add(pattern.name);
        break;
      case 'ObjectPattern':
        for (const property of pattern.properties) namesIn(property.value ?? property.argument, names);
        break;
      case 'ArrayPattern':
        for (const element of pattern.elements) namesIn(element, names);
        break;
      case 'AssignmentPattern':
        namesIn(pattern.left, names);
        break;
      case 'RestElement':
        namesIn(pattern.argument, names);
        break;
    }
  }

  function newlines(text) {
    return '\n'.repeat(text.split('\n').length - 1);
  }

  // An `export` itself is useless in a cell; its declarations are not.
  function unwrapExports(code, program, edits) {
    program.body = program.body.flatMap((node) => {
      const inner = node.declaration;
      if (!node.type.startsWith('Export') || (!inner && node.source)) return [node];
      if (!inner) {
        edits.replace(node.start, node.end, `;${newlines(code.slice(node.start, node.end))}`);
        return [];
      }
      const isNamed = inner.id != null || inner.type === 'VariableDeclaration';
      if (isNamed) {
        edits.replace(node.start, inner.start, newlines(code.slice(node.start, inner.start)));
        return [inner];
      }
      edits.replace(node.start, inner.start, `${newlines(code.slice(node.start, inner.start))}(`);
      edits.insert(inner.end, ')');
      return [{ type: 'ExpressionStatement', start: node.start, end: node.end, isWrapped: true }];
    });
  }

  function importText(node, isLenient) {
    const from = node.source?.raw;
    const specifiers = node.specifiers ?? [];
    const whole = specifiers.find((specifier) => specifier.type === 'ImportNamespaceSpecifier');
    const nameOf = (imported) => imported.raw ?? imported.name;
    const parts = specifiers
      .filter((specifier) => specifier !== whole)
      .map((specifier) => {
        const key = specifier.type === 'ImportDefaultSpecifier' ? 'default' : nameOf(specifier.imported);
        return { key, local: specifier.local.name };
      });
    const wanted = parts.map(({ key }) => (/^['"]/.test(key) ? key : `"${key}"`));
    const call = `await ${IMPORT}(${from}${isLenient ? '' : `,[${wanted}]`})`;
    const pattern = `{${parts.map(({ key, local }) => `${key}:${local}`)}}`;
    if (whole && parts.length > 0) return `void (${whole.local.name}=${call},${pattern}=${whole.local.name});`;
    if (whole) return `void (${whole.local.name}=${call});`;
    return parts.length > 0 ? `void (${pattern}=${call});` : `${call};`;
  }

  // Declarations become assignments to names that are declared around them.
  function assign(node, edits, start = node.start) {
    edits.replace(start, node.declarations[0].start, 'void (');
    for (const declarator of node.declarations) {
      if (!declarator.init && node.kind !== 'var') edits.insert(declarator.end, '=void 0');
    }
    edits.insert(node.declarations.at(-1).end, ');');
  }

  const isLoopHead = (node, parent) =>
    (parent?.type === 'ForStatement' && parent.init === node) ||
    ((parent?.type === 'ForOfStatement' || parent?.type === 'ForInStatement') && parent.left === node);

  function declare(node, state) {
    const { edits, names, isAsync, code, isLenient } = state;
    switch (node.type) {
      case 'VariableDeclaration': {
        if (node.kind !== 'var' && node.kind !== 'let' && node.kind !== 'const') return;
        for (const { id } of node.declarations) namesIn(id, names);
        if (node.kind === 'var') return;
        if (isAsync) return assign(node, edits);
        edits.replace(node.start, node.start + node.kind.length, 'var'.padEnd(node.kind.length));
        for (const declarator of node.declarations) if (!declarator.init) edits.insert(declarator.end, '=void 0');
        return;
      }
      case 'ClassDeclaration':
        names.add(node.id.name);
        edits.insert(node.start, `${isAsync ? '' : 'var '}${node.id.name}=`);
        edits.insert(node.end, ';');
        return;
      case 'FunctionDeclaration':
        state.functions.add(node.id.name);
        return;
      case 'ImportDeclaration':
        for (const { local } of node.specifiers) names.add(local.name);
      // falls through
      case 'ExportAllDeclaration':
      case 'ExportNamedDeclaration': {
        const text = importText(node, isLenient);
        edits.replace(node.start, node.end, text + newlines(code.slice(node.start, node.end)));
      }
    }
  }

  // A `var` in a block belongs to the top level as well.
  function hoistVars(found, state) {
    for (const { node, parent } of found.vars) {
      for (const { id } of node.declarations) namesIn(id, state.names);
      if (isLoopHead(node, parent)) state.edits.replace(node.start, node.declarations[0].start, '');
      else assign(node, state.edits);
    }
  }

  function returnLast(last, code, edits) {
    const end = code[last.end - 1] === ';' ? last.end - 1 : last.end;
    edits.insert(last.start, 'return [(');
    edits.insert(end, ')];');
  }

  // `{a: 1}` alone is meant as a value.
  function parseCell(code) {
    if (/^\s*\{/.test(code)) {
      try {
        const program = parse(`(${code}\n)`, OPTIONS);
        if (program.body.length === 1) return { program, code: `(${code}\n)`, columnOffset: -1 };
      } catch {
        // Then it is a block.
      }
    }
    return { program: parse(code, OPTIONS), code, columnOffset: 0 };
  }

  function transform(original, filename, isLenient) {
    let cell;
    try {
      cell = parseCell(original);
    } catch (error) {
      return asItIs(original, filename, error);
    }
    const { program, code } = cell;
    const found = survey(program);
    const edits = new Edits();
    unwrapExports(code, program, edits);
    const state = { edits, names: new Set(), functions: new Set(), isAsync: found.isAsync, code, isLenient };
    for (const node of program.body) declare(node, state);
    if (found.isAsync) hoistVars(found, state);
    for (const node of found.imports) edits.replace(node.start, node.start + 'import'.length, IMPORT);
    for (const node of found.metas) edits.replace(node.start, node.end, `${IMPORT}.meta`);

    const last = program.body.filter((node) => node.type !== 'EmptyStatement').at(-1);
    const isShown = last?.type === 'ExpressionStatement';
    const declared = [...state.names, ...state.functions];
    if (!found.isAsync) {
      const { text, shifts } = edits.apply(code);
      return { code: text, shifts, columnOffset: cell.columnOffset, isAsync: false, isShown, declared };
    }
    if (isShown) returnLast(last, code, edits);
    const isStrict = program.body[0]?.directive === 'use strict';
    const variables = state.names.size > 0 ? `var ${[...state.names]};` : '';
    const functions = [...state.functions].map((name) => `this.${name}=${name};`).join('');
    const head = `${isStrict ? '"use strict";' : ''}${variables}(async()=>{${functions}`;
    const columnOffset = cell.columnOffset - head.length;
    const { text, shifts } = edits.apply(code);
    return { code: `${head}${text}\n})()`, shifts, columnOffset, isAsync: true, isShown, declared };
  }

  // The parser rejects it: either it is wrong, or newer than the parser. The engine knows, and reports what is wrong.
  function asItIs(code, filename, error) {
    try {
      new vm.Script(code, { filename });
    } catch (refusal) {
      if (!/outside a module|await is only valid/.test(refusal.message)) throw refusal;
      throw wrongSyntax(code, filename, error);
    }
    return { code, shifts: [], columnOffset: 0, isAsync: false, isShown: true, declared: [] };
  }

  // In the format of the engine's own errors.
  function wrongSyntax(code, filename, error) {
    const { line = 1, column = 0 } = error.loc ?? {};
    const message = String(error.message).replace(/ \(\d+:\d+\)$/, '');
    const wrong = new SyntaxError(message);
    const text = code.split('\n')[line - 1] ?? '';
    wrong.stack = `${filename}:${line}\n${text}\n${' '.repeat(column)}^\n\nSyntaxError: ${message}`;
    return wrong;
  }

  return { transform, wrongSyntax };
});
