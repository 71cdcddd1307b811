//! A full disk: a clear error, nothing half-written, and all is well once there is space again.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests may stop the test")]

use std::{fs, path::Path};

use sandbox::{EventKind, ExecId};
use store::{EntryKind, Item, Ledger, LedgerError, LedgerLimits, NewEvent, Store, StoreError};

/// A file system of `bytes`, gone again when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: usize) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", directory.path(), "tmpfs", flags, Some(options.as_c_str())) {
            Ok(()) => Some(Self(directory)),
            Err(error) => {
                println!("skipped: a small file system needs the right to mount: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the space that is left, down to the last page.
    fn fill(&self) {
        let mut file = fs::File::create(self.path().join("filler")).unwrap();
        while std::io::Write::write(&mut file, &[1; 4096]).is_ok_and(|n| n > 0) {}
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

fn event(n: usize) -> NewEvent {
    NewEvent {
        at: jiff::Timestamp::UNIX_EPOCH,
        kind: EventKind::SandboxCreated,
        sandbox: None,
        name: None,
        namespace: None,
        exec: None,
        detail: format!("{n} {}", "x".repeat(4000)),
    }
}

#[tokio::test]
async fn the_store_says_no_space_and_works_again_when_there_is_some() {
    let Some(disk) = SmallDisk::new(2 << 20) else { return };
    let store = Store::open(disk.path()).unwrap();
    let first = store.append_events(vec![event(0)]).await.unwrap().remove(0);
    disk.fill();
    let mut n = 0;
    let error = loop {
        n += 1;
        if let Err(error) = store.append_events(vec![event(n)]).await {
            break error;
        }
        assert!(n < 1000, "the disk does not fill");
    };
    assert!(matches!(error, StoreError::NoSpace { .. }), "{error:?}");
    assert!(
        matches!(error.next(), Some(sandbox::Next::Advice(advice)) if advice.contains("Free some space"))
    );
    assert_eq!(store.events(1, 1).await.unwrap(), [first]);

    disk.free();
    let next = store.append_events(vec![event(n)]).await.unwrap().remove(0);
    assert_eq!(next.number, n as u64 + 1);
    store.close().await;
    let store = Store::open(disk.path()).unwrap();
    assert_eq!(store.events(1, 2000).await.unwrap().len(), n + 1);
}

#[tokio::test]
async fn a_store_cannot_be_made_on_a_full_disk_but_can_be_later() {
    let Some(disk) = SmallDisk::new(1 << 20) else { return };
    disk.fill();
    let error = Store::open(disk.path()).unwrap_err();
    assert!(matches!(error, StoreError::NoSpace { .. }), "{error:?}");
    disk.free();
    Store::open(disk.path()).unwrap().append_events(vec![event(1)]).await.unwrap().remove(0);
}

#[test]
fn the_ledger_keeps_nothing_half_written() {
    let Some(disk) = SmallDisk::new(1 << 20) else { return };
    let limits = LedgerLimits { per_sandbox_bytes: 64 << 20, segment_bytes: 100_000 };
    let ledger = Ledger::open(disk.path().join("logs"), limits).unwrap();
    let exec = ExecId::from_random([1; 8]);
    let mut writer = ledger.writer(&exec).unwrap();
    let data = vec![b'x'; 30_000];
    let mut n = 0;
    let error = loop {
        match writer.append(0, EntryKind::Stdout, n + 1, &data) {
            Ok(number) => n = number,
            Err(error) => break error,
        }
        assert!(n < 1000, "the disk does not fill");
    };
    assert!(matches!(error, LedgerError::NoSpace { .. }), "{error:?}");
    assert_eq!(writer.last_number(), n);
    assert!(matches!(writer.append(0, EntryKind::Stdout, 1, &data), Err(LedgerError::NoSpace { .. })));
    let count = |ledger: &Ledger| {
        let mut reader = ledger.reader(&exec, 1).unwrap();
        let mut n = 0;
        while let Some(item) = reader.next().unwrap() {
            n += 1;
            assert!(matches!(item, Item::Entry(entry) if entry.number == n && entry.data == data));
        }
        n
    };
    assert_eq!(count(&ledger), n);
    assert_eq!(count(&Ledger::open(disk.path().join("logs"), limits).unwrap()), n);

    ledger.remove(&ExecId::from_random([2; 8])).unwrap();
    drop(writer);
    let other = ExecId::from_random([3; 8]);
    assert!(matches!(
        ledger.writer(&other).and_then(|mut writer| writer.append(0, EntryKind::Stdout, 1, &data)),
        Err(LedgerError::NoSpace { .. })
    ));
    // Room comes from the sandbox's own cap, or from outside.
    let smaller = LedgerLimits { per_sandbox_bytes: 500_000, ..limits };
    let ledger = Ledger::open(disk.path().join("logs"), smaller).unwrap();
    ledger.trim().unwrap();
    let mut writer = ledger.writer(&exec).unwrap();
    assert_eq!(writer.append(0, EntryKind::Stdout, n + 1, &data).unwrap(), n + 1);
}
