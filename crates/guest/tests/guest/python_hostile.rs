//! Code that breaks what the driver relies on: the next cell runs, or the interpreter's end is reported.

use guest_protocol::{Rlimit, StateLoss};

use crate::{
    python_notebook::Notebook,
    support::{exited, is_alive, lost},
};

/// After each of these the next cell works normally.
const ENDURED: &[&str] = &[
    "import sys\nsys.stdout.close()\nsys.stderr.close()",
    "import os\nfor fd in range(3): os.close(fd)",
    "import os\ntry: os.close(3)\nexcept OSError: pass",
    "import os\nos.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
    "import sys\nsys.stdout = sys.stderr = sys.stdin = None",
    "import sys\nsys.stdout = sys.stderr = object()",
    "import sys\nsys.stdout.detach()",
    "import sys\nsys.stdout.write = sys.stdout.flush = None",
    "import builtins\nvars(builtins).clear()",
    "import sys\nfor name in list(vars(sys)):\n    if name != '__name__': delattr(sys, name)",
    "del __builtins__",
    "__builtins__ = {}",
    "import sys\nsys.modules['__main__'] = None",
    "import sys\nsys.modules.clear()",
    "import sys\nsys.modules = {}",
    "import sys\nsys.meta_path.clear()",
    "import os, posix, json\nos.write = os.read = json.dumps = json.loads = None",
    "import traceback, linecache\ntraceback.TracebackException = None\nlinecache.cache = None\n1 / 0",
    "import sys\ndef trace(*args): raise OSError('traced')\nsys.settrace(trace)\nsys.setprofile(trace)",
    "import sys\ntry: sys.setrecursionlimit(20)\nexcept RecursionError: pass",
    "display = input = print = repr = None",
    "import gc\ngc.disable()",
    "import atexit\natexit.register(lambda: 1 / 0)",
    "class Odd:\n    def __del__(self): raise SystemExit(5)\nx = Odd()\ndel x",
    "class Odd:\n    def __repr__(self): raise SystemExit(5)\nOdd()",
    "class Odd(Exception):\n    __class__ = property(lambda self: 1 / 0)\nraise Odd",
    "class Odd(Exception):\n    def __getattribute__(self, name): raise OSError(name)\nraise Odd",
    "class Odd(KeyboardInterrupt):\n    def __str__(self): raise Odd\nraise Odd",
    "class Odd(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise Odd",
    "import sys\nsys.excepthook = sys.displayhook = sys.unraisablehook = None\n1 / 0",
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)",
    "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()",
    "import warnings\nwarnings.simplefilter('error')",
    "import os\nif os.fork() == 0: display(1); raise ValueError('of a child')\nos.wait()",
    "import os, _thread\npid = os.fork()\nif pid == 0: raise SystemExit(4)\nassert os.waitpid(pid, 0)[1] == 4 << 8",
    "'(' * 100_000",
    "eval('(' * 100_000)",
    "x = 10 ** 5000",
];

#[test]
fn the_next_cell_works_whatever_a_cell_has_done() {
    for code in ENDURED {
        let python = Notebook::new();
        let ran = python.run(&format!("kept = 'kept'\n{code}"));
        assert!(ran.is_kept(), "{code}: {ran:?}");
        let ran = python.run("import sys\nsys.stdout.write('out')\nsys.stderr.write('err')\nkept");
        let shown = ran.result().map(|data| data["text/plain"].clone());
        let seen = (ran.stdout.as_str(), ran.stderr.as_str(), shown);
        // Errors of threads and finalizers may appear with it.
        assert!(
            seen.0 == "out" && seen.1.ends_with("err") && seen.2 == Some("'kept'".into()),
            "{code}: {ran:?}"
        );
        let ran = python.run("len([1, 2, 3]) / 0");
        assert_eq!(ran.error().map(|error| error.0).as_deref(), Some("ZeroDivisionError"), "{code}: {ran:?}");
    }
}

#[test]
fn memory_that_is_not_there_ends_the_cell() {
    let python = Notebook::new();
    let limit = Rlimit { resource: "as".to_owned(), soft: 1 << 29, hard: 1 << 29 };
    let mut start = python.start("kept = 5\nx = []\nwhile True: x.append(bytearray(1 << 26))");
    start.rlimits = vec![limit];
    let ran = python.guest.connect().run_cell(&start);
    assert_eq!(ran.error().map(|error| error.0).as_deref(), Some("MemoryError"), "{ran:?}");
    assert_eq!(python.value("del x\nkept"), "5");
}

#[test]
fn an_interpreter_that_ends_is_told_and_the_next_cell_gets_a_new_one() {
    let python = Notebook::new();
    for (code, loss) in [
        ("import os\nos._exit(9)", StateLoss::Exited),
        ("import os\nos.abort()", StateLoss::Crashed),
        ("import ctypes\nctypes.string_at(0)", StateLoss::Crashed),
        ("import os\nos.closerange(3, 10_000)", StateLoss::Exited),
        (
            "import os, socket\nfor fd in range(3, 300):\n    try: os.write(fd, b'nonsense\\n')\n    except OSError: pass",
            StateLoss::Garbled,
        ),
    ] {
        python.prints("kept = 5");
        let ran = python.run(code);
        assert_eq!(*ran.state(), lost(loss), "{code}: {ran:?}");
        assert_eq!(python.run("kept").error().map(|error| error.0).as_deref(), Some("NameError"), "{code}");
    }
    assert_eq!(python.run("5").report, exited(0));
}

/// Forks that print their pids, in the interpreter's group and in groups of their own, and then `end`.
fn leaves_forks(end: &str) -> String {
    format!(
        "
import os, time
read, write = os.pipe()
for n in range(20):
    if os.fork() == 0:
        if n % 2: os.setpgid(0, 0)
        os.write(1, b'%d\\n' % os.getpid())
        os.write(write, b'x')
        time.sleep(1000)
for n in range(20): os.read(read, 1)
{end}"
    )
}

#[test]
fn what_an_interpreter_forked_ends_with_it() {
    let python = Notebook::new();
    let garble = "for fd in range(3, 300):\n    try: os.write(fd, b'nonsense\\n')\n    except OSError: pass\ntime.sleep(1000)";
    for (end, loss) in [
        ("os._exit(9)", StateLoss::Exited),
        ("os.abort()", StateLoss::Crashed),
        // As the kernel does when memory runs out.
        ("os.kill(os.getpid(), 9)", StateLoss::Crashed),
        (garble, StateLoss::Garbled),
    ] {
        let ran = python.run(&leaves_forks(end));
        assert_eq!(*ran.state(), lost(loss), "{end}: {ran:?}");
        // The garbage is written to every stream the driver may use.
        let forks: Vec<i32> = ran.stdout.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(forks.len(), 20, "{end}");
        let alive: Vec<_> = forks.into_iter().filter(|pid| is_alive(*pid)).collect();
        assert!(alive.is_empty(), "{end}: {alive:?}");
        assert_eq!(python.run("5").report, exited(0));
    }
}

#[test]
fn children_do_not_get_the_channel() {
    let python = Notebook::new();
    let code = "import subprocess\nprint(subprocess.check_output(['ls', '-l', '/proc/self/fd'], text=True, close_fds=False))";
    let fds = python.prints(code);
    assert!(!fds.contains("socket:"), "{fds}");
    let code = "
import os
if os.fork() == 0:
    print(sum('socket:' in os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd)), flush=True)
    os._exit(0)
os.wait()[1]";
    assert_eq!(python.prints(code), "0\n");
}
