//! Keys and the audit: what goes in comes out, what is bounded stays bounded, an older database gains both.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use std::path::Path;

use jiff::Timestamp;
use rusqlite::Connection;
use sandbox::{ByteSize, Frontend, KeyId, KeyView};
use store::{CallQuery, KeyRecord, MAX_CALLS, MAX_CALLS_EACH, MAX_UNKNOWN_CALLS, NewCall, Store, StoreError};

/// The first schema, as databases out there have it.
const FIRST_SCHEMA: &str = include_str!("../migrations/0001_records.sql");
/// One sandbox as the first version of the program wrote it.
const FIRST_SANDBOX: &str = r#"INSERT INTO sandboxes VALUES ('sbx-0000000000000', 'default', 'old', NULL, 'stopped',
    NULL, '{"namespace":"default","image":"host","limits":{},"lifetime":{"onExpiry":"stop"}}', :plan, NULL,
    '{"onExpiry":"stop"}', '2026-01-01T00:00:00.000000000Z', NULL, NULL, NULL, '2026-01-01T00:00:00.000000000Z')"#;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn key(seed: u8, label: Option<&str>) -> KeyRecord {
    let key = KeyView {
        id: KeyId::from_random([seed; 8]),
        label: label.map(|label| label.parse().unwrap()),
        namespace: Some("blue".parse().unwrap()),
        created_at: at(seed.into()),
        expires_at: Some(at(1000)),
        revoked_at: None,
        last_used_at: None,
        max_sandboxes: Some(u32::MAX),
        max_memory: Some(ByteSize(i64::MAX as u64)),
        read_only: true,
        network: Some(sandbox::Policy {
            preset: sandbox::Preset::Public,
            rules: vec!["deny *.corp.example".parse().unwrap()],
        }),
    };
    KeyRecord { key, hash: [seed; 32] }
}

fn call(who: Option<&str>, namespace: Option<&str>) -> NewCall {
    NewCall {
        at: at(0),
        who: who.map(str::to_owned),
        key: who.map(|_| KeyId::from_random([1; 8])),
        frontend: Frontend::Rest,
        action: "POST /v1/sandboxes".to_owned(),
        sandbox: Some("box \"1\"".to_owned()),
        namespace: namespace.map(|namespace| namespace.parse().unwrap()),
        error: Some("denied".to_owned()),
        duration_ms: 7,
        client: Some("curl/8".to_owned()),
    }
}

fn query(from: Option<u64>, limit: u32) -> CallQuery {
    CallQuery { from, limit, ..CallQuery::default() }
}

fn database(home: &Path) -> Connection {
    Connection::open(home.join("warren.db")).unwrap()
}

fn count(home: &Path, which: &str) -> u32 {
    let sql = format!("SELECT count(*) FROM calls WHERE {which}");
    database(home).query_row(&sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn keys_read_back_as_they_were_written_even_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let (mut first, second) = (key(1, Some("ci")), key(2, None));
    let bare = KeyView {
        namespace: None,
        expires_at: None,
        max_sandboxes: None,
        max_memory: None,
        read_only: false,
        network: None,
        ..second.key
    };
    let second = KeyRecord { key: bare, hash: second.hash };
    store.insert_key(first.clone()).await.unwrap();
    store.insert_key(second.clone()).await.unwrap();
    store.touch_key(first.key.id.clone(), at(5)).await.unwrap();
    store.revoke_key(first.key.id.clone(), at(6)).await.unwrap();
    // A use that is told late does not undo the revocation.
    store.touch_key(first.key.id.clone(), at(7)).await.unwrap();
    (first.key.last_used_at, first.key.revoked_at) = (Some(at(7)), Some(at(6)));
    store.close().await;

    let store = Store::open(home.path()).unwrap();
    assert_eq!(store.keys().await.unwrap(), [first.clone(), second.clone()]);
    let nobody = KeyId::from_random([9; 8]);
    let missing = store.revoke_key(nobody.clone(), at(0)).await;
    assert!(matches!(missing, Err(StoreError::Missing { .. })), "{missing:?}");
    store.remove_keys(vec![first.key.id, nobody]).await.unwrap();
    assert_eq!(store.keys().await.unwrap(), [second]);
}

#[tokio::test]
async fn a_label_is_free_again_when_its_key_was_revoked() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.insert_key(key(1, Some("ci"))).await.unwrap();
    let taken = store.insert_key(key(2, Some("ci"))).await.unwrap_err();
    assert!(matches!(&taken, StoreError::LabelTaken { label } if label.as_str() == "ci"), "{taken:?}");
    assert!(matches!(taken.next(), Some(sandbox::Next::FreeName(key)) if key.name == "ci"));
    store.revoke_key(KeyId::from_random([1; 8]), at(9)).await.unwrap();
    store.insert_key(key(2, Some("ci"))).await.unwrap();
    // Keys without a label are never in each other's way.
    store.insert_key(key(3, None)).await.unwrap();
    store.insert_key(key(4, None)).await.unwrap();
}

#[tokio::test]
async fn a_key_that_cannot_be_read_opens_nothing_and_hides_no_other() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    for seed in [1, 2, 3] {
        store.insert_key(key(seed, None)).await.unwrap();
    }
    let (first, second) = (key(1, None).key.id, key(2, None).key.id);
    database(home.path())
        .execute_batch(&format!(
            "UPDATE keys SET hash = x'00' WHERE id = '{first}'; UPDATE keys SET namespace = '..' WHERE id = '{second}'"
        ))
        .unwrap();
    assert_eq!(store.keys().await.unwrap(), [key(3, None)]);
}

#[tokio::test]
async fn calls_are_numbered_listed_from_a_number_and_filtered() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let batch: Vec<_> = (0..10)
        .map(|n| match n {
            0 => call(None, None),
            n if n % 2 == 0 => call(Some("ana"), Some("red")),
            _ => call(Some("ben"), Some("blue")),
        })
        .collect();
    store.append_calls(batch).await.unwrap();
    store.append_calls(Vec::new()).await.unwrap();
    let numbers = async |query: CallQuery| -> Vec<u64> {
        store.calls(query).await.unwrap().iter().map(|call| call.number).collect()
    };
    assert_eq!(numbers(query(None, 3)).await, [8, 9, 10], "the last ones, in order");
    assert_eq!(numbers(query(Some(4), 3)).await, [4, 5, 6]);
    assert_eq!(numbers(query(Some(u64::MAX), 3)).await, [0; 0]);
    let red = CallQuery { namespace: Some("red".parse().unwrap()), ..query(None, 2) };
    assert_eq!(numbers(red).await, [7, 9]);
    let ben = CallQuery { who: Some("ben".to_owned()), ..query(Some(1), 2) };
    assert_eq!(numbers(ben).await, [2, 4]);
    let by_key = CallQuery { who: Some(KeyId::from_random([1; 8]).to_string()), ..query(None, 100) };
    assert_eq!(numbers(by_key).await.len(), 9);
    assert_eq!(
        numbers(CallQuery { before: Some(8), ..query(None, 3) }).await,
        [5, 6, 7],
        "the next page back"
    );
    let words = |words: &[&str]| CallQuery {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        ..query(None, 3)
    };
    assert_eq!(numbers(words(&["BEN", "curl"])).await, [6, 8, 10]);
    assert_eq!(numbers(words(&["ben", "red"])).await, [0; 0], "every word must be there");
    assert_eq!(numbers(words(&["%", "_"])).await, [0; 0], "words are no patterns");
    assert_eq!(numbers(CallQuery { has_failed: Some(true), ..query(None, 2) }).await, [9, 10]);
    assert_eq!(numbers(CallQuery { has_failed: Some(false), ..query(None, 2) }).await, [0; 0]);

    let last = store.calls(query(None, 1)).await.unwrap().remove(0);
    let (who, namespace) = (last.who.as_deref(), last.namespace.as_ref().map(sandbox::Namespace::as_str));
    assert_eq!((who, namespace, last.duration_ms), (Some("ben"), Some("blue"), 7));
    assert_eq!((last.error.as_deref(), last.sandbox.as_deref()), (Some("denied"), Some("box \"1\"")));
    assert_eq!((last.client.as_deref(), last.frontend), (Some("curl/8"), Frontend::Rest));
}

#[tokio::test]
async fn unknown_callers_cannot_push_out_what_the_others_did() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.append_calls(vec![call(Some("ana"), None); 50]).await.unwrap();
    for _ in 0..15 {
        store.append_calls(vec![call(None, None); 1000]).await.unwrap();
    }
    let n_unknown = count(home.path(), "who IS NULL");
    assert!((MAX_UNKNOWN_CALLS..MAX_UNKNOWN_CALLS + 1000).contains(&n_unknown), "{n_unknown}");
    assert_eq!(count(home.path(), "who = 'ana'"), 50);
}

/// As if the daemon had been busy for a long time.
fn fill(home: &Path, who: &str, n: u32) {
    database(home)
        .execute_batch(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n}) \
             INSERT INTO calls (at, who, frontend, action, duration_ms) \
             SELECT '2026-01-01T00:00:00.000000000Z', '{who}', 'rest', 'x', 0 FROM n"
        ))
        .unwrap();
}

#[tokio::test]
async fn one_caller_cannot_push_out_what_the_others_did() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.append_calls(vec![call(Some("ana"), None); 50]).await.unwrap();
    fill(home.path(), "ben", MAX_CALLS + 5000);
    store.append_calls(vec![call(Some("ben"), None); 1000]).await.unwrap();
    assert_eq!(count(home.path(), "who = 'ana'"), 50);
    let n_ben = count(home.path(), "who = 'ben'");
    assert!((MAX_CALLS_EACH..MAX_CALLS_EACH + 1000).contains(&n_ben), "{n_ben}");
    let own = CallQuery { who: Some("ben".to_owned()), ..query(Some(0), 1) };
    assert!(
        store.calls(own).await.unwrap()[0].number > u64::from(MAX_CALLS - MAX_CALLS_EACH),
        "the oldest went"
    );
}

#[tokio::test]
async fn when_all_have_too_many_those_with_the_most_give_and_numbers_are_never_given_twice() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    fill(home.path(), "ana", 100);
    for n in 0..7 {
        fill(home.path(), &format!("busy {n}"), MAX_CALLS_EACH - n);
    }
    store.append_calls(vec![call(Some("busy 0"), None); 1000]).await.unwrap();
    let n_kept = count(home.path(), "TRUE");
    assert!(n_kept <= MAX_CALLS && n_kept > MAX_CALLS - 10, "{n_kept}");
    assert_eq!(count(home.path(), "who = 'ana'"), 100);
    let newest = store.calls(query(None, 1)).await.unwrap().remove(0);
    assert_eq!(newest.number, u64::from(7 * MAX_CALLS_EACH) + 1100 - 21);
}

#[tokio::test]
async fn a_key_is_found_by_its_label_its_id_and_its_whole_name() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let id = KeyId::from_random([2; 8]);
    let by_key = NewCall { key: Some(id.clone()), ..call(Some("key ci"), None) };
    store.append_calls(vec![by_key, call(Some("ana"), None)]).await.unwrap();
    for name in ["ci", "key ci", id.as_str()] {
        let own = CallQuery { who: Some(name.to_owned()), ..query(None, 9) };
        assert_eq!(store.calls(own).await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_database_of_the_first_schema_is_brought_up_to_date_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let plan = {
        let (id, name) = ("sbx-0000000000000".parse().unwrap(), "old".parse().unwrap());
        let (spec, defaults) = (sandbox::SandboxSpec::default(), sandbox::Defaults::default());
        serde_json::to_string(
            &sandbox::plan(
                &id,
                &name,
                &spec,
                &defaults,
                &sandbox::Base::host(),
                &[sandbox::Capabilities::all(sandbox::BackendKind::Namespace)],
            )
            .unwrap(),
        )
        .unwrap()
    };
    let old = database(home.path());
    old.execute_batch(FIRST_SCHEMA).unwrap();
    old.execute(FIRST_SANDBOX, rusqlite::named_params! { ":plan": plan }).unwrap();
    old.execute_batch("PRAGMA application_id = 0x5752524e; PRAGMA user_version = 1;").unwrap();
    drop(old);

    let store = Store::open(home.path()).unwrap();
    let rows = store.sandboxes(None).await.unwrap();
    assert_eq!(rows.corrupt, []);
    let mut record = rows.records.into_iter().next().unwrap();
    assert_eq!((record.name.as_str(), &record.owner), ("old", &None));
    record.owner = Some(KeyId::from_random([1; 8]));
    store.update_sandbox(record.clone()).await.unwrap();
    store.insert_key(key(1, Some("ci"))).await.unwrap();
    store.append_calls(vec![call(Some("ana"), None)]).await.unwrap();
    store.close().await;

    // And it is opened again as it is, without being changed twice.
    let store = Store::open(home.path()).unwrap();
    assert_eq!(store.sandbox(record.id.clone()).await.unwrap(), Some(record));
    assert_eq!(store.keys().await.unwrap().len(), 1);
    assert_eq!(store.calls(query(None, 10)).await.unwrap().len(), 1);
}
