//! State that a fork must not share, row by row of the table in `docs/code.md`.

use crate::python_notebook::Notebook;

/// Expects a refusal that contains all of these words; the context continues.
fn refused(prepare: &str, words: &[&str]) -> Notebook {
    let python = Notebook::new();
    python.prints(prepare);
    let why = python.fork(false).expect_err(prepare);
    for word in words {
        assert!(why.contains(word), "{word:?} is not in {why:?}");
    }
    assert_eq!(python.value("'goes on'"), "'goes on'");
    python
}

/// Expects a fork with warnings that contain these words.
fn forked(prepare: &str, words: &[&str]) -> Notebook {
    let python = Notebook::new();
    python.prints(prepare);
    let warnings = python.fork(false).unwrap_or_else(|why| panic!("{prepare}: {why}"));
    assert_eq!(warnings.len(), words.len(), "{warnings:?}");
    for (warning, word) in warnings.iter().zip(words) {
        assert!(warning.contains(word), "{word:?} is not in {warning:?}");
    }
    python
}

impl Notebook {
    /// The results of both for the same code.
    fn both(&self, code: &str) -> (String, String) {
        (self.value(code), self.value_in("branch", code))
    }

    fn differ(&self, code: &str) {
        let (old, new) = self.both(code);
        assert_ne!(old, new, "{code}");
    }

    fn agree(&self, code: &str, value: &str) {
        assert_eq!(self.both(code), (value.to_owned(), value.to_owned()), "{code}");
    }
}

const THREAD: &str = "
import threading
end = threading.Event()
thread = threading.Thread(target=end.wait, name='worker', daemon=True)
thread.start()";

#[test]
fn threads() {
    let python = refused(THREAD, &["Threads are running", "worker"]);
    let warnings = python.fork(true).unwrap();
    assert!(warnings[0].contains("worker"), "{warnings:?}");
    assert_eq!(python.both("thread.is_alive()"), ("True".to_owned(), "False".to_owned()));
    assert_eq!(python.value("end.set(); thread.join()\n'joined'"), "'joined'");
    assert_eq!(python.fork_from("python", "later", false), Ok(vec![]));
}

#[test]
fn idle_threads_of_the_event_loop_are_ended() {
    let python = forked(
        "import asyncio, time\nawait asyncio.get_running_loop().run_in_executor(None, time.sleep, 0)",
        &[],
    );
    python.agree("await asyncio.get_running_loop().run_in_executor(None, lambda: 5)", "5");
}

#[test]
fn native_threads_that_come_back_by_themselves() {
    let python = forked("import numpy\na = numpy.ones((300, 300))\n(a @ a)[0, 0] == 300", &[]);
    python.agree("float((a @ a)[0, 0])", "300.0");
}

#[test]
fn openmp_that_is_only_loaded_is_not_blamed_for_the_threads_of_openblas() {
    // As bundled with Pillow and matplotlib, without a thread of its own.
    let code = "import ctypes, numpy\nopenmp = ctypes.CDLL('libgomp.so.1')\na = numpy.ones((500, 500))\n(a @ a)[0, 0] == 500";
    let python = forked(code, &[]);
    python.agree("float((a @ a)[0, 0])", "500.0");
    // Two more threads than OpenBLAS's own.
    let code = "body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)\nopenmp.GOMP_parallel(body, None, 3, 0)";
    python.prints(code);
    let why = python.fork_from("python", "refused", false).unwrap_err();
    assert!(why.contains("OpenMP"), "{why}");
}

#[test]
fn native_threads_that_do_not() {
    // The watchdog of faulthandler is a thread that Python does not know.
    let python = refused(
        "import faulthandler\nfaulthandler.dump_traceback_later(1000)",
        &["1 native threads are running"],
    );
    python.prints("faulthandler.cancel_dump_traceback_later()");
    assert_eq!(python.fork(false), Ok(vec![]));
}

#[test]
fn the_monitor_of_tqdm_is_ended() {
    // Like tqdm: a monitor thread that is restarted with the next bar.
    let code = "
import sys, threading, types
class Monitor(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.end = threading.Event()
        self.start()
    def run(self): self.end.wait()
    def exit(self):
        self.end.set()
        self.join()
class tqdm: monitor = Monitor()
sys.modules['tqdm'] = types.SimpleNamespace(tqdm=tqdm)";
    forked(code, &[]).agree("tqdm.monitor is None", "True");
}

#[test]
fn child_processes() {
    let python = refused(
        "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])",
        &["Child processes", "sleep, pid"],
    );
    python.prints("child.kill()");
    assert_eq!(python.value("child.wait()"), "-9");
    assert_eq!(python.fork(false), Ok(vec![]));
    // An ended child keeps its exit code in both.
    let code = "import os, subprocess\nchild = subprocess.Popen(['sh', '-c', 'exit 3'])\nx = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)";
    forked(code, &[]).agree("child.poll()", "3");
    refused(
        "import multiprocessing\npool = multiprocessing.get_context('fork').Pool(1)",
        &["Threads", "Child processes", "A pipe"],
    );
}

#[test]
fn sockets_pipes_and_terminals() {
    let code = "import socket\nserver = socket.socket()\nserver.bind(('127.0.0.1', 0))\nserver.listen()\nclient = socket.create_connection(server.getsockname())";
    refused(code, &["A socket is open", "A socket to 127.0.0.1:"]);
    refused("import os\nends = os.pipe()", &["A pipe is open (descriptor "]);
    refused("import os\nends = os.openpty()", &["The terminal /dev/pts/"]);
    refused("import select\npoll = select.epoll()", &["A poll object is open"]);
    forked("file = open('/dev/null')\nlisting = __import__('os').open('/', 0)", &[]);
}

#[test]
fn shared_memory() {
    refused("import mmap\nmemory = mmap.mmap(-1, 4096)", &["Memory is shared"]);
    let code = "import mmap\nmemory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)\nmemory[0] = 7";
    let python = forked(code, &[]);
    python.value("memory[0] = 8\n1");
    assert_eq!(python.value_in("branch", "memory[0]"), "7");
    let code = "import numpy, tempfile\nmapped = numpy.memmap(tempfile.mktemp(), mode='w+', shape=4096)";
    refused(code, &["Memory is shared"]);
    forked("import multiprocessing\nlock = multiprocessing.get_context('fork').Lock()", &["semaphore"]);
}

#[test]
fn files_that_are_read() {
    let python = Notebook::new();
    let path = python.guest.path("lines");
    std::fs::write(&path, "a\nb\nc\nd\n").unwrap();
    python.prints(&format!(
        "text, raw = open({path:?}), open({path:?}, 'rb', buffering=0)\nx = text.readline(), raw.read(2)"
    ));
    assert_eq!(python.fork(false), Ok(vec![]));
    // Each has its own position in the file.
    for rest in ["('b\\n', b'b\\n')", "('c\\n', b'c\\n')"] {
        python.agree("text.readline(), raw.read(2)", rest);
    }
}

#[test]
fn files_that_are_written() {
    let python = Notebook::new();
    let path = python.guest.path("log");
    python.prints(&format!("log = open({path:?}, 'a')\nn = log.write('before\\n')"));
    let warnings = python.fork(false).unwrap();
    assert!(warnings[0].contains("open for writing") && warnings[0].contains(&path), "{warnings:?}");
    python.agree("log.write('after\\n'), log.close()", "(6, None)");
    // The buffered text is written once.
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\nafter\nafter\n");
    let code = format!("import fcntl\nlocked = open({path:?})\nfcntl.flock(locked, fcntl.LOCK_EX)");
    forked(&code, &["The lock on "]);
}

#[test]
fn databases() {
    let python = Notebook::new();
    let path = python.guest.path("data");
    let code = format!(
        "import sqlite3\ndata = sqlite3.connect({path:?})\nx = data.execute('create table t (a)')\ndata.commit()"
    );
    let python = refused(&code, &["sqlite3", &path]);
    python.prints("data.close()");
    assert_eq!(python.fork(false), Ok(vec![]));
    // A database in memory is just memory.
    let code = "import sqlite3\ndata = sqlite3.connect(':memory:')\nx = data.execute('create table t (a)')";
    let python = forked(code, &[]);
    python.prints("x = data.execute('insert into t values (1)')");
    let count = "data.execute('select count(*) from t').fetchall()";
    assert_eq!(python.both(count), ("[(1,)]".to_owned(), "[(0,)]".to_owned()));
}

#[test]
fn event_loops() {
    let waiting = "import asyncio\nasync def job(): await asyncio.sleep(1000)\ntask = asyncio.create_task(job())\nawait asyncio.sleep(0)";
    let python = refused(waiting, &["Tasks of the event loop wait (job)"]);
    python.prints("x = task.cancel()\nawait asyncio.sleep(0)");
    assert_eq!(python.fork(false), Ok(vec![]));
    // Neither wakes the other.
    let sockets = "
import os
links = []
for fd in os.listdir('/proc/self/fd'):
    try: links.append(os.readlink('/proc/self/fd/' + fd))
    except FileNotFoundError: pass
await asyncio.sleep(0)
print(*sorted(link for link in links if 'socket:' in link), sep='\\n')";
    let (old, new) = (python.prints(sockets), python.prints_in("branch", sockets));
    assert_eq!((old.lines().count(), new.lines().count()), (3, 3), "{old}{new}");
    assert!(old.lines().all(|line| !new.contains(line)), "{old}{new}");
    // Both loops work at the same time, with the objects bound to them.
    let code = "lock = asyncio.Lock()\nasync with lock: await asyncio.sleep(0.01)\nawait asyncio.to_thread(lambda: 'both') if hasattr(asyncio, 'to_thread') else 'both'";
    python.agree(code, "'both'");
    python.agree(code, "'both'");
}

#[test]
fn the_gpu() {
    let code = "import sys, types\ntorch = types.ModuleType('torch')\ntorch.cuda = types.SimpleNamespace(is_initialized=lambda: True)\nsys.modules['torch'] = torch";
    refused(code, &["CUDA is initialised"]);
}

#[test]
fn what_cleans_up_at_the_end() {
    let python = Notebook::new();
    let path = python.guest.path("handler");
    let code = format!(
        "
import atexit, os, tempfile, weakref
directory, file = tempfile.TemporaryDirectory(), tempfile.NamedTemporaryFile()
paths = [directory.name, file.name]
class Held: pass
held = Held()
finalizer = weakref.finalize(held, lambda: open({path:?}, 'w').close())
x = atexit.register(lambda: open({path:?}, 'w').close())"
    );
    python.prints(&code);
    let warnings = python.fork(false).unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("open for writing"), "{warnings:?}");
    // The branch releases all of it, and itself.
    python.prints_in(
        "branch",
        "del directory, file, held\nimport gc\nx = gc.collect()\natexit._run_exitfuncs()",
    );
    assert_eq!(python.value("[os.path.exists(path) for path in paths]"), "[True, True]");
    assert!(!std::path::Path::new(&path).exists());
    // Handlers that it registers itself do run.
    python.prints_in(
        "branch",
        &format!("x = atexit.register(lambda: open({path:?}, 'w').close())\natexit._run_exitfuncs()"),
    );
    assert!(std::path::Path::new(&path).exists());
}

#[test]
fn random_numbers() {
    let python = forked("import random\nrandom.seed(1)\nmine = random.Random(1)", &[]);
    python.differ("random.random()");
    python.differ("mine.random()");
    let code = "import numpy\nnumpy.random.seed(1)\nmine, old = numpy.random.default_rng(1), numpy.random.RandomState(1)";
    let python = forked(code, &[]);
    python.differ("numpy.random.rand()");
    python.differ("mine.random()");
    python.differ("old.rand()");
    let code = "import sys, types\nseeds = []\nsys.modules['torch'] = types.SimpleNamespace(seed=lambda: seeds.append(1))";
    assert_eq!(forked(code, &[]).both("seeds"), ("[]".to_owned(), "[1]".to_owned()));
    // A generator with a seed of its own is repeatable again.
    python.agree("random = __import__('random')\nrandom.seed(5)\nrandom.random()", "0.6229016948897019");
}

#[test]
fn names_that_must_not_come_twice() {
    let code = "import os, tempfile, uuid\nx = uuid.uuid1(), uuid.uuid4(), tempfile.mktemp()\nimport multiprocessing";
    let python = forked(code, &[]);
    python.differ("uuid.uuid1().clock_seq, uuid.uuid1().bytes");
    python.differ("uuid.uuid4()");
    python.differ("tempfile.mktemp()");
    python.differ("os.getpid()");
    python.differ("bytes(multiprocessing.current_process().authkey)");
}

#[test]
fn timers() {
    let code = "import signal\nx = signal.setitimer(signal.ITIMER_REAL, 1000)";
    let python = forked(code, &["A timer is set (ITIMER_REAL)"]);
    let left = "signal.getitimer(signal.ITIMER_REAL)[0] > 0";
    assert_eq!(python.both(left), ("True".to_owned(), "False".to_owned()));
}

#[test]
fn what_is_the_same_in_both() {
    let code = "
import os, signal, threading
x = signal.signal(signal.SIGUSR1, lambda *args: print('handled'))
x = os.umask(0o27)
os.chdir('/usr')
os.environ['MINE'] = 'yes'
lock, again = threading.Lock(), threading.RLock()
x = lock.acquire(), again.acquire()";
    let python = forked(code, &[]);
    for context in ["python", "branch"] {
        assert_eq!(python.prints_in(context, "os.kill(os.getpid(), signal.SIGUSR1)"), "handled\n");
    }
    python.agree("os.umask(0o27), os.getcwd(), os.environ['MINE']", "(23, '/usr', 'yes')");
    // A held lock is held in both, and each releases its own.
    python.agree("lock.locked(), again.acquire(blocking=False)", "(True, True)");
    python.prints("lock.release()");
    assert_eq!(python.both("lock.locked()"), ("False".to_owned(), "True".to_owned()));
}
