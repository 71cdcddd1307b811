//! One set of stories, run on every back end that this machine has.
//!
//! Run as root, it runs them on all, then runs itself again as a user without privileges. An unavailable back end is
//! named with the reason. Arguments choose stories by a part of their names, or back ends by theirs.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test without the standard harness, which is how clippy knows tests"
)]

#[path = "../support/client.rs"]
mod client;
#[path = "../support/guest.rs"]
mod forked;
mod stories;
mod world;

use std::{
    panic::AssertUnwindSafe,
    path::Path,
    process::{Command, ExitCode},
    time::Instant,
};

use stories::STORIES;
use world::{Which, World};

/// The argument that makes this program a guest.
pub(crate) const GUEST: &str = "guest";
/// Set for the run as an ordinary user.
const ROOTLESS: &str = "WARREN_TEST_ROOTLESS";

fn main() -> ExitCode {
    jail::run_spawner_role(forked::forked_guest, backends::namespace::worker);
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == GUEST).is_some() {
        return guest::run_program(arguments, |internet| {
            Ok(jail::install_filter()?.map(|gate| forked::guarded_by(gate, internet)))
        });
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_rootless = std::env::var_os(ROOTLESS).is_some();
    let mut n_failed = 0;
    for which in Which::all() {
        n_failed += tell(&which, is_rootless, &wanted);
    }
    if rustix::process::geteuid().is_root() && !run_rootless(&wanted) {
        n_failed += 1;
    }
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the stories on one back end; returns how many failed.
fn tell(which: &Which, is_rootless: bool, wanted: &[String]) -> usize {
    let who = if is_rootless { " (rootless)" } else { "" };
    let is_wanted = |story: &str| {
        wanted.is_empty() || wanted.iter().any(|word| story.contains(word.as_str()) || *word == which.name())
    };
    if !STORIES.iter().any(|(name, _)| is_wanted(name)) {
        return 0;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut world = match runtime.block_on(World::new(which.clone())) {
        Ok(world) => world,
        Err(why) => {
            println!("skipped: back end {}{who}: {why}", which.name());
            return 0;
        }
    };
    let mut n_failed = 0;
    for (name, story) in STORIES.iter().filter(|(name, _)| is_wanted(name)) {
        let began = Instant::now();
        let told = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(story(&mut world))));
        let result = if told.is_ok() { "ok" } else { "FAILED" };
        println!("test {}{who}::{name} ... {result} ({} ms)", which.name(), began.elapsed().as_millis());
        n_failed += usize::from(told.is_err());
    }
    runtime.block_on(world.end());
    runtime.shutdown_timeout(std::time::Duration::from_secs(10));
    n_failed
}

/// Runs this program again as `nobody`.
fn run_rootless(wanted: &[String]) -> bool {
    let place = tempfile::Builder::new().prefix("warren-user-").tempdir().unwrap();
    let own = place.path().join("own");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(std::env::current_exe().unwrap());
    command.args(wanted).env("TMPDIR", &own).env("HOME", &own).env(ROOTLESS, "1").current_dir(Path::new("/"));
    command.status().unwrap().success()
}
