//! Bash in a context: a shell that keeps its state, whatever a cell does.

use guest_protocol::{Response, StateLoss};

use crate::support::{Ran, TestGuest, cell, exited, interrupted, kept, lost};

struct Shell {
    guest: TestGuest,
    n_cells: usize,
}

impl Shell {
    fn start() -> Self {
        Self { guest: TestGuest::start(), n_cells: 0 }
    }

    fn run(&mut self, code: &str) -> Ran {
        self.n_cells += 1;
        self.guest.connect().run_cell(&cell(&self.n_cells.to_string(), "bash", code))
    }

    /// Runs a cell whose state must be kept.
    fn check(&mut self, code: &str, expected_code: u8, stdout: &str) {
        let ran = self.run(code);
        assert_eq!((&ran.report, ran.stdout.as_str()), (&exited(expected_code), stdout), "{code}: {ran:?}");
        assert_eq!(ran.rich, [kept()], "{code}");
    }

    /// The same, with nothing on stderr.
    fn quiet(&mut self, code: &str, expected_code: u8, stdout: &str) {
        let ran = self.run(code);
        assert_eq!(
            (&ran.report, ran.stdout.as_str(), ran.stderr.as_str()),
            (&exited(expected_code), stdout, ""),
            "{code}"
        );
    }

    fn interrupt(&mut self, code: &str) {
        self.n_cells += 1;
        let id = self.n_cells.to_string();
        // The interrupted program itself prints this: if bash's child ends before it has become another program, bash
        // assumes that the child ended by choice, and continues.
        let code = code.replace("sleep 1000", "sh -c 'echo go >&2; exec sleep 1000'");
        let before = if code.contains("go >&2") { ":" } else { "echo go >&2" };
        self.guest.connect().start(&cell(&id, "bash", &format!("{before}\n{code}\necho no")));
        let mut host = self.guest.connect();
        host.attach(&id, 1);
        host.wait_for("go");
        assert_eq!(self.guest.connect().signal(&id, 2), Ok(Response::Done));
        drop(host);
        let ran = self.guest.connect().follow_cell(&id);
        assert_eq!((ran.report.code, ran.state()), (Some(130), &interrupted()), "{code}: {ran:?}");
        assert!(!ran.stdout.contains("no"), "{code}");
    }
}

#[test]
fn variables_functions_and_the_directory_stay() {
    let mut shell = Shell::start();
    shell.quiet("x=1; declare -A map=([a]=7); f() { echo f$1; }; alias ll='echo aliased'; cd /usr", 0, "");
    shell.quiet("echo $x ${map[a]}; f 2; ll; pwd", 0, "1 7\nf2\naliased\n/usr\n");
    shell.quiet("set -- a b", 0, "");
    shell.quiet("echo $2; exec 4>&1", 0, "b\n");
    shell.quiet("(exit 4)", 4, "");
    shell.quiet("echo 'ünï😀 \"quoted\"' $'\\x01' | cat", 0, "ünï😀 \"quoted\" \u{1}\n");
}

#[test]
fn exit_ends_the_cell_and_not_the_shell() {
    let mut shell = Shell::start();
    shell.quiet("x=1; exit 7; echo no", 7, "");
    shell.quiet("f() { for i in 1 2; do exit $i; done; }; f; echo no", 1, "");
    shell.quiet("(exit 5); exit", 5, "");
    shell.quiet("echo $(exit 3)$?; echo | exit 6", 6, "3\n");
    shell.quiet("trap 'echo bye' EXIT; exit 300", 44, "bye\n");
    shell.quiet("trap 'echo never' INT; exit 2", 2, "");
    shell.check("exit x", 2, "");
    shell.quiet("echo $x", 0, "1\n");
}

#[test]
fn mistakes_end_the_cell_and_not_the_shell() {
    let mut shell = Shell::start();
    shell.check("x=1\nif", 2, "");
    let ran = shell.run("echo a\necho \"b");
    assert!(ran.stdout.is_empty() && ran.stderr.contains("line 2"), "{ran:?}");
    shell.check("cat <<EOF\nhello", 2, "");
    shell.check("}; {", 2, "");
    shell.check("nosuchprogram", 127, "");
    shell.check("set -u\necho $nope\necho no", 1, "");
    shell.check("set +u; echo ${nope?gone}\necho no", 1, "");
    shell.check("readonly r=1; r=2; echo no", 1, "");
    shell.check("echo $((1 / 0)); echo no", 1, "");
    shell.check("exec nosuchprogram", 127, "");
    shell.quiet("set -euo pipefail; x=2; false | true; echo no", 1, "");
    shell.quiet("f() { false; echo no; }; f; echo no", 1, "");
    shell.quiet("if false; then :; fi; false || echo on $x; (false) || true; set +eu", 0, "on 2\n");
    for blank in ["", "\n\n", "# nothing", "  \t"] {
        shell.quiet(blank, 0, "");
    }
}

#[test]
fn an_interrupt_comes_through_everywhere() {
    let mut shell = Shell::start();
    shell.quiet("x=1", 0, "");
    for code in [
        "while :; do :; done",
        "sleep 1000",
        "f() { while :; do sleep 0.01; done; }; f",
        "y=$(sleep 1000)",
        "sleep 1000 & wait",
        "(sleep 1000)",
        "read line < <(sleep 1000)",
    ] {
        shell.interrupt(code);
        shell.quiet("echo $x", 0, "1\n");
    }
    // One cell's interrupt handling does not carry over to the next.
    shell.quiet("trap '' INT", 0, "");
    shell.interrupt("sleep 1000");
}

#[test]
fn nothing_of_the_shell_itself_is_seen() {
    let mut shell = Shell::start();
    shell.quiet("sleep 0.01 & wait; sleep 0.01 & echo \"$PS1\"", 0, "\n");
    shell.quiet("wait; jobs; echo \"hi! !!\"", 0, "hi! !!\n");
    shell.quiet("cat; read x; echo $?", 0, "1\n");
    shell.quiet("env | grep -c PROMPT_COMMAND", 1, "0\n");
    // The three standard descriptors, and that of the directory itself.
    shell.quiet("ls /proc/self/fd | wc -l", 0, "4\n");
    shell.quiet(
        "TMOUT=1; PROMPT_COMMAND='echo mine'; printf() { echo no; }; alias eval=true read=false",
        0,
        "",
    );
    shell.quiet("sleep 1.1; unset TMOUT; unset -f printf; unalias -a; exit 0", 0, "");
    shell.quiet("echo still", 0, "still\n");
}

#[test]
fn output_comes_back_whatever_a_cell_did_to_it() {
    let mut shell = Shell::start();
    for code in [
        "exec >&- 2>&-",
        "exec >/dev/null 2>&1",
        "exec 0<&- 3>&- 50>&- 51>&- 52>&-",
        "exec 3>/dev/full; echo x >&3",
    ] {
        shell.run(code);
        let ran = shell.run("echo out; echo err >&2");
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"), "after {code}");
    }
}

#[test]
fn a_shell_that_is_replaced_or_killed_is_told() {
    let mut shell = Shell::start();
    shell.quiet("x=1", 0, "");
    let ran = shell.run("exec sh -c 'sleep 0.7; echo other; exit 5'");
    assert_eq!(
        (ran.stdout.as_str(), &ran.report, ran.state()),
        ("other\n", &exited(5), &lost(StateLoss::Exited))
    );
    let ran = shell.run("echo \"[$x]\"");
    assert_eq!((ran.stdout.as_str(), ran.warnings().len()), ("[]\n", 1));
    let ran = shell.run("kill -9 $$");
    assert_eq!((ran.report.signal, ran.state()), (Some(9), &lost(StateLoss::Crashed)));
    assert_eq!(shell.run("echo again").stdout, "again\n");
}

#[test]
fn long_code_runs_too() {
    let mut shell = Shell::start();
    let lines: String = (0..20_000).map(|n| format!("x{n}={n}\n")).collect();
    shell.quiet(&format!("{lines}echo $x19999"), 0, "19999\n");
}
