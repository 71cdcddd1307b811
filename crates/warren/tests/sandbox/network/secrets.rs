//! Secrets of real sandboxes: the value reaches its server, and nobody inside ever has it.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use rustix::process::{Signal, kill_process};

use super::{
    faults::edge_of,
    services::{WEB, authority, heard, web},
    world::{in_a_world, log},
    zone::Zone,
};
use crate::harness::{Daemon, text, until};

const VALUE: &str = "s3cr3t-0123456789-abcdef";
const ASK: &str = "curl -sS -H \"Authorization: Bearer $TOKEN\" https://web.example/who";

fn set(daemon: &Daemon, value: &str) {
    let mut set = daemon.command(["secret", "set", "TOKEN", "--host", "web.example", "--method", "GET"]);
    let mut set = set.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    writeln!(set.stdin.take().unwrap(), "{value}").unwrap();
    assert!(set.wait().unwrap().success());
}

/// Whether the server hears the value again after something failed.
fn is_heard_again(daemon: &Daemon) -> bool {
    let before = heard().len();
    daemon.sh("lab", ASK);
    heard()[before..] == [format!("Bearer {VALUE}")]
}

#[test]
fn a_secret_reaches_its_server_and_nobody_inside() {
    in_a_world(|| {
        web();
        let _zone = Zone::start(&format!("web.example {WEB}"));
        let mut daemon = Daemon::trusting(authority());
        set(&daemon, VALUE);
        let reach = ["--network", "none", "--allow", "web.example", "--secret", "TOKEN"];
        daemon.create("lab", &reach);

        let masked = format!("Bearer {}", "*".repeat(VALUE.len()));
        assert_eq!(daemon.sh_ok("lab", ASK).trim_end(), masked, "{}", daemon.log());
        assert_eq!(heard(), [format!("Bearer {VALUE}")]);
        // The edge reports what it did a moment after it did it.
        until("the log tells of the secret", || {
            log(&daemon, "lab").iter().any(|line| line.contains("secret TOKEN"))
        });

        let programs = "python3 -c 'import os, urllib.request as u
print(u.urlopen(u.Request(\"https://web.example/who\", headers={\"authorization\": \"Bearer \" + os.environ[\"TOKEN\"]})).read().decode())'
command -v node > /dev/null && node -e 'fetch(\"https://web.example/who\", {headers: {authorization: \"Bearer \" + process.env.TOKEN}}).then(a => a.text()).then(console.log)' || true";
        let told = daemon.sh_ok("lab", programs);
        assert!(told.lines().count() >= 1 && told.lines().all(|line| line.trim_end() == masked), "{told}");

        // Not in another header, not by another method, not without TLS.
        let elsewhere = daemon.sh_ok("lab", "curl -sS -H \"X-Other: $TOKEN\" https://web.example/who");
        assert!(elsewhere.contains("TOKEN"), "{elsewhere}");
        daemon.sh("lab", &format!("{ASK} -X POST"));
        daemon.sh("lab", &ASK.replace("https", "http"));
        assert!(
            heard().iter().skip(1).all(|line| !line.contains(VALUE) || *line == format!("Bearer {VALUE}"))
        );
        let plain = heard().last().cloned().unwrap();
        assert!(plain.starts_with("Bearer wrn-secret-"), "{plain}");

        let inside = daemon.sh_ok("lab", "env; cat /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n'");
        assert!(inside.contains("TOKEN=wrn-secret-") && !inside.contains(VALUE));
        let kept = Command::new("grep").args(["-rla", VALUE]).arg(daemon.home()).output().unwrap();
        assert!(text(&kept.stdout).lines().all(|path| path.contains("/warren.db")), "{}", text(&kept.stdout));

        kill_process(edge_of(&daemon), Signal::KILL).unwrap();
        until("a new edge puts the value in", || is_heard_again(&daemon));
        daemon.kill();
        daemon.serve();
        until("a new daemon has the secret", || is_heard_again(&daemon));

        // Taken away: what leaves is the placeholder.
        daemon.ok(["secret", "rm", "TOKEN", "--force"]);
        daemon.sh("lab", ASK);
        let last = heard().last().cloned().unwrap();
        assert!(last.starts_with("Bearer wrn-secret-"), "{last}");
    });
}
