//! Contexts: made, listed, reset, removed and branched.

use std::collections::BTreeMap;

use guest_protocol::{
    ContextStart, ContextState, ContextSummary, Failure, FailureKind, Request, Response, StateLoss,
};

use crate::support::{
    Host, TestGuest, cell, cell_in, children, exited, is_alive, kept, killed, lost, write_file,
};

fn start(name: &str, language: &str) -> ContextStart {
    ContextStart {
        name: name.to_owned(),
        language: language.to_owned(),
        env: BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("COLOUR".to_owned(), "green".to_owned()),
        ]),
        cwd: "/usr".to_owned(),
        user: "0:0".to_owned(),
        rlimits: vec![],
    }
}

fn made(answer: Result<Response, Failure>) -> (ContextSummary, Vec<String>) {
    match answer {
        Ok(Response::Context { context, warnings }) => (*context, warnings),
        other => panic!("{other:?}"),
    }
}

fn named(host: &mut Host, name: &str) -> ContextSummary {
    host.contexts().into_iter().find(|context| context.name == name).unwrap()
}

fn fork(name: &str, into: &str) -> Request {
    Request::ContextFork { name: name.to_owned(), into: into.to_owned(), force: false }
}

fn remove(name: &str) -> Request {
    Request::ContextRemove { name: name.to_owned() }
}

fn reset(name: &str) -> Request {
    Request::ContextReset { name: name.to_owned() }
}

#[test]
fn a_context_waits_for_cells_with_what_it_was_made_with() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let (context, warnings) = made(host.ask(&Request::ContextCreate(start("c", "python"))));
    assert_eq!((context.state, context.cwd.as_str(), warnings.len()), (ContextState::Idle, "/usr", 0));
    assert!(context.memory_bytes > 1024 * 1024, "{context:?}");
    // A cell's own environment and directory only apply to a context that does not exist yet.
    let code = "import os; print(os.environ['COLOUR'], os.getcwd(), os.getpid())";
    let ran = guest.connect().run_cell(&cell_in("a", "c", "python", code));
    assert_eq!(ran.stdout, format!("green /usr {}\n", context.pid.unwrap()));
    assert_eq!(named(&mut host, "c").cells, 1);
    assert_eq!(host.fails(&Request::ContextCreate(start("c", "bash"))), FailureKind::AlreadyExists);
    let (_, message) = guest.connect().not_started(&cell_in("b", "c", "bash", "true"));
    assert_eq!(message, "context c runs python, not bash");
}

#[test]
fn how_an_interpreter_is_tuned_does_not_reach_what_runs_in_it_and_its_own_wish_wins() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let mut own = start("own", "python");
    own.env.insert("GLIBC_TUNABLES".into(), "glibc.malloc.arena_max=1".into());
    made(host.ask(&Request::ContextCreate(start("plain", "python"))));
    made(host.ask(&Request::ContextCreate(own)));
    let code = "import os; print(os.environ.get('GLIBC_TUNABLES'))";
    assert_eq!(guest.connect().run_cell(&cell_in("a", "plain", "python", code)).stdout, "None\n");
    let ran = guest.connect().run_cell(&cell_in("b", "own", "python", code));
    assert_eq!(ran.stdout, "glibc.malloc.arena_max=1\n");
}

#[test]
fn contexts_that_cannot_be_made_are_refused() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    let mut check = |expected: FailureKind, change: &dyn Fn(&mut ContextStart)| {
        let mut bad = start("bad", "python");
        change(&mut bad);
        assert_eq!(host.fails(&Request::ContextCreate(bad)), expected);
    };
    check(FailureKind::Unsupported, &|bad| bad.language = "perl".into());
    check(FailureKind::InvalidRequest, &|bad| bad.name = String::new());
    check(FailureKind::InvalidRequest, &|bad| bad.cwd = "here".into());
    check(FailureKind::InvalidRequest, &|bad| bad.cwd = "/no/such".into());
    check(FailureKind::InvalidRequest, &|bad| bad.user = "nobody-we-know".into());
    check(FailureKind::NotFound, &|bad| drop(bad.env.insert("PATH".into(), "/nowhere".into())));
    write_file(guest.path("python3"), 0o755, "#!/bin/sh\nexit 4\n");
    check(FailureKind::WrongState, &|bad| drop(bad.env.insert("PATH".into(), guest.path(""))));
    let mut broken = start("broken", "python");
    broken.env.insert("PATH".into(), guest.path(""));
    write_file(guest.path("python3"), 0o755, "#!/bin/sh\necho no library >&2\nexit 4\n");
    assert_eq!(
        host.ask(&Request::ContextCreate(broken)).unwrap_err().message,
        "the interpreter of context broken exited with code 4 before it was ready: no library"
    );
    for request in [reset("x"), remove("x"), fork("x", "y")] {
        assert_eq!(host.fails(&request), FailureKind::NotFound);
    }
    assert_eq!(host.contexts(), []);
}

#[test]
fn there_is_an_end_to_contexts() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    for n in 0..64 {
        made(host.ask(&Request::ContextCreate(start(&format!("c{n}"), "bash"))));
    }
    assert_eq!(host.fails(&Request::ContextCreate(start("more", "bash"))), FailureKind::LimitReached);
    assert_eq!(host.fails(&Request::ExecStart(cell("a", "bash", "true"))), FailureKind::LimitReached);
    assert_eq!(host.ask(&remove("c7")), Ok(Response::Done));
    assert_eq!(guest.connect().run_cell(&cell("b", "bash", "echo room")).stdout, "room\n");
}

#[test]
fn a_reset_forgets_everything_without_a_word() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    guest.connect().run_cell(&cell("a", "python", "x = 1"));
    let before = host.contexts()[0].pid.unwrap();
    let (context, _) = made(host.ask(&reset("python")));
    assert_eq!((context.pid, context.cells, context.state), (None, 1, ContextState::Idle));
    assert!(!is_alive(before));
    let ran = guest.connect().run_cell(&cell("b", "python", "print('x' in globals())"));
    assert_eq!((ran.stdout.as_str(), ran.rich), ("False\n", vec![kept()]));
}

#[test]
fn a_reset_kills_what_runs_and_leaves_what_waits() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    host.start(&cell("runs", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"));
    host.attach("runs", 1);
    host.wait_for("go");
    guest.connect().start(&cell("waits", "python", "print('fresh')"));
    made(guest.connect().ask(&reset("python")));
    let ran = guest.connect().follow_cell("waits");
    assert_eq!((ran.stdout.as_str(), ran.report), ("fresh\n", exited(0)));
}

#[test]
fn a_removed_context_takes_everything_along() {
    let guest = TestGuest::start();
    let code = "import subprocess; p = subprocess.Popen(['sleep', '1000']); print(p.pid, flush=True)";
    let child: i32 = guest.connect().run_cell(&cell("a", "python", code)).stdout.trim().parse().unwrap();
    let mut host = guest.connect();
    host.start(&cell("runs", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"));
    host.attach("runs", 1);
    host.wait_for("go");
    guest.connect().start(&cell("waits", "python", ""));
    assert_eq!(guest.connect().ask(&remove("python")), Ok(Response::Done));
    assert_eq!(guest.connect().contexts(), []);
    assert_eq!(guest.connect().follow("waits").report, exited(130));
    let mut other = guest.connect();
    other.attach("runs", 1);
    drop(host);
    crate::support::eventually("the child is gone", || !is_alive(child));
    // The name is free.
    assert_eq!(guest.connect().run_cell(&cell("b", "python", "")).rich, [kept()]);
}

#[test]
fn a_fork_has_the_same_variables_and_goes_its_own_way() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    guest.connect().run_cell(&cell("a", "python", "x = [1]"));
    let (branch, warnings) = made(host.ask(&fork("python", "branch")));
    assert_eq!(
        (branch.parent.as_deref(), branch.state, warnings.len()),
        (Some("python"), ContextState::Idle, 0)
    );
    assert_ne!(branch.pid, named(&mut host, "python").pid);
    let code = "x.append(2); print(x)";
    assert_eq!(guest.connect().run_cell(&cell_in("b", "branch", "python", code)).stdout, "[1, 2]\n");
    assert_eq!(guest.connect().run_cell(&cell("c", "python", "print(x)")).stdout, "[1]\n");
    // It is the guest's own child, and ends like any other.
    let ran =
        guest.connect().run_cell(&cell_in("d", "branch", "python", "import os; os.kill(os.getpid(), 9)"));
    assert_eq!((ran.report, ran.rich), (killed(9), vec![lost(StateLoss::Crashed)]));
    assert!(guest.zombies().is_empty());
    let ran = guest.connect().run_cell(&cell_in("e", "branch", "python", "print('x' in globals())"));
    assert_eq!(ran.stdout, "False\n");
    assert_eq!(guest.connect().run_cell(&cell("f", "python", "print(x)")).stdout, "[1]\n");
    assert_eq!(host.fails(&fork("python", "branch")), FailureKind::AlreadyExists);
}

#[test]
fn forks_that_cannot_be_are_refused() {
    let guest = TestGuest::start();
    let mut host = guest.connect();
    made(host.ask(&Request::ContextCreate(start("shell", "bash"))));
    assert_eq!(host.fails(&fork("shell", "s2")), FailureKind::Unsupported);
    guest.connect().run_cell(&cell("a", "python", "x = 1"));
    made(host.ask(&reset("python")));
    assert_eq!(host.fails(&fork("python", "p2")), FailureKind::WrongState);
    let mut busy = guest.connect();
    busy.start(&cell("busy", "python", "print('go', flush=True)\nimport time; time.sleep(1000)"));
    busy.attach("busy", 1);
    busy.wait_for("go");
    assert_eq!(host.fails(&fork("python", "p2")), FailureKind::WrongState);
}

/// A driver that says what the test wants, instead of Python.
fn impostor(guest: &TestGuest, after_ready: &str) {
    let script = format!(
        "#!/usr/bin/python3\nimport os, socket, array, time\nc = socket.socket(fileno=3)\n\
         def frame():\n    head = c.recv(4, socket.MSG_WAITALL)\n    return c.recv(int.from_bytes(head, 'little'), socket.MSG_WAITALL)\n\
         frame()\nos.write(3, b'i\\n')\n{after_ready}\ntime.sleep(1000)\n"
    );
    write_file(guest.path("python3"), 0o755, &script);
}

#[test]
fn a_fork_that_names_another_process_is_refused() {
    let guest = TestGuest::start();
    let other = guest.connect().start(&crate::support::shell("e", "sleep 1000"));
    impostor(&guest, &format!("frame()\nos.write(3, b'f{{\"ok\":true,\"pid\":{other}}}\\n')"));
    let mut context = start("c", "python");
    context.env.insert("PATH".into(), guest.path(""));
    let mut host = guest.connect();
    made(host.ask(&Request::ContextCreate(context)));
    assert_eq!(host.fails(&fork("c", "d")), FailureKind::WrongState);
    assert_eq!(host.contexts().len(), 1);
    assert_eq!(host.ask(&remove("c")), Ok(Response::Done));
    assert!(is_alive(other));
    assert_eq!(children(guest.pid()), [other]);
}

#[test]
fn a_fork_that_names_what_is_known_already_is_refused() {
    let guest = TestGuest::start();
    // It takes the descriptors that were sent, and makes the new stdout its own.
    let takes = "m, fds, *_ = socket.recv_fds(c, 4096, 3)\nos.dup2(fds[1], 1)\n";
    let claims = "os.write(3, b'f{\"ok\":true,\"pid\":%d}\\n' % os.getpid())";
    impostor(&guest, &format!("{takes}{claims}"));
    let mut context = start("c", "python");
    context.env.insert("PATH".into(), guest.path(""));
    let mut host = guest.connect();
    let pid = made(host.ask(&Request::ContextCreate(context))).0.pid.unwrap();
    assert_eq!(host.fails(&fork("c", "d")), FailureKind::WrongState);
    assert_eq!(host.contexts().len(), 1);
    assert!(is_alive(pid));
}

#[test]
fn a_reset_before_it_is_ready_ends_the_wait_for_it() {
    let guest = TestGuest::start();
    write_file(guest.path("python3"), 0o755, "#!/bin/sh\nsleep 1000\n");
    let mut context = start("c", "python");
    context.env.insert("PATH".into(), format!("{}:/bin", guest.path("")));
    let mut waits = guest.connect();
    waits.request(&Request::ContextCreate(context));
    let mut host = guest.connect();
    crate::support::eventually("it has begun", || {
        host.contexts().iter().any(|context| context.pid.is_some())
    });
    made(host.ask(&reset("c")));
    assert_eq!(waits.answer().unwrap_err().message, "context c was reset before it was ready");
    assert_eq!(host.contexts(), []);
}

#[test]
fn a_fork_that_never_answers_is_given_up() {
    let guest = TestGuest::start();
    impostor(&guest, "");
    let mut context = start("c", "python");
    context.env.insert("PATH".into(), guest.path(""));
    let mut host = guest.connect();
    made(host.ask(&Request::ContextCreate(context)));
    let failure = host.ask(&fork("c", "d")).unwrap_err();
    assert!(
        failure.kind == FailureKind::WrongState && failure.message.contains("did not answer"),
        "{failure:?}"
    );
    assert_eq!(host.contexts().len(), 1);
}
