//! One set of stories, run on every back end that this machine has.
//!
//! Run as root, it runs them on each, then runs itself again as a user without privileges. An unavailable back end is
//! named with the reason. Arguments choose stories by a part of their names; `--exact` chooses a back end.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test without the standard harness, which is how clippy knows tests"
)]

#[path = "../support/arguments.rs"]
mod arguments;
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

use arguments::Arguments;
use stories::STORIES;
use world::{Which, World};

/// The argument that makes this program a guest.
pub(crate) const GUEST: &str = "guest";
/// Set for the runs as an ordinary user.
const AGAIN: &str = "WARREN_TEST_AGAIN";

/// Set once this process has a mount namespace of its own: stories may change the host that it sees.
const OWN_MOUNTS: &str = "WARREN_TEST_OWN_MOUNTS";

fn main() -> ExitCode {
    jail::run_spawner_role(forked::forked_guest, backends::namespace::worker);
    let mut first = std::env::args_os().skip(1).peekable();
    if first.next_if(|first| first == GUEST).is_some() {
        return guest::run_program(first, |internet| {
            Ok(jail::install_filter()?.map(|gate| forked::guarded_by(gate, internet)))
        });
    }
    if rustix::process::geteuid().is_root() && std::env::var_os(OWN_MOUNTS).is_none() {
        return in_own_mounts();
    }
    let is_again = std::env::var_os(AGAIN).is_some();
    let groups: Vec<Group> = Which::all().into_iter().flat_map(|which| Group::of(which, is_again)).collect();
    let Some(arguments) = Arguments::read(&groups.iter().map(Group::name).collect::<Vec<_>>()) else {
        return ExitCode::SUCCESS;
    };
    let chosen = groups.iter().filter(|group| arguments.wants_group(&group.name()));
    let n_failed = chosen.filter(|group| !group.run(&arguments)).count();
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program again, with the same arguments.
fn in_own_mounts() -> ExitCode {
    let mut command = Command::new("unshare");
    command.arg("-m").arg(std::env::current_exe().unwrap()).args(std::env::args_os().skip(1));
    let status = command.env(OWN_MOUNTS, "1").status().unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All stories on one back end, as one user.
struct Group {
    which: Which,
    is_rootless: bool,
    /// This process is that user already.
    is_here: bool,
}

impl Group {
    /// Root runs a back end as itself and as `nobody`; others only as themselves.
    fn of(which: Which, is_again: bool) -> Vec<Self> {
        let here = Self { which: which.clone(), is_rootless: is_again, is_here: true };
        if rustix::process::geteuid().is_root() {
            vec![here, Self { which, is_rootless: true, is_here: false }]
        } else {
            vec![here]
        }
    }

    fn name(&self) -> String {
        format!("{}{}", if self.is_rootless { "rootless::" } else { "" }, self.which.name())
    }

    fn run(&self, arguments: &Arguments) -> bool {
        if self.is_here { self.tell(arguments) } else { self.run_again(arguments) }
    }

    /// Runs the stories; returns whether all went well.
    fn tell(&self, arguments: &Arguments) -> bool {
        let name = self.name();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let mut world = match runtime.block_on(World::new(self.which.clone())) {
            Ok(world) => world,
            Err(why) => {
                println!("skipped: back end {name}: {why}");
                return true;
            }
        };
        let mut n_failed = 0;
        for (story, run) in STORIES.iter().filter(|(story, _)| arguments.wants_story(story)) {
            let began = Instant::now();
            let told = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(&mut world))));
            let result = if told.is_ok() { "ok" } else { "FAILED" };
            println!("test {name}::{story} ... {result} ({} ms)", began.elapsed().as_millis());
            n_failed += usize::from(told.is_err());
        }
        runtime.block_on(world.end());
        runtime.shutdown_timeout(std::time::Duration::from_secs(10));
        n_failed == 0
    }

    /// Runs this program again as `nobody`, for this group.
    fn run_again(&self, arguments: &Arguments) -> bool {
        let place = tempfile::Builder::new().prefix("warren-user-").tempdir().unwrap();
        let own = place.path().join("own");
        std::fs::create_dir(&own).unwrap();
        std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
        std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(std::env::current_exe().unwrap()).args(arguments.for_group(&self.name()));
        command.env("TMPDIR", &own).env("HOME", &own).env(AGAIN, "1").current_dir(Path::new("/"));
        command.status().unwrap().success()
    }
}
