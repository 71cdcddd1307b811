//! Languages that run by file, and the list of available ones.

use guest_protocol::{ExecStart, Request, Response, StartFailure};

use crate::support::{TestGuest, cell, command, eventually, exited, killed, write_file};

fn code(id: &str, language: &str, code: &str) -> ExecStart {
    let mut start = cell(id, language, code);
    start.cell.as_mut().unwrap().context = None;
    start
}

#[test]
fn code_runs_from_a_file_of_its_own() {
    let guest = TestGuest::start();
    let mut start = code("a", "sh", "pwd; echo $0; stat -c '%a %u' $0 $(dirname $0)\nexit 3");
    start.cwd = "/usr".to_owned();
    start.user = "54321:54321".to_owned();
    let ran = guest.connect().run(&start);
    assert_eq!((ran.report, ran.rich.len()), (exited(3), 0));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!((lines[0], &lines[2..]), ("/usr", &["600 54321", "700 54321"][..]), "{}", ran.stdout);
    let directory = std::path::Path::new(lines[1]).parent().unwrap();
    assert!(directory.starts_with("/tmp"));
    eventually("the directory is removed", || !directory.exists());
}

#[test]
fn compiled_code_runs_and_what_the_compiler_says_is_told() {
    let guest = TestGuest::start();
    let source = "#include <stdio.h>\n#include <math.h>\nint main(int n, char **a) { printf(\"%.0f\\n\", sqrt(n * 49)); return 4; }";
    let ran = guest.connect().run(&code("c", "c", source));
    assert_eq!((ran.stdout.as_str(), ran.report), ("7\n", exited(4)), "{}", ran.stderr);
    let ran = guest.connect().run(&code("bad", "c", "int main( {"));
    assert_eq!(ran.report, exited(1));
    assert!(ran.stderr.contains("error"), "{ran:?}");
    let ran = guest.connect().run(&code("p", "perl", "print 6 * 7, \"\\n\"; die 'so'"));
    assert_eq!((ran.stdout.as_str(), ran.report), ("42\n", exited(255)));
}

#[test]
fn it_is_an_exec_like_any_other() {
    let guest = TestGuest::start();
    let mut start = code("slow", "sh", "echo $0; sleep 1000");
    start.timeout_ms = Some(200);
    let pid = guest.connect().start(&start);
    assert_eq!(guest.connect().start(&start), pid);
    let ran = guest.connect().follow("slow");
    assert_eq!(ran.report, guest_protocol::ExitReport { timed_out: true, ..killed(9) });
    let file = ran.stdout.trim().to_owned();
    eventually("its file is removed", || !std::path::Path::new(&file).exists());
    let mut missing = code("ruby", "ruby", "1");
    missing.env.insert("PATH".into(), "/nowhere".into());
    let (reason, message) = guest.connect().not_started(&missing);
    assert_eq!(
        (reason, message.as_str()),
        (StartFailure::NotFound, "ruby needs the program ruby, which is not in the sandbox's PATH")
    );
}

#[test]
fn languages_are_those_whose_program_is_there() {
    let guest = TestGuest::start();
    for (name, mode) in [("node", 0o755), ("ruby", 0o755), ("perl", 0o644)] {
        write_file(guest.path(name), mode, "#!/bin/sh\ntouch ran\n");
    }
    std::fs::create_dir(guest.path("php")).unwrap();
    let path = format!("/nowhere:relative::{}", guest.directory.path().display());
    let Ok(Response::Languages { languages }) = guest.connect().ask(&Request::Languages { path }) else {
        panic!()
    };
    let program = |name: &str| {
        languages
            .iter()
            .find(|language| language.name == name)
            .map(|found| (&found.program[..], found.stateful))
    };
    assert_eq!(program("ruby"), Some((&guest.path("ruby")[..], false)));
    assert_eq!((program("perl"), program("php"), program("bash")), (None, None, None));
    // Without a PATH, the default one of execs.
    let Ok(Response::Languages { languages }) =
        guest.connect().ask(&Request::Languages { path: String::new() })
    else {
        panic!()
    };
    assert!(languages.iter().any(|found| found.name == "bash" && found.stateful));
    assert_eq!(guest.connect().run(&command("e", &["true"])).report, exited(0));
}
