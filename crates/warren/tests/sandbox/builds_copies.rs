//! The files that builds copy, and those that they do not.

use std::{
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, net::UnixListener},
    process::Command,
};

use flate2::{Compression, write::GzEncoder};
use tar::{EntryType, Header};

use crate::{
    builds::{Site, cached, printed},
    harness::Daemon,
    oci::Layer,
};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn one_member(kind: EntryType, name: &str, link: &str) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, std::io::empty()).unwrap();
    archive.into_inner().unwrap()
}

#[test]
fn copies_are_as_docker_makes_them() {
    let site = Site::with(Daemon::start());
    let path = |name: &str| site.context.path().join(name);
    for name in ["closed/file", "wild/a.c", "wild/b.c", "wild/sub/c.c", "wild/d.h"] {
        site.put(name, name);
    }
    fs::set_permissions(path("closed"), fs::Permissions::from_mode(0o750)).unwrap();
    // Entries that are no files stay here; links are links, wherever they lead.
    let _socket = UnixListener::bind(path("socket")).unwrap();
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    std::os::unix::fs::symlink("/etc/passwd", path("out")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
    // A whole system, with all that one has.
    let mut system = Layer::busybox()
        .directory("dev", 0o755)
        .directory("proc", 0o755)
        .directory("run", 0o755)
        .file("run/pid", b"1");
    system =
        system.directory("sys", 0o755).directory("etc", 0o755).entry("etc/owned", 0o600, (7, 8), b"owned");
    let mut bytes = system.bytes();
    // Before the end of the archive: a device.
    let end = bytes.len() - 1024;
    bytes.splice(end..end, one_member(EntryType::Char, "dev/null", "")[..512].to_vec());
    fs::write(path("system.tar.gz"), gzip(&bytes)).unwrap();
    fs::write(path("data.gz"), gzip(b"not an archive")).unwrap();
    site.put(
        "Dockerfile",
        r#"FROM scratch AS system
ADD system.tar.gz /
ENV PATH=/bin
RUN cat /etc/owned > /copied

FROM base AS copies
COPY closed /new
COPY closed /deep/new/
COPY --chown=app:staff closed /owned
COPY wild/*.c /wild/
COPY wild/*.? wild/sub /two/
COPY . /all/
ADD data.gz system.tar.gz /added/
COPY --from=system /etc/own* /etc/owned /from/
RUN stat -c '%n %a %u:%g' /new /deep /deep/new /owned /owned/file /from/owned; ls /wild /two /all /added /from
RUN mkfifo /pipe

FROM scratch
COPY --from=copies / /
RUN cat /new/file && test ! -e /pipe && ls /
"#,
    );
    let events = site.built(&["-t", "app"]);
    let told: String = events
        .iter()
        .filter(|event| event["type"] == "output")
        .map(|event| event["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        told,
        "/new 750 0:0\n/deep 755 0:0\n/deep/new 750 0:0\n/owned 750 1000:50\n/owned/file 644 1000:50\n/from/owned 600 7:8\n\
         /added:\nbin\ndata.gz\ndev\netc\nproc\nrun\nsys\n\n\
         /all:\nDockerfile\nclosed\ndangling\ndata.gz\nout\nsystem.tar.gz\nwild\n\n\
         /from:\nowned\n\n/two:\na.c\nb.c\nc.c\nd.h\n\n/wild:\na.c\nb.c\n\
         closed/fileadded\nall\nbin\ndeep\ndev\netc\nfrom\nnew\nold\nowned\nproc\nrun\nsys\ntmp\ntwo\nwild\n"
    );
    let warnings = events.last().unwrap()["warnings"].to_string();
    assert!(warnings.contains("skipped 1 devices, pipes and similar files of system.tar.gz"), "{warnings}");
    assert!(warnings.contains("skipped 1 devices, pipes and similar files of /"), "{warnings}");
    assert_eq!(site.look("app", "readlink /all/out; cat /added/etc/owned"), "/etc/passwd\nowned");
    let again = site.built(&["-t", "app"]);
    assert_eq!(cached(&again).len(), 14, "{again:?}");

    for (name, bytes, part) in [
        ("up.tar", one_member(EntryType::Regular, "../evil", ""), "leads out of up.tar"),
        ("absolute.tar", one_member(EntryType::Regular, "/evil", ""), "leads out of absolute.tar"),
        ("link.tar", one_member(EntryType::Link, "evil", "/etc/shadow"), "leads out of link.tar"),
        ("x.tar.xz", b"\xfd7zXZ\0 and more".to_vec(), "xz, which ADD does not unpack"),
        ("x.tar.zst", b"\x28\xb5\x2f\xfd and more".to_vec(), "zstd, which ADD does not unpack"),
    ] {
        fs::write(path(name), bytes).unwrap();
        site.put("Dockerfile", &format!("FROM base\nADD {name} /x/\n"));
        let error = site.fails(&["-t", "evil"]);
        assert!(error.contains(part) && error.contains("line 2"), "{error}");
    }
    // A name that no Dockerfile could say.
    fs::write(site.context.path().join(std::ffi::OsStr::from_bytes(b"odd\xff")), "").unwrap();
    let error = site.fails(&["-t", "evil"]);
    assert!(error.contains("not UTF-8") && error.contains("odd"), "{error}");
}

#[test]
fn files_with_holes_are_copied_and_unpacked_whole() {
    const SIZE: u64 = 48 << 20;
    let site = Site::with(Daemon::start());
    let path = |name: &str| site.context.path().join(name);
    let sparse = |name: &str, size: u64| {
        let mut file = fs::File::create(path(name)).unwrap();
        file.write_all(b"begin").unwrap();
        file.set_len(size).unwrap();
        file.seek(SeekFrom::End(-3)).unwrap();
        file.write_all(b"end").unwrap();
    };
    // Too large for any layer, which matters only to whoever copies it.
    sparse("huge", 100 << 30);
    site.put("small", "small");
    site.put("Dockerfile", "FROM base\nCOPY small /\n");
    site.built(&["-t", "app"]);
    site.put("Dockerfile", "FROM base\nCOPY huge /\n");
    let error = site.fails(&["-t", "app"]);
    assert!(error.contains("sparse files"), "{error}");

    fs::remove_file(path("huge")).unwrap();
    sparse("holes", SIZE);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_path_with_name(path("holes"), "in/holes").unwrap();
    fs::write(path("x.tar"), archive.into_inner().unwrap()).unwrap();
    site.put("Dockerfile", "FROM base\nCOPY holes /\nADD x.tar /\nRUN stat -c %s /holes /in/holes\n");
    let events = site.built(&["-t", "app"]);
    assert_eq!(printed(&events), format!("{SIZE}\n{SIZE}\n"));
    let ends = "for f in /holes /in/holes; do head -c 5 $f; tail -c 3 $f; done";
    assert_eq!(site.look("app", ends), "beginendbeginend");
    assert_eq!(events.last().unwrap()["warnings"].as_array().map_or(0, Vec::len), 0, "{events:?}");
}
