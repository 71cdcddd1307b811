//! Layers of images, unpacked into a directory with a canary beside it.
#![no_main]

use std::{fs::File, os::fd::AsFd as _};

use arbitrary::Arbitrary;
use images::{UnpackOptions, unpack_layer};
use libfuzzer_sys::fuzz_target;
use warren_fuzz::{Cell, Member, tar};

#[derive(Debug, Arbitrary)]
enum Layer {
    Members(Vec<Member>),
    Raw(Vec<u8>),
}

fuzz_target!(|layer: Layer| {
    let archive = match layer {
        Layer::Members(members) => tar(&members),
        Layer::Raw(bytes) => bytes,
    };
    let cell = Cell::new();
    let directory = File::open(cell.inside()).expect("the directory");
    let options = UnpackOptions {
        max_entries: 200,
        max_layer_bytes: 1024 * 1024,
        max_disk_bytes: 4 * 1024 * 1024,
        ..UnpackOptions::default()
    };
    let _outcome = unpack_layer(archive.as_slice(), directory.as_fd(), &options);
    cell.check();
});
