//! Archives of snapshots, as `load` reads them: the index, a manifest whose digest is right, and the tree behind it.
#![no_main]

use arbitrary::Arbitrary;
use engine::Principal;
use libfuzzer_sys::fuzz_target;
use sandbox::Namespace;
use sha2::{Digest as _, Sha256};
use warren_fuzz::{Daemon, END_BYTES, Member, files, tar};

#[derive(Debug, Arbitrary)]
enum Archive {
    Raw(Vec<u8>),
    Index(Vec<u8>),
    Manifest { manifest: Vec<u8>, tree: Vec<Member> },
}

fuzz_target!(|archive: Archive| {
    let bytes = match archive {
        Archive::Raw(bytes) => bytes,
        Archive::Index(index) => files(&[("index.json", &index)]),
        Archive::Manifest { manifest, tree } => {
            let hex: String = Sha256::digest(&manifest).iter().map(|byte| format!("{byte:02x}")).collect();
            let index = format!(r#"{{"format":1,"snapshots":[{{"digest":"sha256:{hex}"}}],"image":null}}"#);
            let name = format!("snapshots/{hex}/manifest.json");
            let mut bytes = files(&[("index.json", index.as_bytes()), (&name, &manifest)]);
            bytes.truncate(bytes.len() - END_BYTES);
            bytes.extend(tar(&tree));
            bytes
        }
    };
    let daemon = Daemon::get();
    let who = Principal::operator("fuzzer");
    let namespace = Namespace::default();
    let loading = daemon.engine.load_snapshot(&who, &namespace, None, std::io::Cursor::new(bytes));
    let _outcome = daemon.runtime.block_on(loading);
});
