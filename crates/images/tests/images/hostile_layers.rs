//! Layers that mean harm. Each is refused, and nothing outside the layer's directory has changed.

use std::{
    fs::{self, File},
    os::fd::AsFd as _,
    path::Path,
};

use images::{Error, UnpackOptions, unpack_layer};
use tar::EntryType;

use crate::{
    fixture::{Entry, Layer, gzip, header, zstd},
    layers::unpack,
};

/// A directory for the layer beside one that it must not touch.
struct LayerTarget {
    root: tempfile::TempDir,
}

impl LayerTarget {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("layer")).unwrap();
        fs::create_dir(root.path().join("outside")).unwrap();
        fs::write(root.path().join("outside/secret"), b"secret").unwrap();
        Self { root }
    }

    fn outside(&self) -> String {
        self.root.path().join("outside").to_str().unwrap().to_owned()
    }

    fn unpack(&self, layer: Layer) -> Result<(), Error> {
        let unpacked = unpack(&layer.tar(), &self.root.path().join("layer")).map(drop);
        let names: Vec<_> =
            fs::read_dir(self.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs::read(Path::new(&self.outside()).join("secret")).unwrap(), b"secret");
        unpacked
    }
}

#[track_caller]
fn refused(make: impl FnOnce(Layer, &str) -> Layer, because: &str) {
    let place = LayerTarget::new();
    let layer = make(Layer::default(), &place.outside());
    match place.unpack(layer) {
        Err(Error::Refused { why, .. }) => assert!(why.contains(because), "{why}"),
        other => panic!("{other:?}, not refused because {because}"),
    }
}

#[test]
fn paths_that_lead_out() {
    refused(|layer, outside| layer.file(&format!("{outside}/new"), b"x"), "absolute");
    refused(|layer, _| layer.file("../outside/new", b"x"), "upwards");
    refused(|layer, _| layer.file("a/b/../../../outside/new", b"x"), "upwards");
    refused(|layer, _| layer.directory("a/.."), "upwards");
    refused(|layer, _| layer.directory("a").file("a/../../outside/.wh.secret", b""), "upwards");
    refused(|layer, _| layer.file("a/.wh...", b""), "removes no name");
    refused(|layer, _| layer.file(".wh..", b""), "removes no name");
    refused(|layer, _| layer.file("./", b"").file("/", b""), "absolute");
}

#[test]
fn links_that_lead_out() {
    refused(|layer, outside| layer.symlink("out", outside).file("out/new", b"x"), "not a directory");
    refused(|layer, outside| layer.symlink("out", outside).file("out/secret", b"x"), "not a directory");
    refused(|layer, outside| layer.symlink("out", outside).directory("out/new"), "not a directory");
    refused(|layer, outside| layer.symlink("out", outside).file("out/.wh.secret", b""), "not a directory");
    refused(|layer, outside| layer.symlink("out", outside).file("out/.wh..wh..opq", b""), "not a directory");
    refused(|layer, outside| layer.symlink("out", outside).symlink("out/new", "x"), "not a directory");
    refused(
        |layer, outside| {
            layer.symlink("a", "../outside").symlink("b", "a").hard_link("c", "b/secret").file(outside, b"")
        },
        "not in this layer",
    );
    // A directory that was one, and is a link the next time it is walked through.
    refused(
        |layer, outside| layer.directory("a").file("a/x", b"").symlink("a", outside).file("a/new", b"x"),
        "is a directory",
    );
    refused(
        |layer, outside| layer.symlink("a", outside).directory("a").file("a/new", b"x"),
        "not a directory",
    );
}

#[test]
fn hard_links_that_lead_out() {
    refused(|layer, outside| layer.hard_link("a", &format!("{outside}/secret")), "absolute");
    refused(|layer, _| layer.hard_link("a", "../outside/secret"), "upwards");
    refused(|layer, outside| layer.symlink("out", outside).hard_link("a", "out/secret"), "not in this layer");
    refused(|layer, _| layer.hard_link("a", "missing"), "not in this layer");
    refused(|layer, _| layer.hard_link("a", "./"), "link to the root");
    refused(|layer, _| layer.file("a", b"").hard_link("a", "a"), "link to itself");
    refused(|layer, _| layer.directory("d").hard_link("a", "d"), "directory");
    refused(|layer, _| layer.file(".wh.gone", b"").hard_link("a", "gone"), "not in this layer");
}

#[test]
fn a_file_is_never_written_through_what_an_earlier_entry_left_at_its_name() {
    let place = LayerTarget::new();
    let secret = format!("{}/secret", place.outside());
    let layer = Layer::default()
        .file("a", b"first")
        .symlink("a", &secret)
        .file("a", b"last")
        .symlink("b", &secret)
        .hard_link("c", "b")
        .file("c", b"replaced");
    place.unpack(layer).unwrap();
    let at = |name: &str| place.root.path().join("layer").join(name);
    assert_eq!(fs::read(at("a")).unwrap(), b"last");
    assert!(fs::symlink_metadata(at("a")).unwrap().is_file());
    assert!(fs::symlink_metadata(at("b")).unwrap().is_symlink());
    assert_eq!(fs::read(at("c")).unwrap(), b"replaced");
}

#[test]
fn names_and_numbers_that_cannot_be() {
    refused(|layer, _| layer.file(&"n".repeat(256), b""), "longer than 255");
    refused(|layer, _| layer.file(&"long/".repeat(900), b""), "longer than 4096");
    refused(|layer, _| layer.file(&"d/".repeat(300), b""), "deeper than");
    refused(
        |layer, _| layer.entry(&Entry { path: "a", pax: vec![("path", b"a\0b")], ..Entry::default() }),
        "zero byte",
    );
    refused(
        |layer, _| layer.entry(&Entry { path: "a", pax: vec![("uid", b"4294967295")], ..Entry::default() }),
        "owner",
    );
    refused(
        |layer, _| layer.entry(&Entry { path: "a", kind: EntryType::new(b'Z'), ..Entry::default() }),
        "unknown",
    );
    refused(|layer, _| layer.symlink("a", ""), "link to nothing");
    refused(|layer, _| layer.directory("a").file("a", b""), "is a directory");
    refused(|layer, _| layer.file("a", b"").directory("a"), "not a directory");
    refused(|layer, _| layer.file("./", b"").symlink(".", "/etc"), "replace the root");
    refused(
        |mut layer, _| {
            // A name of two megabytes, which would have to be held in memory.
            let name = vec![b'n'; 2 * 1024 * 1024];
            layer.raw(&header("././@LongLink", EntryType::GNULongName, name.len() as u64), &name);
            layer.file("a", b"")
        },
        "longer than",
    );
}

#[test]
fn archives_that_are_broken() {
    let check = |blob: &[u8], because: &str| {
        let place = LayerTarget::new();
        match unpack(blob, &place.root.path().join("layer")) {
            Err(error @ Error::Corrupt { .. }) => {
                assert!(error.to_string().contains(because), "{error}");
            }
            other => panic!("{other:?}, not corrupt because {because}"),
        }
    };
    let tar = Layer::default().file("a", &[b'x'; 5000]).tar();
    check(&tar[..1000], "its end");
    check(&tar[..700], "its end");
    check(&gzip(&tar)[..40], "stream");
    check(&zstd(&tar)[..30], "stream");
    let mut flipped = gzip(&tar);
    let last = flipped.len() - 6;
    flipped[last] ^= 1;
    check(&flipped, "stream");
    check(&[b'x'; 512], "tar header");
    let mut wrong_sum = tar.clone();
    wrong_sum[0] = b'b';
    check(&wrong_sum, "checksum");
    let sparse = Entry {
        path: "sparse",
        data: b"abc",
        pax: vec![
            ("GNU.sparse.major", b"0"),
            ("GNU.sparse.minor", b"1"),
            ("GNU.sparse.realsize", b"10"),
            ("GNU.sparse.map", b"0,1,0,2"),
        ],
        ..Entry::default()
    };
    check(&Layer::default().entry(&sparse).tar(), "sparse");
    let endless = Entry {
        path: "sparse",
        data: b"abc",
        pax: vec![
            ("GNU.sparse.map", b"18446744073709551615,3"),
            ("GNU.sparse.size", b"18446744073709551615"),
        ],
        ..Entry::default()
    };
    check(&Layer::default().entry(&endless).tar(), "sparse");
}

#[test]
fn bombs_end_at_their_limit() {
    let check = |blob: &[u8], options: &UnpackOptions, name: &str| {
        let place = LayerTarget::new();
        let into = File::open(place.root.path().join("layer")).unwrap();
        match unpack_layer(blob, into.as_fd(), options) {
            Err(Error::TooLarge { limit, .. }) => assert_eq!(limit, name),
            other => panic!("{other:?}"),
        }
    };
    let zeros = Layer::default().file("zeros", &vec![0; 8 * 1024 * 1024]).tar();
    let small = UnpackOptions { max_layer_bytes: 1024 * 1024, ..UnpackOptions::default() };
    check(&gzip(&zeros), &small, "max_layer_bytes");
    check(&zstd(&zeros), &small, "max_layer_bytes");
    // What lies behind the archive's end counts too.
    check(&gzip(&[vec![0; 1024], vec![0; 8 * 1024 * 1024]].concat()), &small, "max_layer_bytes");

    let mut many = Layer::default();
    for number in 0..2000 {
        many = many.file(&format!("{number}"), b"");
    }
    let few = UnpackOptions { max_entries: 1000, ..UnpackOptions::default() };
    check(&gzip(&many.tar()), &few, "max_entries");
    // Few entries that lie deep bring many directories along.
    let mut deep = Layer::default();
    for number in 0..20 {
        deep = deep.file(&format!("{number}/{}file", "d/".repeat(100)), b"");
    }
    check(&deep.tar(), &few, "max_entries");

    // What is held in memory until the end: names and attributes of directories.
    let little = UnpackOptions { max_directory_bytes: 100_000, ..UnpackOptions::default() };
    let value = vec![b'x'; 30_000];
    let mut heavy = Layer::default();
    for number in 0..5 {
        let (path, pax) = (format!("{number}"), vec![("SCHILY.xattr.user.a", value.as_slice())]);
        heavy = heavy.entry(&Entry { path: &path, kind: EntryType::Directory, pax, ..Entry::default() });
    }
    check(&heavy.tar(), &little, "max_directory_bytes");
    let long = format!("{}/", "n".repeat(250)).repeat(15);
    let named = (0..40).fold(Layer::default(), |layer, number| layer.directory(&format!("{long}{number}")));
    check(&named.tar(), &little, "max_directory_bytes");

    // A file that is nothing but a hole, and larger than any layer.
    let hole = Entry {
        path: "hole",
        pax: vec![("GNU.sparse.size", b"2000000"), ("GNU.sparse.map", b"")],
        ..Entry::default()
    };
    check(&Layer::default().entry(&hole).tar(), &small, "max_layer_bytes");
}

#[test]
fn what_strangers_wrote_is_told_at_a_length_that_can_be_told() {
    // Whoever unpacks answers in one packet of 64 KiB, whatever the names are.
    let place = LayerTarget::new();
    let layer = place.root.path().join("layer");
    let name = |number: usize| format!("{}/{number}", "\u{1}".repeat(250)).repeat(10);
    let mut devices = Layer::default();
    for number in 0..50 {
        devices = devices.entry(&Entry { path: &name(number), kind: EntryType::Char, ..Entry::default() });
    }
    let warnings = unpack(&devices.tar(), &layer).unwrap().warnings;
    assert_eq!((warnings.texts.len(), warnings.more), (32, 18));
    assert!(serde_json::to_string(&warnings).unwrap().len() < 60_000, "{warnings:?}");

    let huge = vec![b'n'; 1_000_000];
    for (kind, pax) in [(EntryType::Regular, "path"), (EntryType::Link, "linkpath")] {
        let entry = Entry { path: "a", kind, pax: vec![(pax, huge.as_slice())], ..Entry::default() };
        let error = unpack(&Layer::default().entry(&entry).tar(), &layer).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(serde_json::to_string(&error).unwrap().len() < 60_000);
    }
    let impossible = Entry { path: "a", pax: vec![("size", b"18446744073709551615")], ..Entry::default() };
    let error = unpack(&Layer::default().entry(&impossible).tar(), &layer).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}
