//! Commands of one user find one daemon, whatever their environment.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Daemon, Finished, PATIENCE, World, finish, until};

const NOBODY: u32 = 65534;
/// A command that waits longer than this for a daemon that it cannot reach hangs.
const SOON: Duration = Duration::from_secs(15);

/// An ordinary user with nothing but a home, who may be in a session.
struct User {
    world: World,
}

impl User {
    /// None where these tests run as an ordinary user, whose own data directory they must not touch.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root, to become another user");
            return None;
        }
        let world = World::bare();
        world.give_to(NOBODY);
        let user = Self { world };
        fs::create_dir(user.session()).unwrap();
        std::os::unix::fs::chown(user.session(), Some(NOBODY), Some(NOBODY)).unwrap();
        Some(user)
    }

    fn session(&self) -> PathBuf {
        self.world.home().join("session")
    }

    fn home(&self) -> PathBuf {
        self.world.home().parent().unwrap().join(".local/share/warren")
    }

    fn command(&self, is_in_session: bool, args: &[&str]) -> Command {
        let mut command = self.world.command(args);
        command.env_remove("WARREN_HOME").uid(NOBODY).gid(NOBODY).current_dir("/");
        if is_in_session {
            command.env("XDG_RUNTIME_DIR", self.session());
        }
        command
    }

    fn run(&self, is_in_session: bool, args: &[&str]) -> Finished {
        finish(self.command(is_in_session, args).spawn().unwrap())
    }

    fn daemon(&self) -> Daemon {
        daemon_of(&self.home())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.run(false, &["rm", "-f", "lab"]);
        let daemon = self.daemon();
        daemon.signal(Signal::TERM);
        daemon.ends_within(PATIENCE);
    }
}

fn daemon_of(home: &Path) -> Daemon {
    let note = fs::read_to_string(home.join("daemon.lock")).unwrap();
    Daemon::find(note.lines().next().unwrap().parse().unwrap()).unwrap()
}

#[test]
fn commands_in_and_outside_a_session_share_a_daemon() {
    for is_first_in_session in [true, false] {
        let Some(user) = User::new() else { return };
        user.run(is_first_in_session, &["create", "--name", "lab"]).expect(0);
        let daemon = user.daemon().pid;
        let listed = user.run(!is_first_in_session, &["ps"]).expect(0);
        assert!(listed.text().contains("lab"), "{listed:?}");
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let mut mcp = user.command(!is_first_in_session, &["mcp"]);
        let mut mcp = mcp.stdin(std::process::Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut mcp.stdin.take().unwrap(), format!("{hello}\n").as_bytes()).unwrap();
        let answered = finish(mcp).expect(0);
        assert!(answered.text().contains("serverInfo"), "{answered:?}");
        assert_eq!(user.daemon().pid, daemon);
        // The session ends with its directory; the daemon and the sandbox do not notice.
        fs::remove_dir_all(user.session()).unwrap();
        user.run(false, &["exec", "lab", "true"]).expect(0);
    }
}

#[test]
fn a_chosen_run_directory_is_found_by_commands_that_do_not_name_it() {
    let world = World::new();
    let (run, other) = (world.files().join("r"), world.files().join("other"));
    let with = |run: &Path, args: &[&str]| {
        let mut command = world.command(args);
        finish(command.env("WARREN_RUN", run).spawn().unwrap())
    };
    with(&run, &["create", "--name", "lab"]).expect(0);
    let first = world.daemon().unwrap();
    world.run(&["exec", "lab", "true"]).expect(0);
    let begun = Instant::now();
    let refused = with(&other, &["ps"]).expect(125);
    let said = format!("has the run directory {}, not {}", run.display(), other.display());
    assert!(refused.stderr.contains(&said) && begun.elapsed() < SOON, "{refused:?}");
    // The sandbox outlives its daemon, and the next one looks for it where it is.
    first.signal(Signal::KILL);
    assert!(first.ends_within(PATIENCE));
    world.run(&["exec", "lab", "true"]).expect(0);
    assert_ne!(world.daemon().unwrap().pid, first.pid);
    assert!(!world.socket().exists());
}

#[test]
fn a_socket_whose_name_is_gone_is_made_again() {
    let world = World::with_dev();
    let daemon = world.daemon().unwrap().pid;
    fs::remove_file(world.socket()).unwrap();
    world.run(&["exec", "dev", "true"]).expect(0);
    fs::remove_file(world.home().join("run/ssh.sock")).unwrap();
    until("the socket for SSH is back", || world.home().join("run/ssh.sock").exists());
    fs::remove_dir_all(world.home().join("run")).unwrap();
    world.run(&["ps"]).expect(0);
    assert_eq!(world.daemon().unwrap().pid, daemon);
    assert!(world.log().contains("listening there again"), "{}", world.log());
}

#[test]
fn a_daemon_that_cannot_be_reached_any_more_is_named() {
    let world = World::new();
    let run = world.files().join("r");
    let mut command = world.command(&["ps"]);
    finish(command.env("WARREN_RUN", &run).spawn().unwrap()).expect(0);
    let daemon = world.daemon().unwrap().pid;
    fs::remove_dir_all(&run).unwrap();
    fs::write(&run, "in the way").unwrap();
    let begun = Instant::now();
    let refused = world.run(&["ps"]).expect(125);
    assert!(begun.elapsed() < SOON, "{refused:?}");
    let said = format!("has lost its socket in {}", run.display());
    assert!(
        refused.stderr.contains(&said) && refused.stderr.contains(&format!("kill {daemon}")),
        "{refused:?}"
    );
    let checked = world.run(&["self-check"]).expect(1);
    assert!(checked.text().contains("cannot be reached"), "{checked:?}");
}
