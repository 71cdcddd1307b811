//! Volumes: kept whole, one of a name in each namespace, and a damaged row hides no other.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use jiff::Timestamp;
use sandbox::{ByteSize, VolumeId, VolumeKind, VolumeSpec, VolumeStorage};
use store::{Store, StoreError, VolumeRecord, VolumeState};

fn record(seed: u8, name: &str, namespace: &str) -> VolumeRecord {
    let spec = VolumeSpec {
        name: name.parse().unwrap(),
        namespace: namespace.parse().unwrap(),
        kind: VolumeKind::Disk,
        size: Some(ByteSize::mib(64)),
        quota: None,
        labels: [("team".to_owned(), "a b".to_owned())].into(),
    };
    let (id, created_at) = (VolumeId::from_random([seed; 8]), Timestamp::from_second(1_700_000_000).unwrap());
    VolumeRecord { id, spec, state: VolumeState::Making, storage: None, created_at, owner: None }
}

#[tokio::test]
async fn a_volume_is_read_back_as_it_was_written_by_the_next_daemon_too() {
    let home = tempfile::tempdir().unwrap();
    let mut volume = record(1, "models", "default");
    {
        let store = Store::open(home.path()).unwrap();
        store.insert_volume(volume.clone()).await.unwrap();
        assert_eq!(store.volumes().await.unwrap().records, [volume.clone()]);
        volume.state = VolumeState::Ready;
        volume.storage = Some(VolumeStorage::Image);
        store.update_volume(volume.clone()).await.unwrap();
        store.close().await;
    }
    let store = Store::open(home.path()).unwrap();
    assert_eq!(store.volumes().await.unwrap().records, [volume.clone()]);
    store.remove_volume(volume.id.clone()).await.unwrap();
    assert!(store.volumes().await.unwrap().records.is_empty());
    assert!(matches!(store.update_volume(volume).await, Err(StoreError::Missing { .. })));
}

#[tokio::test]
async fn a_name_is_taken_in_its_namespace_only() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    store.insert_volume(record(1, "models", "red")).await.unwrap();
    let refused = store.insert_volume(record(2, "models", "red")).await.unwrap_err();
    assert!(matches!(&refused, StoreError::VolumeTaken { .. }) && refused.next().is_some(), "{refused}");
    store.insert_volume(record(3, "models", "blue")).await.unwrap();
    assert_eq!(store.volumes().await.unwrap().records.len(), 2);
}

#[tokio::test]
async fn a_damaged_row_hides_no_other_and_can_be_removed() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    for (seed, name) in [(1, "good"), (2, "bad")] {
        store.insert_volume(record(seed, name, "default")).await.unwrap();
    }
    store.close().await;
    let file = rusqlite::Connection::open(home.path().join("warren.db")).unwrap();
    file.execute("UPDATE volumes SET spec = '{' WHERE name = 'bad'", []).unwrap();
    drop(file);
    let store = Store::open(home.path()).unwrap();
    let rows = store.volumes().await.unwrap();
    assert_eq!((rows.records.len(), rows.corrupt.len()), (1, 1));
    assert!(rows.corrupt[0].reason.contains("spec"), "{:?}", rows.corrupt);
    store.remove_volume(rows.corrupt[0].id.parse().unwrap()).await.unwrap();
    assert!(store.volumes().await.unwrap().corrupt.is_empty());
}
