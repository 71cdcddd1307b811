//! Back ends beside the default, side by side in one daemon.

use std::path::Path;

use crate::harness::{Daemon, is_root};

fn has(program: &str) -> bool {
    ["/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin"]
        .iter()
        .any(|place| Path::new(place).join(program).is_file())
}

#[test]
fn sandboxes_of_several_back_ends_outlive_one_daemon() {
    let mut daemon = Daemon::configured("[backends]\noci = true\nprocess = true\n");
    assert!(daemon.log().contains("THE BACK END process IS ENABLED"), "{}", daemon.log());
    let runtimes = [("oci", "runc"), ("gvisor", "runsc")];
    let runtimes = runtimes.iter().filter(|(_, program)| is_root() && has(program)).map(|(kind, _)| *kind);
    let kinds: Vec<&str> = ["namespace", "process"].into_iter().chain(runtimes).collect();
    for kind in &kinds {
        daemon.create(kind, &["--backend", kind]);
    }
    daemon.kill();
    daemon.serve();
    for kind in &kinds {
        assert_eq!(daemon.sh_ok(kind, "echo alive"), "alive", "{kind}");
        let seen = daemon.inspect(kind);
        assert_eq!((&seen["backend"], &seen["isolation"]["backend"]), (&(*kind).into(), &(*kind).into()));
    }
    // Nobody takes away what belongs to another: all can be started again from their files.
    for kind in &kinds {
        daemon.ok(["stop", kind]);
    }
    daemon.kill();
    daemon.serve();
    for kind in &kinds {
        daemon.ok(["start", kind]);
        daemon.ok(["rm", "--force", kind]);
    }
    assert_eq!(std::fs::read_dir(daemon.home().join("sandboxes")).unwrap().count(), 0);
}

#[test]
fn a_back_end_that_does_not_work_disturbs_nobody() {
    let daemon = Daemon::configured("[backends]\noci = '/no/such/runc'\ngvisor = false\n");
    for kind in ["oci", "gvisor", "process"] {
        let (code, told) = daemon.fails(["create", "--backend", kind]);
        let named = if kind == "oci" && is_root() { "/no/such/runc" } else { "this daemon has no back end" };
        assert!(code == 125 && told.contains(named), "{kind}: {code} {told}");
    }
    daemon.create("box", &[]);
    assert_eq!(daemon.inspect("box")["backend"], "namespace");
    daemon.ok(["rm", "--force", "box"]);
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}
