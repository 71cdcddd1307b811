//! A world without a way out: each test runs in user, network and mount namespaces of its own, where every address of
//! the test ranges is this machine's. Servers listen on "public" and "private" addresses of it.

use std::{
    env, fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

pub(crate) use super::servers::{echo, http, serve};

/// Set in the process that runs inside the world.
const INSIDE: &str = "EDGE_TEST_WORLD";
/// The longest time for anything slow: no test waits without an end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const SETUP: &str = "
set -e
ip link set lo up
for range in 93.184.216.0/24 10.0.0.0/8 169.254.0.0/16 100.100.100.200/32 8.8.8.8/32; do
    ip route add local $range dev lo
done
echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind
for range in 2606:4700::/32 fd00::/8; do
    ip -6 route add local $range dev lo
done
mount -t tmpfs none /tmp
echo 'nameserver 10.0.2.3' > /tmp/resolv.conf
echo 'options timeout:2 attempts:2' >> /tmp/resolv.conf
mount --bind /tmp/resolv.conf /etc/resolv.conf
";

/// Runs a story in a world of its own: a copy of this program that runs the calling test only.
pub(crate) fn in_a_world(story: fn()) {
    if env::var_os(INSIDE).is_some() {
        shell(SETUP);
        story();
        return;
    }
    if !works("unshare", &["-Urnm", "nft", "list", "ruleset"]) {
        let why = "not tested: this host has no unprivileged namespaces with nftables";
        // CI has all that the tests need.
        let is_in_ci = env::var("CI").is_ok_and(|value| value == "true");
        assert!(!(is_in_ci && rustix::process::geteuid().is_root()), "{why}");
        println!("{why}");
        return;
    }
    let test = thread::current().name().unwrap().to_owned();
    let done = Command::new("unshare")
        // With its own process numbers, whatever it started ends with it.
        .args(["-Urnmpf", "--mount-proc", "--kill-child"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    print!("{told}");
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Runs a script in the network namespace of the calling thread.
pub(crate) fn shell(script: &str) -> String {
    let done = Command::new("sh").args(["-c", script]).env_remove("http_proxy").output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{script}: {told}{}", String::from_utf8_lossy(&done.stderr));
    told
}

/// Writes a file of the world's own `/tmp`.
pub(crate) fn file(path: &str, content: &str) -> String {
    fs::write(path, content).unwrap();
    path.to_owned()
}
