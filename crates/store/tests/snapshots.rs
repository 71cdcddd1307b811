//! Snapshots: kept whole, one to a name, and a name passes from one to another in one step.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use jiff::Timestamp;
use sandbox::{Namespace, SnapshotId};
use store::{SnapshotRecord, Store, StoreError};

fn record(seed: u8, name: Option<&str>) -> SnapshotRecord {
    SnapshotRecord {
        id: SnapshotId::from_random([seed; 8]),
        namespace: Namespace::default(),
        name: name.map(|name| name.parse().unwrap()),
        digest: format!("sha256:{}", format!("{seed:02x}").repeat(32)),
        manifest: r#"{"some":"json"}"#.to_owned(),
        held_micros: Some(1234),
        owner: None,
        created_at: Timestamp::from_second(1_700_000_000 + i64::from(seed)).unwrap(),
    }
}

#[tokio::test]
async fn a_name_has_one_snapshot_and_passes_on_whole() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.insert_snapshot(record(1, Some("base"))).await.unwrap();
    store.insert_snapshot(record(2, None)).await.unwrap();
    let taken = store.insert_snapshot(record(3, Some("base"))).await.unwrap_err();
    assert!(matches!(taken, StoreError::SnapshotTaken { .. }), "{taken}");
    let elsewhere = SnapshotRecord { namespace: "red".parse().unwrap(), ..record(4, Some("base")) };
    store.insert_snapshot(elsewhere.clone()).await.unwrap();
    // A replacement that cannot be written leaves the name where it was.
    let again = SnapshotRecord { id: record(2, None).id, ..record(5, Some("base")) };
    assert!(store.replace_snapshot(record(1, None).id, again).await.is_err());
    assert_eq!(
        store.snapshots().await.unwrap().records,
        [record(1, Some("base")), record(2, None), elsewhere.clone()]
    );
    store.replace_snapshot(record(1, None).id, record(3, Some("base"))).await.unwrap();
    store.close().await;
    let store = Store::open(home.path()).unwrap();
    let expected = [record(1, None), record(2, None), elsewhere, record(3, Some("base"))];
    assert_eq!(store.snapshots().await.unwrap().records, expected);
    assert!(store.remove_snapshot(record(1, None).id).await.unwrap());
    assert!(!store.remove_snapshot(record(1, None).id).await.unwrap());
}
