//! Trees of snapshots, unpacked into a directory with a canary beside it. What could be unpacked can be packed again.
#![no_main]

use std::{fs::File, os::fd::AsFd as _};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use trees::{UnpackLimits, facts, pack, unpack};
use warren_fuzz::{Cell, Member, tar};

#[derive(Debug, Arbitrary)]
enum Tree {
    Members(Vec<Member>),
    Raw(Vec<u8>),
}

fuzz_target!(|tree: Tree| {
    let archive = match tree {
        Tree::Members(members) => tar(&members),
        Tree::Raw(bytes) => bytes,
    };
    let cell = Cell::new();
    let directory = File::open(cell.inside()).expect("the directory");
    let limits = UnpackLimits { max_entries: 200, max_bytes: 1024 * 1024 };
    if unpack(archive.as_slice(), directory.as_fd(), &limits).is_ok() {
        let _facts = facts(directory.as_fd()).expect("an unpacked tree can be read");
        pack(directory.as_fd(), &mut std::io::sink()).expect("an unpacked tree can be packed");
    }
    cell.check();
});
