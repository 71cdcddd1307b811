//! SFTP, by a client that others wrote and packet by packet.

use russh_sftp::{
    client::SftpSession,
    protocol::{FileAttributes, OpenFlags},
};
use sandbox::KeySpec;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::support::{Client, Ran, World, in_time};

async fn sftp(client: &Client) -> SftpSession {
    let channel = client.session().await;
    channel.request_subsystem(true, "sftp").await.unwrap();
    in_time(SftpSession::new(channel.into_stream())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_made_read_changed_and_removed() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let sftp = sftp(&client).await;
    sftp.create_dir("/tmp/d").await.unwrap();
    sftp.create("/tmp/d/a").await.unwrap().write_all(b"hello").await.unwrap();
    assert_eq!(client.run("cat /tmp/d/a").await, Ran::ok("hello"));
    assert_eq!(sftp.read("/tmp/d/a").await.unwrap(), b"hello");
    let attributes = FileAttributes { permissions: Some(0o640), ..FileAttributes::empty() };
    sftp.set_metadata("/tmp/d/a", attributes).await.unwrap();
    let attributes =
        FileAttributes { atime: Some(1_000_000_000), mtime: Some(1_100_000_000), ..FileAttributes::empty() };
    sftp.set_metadata("/tmp/d/a", attributes).await.unwrap();
    assert_eq!(client.run("stat -c '%a %X %Y' /tmp/d/a").await, Ran::ok("640 1000000000 1100000000\n"));
    assert!(sftp.hardlink("/tmp/d/a", "/tmp/d/b").await.unwrap());
    assert_eq!(client.run("stat -c %h /tmp/d/a").await, Ran::ok("2\n"));
    client.run("ln -s a /tmp/d/l").await;
    assert_eq!(sftp.read_link("/tmp/d/l").await.unwrap(), "a");
    assert_eq!(sftp.canonicalize("/tmp/d/l").await.unwrap(), "/tmp/d/a");
    assert!(sftp.symlink_metadata("/tmp/d/l").await.unwrap().is_symlink());
    assert!(sftp.rename("/tmp/d/a", "/tmp/d/b").await.is_err(), "a rename replaces nothing");
    sftp.rename("/tmp/d/a", "/tmp/d/c").await.unwrap();
    let mut names: Vec<_> = sftp.read_dir("/tmp/d").await.unwrap().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["b", "c", "l"]);
    assert!(sftp.remove_dir("/tmp/d").await.is_err());
    for name in ["b", "c", "l"] {
        sftp.remove_file(format!("/tmp/d/{name}")).await.unwrap();
    }
    sftp.remove_dir("/tmp/d").await.unwrap();
    assert!(sftp.fs_info("/").await.unwrap().is_some_and(|found| found.blocks > 0));
    assert_eq!(sftp.canonicalize(".").await.unwrap(), client.run("pwd").await.stdout.trim());
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_and_writes_have_positions_and_outlive_a_rename() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let sftp = sftp(&client).await;
    let flags = OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE;
    let mut file = sftp.open_with_flags("/tmp/a", flags).await.unwrap();
    file.seek(std::io::SeekFrom::Start(1_000_000)).await.unwrap();
    file.write_all(b"end").await.unwrap();
    client.run("mv /tmp/a /tmp/b && rm -f /tmp/c").await;
    file.seek(std::io::SeekFrom::Start(10)).await.unwrap();
    file.write_all(b"begin").await.unwrap();
    file.seek(std::io::SeekFrom::Start(999_998)).await.unwrap();
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"\0\0end");
    let ran = client.run("stat -c %s /tmp/b; head -c 15 /tmp/b | tail -c 5; ls /tmp/a").await;
    assert_eq!((ran.stdout.as_str(), ran.status), ("1000003\nbegin", Some(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_inside_reaches_what_the_kernel_lets_that_user_reach() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let root = world.login("lab").await;
    root.run("umask 077; echo secret > /tmp/secret; mkdir -m 777 /tmp/open; mkfifo /tmp/open/pipe").await;
    let key = world.key("other", KeySpec::default()).await;
    let mut client = world.connect().await;
    assert!(client.password("lab+65534:65534", &key.secret).await);
    let sftp = sftp(&client).await;
    assert!(sftp.read("/tmp/secret").await.is_err());
    assert!(sftp.read("/tmp/open/pipe").await.is_err(), "a FIFO is not opened");
    sftp.create("/tmp/open/mine").await.unwrap().write_all(b"x").await.unwrap();
    assert_eq!(root.run("stat -c %u /tmp/open/mine").await, Ran::ok("65534\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_and_many_small_ones_arrive_whole() {
    let world = World::new().await;
    world.sandbox("lab").await;
    let client = world.login("lab").await;
    let sftp = sftp(&client).await;
    let large: Vec<u8> =
        (0..24 * 1024 * 1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut file = sftp.create("/tmp/large").await.unwrap();
    file.write_all(&large).await.unwrap();
    file.shutdown().await.unwrap();
    assert!(sftp.read("/tmp/large").await.unwrap() == large);
    sftp.create_dir("/tmp/many").await.unwrap();
    for n in 0..1000 {
        let mut file = sftp.create(format!("/tmp/many/{n}")).await.unwrap();
        file.write_all(n.to_string().as_bytes()).await.unwrap();
        file.shutdown().await.unwrap();
    }
    assert_eq!(sftp.read_dir("/tmp/many").await.unwrap().count(), 1000);
    assert_eq!(client.run("cat /tmp/many/* | wc -c").await, Ran::ok("2890\n"));
}
