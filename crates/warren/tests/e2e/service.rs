//! The daemon as a service: what it tells the service manager, as `sd_notify` does.

use std::{
    fs,
    io::ErrorKind,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
};

use rustix::process::{Signal, kill_process};

use crate::support::{PATIENCE, World, finish, repository};

fn heard(manager: &UnixDatagram) -> String {
    let mut said = [0; 256];
    let length = manager.recv(&mut said).unwrap();
    String::from_utf8_lossy(&said[..length]).into_owned()
}

#[test]
fn a_service_says_when_it_is_ready_and_when_it_stops() {
    let world = World::new();
    let path = world.files().join("notify");
    let name = format!("warren-test-{}", std::process::id());
    let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
    let managers = [
        (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
        (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}")),
    ];
    for (manager, address) in managers {
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let daemon = world.command(&["serve"]).env("NOTIFY_SOCKET", address).spawn().unwrap();
        assert_eq!(heard(&manager), "READY=1");
        // Ready is reachable. Another daemon that is refused, and a sandbox, have nothing to say.
        world.run(&["--json", "run", "true"]).expect(0);
        kill_process(rustix::process::Pid::from_child(&daemon), Signal::TERM).unwrap();
        assert_eq!(heard(&manager), "STOPPING=1");
        finish(daemon).expect(0);
    }
}

#[test]
fn a_daemon_that_a_command_started_is_not_that_commands_service() {
    let world = World::new();
    let path = world.files().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    finish(world.command(&["ps"]).env("NOTIFY_SOCKET", &path).spawn().unwrap()).expect(0);
    world.stop_daemon();
    manager.set_nonblocking(true).unwrap();
    assert_eq!(manager.recv(&mut [0; 64]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn the_units_wait_for_that_word() {
    for unit in ["warren.service", "warren-user.service"] {
        let text = fs::read_to_string(repository().join("scripts/dist/files").join(unit)).unwrap();
        for line in ["Type=notify", "NotifyAccess=main", "KillMode=process"] {
            assert!(text.lines().any(|found| found == line), "{unit} lacks {line}");
        }
    }
}
