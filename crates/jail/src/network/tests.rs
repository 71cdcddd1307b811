//! The network on the real kernel: each test runs again in namespaces of its own (`unshare`), and there plays both
//! ends, as a program inside and as the holder of the sockets.

use std::{
    io::{BufRead as _, BufReader},
    os::fd::{AsFd as _, BorrowedFd},
    process::{Command, Stdio},
};

use super::*;

const EDGE: &str = include_str!("../../../../tests/network/edge.py");
const CLIENT: &str = include_str!("../../../../tests/network/client.py");
/// Tells a test that it runs in its own namespaces.
const APART: &str = "WARREN_TEST_APART";

const END: NetworkEnd = NetworkEnd {
    v4: Ipv4Addr::new(10, 83, 66, 1),
    v6: Some(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)),
    mark: 0x7761_7272,
    named: None,
};

/// Whether this is already the test in its own namespaces; if not, runs it there.
fn is_apart(test: &str) -> bool {
    if std::env::var_os(APART).is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net"]).arg(this);
    command.args(["--exact", &format!("network::tests::{test}"), "--nocapture", "--test-threads=1"]);
    let ran = command.env(APART, "1").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains("1 passed"), "{out}{err}");
    false
}

/// Plays the programs in this network namespace; returns what they see, and the first packets that the edge saw.
fn play(sockets: Vec<OwnedFd>, version: &str) -> (String, String) {
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
    let mut edge = Command::new("python3");
    edge.args(["-c", EDGE, "3", &descriptors.len().to_string()]).stdout(Stdio::piped());
    sys::inherit(&mut edge, &descriptors).unwrap();
    let mut edge = edge.spawn().unwrap();
    let mut said = BufReader::new(edge.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let client = Command::new("python3").args(["-c", CLIENT, version]).output().unwrap();
    edge.kill().unwrap();
    edge.wait().unwrap();
    let seen: Vec<String> = said.map(Result::unwrap).collect();
    let stderr = String::from_utf8_lossy(&client.stderr);
    assert_eq!(stderr, "");
    (String::from_utf8(client.stdout).unwrap(), seen.join("\n"))
}

fn expected(outside: &str, spoofed: &str) -> String {
    format!(
        "tcp {outside} 443 hello at once\n\
         refused ECONNREFUSED at once\n\
         silent timed out at once\n\
         udp {outside} 53 hello at once\n\
         unreachable ECONNREFUSED at once\n\
         nobody here ECONNREFUSED at once\n\
         proxy's port here ECONNREFUSED at once\n\
         own server {outside} 443 hello mine at once\n\
         spoofed {spoofed} at once\n"
    )
}

#[test]
fn programs_reach_whoever_holds_the_sockets_by_ipv4() {
    if is_apart("programs_reach_whoever_holds_the_sockets_by_ipv4") {
        let (inside, seen) = play(make(&END).unwrap(), "4");
        assert_eq!(inside, expected("93.184.216.34", "timed out"));
        assert_eq!(seen, "syn 443\nsyn 81\nsyn 9\nsyn 443", "only what is for outside, from its own address");
    }
}

#[test]
fn programs_reach_whoever_holds_the_sockets_by_ipv6() {
    if is_apart("programs_reach_whoever_holds_the_sockets_by_ipv6") {
        let (inside, seen) = play(make(&END).unwrap(), "6");
        assert_eq!(inside, expected("2606:4700::1", "EADDRNOTAVAIL"));
        assert_eq!(seen, "syn 443\nsyn 81\nsyn 9\nsyn 443");
    }
}

#[test]
fn without_ipv6_programs_are_told_at_once() {
    if is_apart("without_ipv6_programs_are_told_at_once") {
        let sockets = make(&NetworkEnd { v6: None, ..END }).unwrap();
        assert_eq!(sockets.len(), 4);
        let refused = std::net::TcpStream::connect("[2606:4700::1]:443").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENETUNREACH));
        let (inside, _) = play(sockets, "4");
        assert_eq!(inside, expected("93.184.216.34", "timed out"));
    }
}

#[test]
fn what_works_here_is_found_by_trying() {
    if is_apart("what_works_here_is_found_by_trying") {
        assert_eq!(NetworkMeans::begin_trial().finish(), NetworkMeans::Tproxy { v6: true });
        std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        assert_eq!(NetworkMeans::try_here(), NetworkMeans::Tproxy { v6: false });
    }
}

#[test]
fn a_socket_of_another_namespace_leads_nowhere() {
    if is_apart("a_socket_of_another_namespace_leads_nowhere") {
        let here = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let number = rustix::fs::stat("/proc/self/ns/net").unwrap().st_ino;
        let refused = later::enter(here.as_fd(), number + 1).unwrap_err();
        assert_eq!(refused.message, "it is another sandbox's, or the host's");
        // The right one is found; this process is in it already, which the kernel says.
        let refused = later::enter(here.as_fd(), number).unwrap_err();
        assert_eq!((&*refused.step, refused.errno), ("enter the sandbox's namespaces", Some(libc::EINVAL)));
    }
}

#[test]
fn rules_and_routes_can_be_set_again() {
    if is_apart("rules_and_routes_can_be_set_again") {
        drop(make(&END).unwrap());
        rules::set_again(&END).unwrap();
        routes::set_again(&END).unwrap();
        let (inside, _) = play(sockets::make(&END).unwrap(), "4");
        assert_eq!(inside, expected("93.184.216.34", "timed out"));
    }
}
