//! Python cells: any code, its value, its output and the state for the next cell.

use guest_protocol::{ExecEvent, Rich};

use crate::{
    python_notebook::{Notebook, text},
    support::{Host, exited, kept, n_cells},
};

#[test]
fn the_last_expression_is_the_value_of_a_cell() {
    let python = Notebook::new();
    assert_eq!(python.value("1 + 1"), "2");
    assert_eq!(python.value("x = 20\nx * 2 + 2"), "42");
    // Kept, as in the REPL.
    assert_eq!(python.value("_ / 2"), "21.0");
    for silent in
        ["x = 5", "None", "5;", "print(end='')", "", "# nothing", "def f(): return 5", "f() ; # hushed"]
    {
        assert_eq!(python.run(silent).rich, [kept()], "{silent}");
    }
    assert_eq!(python.value("'a;b' # c;"), "'a;b'");
    assert_eq!(python.value("[\n  1,\n\n  2,\n]"), "[1, 2]");
    assert_eq!(python.value("λ = 'ü\u{1f407}\\ud800'\nλ"), "'ü\u{1f407}\\ud800'");
    assert_eq!(python.value("if True:\n    y = 3\n\ny"), "3");
}

#[test]
fn a_cell_is_part_of_a_real_main_module() {
    let python = Notebook::new();
    let code = "
from dataclasses import dataclass
import pickle, typing, sys

@dataclass
class Point:
    x: 'int'

assert __name__ == '__main__' and sys.modules['__main__'].Point is Point
assert typing.get_type_hints(Point) == {'x': int}
pickle.loads(pickle.dumps(Point(3)))";
    assert_eq!(python.value(code), "Point(x=3)");
    // The driver leaves no name of its own.
    let names = "sorted(name for name in globals() if not name.startswith('__'))";
    assert_eq!(python.value(names), "['Point', 'dataclass', 'pickle', 'sys', 'typing']");
    python.prints("from __future__ import annotations");
    assert_eq!(python.value("def f(a: Unknown): pass\nf.__annotations__"), "{'a': 'Unknown'}");
}

#[test]
fn cells_await_in_one_loop() {
    let python = Notebook::new();
    let code = "
import asyncio
n = 0
async def count():
    global n
    while True:
        n += 1
        await asyncio.sleep(0)
counting = asyncio.create_task(count())";
    python.prints(code);
    // The task stands still between cells, and continues while another cell awaits.
    assert_eq!(python.value("before = n\nn"), python.value("n"));
    assert_eq!(python.value("while n < 10: await asyncio.sleep(0)\nn >= 10 > before"), "True");
    assert_eq!(python.value("counting.cancel()"), "True");
    let code = "[i async for i in (await asyncio.sleep(0, j) for j in range(3))]";
    assert_eq!(python.value(code), "[0, 1, 2]");
    // A program with an event loop of its own runs too.
    assert_eq!(python.value("asyncio.run(asyncio.sleep(0, 'ran'))"), "'ran'");
    assert_eq!(python.value("await asyncio.sleep(0, 'again')"), "'again'");
}

#[test]
fn the_sources_of_cells_are_there_to_be_read() {
    let python = Notebook::new();
    python.prints("def double(x):\n    return 2 * x");
    let code = "import inspect\nprint(inspect.getsource(double), end='')";
    assert_eq!(python.prints(code), "def double(x):\n    return 2 * x\n");
    for _ in 0..2 {
        let ran = python.run("import warnings\nwarnings.warn('look out')");
        assert!(ran.stderr.ends_with("UserWarning: look out\n  warnings.warn('look out')\n"), "{ran:?}");
    }
    let ran = python.run("import logging\ntry: 1 / 0\nexcept ZeroDivisionError: logging.exception('oh')");
    assert!(ran.stderr.starts_with("ERROR:root:oh\n") && ran.stderr.contains("try: 1 / 0"), "{ran:?}");
}

#[test]
fn output_streams_and_keeps_its_order_among_records() {
    let python = Notebook::new();
    let start = python
        .start("print('a', end='')\ndisplay(1)\nimport os\nos.system('echo b')\ndisplay(2)\nprint('c')");
    let mut host = python.guest.connect();
    host.start(&start);
    host.attach(&start.id, 1);
    let mut seen = vec![];
    loop {
        let (number, event) = host.event();
        host.ack(number);
        match event {
            ExecEvent::Stdout(bytes) => seen.push(String::from_utf8(bytes.to_vec()).unwrap()),
            ExecEvent::Rich(bytes) => {
                for line in bytes.split(|byte| *byte == b'\n') {
                    if let Ok(Rich::Display { data }) = serde_json::from_slice(line) {
                        seen.push(text(&data).to_owned());
                    }
                }
            }
            ExecEvent::Exited(report) => {
                assert_eq!(report, exited(0));
                break;
            }
            _ => {}
        }
    }
    // Output printed before a record comes before it; later output may appear before it too.
    let seen = seen.concat();
    let place = |what: &str| seen.find(what).unwrap_or_else(|| panic!("no {what} in {seen:?}"));
    assert!(place("a") < place("1") && place("b\n") < place("2") && place("b\n") < place("c\n"), "{seen:?}");
}

#[test]
fn what_would_ask_a_person_says_that_nobody_is_there() {
    let python = Notebook::new();
    let (name, value, _) = python.error("name = input('Your name? ')");
    assert_eq!(name, "EOFError");
    assert!(value.contains("nobody to answer") && value.contains("Your name?"), "{value}");
    let (name, value, _) = python.error("from getpass import getpass\ngetpass()");
    assert!(name == "EOFError" && value.contains("nobody to answer"), "{value}");
    assert_eq!(python.value("import sys\nsys.stdin.read()"), "''");
    let ran = python.run("breakpoint()\n5");
    assert_eq!(ran.report, exited(0));
    assert!(ran.warnings()[0].contains("nobody at a debugger"), "{ran:?}");
    assert_eq!(python.error("import pdb\npdb.set_trace()\nx = 1").0, "BdbQuit");
    assert_eq!(python.value("6"), "6");
}

#[test]
fn leaving_ends_the_cell_and_not_the_interpreter() {
    let python = Notebook::new();
    python.prints("import sys\nx = 1");
    for (code, status) in [
        ("sys.exit(3)", 3),
        ("sys.exit()", 0),
        ("exit()", 0),
        ("quit(7)", 7),
        ("raise SystemExit(-1)", 255),
        ("import asyncio\nawait asyncio.sleep(0)\nsys.exit(9)", 9),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--what'])", 2),
    ] {
        let ran = python.run(code);
        assert_eq!((ran.report, &ran.rich[..]), (exited(status), &[kept()][..]), "{code}");
    }
    let ran = python.run("sys.exit('it went wrong')");
    assert_eq!((ran.stderr.as_str(), ran.report), ("it went wrong\n", exited(1)));
    assert_eq!(python.value("x"), "1");
}

#[test]
fn many_cells_do_not_grow() {
    let python = Notebook::new();
    let memory = "import resource\nresource.getrusage(resource.RUSAGE_SELF).ru_maxrss";
    let mut before: Option<Host> = None;
    let mut run = |n: usize| {
        for _ in 0..n {
            let start = python.start("def f(x):\n    return [x, 'some text to keep']\nf(5)");
            let mut host = python.guest.connect();
            assert_eq!(host.run_cell(&start).report, exited(0));
            // The guest forgets the previous cell once it is closed and acknowledged.
            if let Some(mut closed) = before.replace(host) {
                let (number, event) = closed.event();
                assert_eq!(event, ExecEvent::Closed);
                closed.ack(number);
            }
        }
    };
    // The sources of a thousand cells are kept, so growth shows only after those.
    run(1_200);
    let early: u64 = python.value(memory).parse().unwrap();
    run(n_cells());
    let late: u64 = python.value(memory).parse().unwrap();
    assert!(late <= early + 1024, "{early} KiB became {late} KiB");
}
