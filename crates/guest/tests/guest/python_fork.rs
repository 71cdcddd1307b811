//! A forked context: both start with the same variables, and then diverge.

use crate::{python_notebook::Notebook, support::exited};

#[test]
fn both_go_on_from_the_same_variables_and_then_apart() {
    let python = Notebook::new();
    python.prints("x = [1]\ndef f(): return len(x)");
    assert_eq!(python.fork(false), Ok(vec![]));
    assert_eq!(python.value("x.append(2)\nf()"), "2");
    assert_eq!(python.value_in("branch", "x.append(3); x.append(4)\nf()"), "3");
    assert_eq!(python.value("x"), "[1, 2]");
    // A branch of the branch.
    assert_eq!(python.fork_from("branch", "twig", false), Ok(vec![]));
    assert_eq!(python.value_in("twig", "x"), "[1, 3, 4]");
    // Each has a process and a session of its own, and does not notice the end of the others.
    let pids = ["python", "branch", "twig"].map(|context| {
        python.value_in(context, "import os\nassert os.getsid(0) == os.getpid()\nos.getpid()")
    });
    assert!(pids[0] != pids[1] && pids[1] != pids[2] && pids[0] != pids[2]);
    python.run_in("branch", "import os\nos._exit(1)");
    assert_eq!(
        (python.value("x"), python.value_in("twig", "x")),
        ("[1, 2]".to_owned(), "[1, 3, 4]".to_owned())
    );
}

#[test]
fn a_branch_has_a_channel_and_streams_of_its_own() {
    let python = Notebook::new();
    // Text that is still in a buffer is written once.
    python.prints(
        "import sys, subprocess\nsys.stdout.reconfigure(line_buffering=False)\nn = sys.stdout.write('')",
    );
    assert_eq!(python.fork(false), Ok(vec![]));
    assert_eq!(
        python.prints_in("branch", "print('branch')\nn = subprocess.call(['echo', 'child'])"),
        "branch\nchild\n"
    );
    assert_eq!(python.prints("print('old')"), "old\n");
    let ran = python.run_in("branch", "print('late', file=sys.stderr)\n1 / 0");
    assert_eq!((ran.stderr.as_str(), ran.report), ("late\n", exited(1)));
    let traceback = python.run_in("branch", "def f(): 1 / 0\nf()").error().unwrap().2;
    assert!(traceback.contains("def f(): 1 / 0"), "{traceback}");
    let ran = python.run_in("branch", "import sys\nsys.exit(4)");
    assert_eq!(ran.report, exited(4));
}

#[test]
fn a_fresh_context_can_be_forked_again_and_again() {
    let python = Notebook::new();
    python.prints("pass");
    for n in 0..5 {
        assert_eq!(python.fork_from("python", &format!("b{n}"), false), Ok(vec![]));
        assert_eq!(python.value_in(&format!("b{n}"), &format!("x = {n}\nx")), n.to_string());
    }
    assert_eq!(python.run("x").error().unwrap().0, "NameError");
    // The fork leaves nothing behind: no descriptors, no children, no disabled garbage collection.
    let code = "import gc, os\nlen(os.listdir('/proc/self/fd')), gc.isenabled(), open('/proc/thread-self/children').read()";
    assert_eq!(python.value(code), python.value_in("b0", code));
    assert!(python.value(code).ends_with("True, '')"), "{}", python.value(code));
}
