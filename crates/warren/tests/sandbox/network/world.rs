//! A world without a way out: each test runs in a network namespace of its own, where every address of the internet
//! that the tests name is this machine's. In it run a real daemon, servers on public and private addresses, and a DNS
//! server.

use std::{
    env,
    process::{Command, Stdio},
    thread,
};

use crate::harness::{Daemon, is_root};

/// The variable with the directory of a world's files; set in the process that runs inside it.
pub(crate) const PLACE: &str = "WARREN_TEST_WORLD";

/// Every address that a test may name is here. Whoever has no rights may use all ports.
const SETUP: &str = r#"
set -e
ip link set lo up
for range in 93.184.216.0/24 10.0.0.0/8 169.254.0.0/16 8.8.8.8/32 168.63.129.16/32 100.100.100.200/32; do
    ip route add local $range dev lo
done
ip -6 route add local default dev lo
# Public addresses of the host itself, and a neighbour's range.
ip address add 93.184.216.5/32 dev lo
ip -6 address add 2606:4700::5/128 dev lo nodad
ip -6 route add 2606:4700:5::/64 dev lo
echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
echo 'nameserver 10.9.9.9' > "$WARREN_TEST_WORLD/resolv.conf"
mount --bind "$WARREN_TEST_WORLD/resolv.conf" /etc/resolv.conf
"#;
const AS_ROOT: &str = r#"exec "$@""#;
/// An ordinary user made the namespaces and is root in them; in one more they are ordinary again, with one id that has
/// a name.
const AS_ORDINARY: &str = r#"
mount --bind /dev/null /etc/subuid
mount --bind /dev/null /etc/subgid
exec unshare --user --map-user=65534 --map-group=65534 "$@"
"#;

/// Runs a story in a world of its own: a copy of this program that runs the calling test only.
pub(crate) fn in_a_world(story: fn()) {
    if env::var_os(PLACE).is_some() {
        return story();
    }
    // With process numbers of its own, whatever it started ends with it.
    let (apart, whoami) = if is_root() { ("-nmpf", AS_ROOT) } else { ("-Urnmpf", AS_ORDINARY) };
    if !works("unshare", &[apart, "nft", "list", "ruleset"]) {
        not_tested("this host has no network namespaces with nftables");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let test = thread::current().name().unwrap().to_owned();
    let done = Command::new("unshare")
        .args([apart, "--mount-proc", "--kill-child", "sh", "-c", &format!("{SETUP}{whoami}"), "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(PLACE, place.path())
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    // Repeats what was not tested, and what was measured.
    for line in told.lines().filter(|line| line.contains("not tested:") || line.contains("measured:")) {
        println!("{line}");
    }
}

/// Says what is not tested on this host. CI has all that the tests need, so there it is a failure.
pub(crate) fn not_tested(why: &str) {
    let is_in_ci = env::var("CI").is_ok_and(|value| value == "true");
    assert!(!(is_in_ci && is_root()), "not tested: {why}");
    println!("not tested: {why}");
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Runs `curl` in a sandbox; returns the body, or `exit` and its code.
pub(crate) fn curl(daemon: &Daemon, name: &str, arguments: &str) -> String {
    // Whatever is refused is refused at once: this time is for what hangs, and its code (28) is expected nowhere.
    let (code, out, _) = daemon.sh(name, &format!("curl -gsS --max-time 60 {arguments}"));
    if code == 0 { out } else { format!("exit {code}") }
}

/// Returns the decisions about a sandbox's traffic, as `verdict name address port rule`, without empty fields.
pub(crate) fn log(daemon: &Daemon, name: &str) -> Vec<String> {
    let found = daemon.json(["network", name, "--log", "--json"]);
    let entries = found["entries"].as_array().unwrap();
    let line = |entry: &serde_json::Value| {
        let words = ["kind", "name", "address", "port", "rule"].map(|key| match &entry[key] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    entries.iter().map(line).collect()
}
