//! Links to large files and growing ones.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::support::World;

/// Larger than all memory that the daemon may take for it.
const HUGE_BYTES: u64 = 512 * 1024 * 1024;
const MAX_GROWTH_KIB: u64 = 64 * 1024;

/// The largest memory that a process had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn link(world: &World, path: &str) -> String {
    world.run(&["link", &format!("dev:{path}"), "--ttl", "5m"]).expect(0).text().trim().to_owned()
}

/// Opens a link; `take` gets the head in lower case and the connection behind it.
fn get(url: &str, headers: &str) -> (String, TcpStream) {
    let (address, target) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /{target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (String::from_utf8(head).unwrap().to_ascii_lowercase(), stream)
}

fn length(head: &str) -> u64 {
    head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap()
}

fn count(mut stream: TcpStream) -> u64 {
    std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
}

#[test]
fn a_huge_file_passes_through_without_staying() {
    let world = World::new();
    let served = world.serve(&[]);
    world.run(&["create", "--name", "dev"]).expect(0);
    world
        .run(&[
            "exec",
            "dev",
            "sh",
            "-ec",
            &format!("truncate -s {HUGE_BYTES} /root/huge; printf end >> /root/huge"),
        ])
        .expect(0);
    let url = link(&world, "/root/huge");
    let before = peak_kib(served.pid());
    let (head, stream) = get(&url, "");
    assert!(head.contains("content-disposition: attachment"), "{head}");
    assert_eq!((length(&head), count(stream)), (HUGE_BYTES + 3, HUGE_BYTES + 3));
    let grown = peak_kib(served.pid()).saturating_sub(before);
    assert!(grown < MAX_GROWTH_KIB, "{grown} KiB");
    let (head, mut stream) = get(&url, &format!("range: bytes={HUGE_BYTES}-\r\n"));
    let mut end = String::new();
    stream.read_to_string(&mut end).unwrap();
    assert!(head.starts_with("http/1.1 206") && end == "end", "{head}{end}");
    served.stop();
}

#[test]
fn a_file_that_grows_keeps_to_what_was_announced() {
    let world = World::new();
    let served = world.serve(&[]);
    world.run(&["create", "--name", "dev"]).expect(0);
    // Made larger than the buffers in between, so that it grows while it is read.
    let script = "head -c 33554432 /dev/zero > /root/log; (while :; do head -c 65536 /dev/zero >> /root/log; done) & exit 0";
    world.run(&["exec", "dev", "sh", "-ec", script]).expect(0);
    let url = link(&world, "/root/log");
    for _ in 0..3 {
        let (head, stream) = get(&url, "");
        assert_eq!(length(&head), count(stream), "{head}");
    }
    world.run(&["rm", "--force", "dev"]).expect(0);
    let (head, _) = get(&url, "");
    assert!(head.starts_with("http/1.1 404"), "{head}");
    served.stop();
}

#[test]
fn what_a_command_made_is_told_and_linked() {
    let world = World::new();
    let served = world.serve(&["--dev"]);
    world.run(&["create", "--name", "dev"]).expect(0);
    let ran = served.post(
        "/v1/sandboxes/dev/execs?wait=true",
        r#"{"command":["sh","-c","mkdir -p out .git; echo 1,2 > out/table.csv; : > .git/x; sed -i s/1/3/ out/table.csv"],
            "cwd":"/root","trackFiles":true}"#,
    );
    let files = ran["files"].as_array().unwrap();
    assert!(files.len() == 1 && files[0]["path"] == "/root/out/table.csv", "{ran:#}");
    let (_, mut stream) = get(files[0]["url"].as_str().unwrap(), "");
    let mut table = String::new();
    stream.read_to_string(&mut table).unwrap();
    assert_eq!(table, "3,2\n");
    world
        .run(&[
            "exec",
            "dev",
            "sh",
            "-c",
            "printf '<b>x</b>' > /root/page.html; ln -s /etc/passwd /root/link",
        ])
        .expect(0);
    let (head, mut stream) = get(&link(&world, "/root/page.html"), "");
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    assert!(
        head.contains("content-type: text/plain") && head.contains("content-security-policy: sandbox"),
        "{head}"
    );
    assert_eq!(body, "<b>x</b>");
    // A link inside leads where it leads inside, which is not this machine's own file.
    let (_, mut stream) = get(&link(&world, "/root/link"), "");
    let mut inside = String::new();
    stream.read_to_string(&mut inside).unwrap();
    assert_eq!(inside, world.run(&["exec", "dev", "cat", "/etc/passwd"]).expect(0).text());
    for (file, code) in [("dev:/root", 1), ("dev:/nothing", 1), ("dev:relative", 2), ("nobody:/x", 1)] {
        let refused = world.run(&["link", file]);
        assert!(refused.code.is_some_and(|found| (found == 0) == (code == 0)), "{file}: {refused:?}");
    }
    let refused = world.run(&["link", "dev:/root"]);
    assert!(refused.stderr.contains("`warren exec dev ls DIRECTORY`"), "{refused:?}");
    world.run(&["stop", "dev"]).expect(0);
    let refused = world.run(&["link", "dev:/root/page.html"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("hint: "), "{refused:?}");
    served.stop();
}
