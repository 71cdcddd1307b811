//! Readable exceptions: the user's own lines, the whole chain, nothing of the driver.

use crate::{python_notebook::Notebook, support::exited};

#[test]
fn a_traceback_shows_the_lines_of_the_cells() {
    let python = Notebook::new();
    python.prints("def divide(a, b):\n    return a / b");
    let (name, value, traceback) = python.error("divide(1, 0)");
    assert_eq!((name.as_str(), value.as_str()), ("ZeroDivisionError", "division by zero"));
    let lines: Vec<&str> =
        traceback.lines().filter(|line| !line.trim().trim_matches(['^', '~']).is_empty()).collect();
    let expected = [
        "Traceback (most recent call last):",
        "  File \"<cell 2>\", line 1, in <module>",
        "    divide(1, 0)",
        "  File \"<cell 1>\", line 2, in divide",
        "    return a / b",
        "ZeroDivisionError: division by zero",
    ];
    assert_eq!(lines, expected);
    // It is not printed as well.
    let ran = python.run("divide(1, 0)");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
}

#[test]
fn library_frames_follow_the_own_ones() {
    let python = Notebook::new();
    let (name, _, traceback) = python.error("import json\njson.loads('{')");
    assert_eq!(name, "JSONDecodeError");
    let files: Vec<&str> = traceback.lines().filter(|line| line.starts_with("  File")).collect();
    assert!(files[0].contains("<cell 1>") && files.last().unwrap().contains("decoder.py"), "{traceback}");
    let (_, _, traceback) = python.error("import asyncio\nasync def f(): raise OSError('x')\nawait f()");
    assert!(!traceback.contains("driver") && !traceback.contains("asyncio/"), "{traceback}");
}

#[test]
fn libraries_take_little_room_in_a_traceback() {
    let python = Notebook::new();
    // Six frames deep, with an earlier exception that stays inside the library.
    let library = "def fail(n):\n    if n: return fail(n - 1)\n    try: inner()\n    except KeyError as e: raise OSError('outer') from e\ndef inner(): raise KeyError('inner')\n";
    let code = format!(
        "import os, sys, tempfile\nplace = tempfile.mkdtemp() + '/site-packages'\nos.mkdir(place)\nsys.path.append(place)\n\
         print(library := {library:?}, file=open(place + '/deep.py', 'w'))"
    );
    python.prints(&code);
    let (_, _, traceback) = python.error("import deep\ndeep.fail(5)");
    let files: Vec<&str> =
        traceback.lines().filter(|line| line.starts_with("  File") || line.starts_with("  …")).collect();
    assert!(files[0].contains("<cell 2>") && files[1] == "  … 4 more of libraries", "{traceback}");
    assert!(files.len() == 4 && traceback.starts_with("KeyError: 'inner'\n\nThe above"), "{traceback}");
    // The user's own modules are not libraries.
    let code = "own = place.replace('site-packages', 'own')\nos.mkdir(own)\nsys.path.append(own)\nprint(library, file=open(own + '/mine.py', 'w'))\nimport mine\nmine.fail(5)";
    let (_, _, traceback) = python.error(code);
    assert!(traceback.contains("in inner") && !traceback.contains("of libraries"), "{traceback}");
}

#[test]
fn a_module_that_is_missing_is_told_with_its_package() {
    let python = Notebook::new();
    for (code, hint) in [
        ("import not_there_at_all.part", Some("pip package not_there_at_all.")),
        ("raise ModuleNotFoundError('x', name='sklearn')", Some("pip package scikit-learn.")),
        ("import fitz", Some("pip package pymupdf.")),
        ("import json.nothing", None),
        // Nobody's package.
        ("import utils.helpers", None),
        (
            "import os, tempfile\nplace = tempfile.TemporaryDirectory()\nos.makedirs(place.name + '/mine/deep')\n\
             os.chdir(place.name + '/mine/deep')\nimport mine",
            Some("sys.path.insert"),
        ),
    ] {
        let ran = python.run(code);
        assert_eq!(ran.error().unwrap().0, "ModuleNotFoundError");
        let warnings = ran.warnings();
        assert_eq!(warnings.len(), usize::from(hint.is_some()), "{warnings:?}");
        assert!(hint.is_none_or(|hint| warnings[0].contains(hint)), "{warnings:?}");
    }
}

#[test]
fn the_driver_is_not_named_in_what_goes_to_stderr() {
    let python = Notebook::new();
    let fork_twice = "import os\nif os.fork() == 0:\n    if os.fork() == 0: os._exit(0)\n    os.wait(); os._exit(0)\nos.wait()[1]";
    let ran = python.run(fork_twice);
    assert_eq!((&ran.report, ran.stderr.as_str()), (&exited(0), ""), "{ran:?}");
    python.run("async def late(): pass\nlate()");
    // The last value is dropped by the driver.
    let ran = python.run("1\n2");
    assert!(ran.stderr.starts_with("<cell 3>:2: RuntimeWarning: coroutine 'late'"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("driver"), "{}", ran.stderr);
}

#[test]
fn chains_and_groups_are_whole() {
    let python = Notebook::new();
    let (_, _, traceback) =
        python.error("try:\n    {}['k']\nexcept KeyError as error:\n    raise ValueError('bad') from error");
    assert!(traceback.contains("KeyError: 'k'") && traceback.contains("direct cause"), "{traceback}");
    assert!(!traceback.contains("driver"), "{traceback}");
    if python.value("import sys\nsys.version_info >= (3, 11)") == "True" {
        let (name, _, traceback) = python.error("raise ExceptionGroup('both', [OSError(1), KeyError(2)])");
        assert_eq!(name, "ExceptionGroup");
        assert!(traceback.contains("OSError: 1") && traceback.contains("KeyError: 2"), "{traceback}");
    }
}

#[test]
fn syntax_errors_point_at_their_place() {
    let python = Notebook::new();
    for (code, line) in
        [("x = 1\ny = = 2", "y = = 2"), ("return 5", "return 5"), ("x = '''", "x = '''"), ("if 1:\nx", "x")]
    {
        let (name, _, traceback) = python.error(code);
        assert!(name == "SyntaxError" || name == "IndentationError", "{name}");
        let lines: Vec<&str> = traceback.lines().collect();
        assert!(lines[0].starts_with("  File \"<cell "), "{traceback}");
        assert!(lines[1].trim() == line && lines[2].trim_start().starts_with('^'), "{traceback}");
    }
    let ran = python.run("!ls");
    assert_eq!(ran.error().unwrap().0, "SyntaxError");
    assert!(ran.warnings()[0].contains("IPython"), "{ran:?}");
}

#[test]
fn exceptions_that_cannot_be_shown_are_told_all_the_same() {
    let python = Notebook::new();
    let (name, value, traceback) =
        python.error("class Odd(Exception):\n    def __str__(self): raise OSError\nraise Odd()");
    assert_eq!(name, "Odd");
    assert!(
        value.contains("str() raised OSError") && traceback.contains("raise Odd()"),
        "{value}\n{traceback}"
    );
    let (name, value, _) = python.error("raise type('Ü', (Exception,), {})('half \\ud800')");
    assert_eq!((name.as_str(), value.as_str()), ("Ü", "half \\ud800"));
    let (_, value, traceback) = python.error("raise ValueError('x' * 1_000_000)");
    assert!(value.ends_with("… 990000 more characters") && traceback.len() < 50_000);
    let ran = python.run("class Hidden:\n    def __repr__(self): raise OSError('no')\nHidden()");
    let shown = ran.result().and_then(|data| data["text/plain"].as_str()).unwrap().to_owned();
    assert_eq!(shown, "<Hidden object whose repr raised OSError: no>");
}

#[test]
fn endless_recursion_is_told_in_a_few_lines() {
    let python = Notebook::new();
    let (name, _, traceback) = python.error("def f(n): return f(n + 1)\nf(0)");
    assert_eq!(name, "RecursionError");
    assert!(traceback.contains("more times") && traceback.lines().count() < 30, "{traceback}");
    let (_, _, traceback) = python.error("def g(n): return h(n)\ndef h(n):\n    return g(n)\ng(0)");
    assert!(traceback.contains("frames left out") && traceback.lines().count() < 150, "{traceback}");
    assert_eq!(python.run("x = bytearray(1 << 62)").error().unwrap().0, "MemoryError");
    assert_eq!(python.run("1").report, exited(0));
}
