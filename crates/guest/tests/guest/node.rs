//! Cells of JavaScript and TypeScript, through the guest.

use std::cell::Cell;

use guest_protocol::{ExecEvent, Request, Rich, SignalScope};
use serde_json::{Value, json};

use crate::support::{Ran, TestGuest, cell_in, command, exited, kept, write_file};

/// One context and its cells.
struct Session {
    guest: TestGuest,
    n_cells: Cell<u64>,
}

impl Session {
    fn start() -> Self {
        Self { guest: TestGuest::start(), n_cells: Cell::new(0) }
    }

    fn id(&self) -> String {
        self.n_cells.set(self.n_cells.get() + 1);
        format!("cell-{}", self.n_cells.get())
    }

    fn run(&self, code: &str) -> Ran {
        self.run_as("javascript", code)
    }

    fn run_as(&self, language: &str, code: &str) -> Ran {
        self.guest.connect().run_cell(&cell_in(&self.id(), "here", language, code))
    }

    /// The previous cell is closed by now; a guest keeps a limited number.
    fn forget_the_one_before(&self) {
        let mut host = self.guest.connect();
        host.attach(&format!("cell-{}", self.n_cells.get() - 1), 1);
        let (number, event) = host.event();
        assert_eq!(event, ExecEvent::Closed);
        host.ack(number);
    }

    /// Runs code that first prints `on`, and interrupts it then.
    fn interrupt(&self, code: &str) -> Ran {
        let id = self.id();
        let mut host = self.guest.connect();
        host.start(&cell_in(&id, "here", "javascript", code));
        host.attach(&id, 1);
        // Not acknowledged: it is read again below.
        while !matches!(host.event().1, ExecEvent::Stdout(_)) {}
        let signal = Request::ExecSignal { id: id.clone(), signal: libc::SIGINT, scope: SignalScope::Group };
        self.guest.connect().ask(&signal).unwrap();
        self.guest.connect().follow_cell(&id)
    }

    /// The text of the last expression's value.
    fn value(&self, code: &str) -> String {
        let ran = self.run(code);
        assert_eq!((ran.report, ran.stderr.as_str()), (exited(0), ""), "{code}: {:?}", ran.rich);
        match ran.rich.first() {
            Some(Rich::Result { data }) => data["text/plain"].as_str().unwrap().to_owned(),
            _ => String::new(),
        }
    }

    fn error(&self, code: &str) -> (String, String, String) {
        let ran = self.run(code);
        error_of(&ran, code)
    }
}

fn error_of(ran: &Ran, code: &str) -> (String, String, String) {
    assert_eq!(ran.report, exited(1), "{code}");
    match &ran.rich[..] {
        [Rich::Error { name, value, traceback }, state] if *state == kept() => {
            (name.clone(), value.clone(), traceback.clone())
        }
        other => panic!("{code}: {other:?}"),
    }
}

#[test]
fn what_one_cell_declares_the_next_one_has_and_may_declare_again() {
    let session = Session::start();
    let declarations = "const a = 1; let b = 2; class Box { a = a } function twice(x) { return 2 * x }";
    assert_eq!(session.value(declarations), "");
    assert_eq!(session.value("twice(new Box().a + b)"), "6");
    assert_eq!(session.value(declarations), "");
    // Redeclared with other keywords.
    assert_eq!(session.value("let a = 10; var b = 20; const Box = 3, twice = 4; a + b + Box + twice"), "37");
    assert_eq!(session.value("const {x, y: [z, ...rest], w = 9} = {x: 1, y: [2, 3]}"), "");
    assert_eq!(session.value("[x, z, rest, w]"), "[ 1, 2, [ 3 ], 9 ]");
    // Node's own globals can be redeclared.
    assert_eq!(
        session.value("const crypto = require('crypto'), fs = require('fs'); typeof crypto.createHash"),
        "'function'"
    );
    assert_eq!(session.value("{a: 1}"), "{ a: 1 }");
    assert_eq!(session.value("for (let i = 0; i < 3; i++) i"), "");
}

#[test]
fn awaits_stand_at_the_top_and_keep_what_they_declare() {
    let session = Session::start();
    let code = "const late = await new Promise(done => setTimeout(done, 1, 42))\n\
                for await (var last of [1, 2]) {}\nclass Late {}\nfunction twice() { return 2 * late }\nlate";
    assert_eq!(session.value(code), "42");
    assert_eq!(session.value("[twice(), last, new Late()]"), "[ 84, 2, Late {} ]");
    // A promise that is not awaited is shown as a promise.
    assert_eq!(session.value("await 1; Promise.resolve(2)"), "Promise { 2 }");
}

#[test]
fn modules_are_imported_in_every_form() {
    let session = Session::start();
    let own = session.guest.path("own.mjs");
    write_file(&own, 0o644, "export default 'mine'; export const other = 'theirs';");
    let cjs = session.guest.path("plain.cjs");
    write_file(&cjs, 0o644, "module.exports = { plain: true };");
    let code = format!(
        "import whole, {{\n  sep,\n  join as put\n}} from 'path';\nimport * as os from 'node:os'; import 'util';\n\
         import own, {{ other }} from '{own}';\n[whole.sep, sep, put('a', 'b'), typeof os.cpus, own, other]"
    );
    assert_eq!(session.value(&code), "[ '/', '/', 'a/b', 'function', 'mine', 'theirs' ]");
    assert_eq!(session.value("put('c', other)"), "'c/theirs'");
    assert_eq!(
        session.value(&format!("(await import('{own}')).default + require('{cjs}').plain")),
        "'minetrue'"
    );
    // Relative to the interpreter's current directory.
    let directory = own.trim_end_matches("/own.mjs");
    assert_eq!(session.value(&format!("process.chdir('{directory}')")), "");
    assert_eq!(
        session.value("import again from './own.mjs'; [again, require('./plain.cjs')]"),
        "[ 'mine', { plain: true } ]"
    );
    let (name, value, _) = session.error("import { nothing } from 'path'");
    assert_eq!((name.as_str(), value.contains("'nothing'")), ("SyntaxError", true), "{value}");
}

#[test]
fn a_package_that_is_missing_is_told_with_what_to_install() {
    let session = Session::start();
    for (code, package) in [
        ("import nothing from 'not-there-at-all'", Some("not-there-at-all")),
        ("require('@some/thing/part')", Some("@some/thing")),
        ("require('./here.js')", None),
    ] {
        let ran = session.run(code);
        let (_, value, _) = ran.error().unwrap();
        assert!(value.starts_with("Cannot find "), "{value}");
        let warnings = ran.warnings();
        assert_eq!(warnings.len(), usize::from(package.is_some()), "{warnings:?}");
        assert!(
            package.is_none_or(|name| warnings[0].contains(&format!("npm package {name}."))),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_rejection_that_nobody_awaits_is_told_in_its_cell() {
    let session = Session::start();
    for begin in ["", "await 1; ", "await new Promise(done => setTimeout(done, 1)); "] {
        let ran = session.run(&format!("{begin}async function q() {{ throw new Error('dropped') }}; q(); 3"));
        assert_eq!(ran.report, exited(0));
        assert!(ran.stderr.starts_with("Uncaught Error: dropped"), "{begin}: {ran:?}");
        assert!(matches!(ran.rich.first(), Some(Rich::Result { .. })), "{begin}: {ran:?}");
        assert_eq!(ran.warnings().len(), 1, "{begin}: {ran:?}");
    }
    // The same for an exception in a callback of the next tick.
    let ran = session.run("process.nextTick(() => { throw new Error('ticked') }); 3");
    assert_eq!((&ran.report, ran.warnings().len()), (&exited(0), 1), "{ran:?}");
    assert_eq!(session.value("await 4"), "4");
}

#[test]
fn values_come_as_text_and_data_and_pictures() {
    let session = Session::start();
    let ran = session.run("({ a: [1, 'é\u{1f600}'], b: null })");
    let Some(Rich::Result { data }) = ran.rich.first() else { panic!("{:?}", ran.rich) };
    assert_eq!(data["application/json"], json!({"a": [1, "é😀"], "b": null}));
    let ran = session.run("new Map([[1, 2]])");
    let Some(Rich::Result { data }) = ran.rich.first() else { panic!("{:?}", ran.rich) };
    assert_eq!((&data["text/plain"], data.len()), (&json!("Map(1) { 1 => 2 }"), 1));

    let ran = session.run(
        "console.log('before')\n\
         display({'image/png': Buffer.from([137, 80]), 'text/html': '<b>\\ud83d</b>'})\nconsole.log('after')",
    );
    assert_eq!(ran.stdout, "before\nafter\n");
    // Half a character cannot be encoded.
    let shown = [("image/png", "iVA="), ("text/html", "<b>\u{fffd}</b>")];
    let data = shown.map(|(mime, text)| (mime.to_owned(), Value::from(text))).into();
    assert_eq!(ran.rich, [Rich::Display { data }, kept()]);

    let ran = session.run("'x'.repeat(1e7)");
    let Some(Rich::Result { data }) = ran.rich.first() else { panic!("{:?}", ran.rich) };
    assert!(data["text/plain"].as_str().unwrap().len() < 100_000);
}

#[test]
fn errors_name_the_lines_of_the_caller() {
    let session = Session::start();
    let (name, value, traceback) = session.error("function fall() {\n  null.x\n}\nfall()");
    assert_eq!(
        (name.as_str(), value.as_str()),
        ("TypeError", "Cannot read properties of null (reading 'x')")
    );
    assert!(traceback.ends_with("    at fall (<cell 1>:2:8)\n    at <cell 1>:4:1"), "{traceback}");
    let (_, _, traceback) = session.error("const x = await 1;\nx.y.z");
    assert!(traceback.contains("at <cell 2>:2:5"), "{traceback}");
    let (name, _, traceback) = session.error("let fine = 1\nlet wrong = ;");
    assert_eq!(name, "SyntaxError");
    assert!(traceback.starts_with("<cell 3>:2\nlet wrong = ;\n            ^\n"), "{traceback}");
    let (name, _, traceback) = session.error("await 1;\nimport a from 'fs'; let = = 2");
    assert_eq!((name.as_str(), traceback.starts_with("<cell 4>:2\n")), ("SyntaxError", true), "{traceback}");
    assert_eq!(session.error("throw 1"), ("Uncaught".to_owned(), "1".to_owned(), "Uncaught 1".to_owned()));
    let (_, _, traceback) = session.error("throw new Error('outer', { cause: new TypeError('inner') })");
    assert!(traceback.contains("  [cause]: TypeError: inner\n"), "{traceback}");
    let (name, _, traceback) =
        session.error("await Promise.any([Promise.reject(new Error('first')), Promise.reject(2)])");
    assert_eq!(name, "AggregateError");
    assert!(
        traceback.contains("[errors 0]: Error: first") && traceback.contains("[errors 1]: 2"),
        "{traceback}"
    );
    let (_, value, _) = session.error("throw new Proxy({}, { get() { throw 1 } })");
    assert!(value.len() < 100, "{value}");
}

#[test]
fn leaving_ends_the_cell_and_not_the_interpreter() {
    let session = Session::start();
    session.run("let here = 'still'");
    for (code, expected) in [
        ("process.exit(3)", 3),
        ("try { process.exit(4) } catch {}; 5", 4),
        ("await new Promise(done => setTimeout(done, 1)); process.exit(5)", 5),
        ("setTimeout(() => process.exit(6), 1); await new Promise(() => {})", 6),
        ("process.exitCode = 7", 7),
        ("process.exit()", 0),
    ] {
        let ran = session.run(code);
        assert_eq!((ran.report.clone(), ran.is_kept()), (exited(expected), true), "{code}: {:?}", ran.rich);
    }
    assert_eq!(session.value("here"), "'still'");
}

#[test]
fn an_interrupt_ends_loops_and_waits_and_keeps_the_variables() {
    let session = Session::start();
    session.run("let here = 1");
    for code in [
        "console.log('on'); while (true) {}",
        "console.log('on'); try { for (;;); } catch {} finally { for (;;); }",
        "await null; console.log('on'); for (;;) here += 0",
        "process.nextTick(() => { console.log('on'); for (;;); }); await 1; await 2",
        "console.log('on'); await new Promise(() => {})",
        "console.log('on'); ({ [Symbol.for('nodejs.util.inspect.custom')]() { while (true); } })",
        // A listener of its own receives it as well.
        "process.on('SIGINT', () => {}); console.log('on'); await new Promise(() => {})",
        "console.log('on'); for (;;);",
    ] {
        let ran = session.interrupt(code);
        assert_eq!(ran.report, exited(130), "{code}");
        assert_eq!(ran.state(), &Rich::State { kept: true, lost: None, interrupted: true }, "{code}");
        assert_eq!(session.value("here"), "1", "{code}");
    }
}

#[test]
fn what_was_begun_goes_on_between_cells_and_its_failures_are_told() {
    let session = Session::start();
    session.run("let n = 0; const timer = setInterval(() => n++, 1)");
    assert_eq!(
        session.value("await new Promise(done => setTimeout(done, 20)); clearInterval(timer); n > 2"),
        "true"
    );
    let ran = session.run(
        "setTimeout(() => { throw new Error('too late') }, 1); Promise.reject(new Error('dropped'))\n\
         await new Promise(done => setTimeout(done, 30)); 'on'",
    );
    assert_eq!(ran.report, exited(0));
    assert!(
        ran.stderr.contains("Uncaught Error: too late\n    at ") && ran.stderr.contains("<cell "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("Uncaught Error: dropped"), "{}", ran.stderr);
    assert_eq!(ran.warnings().len(), 2, "{:?}", ran.rich);
    // A server started by one cell answers in another.
    session.run("const server = require('http').createServer((_, answer) => answer.end('served'))");
    session.run("await new Promise(done => server.listen(0, '127.0.0.1', done))");
    let get = "await new Promise(done => require('http').get(`http://127.0.0.1:${server.address().port}`, \
               answer => answer.on('data', text => done(String(text)))))";
    assert_eq!(session.value(get), "'served'");
}

#[test]
fn a_cell_that_takes_its_output_away_silences_only_itself() {
    let session = Session::start();
    for code in [
        "process.stdout.write = () => { throw 1 }; process.stderr.end(); process.stdout.destroy(); 0",
        "delete process.stdout; process.stderr = null; 0",
        "require('fs').closeSync(1); require('fs').closeSync(2); 0",
        "for (const fd of [0, 1, 2]) require('fs').closeSync(fd); require('fs').openSync('/dev/null', 'w')",
    ] {
        assert_eq!(session.value(code), "0");
        let ran = session.run("console.log('out'); console.error('err')");
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"), "{code}");
        let ran = session
            .run("require('child_process').execSync('echo child; echo oops >&2', { stdio: 'inherit' })");
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("child\n", "oops\n"), "{code}");
    }
    let ran = session.run("process.stdout.write('é'.repeat(300000)); display(1); console.log('end')");
    assert_eq!(ran.stdout.len(), 600_004);
}

#[test]
fn a_cell_that_breaks_the_language_breaks_no_later_cell() {
    let session = Session::start();
    for code in [
        "for (const name of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[name] } catch {} }",
        "JSON.stringify = () => 'x'; Object.prototype.toJSON = Array.prototype.toJSON = () => 'y'",
        "process.removeAllListeners(); process.exit = process.cwd = null",
        "Object.defineProperty(Promise.prototype, 'then', { value: null })",
    ] {
        let ran = session.run(code);
        assert_eq!((ran.report.clone(), ran.is_kept()), (exited(0), true), "{code}: {:?}", ran.rich);
        assert_eq!(session.run("console.log([1].length)").stdout, "1\n", "{code}");
    }
    assert_eq!(session.value("let after = await 5; after"), "5");
    let ran = session.interrupt("console.log('on'); while (true) {}");
    assert_eq!(ran.report, exited(130));
    session.run("Object.freeze(process)");
    assert_eq!(session.run("console.log('still')").stdout, "still\n");
}

#[test]
fn an_interpreter_that_lost_its_channel_is_replaced() {
    let session = Session::start();
    for code in ["require('fs').closeSync(3)", "require('fs').writeSync(3, 'garbage\\n')", "process.abort()"]
    {
        session.run("let here = 1");
        let ran = session.run(code);
        assert!(
            matches!(ran.state(), Rich::State { kept: false, lost: Some(_), .. }),
            "{code}: {:?}",
            ran.rich
        );
        let ran = session.run("typeof here");
        let Some(Rich::Result { data }) = ran.rich.iter().find(|rich| matches!(rich, Rich::Result { .. }))
        else {
            panic!("{code}: {:?}", ran.rich)
        };
        assert_eq!(data["text/plain"], "'undefined'", "{code}");
    }
}

#[test]
fn typescript_runs_beside_javascript_or_says_what_it_needs() {
    let session = Session::start();
    let code = "interface Box { side: number }\nconst box: Box = { side: 3 };\nbox.side as number";
    let ran = session.run_as("typescript", code);
    if let Some(Rich::Error { name, value, .. }) = ran.rich.first() {
        assert_eq!(name, "TypeScriptMissing");
        assert!(value.contains("Install the npm package esbuild"), "{value}");
    } else {
        assert_eq!(session.value("box"), "{ side: 3 }");
    }
    // With a package beside the code it runs everywhere; a package without anything to call (typescript 7) is skipped.
    let package = session.guest.path("node_modules/sucrase");
    let useless = session.guest.path("node_modules/typescript");
    let made = command("mkdir", &["mkdir", "-p", &package, &useless]);
    assert_eq!(session.guest.connect().run(&made).report, exited(0));
    let stand_in = "exports.transform = (code) => ({ code: code.replace(/: number/g, '') });";
    write_file(format!("{package}/index.js"), 0o644, stand_in);
    write_file(format!("{useless}/index.js"), 0o644, "exports.version = '7.0.2';");
    let directory = package.trim_end_matches("/node_modules/sucrase");
    session.run(&format!("process.chdir('{directory}')"));
    let ran = session.run_as("typescript", "const side: number = 4;\nside");
    let Some(Rich::Result { data }) = ran.rich.first() else { panic!("{:?}", ran.rich) };
    assert_eq!(data["text/plain"], "4");
}

#[test]
fn many_cells_leave_nothing_behind() {
    let session = Session::start();
    let measure = "for (let i = 0; i < 8; i++) gc(); process.memoryUsage().heapUsed";
    session.run("require('v8').setFlagsFromString('--expose-gc'); globalThis.gc = require('vm').runInNewContext('gc')");
    let run_some = |n_cells: u64| {
        for n in 0..n_cells {
            let code = format!("const big = Buffer.alloc(1000, {n}); let text = await 'x'; big.length + {n}");
            assert_eq!(session.run(&code).report, exited(0));
            session.forget_the_one_before();
        }
        session.value(measure).parse::<u64>().unwrap()
    };
    let before = run_some(600);
    let after = run_some(1500);
    // If the engine kept every script it ever saw, that would be 700 bytes, twice.
    assert!(after < before + 1500 * 300, "{before} bytes, then {after}");
}
