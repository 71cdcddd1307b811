//! Homes: which database is theirs, and what a look at one finds.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use std::{fs, path::Path};

use sandbox::{SandboxId, VolumeId, VolumeSpec};
use store::{Described, Store, Survey, VolumeRecord, VolumeState};

async fn is_of_home(home: &Path) -> bool {
    let store = Store::open(home).unwrap();
    let is_of_home = store.is_of_home().await.unwrap();
    store.close().await;
    is_of_home
}

/// A home whose database is its own.
async fn bound() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.bind_to_home().await.unwrap();
    store.close().await;
    home
}

fn meddle(home: &Path, sql: &str) {
    rusqlite::Connection::open(home.join("warren.db")).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_new_database_is_nobodys_until_it_is_bound() {
    let home = tempfile::tempdir().unwrap();
    assert!(!is_of_home(home.path()).await);
    assert!(!is_of_home(home.path()).await);
    let home = bound().await;
    assert!(is_of_home(home.path()).await);
    assert!(is_of_home(home.path()).await);
    for gone in ["warren.db", "home.id"] {
        let home = bound().await;
        fs::remove_file(home.path().join(gone)).unwrap();
        assert!(!is_of_home(home.path()).await, "{gone}");
    }
    fs::write(home.path().join("warren.db"), "").unwrap();
    assert!(!is_of_home(home.path()).await);
}

#[tokio::test]
async fn an_old_copy_is_not_the_homes_own() {
    let home = bound().await;
    let copy = home.path().join("copy");
    fs::copy(home.path().join("warren.db"), &copy).unwrap();
    assert!(is_of_home(home.path()).await);
    fs::copy(&copy, home.path().join("warren.db")).unwrap();
    assert!(!is_of_home(home.path()).await);
}

#[tokio::test]
async fn a_database_that_does_not_continue_the_one_before_has_another_history() {
    let home = bound().await;
    let history = async || {
        let store = Store::open(home.path()).unwrap();
        let history = store.history().await.unwrap();
        store.bind_to_home().await.unwrap();
        let bound = store.history().await.unwrap();
        store.close().await;
        (history, bound)
    };
    let copy = home.path().join("copy");
    fs::copy(home.path().join("warren.db"), &copy).unwrap();
    let (first, _) = history().await;
    assert!(first.is_some());
    assert_eq!(history().await, (first.clone(), first.clone()));
    fs::copy(&copy, home.path().join("warren.db")).unwrap();
    let (unbound, second) = history().await;
    assert_eq!(unbound, None);
    assert!(second.is_some() && second != first);
    assert_eq!(history().await, (second.clone(), second.clone()));
    fs::remove_file(home.path().join("warren.db")).unwrap();
    let (unbound, third) = history().await;
    assert_eq!(unbound, None);
    assert!(third.is_some() && third != second);
}

#[tokio::test]
async fn the_database_may_be_ahead_of_its_home_by_a_crash() {
    let home = bound().await;
    let mark = fs::read(home.path().join("home.id")).unwrap();
    assert!(is_of_home(home.path()).await);
    fs::write(home.path().join("home.id"), mark).unwrap();
    assert!(is_of_home(home.path()).await);
}

#[tokio::test]
async fn another_homes_database_is_not_this_homes() {
    let (home, other) = (bound().await, bound().await);
    fs::copy(other.path().join("warren.db"), home.path().join("warren.db")).unwrap();
    assert!(!is_of_home(home.path()).await);
}

#[tokio::test]
async fn a_database_from_before_there_were_marks_is_its_homes_if_the_home_is_as_old() {
    let age = "DROP TABLE home; ALTER TABLE execs DROP COLUMN last_entry; ALTER TABLE execs DROP COLUMN n_lost; \
         ALTER TABLE execs DROP COLUMN asked_by; DROP TABLE shares; \
         ALTER TABLE sandboxes DROP COLUMN ports; ALTER TABLE sandboxes DROP COLUMN network_requests; \
         ALTER TABLE sandboxes DROP COLUMN request_hash; ALTER TABLE execs DROP COLUMN request_hash; \
         ALTER TABLE package_jobs DROP COLUMN request_hash; \
         DROP TABLE ssh_keys; DROP TABLE secrets; DROP TABLE sandbox_secrets; ALTER TABLE keys DROP COLUMN network; PRAGMA user_version = 7;";
    let home = bound().await;
    meddle(home.path(), age);
    assert!(!is_of_home(home.path()).await, "the home is younger than this database");
    let home = bound().await;
    meddle(home.path(), age);
    fs::remove_file(home.path().join("home.id")).unwrap();
    assert!(is_of_home(home.path()).await);
    assert!(is_of_home(home.path()).await);
}

#[tokio::test]
async fn damage_in_the_middle_is_found_at_once_and_the_file_can_be_set_aside() {
    let home = bound().await;
    let file = home.path().join("warren.db");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 64].fill(0xee);
    fs::write(&file, &bytes).unwrap();
    let error = Store::open(home.path()).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
    assert!(Survey::of(home.path()).is_err());
    let aside = Store::set_aside(home.path(), "damaged-now").unwrap().unwrap();
    assert_eq!(fs::read(aside).unwrap(), bytes);
    assert_eq!(Store::set_aside(home.path(), "again").unwrap(), None);
    assert!(!is_of_home(home.path()).await);
}

#[tokio::test]
async fn a_survey_changes_nothing_and_finds_what_has_no_record() {
    let home = tempfile::tempdir().unwrap();
    let empty = Survey { has_database: false, is_of_home: false, described: vec![], undescribed: vec![] };
    assert_eq!(Survey::of(home.path()).unwrap(), empty);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);

    let home = bound().await;
    let volume = |seed: u8| VolumeRecord {
        id: VolumeId::from_random([seed; 8]),
        spec: serde_json::from_value::<VolumeSpec>(serde_json::json!({ "name": format!("v{seed}") }))
            .unwrap(),
        state: VolumeState::Ready,
        storage: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        owner: None,
    };
    let directory = |id: &str| home.path().join("volumes").join(id);
    for seed in [1, 2] {
        fs::create_dir_all(directory(volume(seed).id.as_str())).unwrap();
        volume(seed).write_manifest(&directory(volume(seed).id.as_str())).unwrap();
    }
    let bare = home.path().join("sandboxes").join(SandboxId::from_random([3; 8]).as_str());
    fs::create_dir_all(&bare).unwrap();
    fs::create_dir_all(home.path().join("sandboxes/none of ours")).unwrap();
    let store = Store::open(home.path()).unwrap();
    store.insert_volume(volume(1)).await.unwrap();
    // Beside the store that has it open.
    let survey = Survey::of(home.path()).unwrap();
    let described = vec![directory(volume(2).id.as_str())];
    assert_eq!(survey, Survey { has_database: true, is_of_home: true, described, undescribed: vec![bare] });
    store.close().await;
    let found = store::find_in_home::<VolumeRecord>(home.path()).unwrap();
    let mut read: Vec<_> = found.iter().map(|found| found.read().unwrap()).collect();
    read.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
    assert_eq!(read, [volume(1), volume(2)]);
}

#[test]
fn a_manifest_counts_for_its_own_directory_only() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("volumes").join(VolumeId::from_random([1; 8]).as_str());
    fs::create_dir_all(&directory).unwrap();
    let read =
        || store::find_in_home::<VolumeRecord>(home.path()).unwrap()[0].read().unwrap_err().to_string();
    assert!(read().contains("No such file"));
    for (text, expected) in [("", "EOF"), ("{\"version\":1}", "record"), ("[]", "Manifest")] {
        fs::write(directory.join("manifest.json"), text).unwrap();
        assert!(read().contains(expected), "{text}: {}", read());
    }
    let other = VolumeRecord {
        id: VolumeId::from_random([2; 8]),
        spec: serde_json::from_value(serde_json::json!({ "name": "v" })).unwrap(),
        state: VolumeState::Ready,
        storage: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        owner: None,
    };
    other.write_manifest(&directory).unwrap();
    assert!(read().contains("belongs to another"));
}
