//! Ledger files as a broken disk or a stranger left them: readers and writers get by with anything.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use sandbox::ExecId;
use store::{EntryKind, Ledger, LedgerLimits};

/// Reads everything from `from` on; ends, whatever the files hold.
fn read(ledger: &Ledger, exec: &ExecId, from: u64) {
    let Ok(mut reader) = ledger.reader(exec, from) else { return };
    for _item in 0..10_000 {
        match reader.next() {
            Ok(Some(_item)) => {}
            _ => return,
        }
    }
    panic!("more entries than the files can hold");
}

fuzz_target!(|segments: Vec<(u8, Vec<u8>)>| {
    let home = tempfile::tempdir().expect("a temporary directory");
    let exec: ExecId = "exc-0000000000001".parse().expect("an id");
    let directory = home.path().join(exec.as_str());
    fs::create_dir(&directory).expect("a directory");
    for (first, bytes) in segments.iter().take(4) {
        fs::write(directory.join(format!("{first:020}.seg")), bytes).expect("a file");
    }
    let limits = LedgerLimits { per_sandbox_bytes: 64 * 1024, segment_bytes: 4 * 1024 };
    let Ok(ledger) = Ledger::open(home.path().to_owned(), limits) else { return };
    read(&ledger, &exec, 1);
    read(&ledger, &exec, 200);
    if let Ok(mut writer) = ledger.writer(&exec) {
        let _written = writer.append(0, EntryKind::Stdout, 1, b"more");
    }
    read(&ledger, &exec, 1);
    let _trimmed = ledger.trim();
});
