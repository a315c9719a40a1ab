//! The changes since a version.

use super::*;

fn of(objects: &[Arc<Stored>]) -> Vec<(&str, i64)> {
    objects.iter().map(|it| (it.name(), it.object().0["spec"]["size"].as_i64().expect("a number"))).collect()
}

#[tokio::test]
async fn changes_have_each_object_once() {
    let fixture = Fixture::new().await;
    for name in ["a", "b", "c"] {
        fixture.gadget(name, 1).await;
    }
    let since = fixture.list(&ListOptions::default()).await.expect("listed").version;
    let none = fixture.gadgets.changes_after(since).expect("known");
    assert_eq!((none.version, none.changed.len(), none.deleted.len()), (since, 0, 0));
    fixture.resize("a", 2).await;
    fixture.resize("a", 3).await;
    fixture.delete("b", &DeleteOptions::default()).await.expect("deleted");
    fixture.gadget("d", 4).await;
    // One that came and went is no change.
    fixture.gadget("e", 5).await;
    fixture.delete("e", &DeleteOptions::default()).await.expect("deleted");
    let changes = fixture.gadgets.changes_after(since).expect("known");
    assert_eq!((of(&changes.changed), of(&changes.deleted)), (vec![("a", 3), ("d", 4)], vec![("b", 1)]));
    assert_eq!((changes.version, fixture.gadgets.last_change()), (fixture.head().await, fixture.head().await));
    fixture.resize("c", 6).await;
    let later = fixture.gadgets.changes_after(changes.version).expect("known");
    assert_eq!((of(&later.changed), later.deleted.len()), (vec![("c", 6)], 0));
}

#[tokio::test]
async fn old_changes_are_unknown() {
    // So the cache has the last hundred alone.
    let window = Window { bytes: 0, ..Window::default() };
    let fixture = Fixture::over(Arc::new(MemoryLog::new()), window).await;
    fixture.gadget("a", 1).await;
    let since = fixture.head().await;
    for size in 2..150 {
        fixture.resize("a", size).await;
    }
    assert!(fixture.gadgets.changes_after(since).is_none());
}
