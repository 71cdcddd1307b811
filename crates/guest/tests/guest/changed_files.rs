//! The report of files that an exec created or changed.

use std::fs;

use guest_protocol::{CellStart, ChangedFile, ExecEvent, ExecStart, FileChange, Request, Rich, WriteMode};

use crate::support::{TestGuest, shell};

/// The report of one exec: (name below the working directory, size, change), and whether there is more.
type Report = (Vec<(String, u64, FileChange)>, bool);

fn run(guest: &TestGuest, start: &ExecStart) -> Option<Report> {
    let mut host = guest.connect();
    host.start(start);
    host.attach(&start.id, 1);
    let (mut rich, mut told_after_exit) = (Vec::new(), false);
    let mut has_exited = false;
    loop {
        let (number, event) = host.event();
        host.ack(number);
        match event {
            ExecEvent::Rich(bytes) => {
                told_after_exit |= has_exited;
                rich.extend_from_slice(&bytes);
            }
            ExecEvent::Exited(_) => has_exited = true,
            ExecEvent::Closed => break,
            _ => {}
        }
    }
    assert!(!told_after_exit, "files are told before the end");
    if rich.is_empty() {
        return None;
    }
    let Rich::Files { files, truncated } = serde_json::from_slice(&rich).unwrap() else {
        panic!("{}", String::from_utf8_lossy(&rich))
    };
    let short = |file: ChangedFile| {
        let name = file.path.strip_prefix(&start.cwd).unwrap().trim_start_matches('/').to_owned();
        (name, file.size, file.change)
    };
    Some((files.into_iter().map(short).collect(), truncated))
}

struct Work {
    guest: TestGuest,
    cwd: String,
    n: std::cell::Cell<u32>,
}

impl Work {
    fn new() -> Self {
        let guest = TestGuest::start();
        let cwd = guest.path("work");
        fs::create_dir(&cwd).unwrap();
        Self { guest, cwd, n: std::cell::Cell::new(0) }
    }

    fn id(&self) -> String {
        self.n.set(self.n.get() + 1);
        format!("e{}", self.n.get())
    }

    /// Runs an untracked exec. A file written by the test itself could have the time of the next exec's start.
    fn prepare(&self, script: &str) {
        let start = ExecStart { cwd: self.cwd.clone(), ..shell(&self.id(), script) };
        assert_eq!(run(&self.guest, &start), None);
    }

    fn told(&self, script: &str) -> Option<Report> {
        let start = ExecStart { track_files: true, cwd: self.cwd.clone(), ..shell(&self.id(), script) };
        run(&self.guest, &start)
    }

    /// Names with their changes; nothing may be cut.
    fn changes(&self, script: &str) -> Vec<(String, FileChange)> {
        let Some((files, truncated)) = self.told(script) else { return Vec::new() };
        assert!(!truncated);
        files.into_iter().map(|(name, _, change)| (name, change)).collect()
    }
}

fn created(names: &[&str]) -> Vec<(String, FileChange)> {
    names.iter().map(|name| ((*name).to_owned(), FileChange::Created)).collect()
}

fn modified(names: &[&str]) -> Vec<(String, FileChange)> {
    names.iter().map(|name| ((*name).to_owned(), FileChange::Modified)).collect()
}

#[test]
fn files_made_and_changed_are_told_with_their_size() {
    let work = Work::new();
    work.prepare("printf old > old; : > untouched");
    assert_eq!(
        work.told("printf more >> old; mkdir -p a/b; printf 12345 > a/b/new; cat untouched; ln -s old link; mkfifo pipe"),
        Some((
            vec![
                ("a/b/new".to_owned(), 5, FileChange::Created),
                ("old".to_owned(), 7, FileChange::Modified),
            ],
            false
        ))
    );
    assert_eq!(work.told("cat old; ls -R"), None, "reading is no change");
    assert_eq!(work.told("rm a/b/new; rmdir a/b"), None, "what is gone is not told");
}

#[test]
fn renamed_and_backdated_files_count() {
    let work = Work::new();
    assert_eq!(work.changes("echo x > a.tmp; mv a.tmp a"), created(&["a"]));
    // As editors and careful programs write: a new file replaces the old one.
    assert_eq!(work.changes("echo y > a.tmp; mv a.tmp a"), modified(&["a"]));
    assert_eq!(work.changes("mv a b"), modified(&["b"]), "a file under another name");
    assert_eq!(work.changes("echo z > dated; touch -d 2001-01-01 dated"), created(&["dated"]));
}

/// Many execs in a row, faster than the kernel's clock for files moves.
#[test]
fn a_file_of_the_call_before_is_not_told_again_and_none_is_missed() {
    let work = Work::new();
    for n in 0..40 {
        let name = format!("f{n}");
        assert_eq!(work.changes(&format!("echo {n} > {name}")), created(&[&name]));
        // The same file again, with the same size, at once.
        assert_eq!(work.changes(&format!("echo {n} > {name}")), modified(&[&name]), "missed");
        assert_eq!(work.changes("true"), [], "told again");
    }
}

#[test]
fn what_the_host_or_an_untracked_exec_wrote_just_before_is_not_the_execs() {
    let work = Work::new();
    let mut host = work.guest.connect();
    for n in 0..20 {
        let write = Request::Write {
            path: format!("{}/by-host-{n}", work.cwd),
            write: WriteMode::Replace,
            mode: None,
            parents: false,
        };
        host.ask_with_body(&write, b"x").unwrap();
        assert_eq!(work.changes("true"), []);
        work.prepare("echo x > untracked");
        assert_eq!(work.changes("echo x > own"), if n == 0 { created(&["own"]) } else { modified(&["own"]) });
    }
}

#[test]
fn what_tools_keep_for_themselves_is_passed_over() {
    let work = Work::new();
    let script = "mkdir -p .git node_modules/x src/__pycache__ .cache build .ssh
        touch .git/a node_modules/x/b src/__pycache__/c.pyc .cache/d .ssh/id .bash_history src/e.pyc
        touch build/before build/CACHEDIR.TAG build/z; mkdir build/deep; touch build/deep/x
        touch src/main.py .env visible";
    assert_eq!(work.changes(script), created(&[".env", "src/main.py", "visible"]));
}

#[test]
fn symlinks_lead_nowhere() {
    let work = Work::new();
    let elsewhere = work.guest.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let script = format!("ln -s {elsewhere} out; echo x > out/file; ln -s . loop; ln -s /nowhere dangling");
    assert_eq!(work.changes(&script), []);
}

#[test]
fn a_large_answer_is_cut_and_says_so() {
    let work = Work::new();
    let (files, truncated) = work.told("for n in $(seq 300); do : > $n; done").unwrap();
    assert_eq!((files.len(), truncated), (100, true));
    let (files, truncated) =
        work.told("mkdir long; cd long; for n in $(seq 200); do : > $(printf %0240d $n); done").unwrap();
    assert!(truncated && !files.is_empty() && files.len() < 200);
    // A name that is not text.
    let (files, truncated) = work.told("rm -rf *; : > good; : > $(printf '\\377')").unwrap();
    assert_eq!((files.len(), truncated), (1, true));
}

#[test]
fn a_tree_too_deep_or_gone_costs_nobody_anything() {
    let work = Work::new();
    let deep = "for n in $(seq 80); do mkdir d; cd d; done; : > bottom";
    assert_eq!(work.told(deep), Some((Vec::new(), true)));
    assert_eq!(work.told("rm -rf ../work"), None);
    fs::create_dir(&work.cwd).unwrap();
    assert_eq!(work.changes(": > again"), created(&["again"]));
}

#[test]
fn the_system_is_not_looked_through() {
    let guest = TestGuest::start();
    for cwd in ["/usr", "/proc", "/dev"] {
        let start = ExecStart { track_files: true, cwd: cwd.to_owned(), ..shell(cwd, "true") };
        assert_eq!(run(&guest, &start), None, "{cwd}");
    }
}

#[test]
fn a_tree_of_many_files_is_looked_through_beside_everything_else() {
    let work = Work::new();
    work.prepare("for d in $(seq 20); do mkdir d$d; (cd d$d; touch $(seq 100)); done");
    let told = [created(&["d19/new"]), modified(&["d7/50"])].concat();
    assert_eq!(work.changes(": > d7/50; : > d19/new"), told);
}

#[test]
fn cells_tell_of_files_where_they_are_and_before_their_state() {
    let work = Work::new();
    let cell = |code: &str| {
        let cell = CellStart {
            language: "python".to_owned(),
            context: Some("python".to_owned()),
            code: code.to_owned(),
            grace_ms: 1000,
        };
        let start = ExecStart {
            track_files: true,
            cwd: work.cwd.clone(),
            cell: Some(cell),
            command: Vec::new(),
            ..shell(&work.id(), "")
        };
        let mut host = work.guest.connect();
        host.start(&start);
        host.attach(&start.id, 1);
        let mut rich = Vec::new();
        loop {
            let (number, event) = host.event();
            host.ack(number);
            match event {
                ExecEvent::Rich(bytes) => rich.extend_from_slice(&bytes),
                ExecEvent::Exited(_) => break,
                _ => {}
            }
        }
        let records = rich.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut records: Vec<Rich> = records.map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert!(matches!(records.pop(), Some(Rich::State { .. })));
        match records.pop() {
            Some(Rich::Files { files, .. }) => {
                files.into_iter().map(|file| (file.path, file.change)).collect()
            }
            _ => Vec::new(),
        }
    };
    assert_eq!(cell("1"), []);
    for n in 0..10 {
        let name = format!("{}/f{n}", work.cwd);
        let write = format!("open('f{n}', 'w').write('x')");
        assert_eq!(cell(&write), [(name.clone(), FileChange::Created)]);
        assert_eq!(cell(&write), [(name, FileChange::Modified)]);
        assert_eq!(cell("1"), []);
    }
    // The interpreter changes its directory, and the tracking follows it.
    let elsewhere = work.guest.path("elsewhere");
    assert_eq!(cell(&format!("import os; os.mkdir('{elsewhere}'); os.chdir('{elsewhere}')")), []);
    assert_eq!(cell("open('there', 'w').write('x')"), [(format!("{elsewhere}/there"), FileChange::Created)]);
    // The interpreter dies, and its files are still reported.
    let last = cell("open('last', 'w').write('x'); os.kill(os.getpid(), 9)");
    assert_eq!(last, [(format!("{elsewhere}/last"), FileChange::Created)]);
}
