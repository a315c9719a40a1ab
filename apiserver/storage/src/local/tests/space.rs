//! A disk with little room: what does not fit fails, and takes no room from what does.

use super::{
    disk::{Random, SimulatedDisk, Size},
    *,
};

/// A log with values, and a disk that has less room left than their snapshot takes.
async fn crowded(is_told: bool) -> (SimulatedDisk, LocalLog) {
    let disk = SimulatedDisk::new(Random::new(1));
    let log = LocalLog::open_on(Arc::new(disk.clone()), LocalOptions::default()).unwrap();
    for n in 0..20 {
        log.append(put(&format!("/registry/{n}"), Expect::Absent, vec![b' '; 100])).await.unwrap();
    }
    disk.set_size(Some(Size { bytes: disk.used() + 1_000, is_told }));
    (disk, log)
}

#[tokio::test]
async fn oversized_snapshot_leaves_space_for_appends() {
    for is_told in [true, false] {
        let (disk, log) = crowded(is_told).await;
        for n in 0..5 {
            let (used, operations) = (disk.used(), disk.operations());
            let error = log.compact(Version(20)).await.unwrap_err();
            assert!(matches!(error, LogError::Unavailable(_)), "{error:?}");
            assert_eq!(disk.used(), used, "told: {is_told}");
            // Where it is known beforehand it is not even tried, so that nothing appended meanwhile fails.
            assert_eq!(disk.operations() == operations, is_told);
            log.append(put("/x", Expect::Any, n.to_string())).await.unwrap();
        }
        assert_eq!(log.oldest(), Version(0));
        disk.set_size(None);
        log.compact(Version(20)).await.unwrap();
        assert_eq!(log.oldest(), Version(20));
        drop(log);
        let log = LocalLog::open_on(Arc::new(disk), LocalOptions::default()).unwrap();
        assert_eq!(log.head().await.unwrap(), Version(25));
        assert_eq!(values(&log, None).await.len(), 21);
    }
}

#[tokio::test]
async fn a_snapshot_takes_more_room_than_its_values() {
    let disk = SimulatedDisk::new(Random::new(1));
    let log = LocalLog::open_on(Arc::new(disk.clone()), LocalOptions::default()).unwrap();
    for n in 0..100 {
        log.append(put(&format!("/{n}"), Expect::Absent, n.to_string())).await.unwrap();
    }
    log.acquire("writer", &"h".repeat(1_000), Duration::from_secs(60)).await.unwrap();
    // Whether it is tried where there is so much room.
    let is_tried = async |bytes: u64| {
        disk.set_size(Some(Size { bytes: disk.used() + bytes, is_told: true }));
        let operations = disk.operations();
        let outcome = log.compact(Version(100)).await;
        assert_eq!(outcome.is_ok(), disk.operations() > operations, "it is not tried in vain");
        outcome.is_ok()
    };
    // Keys and values have 480 bytes, and each has some numbers besides.
    assert!(!is_tried(1_500).await);
    assert!(!is_tried(5_000).await, "there is a lease, too");
    assert!(is_tried(6_000).await);
}

#[tokio::test]
async fn failed_new_segment_leaves_space_for_appends() {
    // How many bytes are used when the log of this write is closed, on a disk that has room for so many, if that is known.
    let used_after = async |segment_bytes: u64, bytes: Option<u64>| {
        let disk = SimulatedDisk::new(Random::new(1));
        let options = LocalOptions { segment_bytes, ..LocalOptions::default() };
        let log = LocalLog::open_on(Arc::new(disk.clone()), options).unwrap();
        disk.set_size(bytes.map(|bytes| Size { bytes, is_told: false }));
        log.append(put("/a", Expect::Absent, vec![b' '; 300])).await.unwrap();
        drop(log);
        disk.used()
    };
    let used = used_after(1 << 20, None).await;
    assert!(used_after(100, None).await > used, "another segment is begun");
    assert_eq!(used_after(100, Some(used + 3)).await, used);
}

#[test]
fn a_directory_tells_how_much_room_there_is() {
    let folder = TempDir::new().unwrap();
    let directory = Directory::open(folder.path()).unwrap();
    assert!(directory.room().unwrap() > 0);
    require_room_at(folder.path(), 1, 0).unwrap();
    let error = require_room_at(folder.path(), u64::MAX / 2, 0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}
