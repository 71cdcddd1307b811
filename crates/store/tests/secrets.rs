//! Secrets: readable by the owner of the file only, gone from it once removed, and never in words.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use jiff::Timestamp;
use sandbox::{
    Authority, Base, Capabilities, Defaults, Lifetime, Namespace, SandboxId, SandboxSpec, SandboxState,
    SecretKey, SecretRules, SecretValue, plan,
};
use store::{OwnSecret, SandboxRecord, SandboxSecrets, SecretRecord, Store, StoreError};

const VALUE: &str = "ghp_this-is-the-value-0123456789";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn value() -> SecretValue {
    SecretValue::new(VALUE.to_owned()).unwrap()
}

fn rules() -> SecretRules {
    SecretRules { hosts: vec!["api.example.org".parse().unwrap()], ..SecretRules::default() }
}

fn secret(namespace: &str, name: &str) -> SecretRecord {
    SecretRecord {
        namespace: namespace.parse().unwrap(),
        name: name.parse().unwrap(),
        rules: rules(),
        value: value(),
        created_at: at(0),
        updated_at: at(0),
        last_used_at: None,
    }
}

fn sandbox() -> SandboxRecord {
    let (id, name) = (SandboxId::from_random([1; 8]), "box".parse().unwrap());
    let (spec, able) = (SandboxSpec::default(), [Capabilities::all(sandbox::BackendKind::Namespace)]);
    let plan = plan(&id, &name, &spec, &Defaults::default(), &Base::host(), &able).unwrap();
    SandboxRecord {
        id,
        name,
        namespace: Namespace::default(),
        spec,
        plan,
        state: SandboxState::Creating,
        reason: None,
        isolation: None,
        created_at: at(0),
        started_at: None,
        stopped_at: None,
        expires_at: None,
        lifetime: Lifetime::default(),
        last_active_at: at(0),
        owner: None,
        replaces: None,
        ports: Vec::new(),
        network_requests: Vec::new(),
        request_hash: None,
    }
}

fn of_sandbox() -> SandboxSecrets {
    let key = SecretKey("-----BEGIN PRIVATE KEY-----".to_owned());
    SandboxSecrets {
        authority: Authority { certificate: "-----BEGIN CERTIFICATE-----".to_owned(), key },
        hosts: rules().hosts,
        own: vec![OwnSecret { name: "TOKEN".parse().unwrap(), value: value(), rules: rules() }],
    }
}

fn files(home: &Path) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_string_lossy().contains("warren.db")).collect()
}

fn holds_value(home: &Path) -> bool {
    let contains = |bytes: &[u8]| bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes());
    files(home).iter().any(|path| contains(&fs::read(path).unwrap()))
}

#[tokio::test]
async fn a_secret_is_kept_by_namespace_and_name_in_private_files() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let (red, blue) = (secret("red", "TOKEN"), secret("blue", "TOKEN"));
    for record in [&red, &blue] {
        store.set_secret(record.clone()).await.unwrap();
    }
    assert_eq!(store.secrets().await.unwrap(), [blue.clone(), red.clone()]);
    let names = vec![red.name.clone()];
    store.touch_secrets(red.namespace.clone(), names, at(5)).await.unwrap();
    // Set again: the value and the rules change, the rest stays.
    let rules = SecretRules { query: true, ..rules() };
    let again = SecretRecord { rules, created_at: at(9), updated_at: at(9), ..red.clone() };
    store.set_secret(again.clone()).await.unwrap();
    let expected = SecretRecord { created_at: at(0), last_used_at: Some(at(5)), ..again };
    assert_eq!(store.secrets().await.unwrap(), [blue, expected]);
    let files = files(home.path());
    assert!(files.len() >= 2, "the log beside the database too: {files:?}");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    assert!(holds_value(home.path()), "or the next test shows nothing");
}

#[tokio::test]
async fn nothing_of_a_removed_value_stays_on_disk() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let secret = secret("red", "TOKEN");
    store.set_secret(secret.clone()).await.unwrap();
    let sandbox = sandbox();
    store.insert_sandbox(sandbox.clone()).await.unwrap();
    store.set_sandbox_secrets(sandbox.id.clone(), of_sandbox()).await.unwrap();
    // So that the values are in the database itself, not only in the log beside it.
    store.close().await;
    assert!(holds_value(home.path()));
    let store = Store::open(home.path()).unwrap();
    assert!(store.remove_secret(secret.namespace.clone(), secret.name.clone()).await.unwrap());
    assert!(!store.remove_secret(secret.namespace, secret.name).await.unwrap());
    store.remove_sandbox(sandbox.id.clone()).await.unwrap();
    assert_eq!(store.sandbox_secrets(sandbox.id).await.unwrap(), None);
    store.close().await;
    assert!(!holds_value(home.path()));
}

#[tokio::test]
async fn nothing_of_a_removed_value_stays_while_the_store_is_open() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let (secret, sandbox) = (secret("red", "TOKEN"), sandbox());
    store.set_secret(secret.clone()).await.unwrap();
    assert!(holds_value(home.path()));
    store.touch_secrets(secret.namespace.clone(), vec![secret.name.clone()], at(5)).await.unwrap();
    let other = SecretValue::new("another-value".to_owned()).unwrap();
    store.set_secret(SecretRecord { value: other, ..secret.clone() }).await.unwrap();
    assert!(!holds_value(home.path()), "the value that was replaced");

    store.set_secret(secret.clone()).await.unwrap();
    store.remove_secret(secret.namespace, secret.name).await.unwrap();
    assert!(!holds_value(home.path()), "the value that was removed");

    store.insert_sandbox(sandbox.clone()).await.unwrap();
    store.set_sandbox_secrets(sandbox.id.clone(), of_sandbox()).await.unwrap();
    assert!(holds_value(home.path()));
    store.remove_sandbox(sandbox.id).await.unwrap();
    assert!(!holds_value(home.path()), "the value of a sandbox of its own");
}

#[tokio::test]
async fn a_reader_delays_only_the_emptying_of_the_log() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let secret = secret("red", "TOKEN");
    store.set_secret(secret.clone()).await.unwrap();
    store.touch_secrets(secret.namespace.clone(), vec![secret.name.clone()], at(5)).await.unwrap();
    let reader = rusqlite::Connection::open(home.path().join("warren.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM secrets;").unwrap();
    assert!(store.remove_secret(secret.namespace.clone(), secret.name.clone()).await.unwrap());
    assert!(holds_value(home.path()), "or this shows nothing");
    reader.execute_batch("COMMIT").unwrap();
    assert!(!store.remove_secret(secret.namespace, secret.name).await.unwrap());
    assert!(!holds_value(home.path()));
}

#[tokio::test]
async fn a_removed_value_in_the_log_of_a_dead_daemon_goes_when_the_next_one_opens_it() {
    let (home, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(home.path()).unwrap();
    let secret = secret("red", "TOKEN");
    store.set_secret(secret.clone()).await.unwrap();
    store.touch_secrets(secret.namespace.clone(), vec![secret.name.clone()], at(5)).await.unwrap();
    let reader = rusqlite::Connection::open(home.path().join("warren.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM secrets;").unwrap();
    store.remove_secret(secret.namespace, secret.name).await.unwrap();
    // As the files are if the daemon dies now.
    for name in ["warren.db", "warren.db-wal"] {
        fs::copy(home.path().join(name), next.path().join(name)).unwrap();
    }
    assert!(holds_value(next.path()), "or this shows nothing");
    let store = Store::open(next.path()).unwrap();
    assert_eq!(store.secrets().await.unwrap(), []);
    assert!(!holds_value(next.path()));
}

#[tokio::test]
async fn what_a_sandbox_has_of_its_own_is_read_back_and_never_printed() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let sandbox = sandbox();
    let missing = store.set_sandbox_secrets(sandbox.id.clone(), of_sandbox()).await;
    assert!(missing.is_err(), "it belongs to a sandbox");
    store.insert_sandbox(sandbox.clone()).await.unwrap();
    store.set_sandbox_secrets(sandbox.id.clone(), of_sandbox()).await.unwrap();
    let found = store.sandbox_secrets(sandbox.id.clone()).await.unwrap().unwrap();
    assert_eq!(found, of_sandbox());
    assert!(!format!("{found:?}").contains(VALUE) && !format!("{:?}", secret("a", "B")).contains(VALUE));
    let file = rusqlite::Connection::open(home.path().join("warren.db")).unwrap();
    let wrong = format!("UPDATE sandbox_secrets SET own = '\"{VALUE}\"'");
    file.execute(&wrong, []).unwrap();
    let error = store.sandbox_secrets(sandbox.id).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }) && !error.to_string().contains(VALUE), "{error}");
}
