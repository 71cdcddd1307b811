//! Whatever happens to a ledger, a reader sees every entry once, in order, or is told that it is gone.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use std::{collections::BTreeMap, fs, path::Path};

use proptest::prelude::*;
use sandbox::ExecId;
use store::{EntryKind, Item, Ledger, LedgerError, LedgerLimits, LedgerReader};

const LIMITS: LedgerLimits = LedgerLimits { per_sandbox_bytes: 6_000, segment_bytes: 700 };
const N_EXECS: u8 = 3;

#[derive(Debug, Clone)]
enum Act {
    Append {
        exec: u8,
        len: usize,
    },
    Finish {
        exec: u8,
    },
    Trim,
    /// The daemon ends and comes back; before it does, the last segment of an exec loses its last bytes.
    Crash {
        exec: u8,
        lost: u64,
    },
    /// A reader goes on for a while.
    Read {
        exec: u8,
        n: usize,
    },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let exec = 0..N_EXECS;
    let act = prop_oneof![
        8 => (exec.clone(), 0_usize..400).prop_map(|(exec, len)| Act::Append { exec, len }),
        1 => exec.clone().prop_map(|exec| Act::Finish { exec }),
        1 => Just(Act::Trim),
        1 => (exec.clone(), 0_u64..900).prop_map(|(exec, lost)| Act::Crash { exec, lost }),
        3 => (exec, 1_usize..20).prop_map(|(exec, n)| Act::Read { exec, n }),
    ];
    prop::collection::vec(act, 1..120)
}

fn id(exec: u8) -> ExecId {
    ExecId::from_random([exec; 8])
}

/// Returns the bytes that an entry must hold, from its number and length alone.
fn data(exec: u8, number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| exec ^ (number as u8) ^ (at as u8)).collect()
}

/// The entries that one exec should have.
#[derive(Default)]
struct Model {
    lens: BTreeMap<u64, usize>,
    last: u64,
}

fn cut_tail(directory: &Path, exec: u8, lost: u64) {
    let Ok(listing) = fs::read_dir(directory.join(id(exec).as_str())) else { return };
    let Some(path) = listing.map(|entry| entry.unwrap().path()).max() else { return };
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    // The head of a segment is written before its first entry and long on disk by then.
    file.set_len(len.saturating_sub(lost).max(len.min(32))).unwrap();
}

/// A reader that stays open while things happen to the ledger.
struct Cursor {
    reader: LedgerReader,
    wanted: u64,
}

impl Cursor {
    fn new(ledger: &Ledger, exec: u8, from: u64) -> Self {
        Self { reader: ledger.reader(&id(exec), from).unwrap(), wanted: from }
    }

    /// Reads up to `n` items and checks them against the model.
    fn read(&mut self, exec: u8, model: &Model, n: usize) -> Result<(), TestCaseError> {
        for _ in 0..n {
            let wanted = self.wanted;
            match self.reader.next() {
                Ok(None) => {
                    prop_assert!(
                        wanted > model.last,
                        "exec {exec} ended before {wanted}, not {}",
                        model.last
                    );
                    break;
                }
                Ok(Some(Item::Entry(entry))) => {
                    prop_assert_eq!(entry.number, wanted);
                    prop_assert_eq!(&entry.data[..], &data(exec, wanted, model.lens[&wanted])[..]);
                    self.wanted += 1;
                }
                Ok(Some(Item::Trimmed { from, through })) => {
                    prop_assert_eq!(from, wanted);
                    prop_assert!(through >= from && through <= model.last);
                    self.wanted = through + 1;
                }
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_see_every_entry_once_or_are_told(acts in acts()) {
        let directory = tempfile::tempdir().unwrap();
        let open = || Ledger::open(directory.path().to_owned(), LIMITS).unwrap();
        let mut ledger = open();
        let mut writers = BTreeMap::new();
        let mut models: Vec<Model> = (0..N_EXECS).map(|_| Model::default()).collect();
        let mut cursors: Vec<_> = (0..N_EXECS).map(|exec| Cursor::new(&ledger, exec, 1)).collect();
        for act in acts {
            match act {
                Act::Append { exec, len } => {
                    let writer = writers.entry(exec).or_insert_with(|| ledger.writer(&id(exec)).unwrap());
                    let model = &mut models[exec as usize];
                    prop_assert_eq!(writer.last_number(), model.last);
                    let number = model.last + 1;
                    let written = writer.append(number as i64, EntryKind::Stdout, number, &data(exec, number, len));
                    prop_assert_eq!(written.unwrap(), number);
                    model.last = number;
                    model.lens.insert(number, len);
                    // A cap far above what the last segments need is held at all times.
                    prop_assert!(ledger.total_bytes() <= LIMITS.per_sandbox_bytes);
                }
                Act::Finish { exec } => {
                    writers.remove(&exec);
                    ledger.finish(&id(exec));
                }
                Act::Trim => {
                    for trimmed in ledger.trim().unwrap() {
                        let exec = (0..N_EXECS).find(|exec| id(*exec) == trimmed.exec).unwrap();
                        prop_assert!(trimmed.through <= models[exec as usize].last);
                    }
                }
                Act::Crash { exec, lost } => {
                    writers.clear();
                    drop(ledger);
                    cut_tail(directory.path(), exec, lost);
                    ledger = open();
                    for exec in 0..N_EXECS {
                        let writer = ledger.writer(&id(exec)).unwrap();
                        let model = &mut models[exec as usize];
                        prop_assert!(writer.last_number() <= model.last);
                        model.last = writer.last_number();
                        model.lens.retain(|number, _| *number <= model.last);
                        // A client that had read what the crash took away reads it again, written anew.
                        let wanted = cursors[exec as usize].wanted.min(model.last + 1);
                        cursors[exec as usize] = Cursor::new(&ledger, exec, wanted);
                    }
                }
                Act::Read { exec, n } => {
                    cursors[exec as usize].read(exec, &models[exec as usize], n)?;
                }
            }
        }
        for exec in 0..N_EXECS {
            let model = &models[exec as usize];
            let old = cursors.remove(0);
            for mut cursor in [old, Cursor::new(&ledger, exec, 1)] {
                cursor.read(exec, model, usize::MAX)?;
                prop_assert_eq!(cursor.wanted, model.last + 1);
            }
        }
        drop(writers);
        let on_disk = ledger.total_bytes();
        prop_assert_eq!(open().total_bytes(), on_disk);
    }

    /// Any bytes at all in place of a segment: errors and gaps, but no panic, no endless loop, no false entry.
    #[test]
    fn hostile_segments_are_survived(junk in prop::collection::vec(any::<u8>(), 0..600), at in 0_usize..900, n in 1_u64..12) {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path().to_owned(), LedgerLimits::default()).unwrap();
        let mut writer = ledger.writer(&id(1)).unwrap();
        for number in 1..=n {
            writer.append(0, EntryKind::Stdout, number, &data(1, number, 50)).unwrap();
        }
        drop(writer);
        let path = directory.path().join(id(1).as_str()).join("00000000000000000001.seg");
        let mut bytes = fs::read(&path).unwrap();
        let at = at.min(bytes.len());
        bytes.resize(bytes.len().max(at + junk.len()), 0);
        bytes[at..at + junk.len()].copy_from_slice(&junk);
        fs::write(&path, bytes).unwrap();

        for _ in 0..2 {
            let ledger = Ledger::open(directory.path().to_owned(), LedgerLimits::default()).unwrap();
            let mut reader = ledger.reader(&id(1), 1).unwrap();
            let mut wanted = 1;
            for _ in 0..1000 {
                match reader.next() {
                    Ok(None) => break,
                    Ok(Some(Item::Entry(entry))) => {
                        prop_assert_eq!(entry.number, wanted);
                        prop_assert_eq!(&entry.data[..], &data(1, wanted, 50)[..]);
                        wanted += 1;
                    }
                    Ok(Some(Item::Trimmed { from, through })) => {
                        prop_assert!(from == wanted && through >= from);
                        wanted = through + 1;
                    }
                    Err(LedgerError::Damaged { .. }) => {}
                    Err(error) => return Err(TestCaseError::fail(error.to_string())),
                }
            }
            prop_assert!(wanted <= n + 1);
            let mut writer = ledger.writer(&id(1)).unwrap();
            prop_assert!(writer.last_number() <= n);
            let number = writer.last_number() + 1;
            prop_assert!(writer.append(0, EntryKind::Stdout, number, &data(1, number, 50)).is_ok());
            drop(writer);
            if number == n + 1 {
                break;
            }
        }
    }
}
