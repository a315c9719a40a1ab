//! The contract of [`DocumentStore`], one function for each promise.
//!
//! Each function works in a scope of its own below `scope`, so that all can share one store.

use bytes::Bytes;

use super::{Digest, DocumentError, DocumentStore, Measured};

/// Runs all of them.
pub async fn all(store: &dyn DocumentStore, scope: &str) {
    what_was_put_is_got(store, &format!("{scope}/put")).await;
    putting_twice_is_harmless(store, &format!("{scope}/twice")).await;
    scopes_are_apart(store, &format!("{scope}/apart")).await;
    deleting_is_final_and_repeatable(store, &format!("{scope}/delete")).await;
    concurrent_puts_agree(store, &format!("{scope}/concurrent")).await;
    a_bad_scope_is_refused(store).await;
    files_of_others_are_read_by_their_paths(store, &format!("{scope}/files")).await;
}

/// A file is read whole or not at all, and no path leads out of the store.
pub async fn files_of_others_are_read_by_their_paths(store: &dyn DocumentStore, scope: &str) {
    // A document is a file, too.
    let bytes = Bytes::from_static(b"a file");
    let hex = store.put(scope, bytes.clone()).await.expect("put").hex();
    let path = format!("{scope}/sha256/{}/{hex}", &hex[..2]);
    assert_eq!(store.file(&path, 6).await.expect("file"), Some(bytes));
    let large = store.file(&path, 5).await;
    assert!(matches!(large, Err(DocumentError::TooLarge { most: 5, .. })), "{large:?}");
    assert_eq!(store.file(&format!("{scope}/.metadata.yml"), 6).await.expect("file"), None);
    for bad in ["", "/etc/passwd", "a/../b", "..", "a/..", "a//b", ".git/config", "a/.hidden/b", "a\\b", "a\0"] {
        let refused = store.file(bad, 6).await;
        assert!(matches!(refused, Err(DocumentError::Scope(_))), "{bad:?}: {refused:?}");
    }
}

/// A document reads back whatever its size and content; an absent one is `None`.
pub async fn what_was_put_is_got(store: &dyn DocumentStore, scope: &str) {
    let mut put = Vec::new();
    for bytes in [Bytes::new(), Bytes::from_static(b"\0\xff\n"), Bytes::from(vec![7; 1 << 20])] {
        let digest = store.put(scope, bytes.clone()).await.expect("put");
        assert_eq!(digest, Digest::of(&bytes));
        assert_eq!(store.size(scope, &digest).await.expect("size"), Some(bytes.len() as u64));
        assert_eq!(store.get(scope, &digest).await.expect("get"), Some(bytes.clone()));
        let size = bytes.len() as u64;
        let measured = store.get_at_most(scope, &digest, size).await.expect("get at most");
        assert_eq!(measured, Some(Measured::Whole(bytes)));
        if let Some(less) = size.checked_sub(1) {
            let measured = store.get_at_most(scope, &digest, less).await.expect("get at most");
            assert_eq!(measured, Some(Measured::Larger(size)));
        }
        put.push(digest);
    }
    put.sort();
    assert_eq!(store.list(scope).await.expect("list"), put);
    assert_eq!(store.size(scope, &Digest::of(b"absent")).await.expect("size"), None);
    assert_eq!(store.get(scope, &Digest::of(b"absent")).await.expect("get"), None);
    assert_eq!(store.get_at_most(scope, &Digest::of(b"absent"), 1).await.expect("get at most"), None);
}

/// The second put of the same bytes changes nothing.
pub async fn putting_twice_is_harmless(store: &dyn DocumentStore, scope: &str) {
    let first = store.put(scope, Bytes::from_static(b"same")).await.expect("put");
    let second = store.put(scope, Bytes::from_static(b"same")).await.expect("put again");
    assert_eq!(first, second);
    assert_eq!(store.list(scope).await.expect("list"), [first]);
}

/// A document in one scope is not in another, not even in one inside it.
pub async fn scopes_are_apart(store: &dyn DocumentStore, scope: &str) {
    let (one, two, inner) = (format!("{scope}/one"), format!("{scope}/two"), format!("{scope}/one/inner"));
    let digest = store.put(&one, Bytes::from_static(b"document")).await.expect("put");
    for other in [two.as_str(), scope, inner.as_str()] {
        assert_eq!(store.get(other, &digest).await.expect("get"), None, "{other}");
        assert!(store.list(other).await.expect("list").is_empty(), "{other}");
    }
    let within = store.put(&inner, Bytes::from_static(b"another")).await.expect("put");
    assert_eq!(store.list(&one).await.expect("list"), [digest]);
    assert_eq!(store.list(&inner).await.expect("list"), [within]);
}

/// What was deleted is gone, and deleting what is not there is fine.
pub async fn deleting_is_final_and_repeatable(store: &dyn DocumentStore, scope: &str) {
    let digest = store.put(scope, Bytes::from_static(b"short-lived")).await.expect("put");
    store.delete(scope, &digest).await.expect("delete");
    store.delete(scope, &digest).await.expect("delete again");
    assert_eq!(store.get(scope, &digest).await.expect("get"), None);
    assert!(store.list(scope).await.expect("list").is_empty());
    store.put(scope, Bytes::from_static(b"short-lived")).await.expect("put after delete");
    assert!(store.get(scope, &digest).await.expect("get").is_some());
}

/// Any number of writers of the same document succeed.
pub async fn concurrent_puts_agree(store: &dyn DocumentStore, scope: &str) {
    let bytes = Bytes::from(vec![3; 100_000]);
    let puts = (0..16).map(|_| store.put(scope, bytes.clone()));
    for digest in futures_util::future::join_all(puts).await {
        assert_eq!(digest.expect("put"), Digest::of(&bytes));
    }
    assert_eq!(store.get(scope, &Digest::of(&bytes)).await.expect("get"), Some(bytes));
}

/// A scope that could lead elsewhere is refused by every method.
pub async fn a_bad_scope_is_refused(store: &dyn DocumentStore) {
    let digest = Digest::of(b"");
    for scope in ["", "..", "a/../../b", "/etc", "a//b"] {
        let results = [
            store.put(scope, Bytes::new()).await.err(),
            store.size(scope, &digest).await.err(),
            store.get(scope, &digest).await.err(),
            store.get_at_most(scope, &digest, 1).await.err(),
            store.list(scope).await.err(),
            store.delete(scope, &digest).await.err(),
        ];
        for error in results {
            assert!(matches!(error, Some(DocumentError::Scope(_))), "{scope:?}: {error:?}");
        }
    }
}
