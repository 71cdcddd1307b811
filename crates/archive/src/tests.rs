//! Archives that are written come back, and hostile ones are refused.

use tar::{Builder, EntryType, Header};

use super::*;

const LIMITS: ReadLimits = ReadLimits { header_bytes: 100_000, parts: 100 };

fn read(archive: &[u8], format: Format) -> Result<Vec<Member>> {
    let mut reader = Reader::new(archive, format, LIMITS);
    let mut members = Vec::new();
    while let Some(member) = reader.next()? {
        members.push(member);
    }
    Ok(members)
}

fn written() -> (Vec<u8>, Vec<Member>) {
    let holes = Content { size: 9_000_000_000_000, parts: vec![Part { offset: 4096, length: 5 }] };
    let mut odd = Member::new("odd", Kind::File(holes), 0o7644);
    (odd.uid, odd.gid) = (4_000_000_000, 7);
    odd.mtime = Timespec { tv_sec: -5, tv_nsec: 250_000_000 };
    odd.attributes = vec![(b"user.a=b".to_vec(), b"\n\0".to_vec()), (b"user.c".to_vec(), Vec::new())];
    let divided = format!("{}/{}", "d".repeat(140), "n".repeat(99));
    let members = vec![
        Member::new("directory", Kind::Directory, 0o755),
        odd,
        Member::new(divided.as_str(), Kind::Directory, 0o700),
        Member::new("n".repeat(101), Kind::Symlink { target: b"t".repeat(300) }, 0o777),
        Member::new("d/".repeat(300) + "x", Kind::HardLink { target: b"odd".to_vec() }, 0o644),
        Member::new("pipe", Kind::Fifo, 0o600),
        Member::new("socket", Kind::Socket, 0o600),
        Member::new("gone", Kind::Whiteout, 0),
        Member::new("empty", Kind::File(Content::default()), 0o600),
    ];
    let mut writer = Writer::new(Vec::new());
    for member in &members {
        writer.begin(member).unwrap();
        if member.path == b"odd" {
            writer.write(b"stuff").unwrap();
        }
    }
    (writer.finish().unwrap(), members)
}

#[test]
fn what_is_written_comes_back() {
    let (archive, members) = written();
    for format in [Format::Own, Format::Any] {
        assert_eq!(read(&archive, format).unwrap(), members);
    }
    let mut others = tar::Archive::new(&archive[..]);
    let paths = others.entries().unwrap().map(|entry| entry.unwrap().path_bytes().into_owned());
    assert!(
        paths.zip(&members).all(|(path, member)| path.strip_suffix(b"/").unwrap_or(&path) == member.path)
    );
}

#[test]
fn archives_that_are_cut_or_changed_do_no_harm() {
    let (archive, members) = written();
    for length in 0..archive.len() - 1024 {
        assert!(read(&archive[..length], Format::Own).is_err(), "{length}");
    }
    for at in 0..archive.len() {
        let mut changed = archive.clone();
        changed[at] ^= 0x55;
        // Whatever comes of it is no panic, and not without end.
        let _outcome = read(&changed, Format::Any).map(|read| assert!(read.len() <= members.len()));
    }
}

#[test]
fn content_is_as_long_as_it_was_said_to_be() {
    let member = Member::new("file", Kind::File(Content::whole(3)), 0o600);
    for content in [&b"12"[..], b"1234"] {
        assert!(Writer::new(Vec::new()).add(&member, content).is_err());
    }
}

#[test]
fn what_is_said_of_a_member_is_said_once_and_has_a_limit() {
    let extension = |builder: &mut Builder<Vec<u8>>, kind, content: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    };
    for kind in [EntryType::XHeader, EntryType::GNULongName, EntryType::GNULongLink] {
        let mut twice = Builder::new(Vec::new());
        extension(&mut twice, kind, b"11 path=ab\n");
        // Alone, nothing follows that it could be said of.
        assert!(matches!(read(twice.get_ref(), Format::Any), Err(Error::Damaged(_))));
        extension(&mut twice, kind, b"11 path=ab\n");
        assert!(matches!(read(&twice.into_inner().unwrap(), Format::Any), Err(Error::Damaged(_))));
    }
    let mut long = Builder::new(Vec::new());
    for _ in 0..3 {
        extension(&mut long, EntryType::XGlobalHeader, &[0; 40_000]);
    }
    let long = read(&long.into_inner().unwrap(), Format::Any);
    assert!(matches!(long, Err(Error::LongHeader { most: 100_000 })), "{long:?}");
}
