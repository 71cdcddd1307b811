//! Hostile cells: whatever one does, the guest survives and the next cell runs.

use guest_protocol::{ExecEvent, ExecStart, Request, Response, Rich, StateLoss};

use crate::support::{Ran, TestGuest, cell, cell_in, eventually, exited, killed, lost};

/// A flood stands still if it has not moved in this many checks in a row.
const STILL_LOOKS: usize = 2000;

/// Checks that the guest responds and the context takes a cell. Returns how that cell ran.
fn goes_on(guest: &TestGuest, id: &str, language: &str) -> Ran {
    assert_eq!(guest.connect().ask(&Request::Ping), Ok(Response::Done));
    let code = if language == "bash" {
        "echo on; echo off >&2"
    } else {
        "import sys; print('on'); print('off', file=sys.stderr)"
    };
    let ran = guest.connect().run_cell(&cell(&format!("after {id}"), language, code));
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str(), &ran.report),
        ("on\n", "off\n", &exited(0)),
        "after {id}"
    );
    ran
}

fn soon_killed(id: &str, language: &str, code: &str) -> ExecStart {
    let mut start = cell(id, language, code);
    start.cell.as_mut().unwrap().grace_ms = 200;
    start.timeout_ms = Some(300);
    start
}

/// A context with a hostile interpreter: a few lines of ours that speak the driver's side.
fn speaks(guest: &TestGuest, id: &str, words: &str) -> Ran {
    let script = format!(
        "#!/usr/bin/python3\nimport os, socket\nc = socket.socket(fileno=3)\n\
         def frame():\n    head = c.recv(4, socket.MSG_WAITALL)\n    return c.recv(int.from_bytes(head, 'little'), socket.MSG_WAITALL)\n\
         frame()\n{words}\nframe()\n"
    );
    let directory = guest.path(id);
    std::fs::create_dir(&directory).unwrap();
    crate::support::write_file(format!("{directory}/python3"), 0o755, &script);
    let mut start = cell_in(id, id, "python", "pass");
    start.env.insert("PATH".to_owned(), directory);
    start.timeout_ms = Some(20_000);
    guest.connect().run_cell(&start)
}

#[test]
fn endless_loops_end_at_their_time_limit() {
    let guest = TestGuest::start();
    for (language, code) in [
        ("python", "while True: pass"),
        ("python", "import time\nwhile True:\n  try: time.sleep(1000)\n  except BaseException: pass"),
        ("bash", "while :; do :; done"),
        ("bash", "trap '' INT; while :; do :; done"),
    ] {
        let id = format!("{language} {code}");
        let ran = guest.connect().run_cell(&soon_killed(&id, language, code));
        assert!(ran.report.timed_out, "{ran:?}");
        assert!(matches!(ran.state(), Rich::State { interrupted: true, .. }));
        goes_on(&guest, &id, language);
    }
}

#[test]
fn endless_output_waits_for_its_reader_and_can_be_interrupted() {
    let guest = TestGuest::start();
    for (language, code) in [
        ("python", "while True: print('x' * 1000)"),
        ("python", "import subprocess; subprocess.run('yes')"),
        ("python", "while True: display('x' * 1000)"),
        ("bash", "yes"),
        ("bash", "while :; do echo on and on; done"),
    ] {
        let id = format!("{language} {code}");
        guest.connect().start(&cell(&id, language, code));
        // Nobody reads: the window fills up and the interpreter waits.
        let mut host = guest.connect();
        let (mut before, mut n_still) = (0, 0);
        eventually("the flood stands still", || {
            let Ok(Response::Execs { execs }) = host.ask(&Request::ExecList) else { panic!() };
            let now = execs.iter().find(|exec| exec.id == id).unwrap().last_event;
            n_still = if now > 1 && now == before { n_still + 1 } else { 0 };
            before = now;
            n_still > STILL_LOOKS
        });
        assert!(guest.private_bytes() < 32 * 1024 * 1024);
        // It ends although nobody has read anything yet.
        assert_eq!(host.signal(&id, 2), Ok(Response::Done));
        eventually("the cell has ended", || {
            host.contexts().iter().all(|context| context.state != guest_protocol::ContextState::Busy)
        });
        let ran = guest.connect().follow_cell(&id);
        assert_eq!(*ran.state(), Rich::State { kept: true, lost: None, interrupted: true }, "{id}");
        goes_on(&guest, &id, language);
    }
}

#[test]
fn a_cell_may_close_or_take_what_it_can_reach() {
    let guest = TestGuest::start();
    for (n, code) in [
        "import os; os.close(1); os.close(2)",
        "import os; os.closerange(0, 3)",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import sys; sys.stdout = None; sys.stderr = 5",
        "import os; os.close(3)",
        "import os; os.closerange(0, 1000)",
        "import os; [os.dup2(os.open('/dev/null', 2), n) for n in range(64)]",
        "import os; os.dup2(0, 1); os.dup2(0, 2); os.dup2(0, 3)",
        "import builtins; builtins.__dict__.clear()",
        "import sys; sys.modules.clear()",
        "import sys, gc; [o.clear() for o in gc.get_objects() if type(o) is dict and o is not globals()]",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.pthread_sigmask(0, range(1, 65))",
        "import sys; sys.setrecursionlimit(50)\ndef f(): f()\nf()",
        "import threading; threading.Thread(target=lambda: [print('x') for _ in iter(int, 1)], daemon=True).start()",
        "import os; os.chdir('/'); os.setpgid(0, 0) if os.getsid(0) != os.getpid() else None",
    ]
    .iter()
    .enumerate()
    {
        let mut start = cell_in(&format!("c{n}"), &format!("ctx{n}"), "python", code);
        start.timeout_ms = Some(5_000);
        start.cell.as_mut().unwrap().grace_ms = 500;
        let ran = guest.connect().run_cell(&start);
        assert!(matches!(ran.state(), Rich::State { .. }), "{code}");
        let mut next = cell_in(&format!("n{n}"), &format!("ctx{n}"), "python", "import sys; sys.__stdout__.write('on\\n')");
        next.timeout_ms = Some(5_000);
        let ran = guest.connect().run_cell(&next);
        if *ran.state() != crate::support::kept() {
            // It broke its interpreter; then the next cell has a new one.
            let again = ExecStart { id: format!("a{n}"), ..next };
            assert!(guest.connect().run_cell(&again).stdout.contains("on\n"), "{code}");
        }
        assert_eq!(guest.connect().ask(&Request::Ping), Ok(Response::Done));
    }
}

#[test]
fn garbage_on_the_channel_ends_its_interpreter_and_nothing_else() {
    let guest = TestGuest::start();
    // Written to all descriptors, since a driver may have moved its own.
    let to_all = "import os\ndef spray(b):\n  for n in range(3, 300):\n    try:\n      if 'socket' in os.readlink(f'/proc/self/fd/{n}'): os.write(n, b)\n    except OSError: pass\n";
    for (n, garbage) in [
        "b'x'",
        "b'\\n'",
        "b'\\0' * 100",
        "b'x' * 10_000_000",
        "b'r' + b'x' * 10_000_000",
        "b'r' + b'x' * 20_000_000",
        "b'rhalf a record'",
        "b'd{\"cell\":99,\"code\":0}\\n'",
        "b'd{\"cell\":1}\\n'",
        "b'd' + b'x' * 10_000_000",
        "b'f{\"ok\":true,\"pid\":1}\\n'",
        "b'f{\"ok\":false,\"reasons\":[\"' + b'x' * 10_000_000 + b'\"]}\\n'",
        "b'i\\n'",
    ]
    .iter()
    .enumerate()
    {
        // The code waits a little, so that this arrives alone and not with the driver's own next word.
        let code = format!("{to_all}import time; spray({garbage}); time.sleep(0.05)");
        let mut start = cell(&format!("g{n}"), "python", &code);
        start.timeout_ms = Some(20_000);
        let ran = guest.connect().run_cell(&start);
        assert_eq!((&ran.report, ran.state()), (&killed(9), &lost(StateLoss::Garbled)), "{garbage}");
        assert_eq!(goes_on(&guest, &format!("g{n}"), "python").warnings().len(), 1);
    }
    assert!(guest.private_bytes() < 32 * 1024 * 1024);
}

#[test]
fn a_cell_that_claims_its_own_end_harms_only_itself() {
    let guest = TestGuest::start();
    let lie = "import os\nfor n in range(3, 300):\n  try:\n    if 'socket' in os.readlink(f'/proc/self/fd/{n}'): os.write(n, b'd{\"cell\":1,\"code\":7}\\n')\n  except OSError: pass\n";
    let ran = guest.connect().run_cell(&cell("lie", "python", lie));
    assert_eq!(ran.report, exited(7));
    // Its driver reports the same end again, which is one too many; two cells later all is well.
    guest.connect().run_cell(&cell("next", "python", "pass"));
    goes_on(&guest, "lie", "python");
}

#[test]
fn drivers_that_lie_are_not_believed() {
    let guest = TestGuest::start();
    let check = |id: &str, words: &str| {
        let ran = speaks(&guest, id, words);
        assert_eq!(*ran.state(), lost(StateLoss::Garbled), "{words}");
    };
    check("early end", "os.write(3, b'd{\"cell\":1,\"code\":0}\\n')");
    check("ready twice", "os.write(3, b'i\\ni\\n')");
    check("fork unasked", "os.write(3, b'i\\n'); frame(); os.write(3, b'f{\"ok\":true,\"pid\":1}\\n')");
    check("goes on", "os.write(3, b'i\\n'); frame(); os.write(3, b'i\\nd{\"cell\":1,\"code\":0}\\n')");
    check("closes", "os.write(3, b'i\\n'); frame(); c.close(); import time; time.sleep(1000)");
    // Valid data arrives, even in pieces of one byte.
    let slow = "os.write(3, b'i\\n'); frame()\nfor b in b'r{\"type\":\"warning\",\"message\":\"slow\"}\\nd{\"cell\":1,\"code\":3}\\n': os.write(3, bytes([b]))";
    let ran = speaks(&guest, "slow", slow);
    assert_eq!((ran.report, ran.rich.len()), (exited(3), 2));
    // A record that its writer did not complete becomes a line of its own.
    let ran =
        speaks(&guest, "half", "os.write(3, b'i\\n'); frame(); os.write(3, b'r{\"type\":'); os._exit(9)");
    assert_eq!((ran.report, ran.rich), (exited(9), vec![lost(StateLoss::Exited)]));
}

#[test]
fn a_driver_that_ends_cells_which_it_never_read_is_not_believed() {
    let guest = TestGuest::start();
    // It checks that the cell has begun to arrive, and reads nothing.
    let script = "#!/usr/bin/python3\nimport os, socket\nc = socket.socket(fileno=3)\n\
                  c.recv(int.from_bytes(c.recv(4, socket.MSG_WAITALL), 'little'), socket.MSG_WAITALL)\n\
                  os.write(3, b'i\\n')\nc.recv(1, socket.MSG_PEEK)\n\
                  os.write(3, b'd{\"cell\":1,\"code\":0}\\n')\na, b = socket.socketpair()\na.recv(1)\n";
    crate::support::write_file(guest.path("python3"), 0o755, script);
    // More than the channel holds.
    let mut start = cell("unread", "python", &"#".repeat(2_000_000));
    start.env.insert("PATH".to_owned(), guest.path(""));
    start.timeout_ms = Some(20_000);
    let ran = guest.connect().run_cell(&start);
    assert_eq!(*ran.state(), lost(StateLoss::Garbled));
}

#[test]
fn a_cell_cannot_kill_its_parent() {
    let guest = TestGuest::start_as_init();
    for (id, language, code) in [
        (
            "kill",
            "python",
            "import os\nfor n in range(1, 65): os.kill(os.getppid(), n) if n not in (32, 33) else None\nprint(os.getppid())",
        ),
        ("bash", "bash", "for n in {1..31}; do kill -$n $PPID; done; echo $PPID"),
    ] {
        let ran = guest.connect().run_cell(&cell(id, language, code));
        assert_eq!((ran.stdout.as_str(), &ran.report), ("1\n", &exited(0)), "{ran:?}");
        goes_on(&guest, id, language);
    }
    // Kills everything but process 1, including the cell's own interpreter.
    let ran = guest.connect().run_cell(&cell(
        "all",
        "python",
        "import os; os.kill(-1, 9); os.kill(os.getpid(), 9)",
    ));
    assert_eq!((&ran.report, ran.state()), (&killed(9), &lost(StateLoss::Crashed)));
    for language in ["python", "bash"] {
        goes_on(&guest, &format!("all {language}"), language);
    }
}

#[test]
fn a_cell_that_stops_itself_goes_on_at_its_time_limit() {
    let guest = TestGuest::start();
    for (id, language, code) in
        [("python", "python", "import os; os.kill(os.getpid(), 19)"), ("bash", "bash", "kill -STOP $$")]
    {
        let mut start = soon_killed(id, language, code);
        start.cell.as_mut().unwrap().grace_ms = 10_000;
        let ran = guest.connect().run_cell(&start);
        assert!(ran.report.timed_out, "{ran:?}");
        assert_eq!(*ran.state(), Rich::State { kept: true, lost: None, interrupted: true });
        goes_on(&guest, id, language);
    }
}

#[test]
fn a_child_that_never_stops_writing_holds_nobody_up() {
    let guest = TestGuest::start();
    for (id, language, code) in [
        ("python", "python", "import subprocess; p = subprocess.Popen('yes')"),
        ("bash", "bash", "yes & disown; :"),
    ] {
        let ran = guest.connect().run_cell(&cell(id, language, code));
        assert_eq!(ran.report, exited(0));
        // Its output goes to each next cell in turn; all of them end.
        for n in 0..20 {
            let ran = guest.connect().run_cell(&cell(&format!("{id}{n}"), language, "echo = 1"));
            assert!(ran.report.code.is_some(), "{n}");
        }
        assert_eq!(
            guest.connect().ask(&Request::ContextRemove { name: language.to_owned() }),
            Ok(Response::Done)
        );
    }
}

#[test]
fn thousands_of_records_arrive() {
    let guest = TestGuest::start();
    let words = "os.write(3, b'i\\n'); frame()\nfor n in range(5000): c.sendall(b'r{\"type\":\"warning\",\"message\":\"%d\"}\\n' % n)\nc.sendall(b'd{\"cell\":1,\"code\":0}\\n')";
    let ran = speaks(&guest, "many", words);
    assert_eq!((&ran.report, ran.warnings().len()), (&exited(0), 5000));
    assert_eq!(ran.warnings()[4999], "4999");
    let ran = guest.connect().run_cell(&cell("b", "python", "display('y' * 5_000_000)"));
    assert_eq!(ran.rich.len(), 2);
}

#[test]
fn code_may_be_any_text() {
    let guest = TestGuest::start();
    for (n, text) in
        ["\u{1}\u{7f}", "\r\n\r", "\u{feff}", "ünï😀\u{202e}", "\u{10ffff}", "'''", "\\N{nothing}", "\t \t"]
            .iter()
            .enumerate()
    {
        for language in ["python", "bash"] {
            let ran = guest.connect().run_cell(&cell(&format!("{language}{n}"), language, text));
            assert!(ran.report.code.is_some(), "{text:?}");
            goes_on(&guest, &format!("{language} {n}"), language);
        }
    }
    let ran = guest.connect().run_cell(&cell("s", "python", "s = 'ünï😀'; print(len(s))"));
    assert_eq!(ran.stdout, "4\n");
    let long = format!("x = '{}'; print(len(x))", "y".repeat(1_000_000));
    assert_eq!(guest.connect().run_cell(&cell("long", "python", &long)).stdout, "1000000\n");
}

#[test]
fn an_interpreter_that_reads_nothing_holds_nobody_up() {
    let guest = TestGuest::start();
    guest.connect().run_cell(&cell("a", "python", "x = 1"));
    // More than the channel holds, for a stopped interpreter.
    let pid = guest.connect().contexts()[0].pid.unwrap();
    rustix::process::kill_process(crate::support::pid_of(pid), rustix::process::Signal::STOP).unwrap();
    let mut host = guest.connect();
    host.start(&cell("b", "python", &format!("#{}\nprint(x)", "y".repeat(900_000))));
    assert_eq!(goes_on_elsewhere(&guest), "free\n");
    rustix::process::kill_process(crate::support::pid_of(pid), rustix::process::Signal::CONT).unwrap();
    assert_eq!(host.follow_cell("b").stdout, "1\n");
}

fn goes_on_elsewhere(guest: &TestGuest) -> String {
    guest.connect().run_cell(&cell_in("elsewhere", "other", "python", "print('free')")).stdout
}

#[test]
fn a_host_that_takes_nothing_of_one_cell_delays_only_its_context() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    host.start(&cell("flood", "python", "print('x' * 10_000_000)"));
    host.attach("flood", 1);
    assert!(matches!(host.event().1, ExecEvent::Started { .. }));
    assert_eq!(goes_on_elsewhere(&guest), "free\n");
    drop(host);
    let ran = guest.connect().follow_cell("flood");
    assert_eq!((ran.stdout.len(), ran.report), (10_000_001, exited(0)));
}
