//! The exec ledger: every entry once and in order, whatever happened to the process, the disk or the cap.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sandbox::ExecId;
use store::{EntryKind, Item, Ledger, LedgerError, LedgerLimits, LedgerReader, MAX_ENTRY_BYTES, Trimmed};

const SMALL: LedgerLimits = LedgerLimits { per_sandbox_bytes: 1 << 20, segment_bytes: 256 };

fn exec(seed: u8) -> ExecId {
    ExecId::from_random([seed; 8])
}

fn open(directory: &Path, limits: LedgerLimits) -> Ledger {
    Ledger::open(directory.join("logs"), limits).unwrap()
}

fn segments(directory: &Path, exec: &ExecId) -> Vec<PathBuf> {
    let listing = fs::read_dir(directory.join("logs").join(exec.as_str())).unwrap();
    let mut paths: Vec<_> = listing.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Appends `n` entries whose text is their number.
fn print(ledger: &Ledger, exec: &ExecId, n: u64) {
    let mut writer = ledger.writer(exec).unwrap();
    for _ in 0..n {
        let number = writer.last_number() + 1;
        assert_eq!(
            writer.append(number as i64, EntryKind::Stdout, number, text(number).as_bytes()).unwrap(),
            number
        );
    }
}

fn text(number: u64) -> String {
    format!("line {number}\n")
}

#[derive(Debug, PartialEq)]
enum Seen {
    Entries(u64, u64),
    Gone(u64, u64),
    Damaged,
}

/// All that a reader tells, runs of entries folded together.
fn read(mut reader: LedgerReader) -> Vec<Seen> {
    let mut seen = Vec::new();
    loop {
        match reader.next() {
            Ok(None) => return seen,
            Ok(Some(Item::Trimmed { from, through })) => seen.push(Seen::Gone(from, through)),
            Ok(Some(Item::Entry(entry))) => {
                assert_eq!(entry.data, text(entry.number).as_bytes());
                match seen.last_mut() {
                    Some(Seen::Entries(_, last)) if *last + 1 == entry.number => *last += 1,
                    _ => seen.push(Seen::Entries(entry.number, entry.number)),
                }
            }
            Err(LedgerError::Damaged { .. }) => seen.push(Seen::Damaged),
            Err(error) => panic!("{error}"),
        }
        assert!(seen.len() < 1000, "a reader that does not end: {seen:?}");
    }
}

#[test]
fn entries_read_back_in_order_from_any_number() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), SMALL);
    let id = exec(1);
    let mut writer = ledger.writer(&id).unwrap();
    assert_eq!((writer.last_number(), writer.last_guest_event()), (0, 0));
    let written: [(EntryKind, u64, &[u8]); 5] = [
        (EntryKind::Started, 1, b"{}"),
        (EntryKind::Stdin, 0, b"\xff\x00raw"),
        (EntryKind::Stdout, 2, &[7; 5000]),
        (EntryKind::Exited, 3, b"{\"code\":0}"),
        (EntryKind::Closed, 4, b""),
    ];
    for (kind, guest_event, data) in written {
        writer.append(-5, kind, guest_event, data).unwrap();
    }
    assert_eq!((writer.last_number(), writer.last_guest_event()), (5, 4));
    let mut reader = ledger.reader(&id, 0).unwrap();
    for (number, (kind, guest_event, data)) in (1..).zip(written) {
        let Some(Item::Entry(entry)) = reader.next().unwrap() else { panic!("entry {number} is missing") };
        assert_eq!(
            (entry.number, entry.at_ms, entry.kind, entry.guest_event),
            (number, -5, kind, guest_event)
        );
        assert_eq!(entry.data, data);
    }
    assert_eq!(reader.next().unwrap(), None);
    drop(writer);

    let many = exec(2);
    print(&ledger, &many, 100);
    assert!(segments(directory.path(), &many).len() > 5);
    for from in 1..=101 {
        let expected = if from == 101 { vec![] } else { vec![Seen::Entries(from, 100)] };
        assert_eq!(read(ledger.reader(&many, from).unwrap()), expected);
    }
}

#[test]
fn a_follower_gets_what_is_appended_later() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), SMALL);
    let id = exec(1);
    let mut early = ledger.reader(&id, 1).unwrap();
    let mut later = ledger.reader(&id, 30).unwrap();
    assert_eq!(early.next().unwrap(), None);
    assert!(ledger.subscribe(&id).is_none());

    let mut writer = ledger.writer(&id).unwrap();
    let mut watch = ledger.subscribe(&id).unwrap();
    for number in 1..=50 {
        writer.append(0, EntryKind::Stdout, number, text(number).as_bytes()).unwrap();
        assert!(watch.has_changed().unwrap());
        assert_eq!(*watch.borrow_and_update(), number);
        let Some(Item::Entry(entry)) = early.next().unwrap() else { panic!("{number}") };
        assert_eq!(entry.number, number);
        assert_eq!(early.next().unwrap(), None);
        assert_eq!(later.next().unwrap().is_some(), number >= 30);
    }
    drop(writer);
    assert!(watch.has_changed().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_race_the_writer_see_everything_once() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), LedgerLimits { per_sandbox_bytes: 1 << 30, segment_bytes: 4096 });
    let id = exec(1);
    let mut writer = ledger.writer(&id).unwrap();
    const LAST: u64 = 20_000;
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (mut reader, mut watch) = (ledger.reader(&id, 1).unwrap(), writer.subscribe());
            tokio::spawn(async move {
                let mut expected = 1;
                while expected <= LAST {
                    match reader.next().unwrap() {
                        Some(Item::Entry(entry)) => {
                            assert_eq!(entry.number, expected);
                            expected += 1;
                        }
                        Some(other) => panic!("{other:?}"),
                        None if *watch.borrow_and_update() >= expected => {}
                        None => watch.changed().await.unwrap(),
                    }
                }
            })
        })
        .collect();
    let writing = tokio::task::spawn_blocking(move || {
        for number in 1..=LAST {
            let data = vec![b'x'; (number % 700) as usize];
            writer.append(0, EntryKind::Stdout, number, &data).unwrap();
        }
        writer
    });
    let writer = writing.await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    drop(writer);
}

#[test]
fn there_is_one_writer_for_an_exec() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), SMALL);
    let writer = ledger.writer(&exec(1)).unwrap();
    assert!(matches!(ledger.clone().writer(&exec(1)), Err(LedgerError::Busy { .. })));
    assert!(matches!(ledger.remove(&exec(1)), Err(LedgerError::Busy { .. })));
    drop(writer);
    ledger.writer(&exec(1)).unwrap();
    ledger.remove(&exec(1)).unwrap();
    ledger.remove(&exec(1)).unwrap();
    assert_eq!((ledger.execs().unwrap(), ledger.total_bytes()), (vec![], 0));
    assert!(!directory.path().join("logs").join(exec(1).as_str()).exists());
}

#[test]
fn a_resumed_writer_goes_on_where_the_last_one_stopped() {
    let directory = tempfile::tempdir().unwrap();
    for round in 1..=5 {
        let ledger = open(directory.path(), SMALL);
        let on_disk: u64 = if round == 1 {
            0
        } else {
            segments(directory.path(), &exec(1)).iter().map(|p| p.metadata().unwrap().len()).sum()
        };
        assert_eq!(ledger.total_bytes(), on_disk);
        print(&ledger, &exec(1), 20);
        let writer = ledger.writer(&exec(1)).unwrap();
        assert_eq!((writer.last_number(), writer.last_guest_event()), (20 * round, 20 * round));
        assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), [Seen::Entries(1, 20 * round)]);
    }
}

#[test]
fn the_last_guest_event_is_known_even_when_only_stdin_came_since() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), LedgerLimits { per_sandbox_bytes: 700, segment_bytes: 256 });
    let mut writer = ledger.writer(&exec(1)).unwrap();
    writer.append(0, EntryKind::Started, 7, b"{}").unwrap();
    for _ in 0..30 {
        writer.append(0, EntryKind::Stdin, 0, &[0; 100]).unwrap();
    }
    drop(writer);
    assert!(matches!(ledger.reader(&exec(1), 1).unwrap().next(), Ok(Some(Item::Trimmed { from: 1, .. }))));
    let ledger = open(directory.path(), SMALL);
    assert_eq!(ledger.writer(&exec(1)).unwrap().last_guest_event(), 7);
}

#[test]
fn a_tail_cut_at_any_byte_is_cut_back_to_the_last_whole_entry() {
    let directory = tempfile::tempdir().unwrap();
    let limits = LedgerLimits { per_sandbox_bytes: 1 << 20, segment_bytes: 8192 };
    print(&open(directory.path(), limits), &exec(1), 3);
    let path = segments(directory.path(), &exec(1)).remove(0);
    let whole = fs::read(&path).unwrap();
    let size = (whole.len() - 32) / 3;
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let ledger = open(directory.path(), limits);
        let n_whole = cut.saturating_sub(32) as u64 / size as u64;
        // Before the tail is cut a reader just sees no more; after, the writer goes on.
        let expected = if n_whole == 0 { vec![] } else { vec![Seen::Entries(1, n_whole)] };
        assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), expected, "cut at {cut}");
        assert_eq!(ledger.writer(&exec(1)).unwrap().last_number(), n_whole, "cut at {cut}");
        print(&ledger, &exec(1), 2);
        assert_eq!(
            read(ledger.reader(&exec(1), 1).unwrap()),
            [Seen::Entries(1, n_whole + 2)],
            "cut at {cut}"
        );
    }
}

#[test]
fn a_tail_of_zeros_as_power_loss_leaves_it_is_cut_too() {
    let directory = tempfile::tempdir().unwrap();
    let limits = LedgerLimits { per_sandbox_bytes: 1 << 20, segment_bytes: 8192 };
    print(&open(directory.path(), limits), &exec(1), 10);
    let path = segments(directory.path(), &exec(1)).remove(0);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.write_all_at(&vec![0; 5000], len - 60).unwrap();
    let ledger = open(directory.path(), limits);
    assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), [Seen::Entries(1, 8)]);
    print(&ledger, &exec(1), 1);
    assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), [Seen::Entries(1, 9)]);
}

#[test]
fn a_new_segment_that_was_only_begun_is_taken_away() {
    let directory = tempfile::tempdir().unwrap();
    print(&open(directory.path(), SMALL), &exec(1), 20);
    let begun = directory.path().join("logs").join(exec(1).as_str()).join("00000000000000000021.seg");
    fs::write(&begun, b"WRNL").unwrap();
    let ledger = open(directory.path(), SMALL);
    assert_eq!(ledger.writer(&exec(1)).unwrap().last_number(), 20);
    print(&ledger, &exec(1), 20);
    assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), [Seen::Entries(1, 40)]);
}

#[test]
fn damage_in_the_middle_is_told_once_and_passed() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), SMALL);
    print(&ledger, &exec(1), 30);
    let paths = segments(directory.path(), &exec(1));
    let whole = fs::read(&paths[1]).unwrap();
    let first: u64 = paths[1].file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let size = (33 + text(first).len()) as u64;
    // The second entry of the second segment: its data, its length (a lie of 4 GiB), its number.
    for (place, bytes) in [(33, &[0xee][..]), (4, &[0xff; 4]), (8, &[9; 8])] {
        fs::write(&paths[1], &whole).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&paths[1]).unwrap();
        file.write_all_at(bytes, 32 + size + place).unwrap();
        let seen = read(ledger.reader(&exec(1), 1).unwrap());
        let lost = first + 1;
        let expected =
            [Seen::Entries(1, lost - 1), Seen::Damaged, Seen::Gone(lost, lost), Seen::Entries(lost + 1, 30)];
        assert_eq!(seen, expected, "damage at {place}");
        assert_eq!(read(ledger.reader(&exec(1), lost + 1).unwrap()), [Seen::Entries(lost + 1, 30)]);
    }

    let mut reader = ledger.reader(&exec(1), 1).unwrap();
    let error = loop {
        if let Err(error) = reader.next() {
            break error.to_string();
        }
    };
    assert!(
        error.contains(paths[1].to_str().unwrap()) && error.contains(&(32 + size).to_string()),
        "{error}"
    );
}

#[test]
fn damage_in_the_last_segment_does_not_cost_what_is_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let limits = LedgerLimits { per_sandbox_bytes: 1 << 20, segment_bytes: 8192 };
    print(&open(directory.path(), limits), &exec(1), 9);
    let path = segments(directory.path(), &exec(1)).remove(0);
    let size = (33 + text(1).len()) as u64;
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(&[0xff; 50], 32 + 4 * size + 3)
        .unwrap();
    let ledger = open(directory.path(), limits);
    let expected = [Seen::Entries(1, 4), Seen::Damaged, Seen::Gone(5, 6), Seen::Entries(7, 9)];
    assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), expected);
    let mut writer = ledger.writer(&exec(1)).unwrap();
    assert_eq!(writer.last_number(), 9);
    writer.append(0, EntryKind::Stdout, 10, text(10).as_bytes()).unwrap();
    let expected = [Seen::Entries(1, 4), Seen::Damaged, Seen::Gone(5, 6), Seen::Entries(7, 10)];
    assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), expected);
}

#[test]
fn a_segment_that_lost_its_end_is_told_and_passed() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), SMALL);
    print(&ledger, &exec(1), 30);
    let paths = segments(directory.path(), &exec(1));
    let next: u64 = paths[1].file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&paths[0]).unwrap();
    for cut in [1, 33 + text(1).len() as u64] {
        file.set_len(file.metadata().unwrap().len() - cut).unwrap();
        let seen = read(ledger.reader(&exec(1), 1).unwrap());
        let Seen::Gone(from, through) = seen[2] else { panic!("{seen:?}") };
        assert_eq!(through, next - 1);
        assert_eq!(seen[0], Seen::Entries(1, from - 1));
        assert_eq!(seen[3], Seen::Entries(next, 30));
    }
}

#[test]
fn the_oldest_finished_execs_go_first_and_readers_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let limits = LedgerLimits { per_sandbox_bytes: 8_000, segment_bytes: 1_000 };
    let ledger = open(directory.path(), limits);
    for seed in 1..=4 {
        let mut writer = ledger.writer(&exec(seed)).unwrap();
        for number in 1..=30 {
            writer.append(i64::from(seed), EntryKind::Stdout, number, text(number).as_bytes()).unwrap();
        }
        // The second goes on running.
        if seed != 2 {
            writer.append(i64::from(seed), EntryKind::Closed, 31, b"").unwrap();
            ledger.finish(&exec(seed));
        }
    }
    assert_eq!(ledger.trim().unwrap(), []);
    let mut behind = ledger.reader(&exec(1), 1).unwrap();
    assert!(behind.next().unwrap().is_some());

    print(&ledger, &exec(5), 70);
    let told = ledger.trim().unwrap();
    assert_eq!(told, [Trimmed { exec: exec(1), through: 31, whole: true }]);
    assert_eq!(ledger.trim().unwrap(), []);
    assert!(ledger.total_bytes() <= limits.per_sandbox_bytes);
    // A reader that was within a segment finishes it, then is told; a new one is told at once, even after a restart.
    let seen = read(behind);
    assert!(
        matches!(seen[..], [Seen::Entries(2, last), Seen::Gone(gone, 31)] if gone == last + 1),
        "{seen:?}"
    );
    for ledger in [ledger.clone(), open(directory.path(), limits)] {
        assert_eq!(read(ledger.reader(&exec(1), 3).unwrap()), [Seen::Gone(3, 31)]);
        assert_eq!(read(ledger.reader(&exec(2), 1).unwrap()), [Seen::Entries(1, 30)]);
        assert_eq!(ledger.execs().unwrap().len(), 5);
    }

    print(&ledger, &exec(6), 400);
    let mut told = ledger.trim().unwrap();
    told.sort_by(|a, b| a.exec.cmp(&b.exec));
    assert!(told.iter().any(|t| t.exec == exec(3) && t.whole), "{told:?}");
    assert!(told.iter().any(|t| t.exec == exec(6) && !t.whole && t.through < 400), "{told:?}");
    assert!(ledger.total_bytes() <= limits.per_sandbox_bytes);
    let seen = read(ledger.reader(&exec(6), 1).unwrap());
    assert!(
        matches!(seen[..], [Seen::Gone(1, gone), Seen::Entries(first, 400)] if first == gone + 1),
        "{seen:?}"
    );
}

#[test]
fn many_running_execs_together_stay_within_the_cap() {
    let directory = tempfile::tempdir().unwrap();
    let limits = LedgerLimits { per_sandbox_bytes: 4 << 20, segment_bytes: 8 << 20 };
    let ledger = open(directory.path(), limits);
    let mut writers: Vec<_> = (1..=10).map(|seed| ledger.writer(&exec(seed)).unwrap()).collect();
    for n in 0..300 {
        for writer in &mut writers {
            writer.append(n, EntryKind::Stdout, 0, &[b'x'; 4096]).unwrap();
        }
        assert!(
            ledger.total_bytes() <= limits.per_sandbox_bytes,
            "after {n} rounds: {}",
            ledger.total_bytes()
        );
    }
    drop(writers);
    let measured = open(directory.path(), limits).total_bytes();
    assert_eq!(measured, ledger.total_bytes());
}

#[test]
fn whether_an_exec_ended_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), LedgerLimits::default());
    for (seed, kind, n) in [(1, EntryKind::Exited, 1), (2, EntryKind::Closed, 40), (3, EntryKind::Stdout, 1)]
    {
        let mut writer = ledger.writer(&exec(seed)).unwrap();
        for _ in 0..n {
            writer.append(0, EntryKind::Stdout, 0, &[0; 4096]).unwrap();
        }
        writer.append(0, kind, 0, b"").unwrap();
    }
    let limits = LedgerLimits { per_sandbox_bytes: 1, segment_bytes: 8192 };
    let mut told = open(directory.path(), limits).trim().unwrap();
    told.sort_by(|a, b| a.exec.cmp(&b.exec));
    let whole: Vec<_> = told.iter().map(|trimmed| (&trimmed.exec, trimmed.through, trimmed.whole)).collect();
    assert_eq!(whole, [(&exec(1), 2, true), (&exec(2), 41, true)]);
}

#[test]
fn strangers_in_the_directory_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    fs::create_dir_all(logs.join("notes")).unwrap();
    fs::write(logs.join("README"), "mine").unwrap();
    fs::create_dir(logs.join(exec(1).as_str())).unwrap();
    // Entries are counted from 1, and never to the end of what a number can hold.
    for name in ["1.seg.bak", "00000000000000000000.seg", "18446744073709551615.seg"] {
        fs::write(logs.join(exec(1).as_str()).join(name), "mine too").unwrap();
    }
    let ledger = open(directory.path(), SMALL);
    print(&ledger, &exec(1), 3);
    assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), [Seen::Entries(1, 3)]);
    assert_eq!(fs::read_to_string(logs.join("README")).unwrap(), "mine");
}

/// Where the process that is to be killed finds its ledger.
const KILLED_WRITER: &str = "KILLED_WRITER_DIRECTORY";

/// Not a story of its own: the process that the next test starts and kills.
#[test]
fn killed_writer() {
    let Some(directory) = std::env::var_os(KILLED_WRITER) else { return };
    let ledger =
        open(Path::new(&directory), LedgerLimits { per_sandbox_bytes: 1 << 30, segment_bytes: 1 << 16 });
    let mut writer = ledger.writer(&exec(1)).unwrap();
    let mut told = std::io::stderr();
    loop {
        let next = writer.last_number() + 1;
        let number = writer.append(0, EntryKind::Stdout, next, text(next).as_bytes()).unwrap();
        std::io::Write::write_all(&mut told, format!("{number}\n").as_bytes()).unwrap();
    }
}

#[test]
fn a_writer_killed_at_any_moment_loses_nothing_that_it_had_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 1..=5 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_writer", "--nocapture"])
            .env(KILLED_WRITER, directory.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let mut told = last;
        while told < last + 700 * round {
            let number: u64 = lines.next().unwrap().unwrap().parse().unwrap();
            assert_eq!(number, told + 1);
            told = number;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        told = lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).last().unwrap_or(told);

        let ledger = open(directory.path(), LedgerLimits::default());
        last = ledger.writer(&exec(1)).unwrap().last_number();
        assert!(last == told || last == told + 1, "told {told}, found {last}");
        assert_eq!(read(ledger.reader(&exec(1), 1).unwrap()), [Seen::Entries(1, last)]);
    }
}

#[test]
fn the_last_number_is_known_before_a_writer_is_opened_and_after_a_trim() {
    let directory = tempfile::tempdir().unwrap();
    print(&open(directory.path(), SMALL), &exec(1), 20);
    let ledger = open(directory.path(), LedgerLimits { per_sandbox_bytes: 1, ..SMALL });
    assert_eq!(ledger.last_number(&exec(1)).unwrap(), 20);
    assert_eq!(ledger.last_number(&exec(9)).unwrap(), 0);
    ledger.finish(&exec(1));
    ledger.trim().unwrap();
    assert_eq!(open(directory.path(), SMALL).last_number(&exec(1)).unwrap(), 20);
}

#[test]
fn files_are_for_their_owner_and_entries_have_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), SMALL);
    let mut writer = ledger.writer(&exec(1)).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory.path().join("logs")), 0o700);
    assert_eq!(mode(&directory.path().join("logs").join(exec(1).as_str())), 0o700);
    assert_eq!(mode(&segments(directory.path(), &exec(1))[0]), 0o600);
    let error = writer.append(0, EntryKind::Stdout, 1, &vec![0; MAX_ENTRY_BYTES + 1]).unwrap_err();
    assert!(matches!(error, LedgerError::TooLong { .. }));
    assert_eq!(writer.append(0, EntryKind::Stdout, 1, &vec![0; MAX_ENTRY_BYTES]).unwrap(), 1);
    let Some(Item::Entry(entry)) = ledger.reader(&exec(1), 1).unwrap().next().unwrap() else { panic!() };
    assert_eq!(entry.data.len(), MAX_ENTRY_BYTES);
}
