//! Removes the documents of package revisions that the log does not name any more.
//!
//! A removal before the deletion is in the log would lose the content of an object that remains. Documents stay when no server
//! sees the deletion, and those of earlier saves stay, too: a sweep at the start of each term removes them.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use futures_util::StreamExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::blocking::run_blocking;
use stoa_machinery::registry::{ListOptions, api::Change};
use stoa_types::porch::{PackageContent, PackageRevision};
use tokio_util::sync::CancellationToken;

use crate::packages::PackageService;

/// The age of documents that no object names, at which they are removed. A write in progress names its document later, and
/// a reader of history an earlier one.
const UNUSED: Duration = Duration::from_secs(3600);

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(revisions) = service.services().lookup.api::<PackageRevision>() else { return };
    let mut changes = revisions.subscribe_stored::<IgnoredAny>(None);
    sweep(&service).await;
    loop {
        let change = tokio::select! {
            () = end.cancelled() => break,
            change = changes.next() => change,
        };
        match change {
            Some(Change::Deleted((revision, _))) => service.forget(revision.namespace(), revision.uid()).await,
            Some(Change::Restarted(_) | Change::Applied(_)) => {}
            None => break,
        }
    }
}

/// The part of a revision that names its document.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    status: NamedStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedStatus {
    content: Option<PackageContent>,
}

/// A document in the folder of documents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// The scope: namespace and uid.
    scope: String,
    /// The digits of the digest.
    digits: String,
}

/// Removes the documents that are old and that no object names.
async fn sweep(service: &PackageService) {
    let root = service.documents();
    let before = SystemTime::now() - UNUSED;
    // The documents are listed before the objects, so an object that is written meanwhile names a young one.
    let old = match run_blocking(0, {
        let root = root.clone();
        move || documents(&root, before)
    })
    .await
    {
        Ok(old) => old,
        Err(error) => {
            tracing::warn!(%error, "the documents of packages cannot be listed, so unused ones stay");
            return;
        }
    };
    if old.is_empty() {
        return;
    }
    let Ok(revisions) = service.services().lookup.api::<PackageRevision>() else { return };
    let Ok(all) = revisions.store().list(None, &ListOptions::default()).await else { return };
    let named: NamedDocuments = all
        .items
        .iter()
        .map(|stored| {
            let digest = stored.decode_part::<Named>().ok();
            let digest = digest.map(|named| named.status.content.unwrap_or_default().digest);
            (format!("{}/{}", stored.namespace(), stored.uid()), digest)
        })
        .collect();
    let unused: Vec<Found> = old.into_iter().filter(|found| !is_named(&named, found)).collect();
    let mut count = 0;
    for found in unused {
        // Somebody may have stored it again since the list.
        if is_old(&root, &found, before) {
            service.forget_document(&found.scope, &format!("sha256:{}", found.digits)).await;
            count += 1;
        }
    }
    if count > 0 {
        tracing::info!(count, "documents of packages that no object names are removed");
    }
}

/// The digests that objects name, by scope; nothing for an object that does not decode.
type NamedDocuments = HashMap<String, Option<String>>;

/// Whether an object names a document, or may name it.
fn is_named(named: &NamedDocuments, found: &Found) -> bool {
    let is_it = |digest: &String| digest.strip_prefix("sha256:") == Some(&found.digits);
    named.get(&found.scope).is_some_and(|digest| digest.as_ref().is_none_or(is_it))
}

/// The documents below a folder, `<namespace>/<uid>/sha256/<two digits>/<digits>`, that were written before a time.
fn documents(root: &Path, before: SystemTime) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for namespace in folder(root)? {
        for uid in folder(&namespace)? {
            let Some((namespace, uid_name)) = name(&namespace).zip(name(&uid)) else { continue };
            for digits in folder(&uid.join("sha256"))? {
                for document in folder(&digits)? {
                    // The deletion of its revision may have removed it since.
                    let is_old = match fs::metadata(&document) {
                        Ok(about) => about.modified()? < before,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                        Err(error) => return Err(error),
                    };
                    if let Some(digits) = name(&document).filter(|_| is_old) {
                        let scope = format!("{namespace}/{uid_name}");
                        found.push(Found { scope, digits: digits.to_owned() });
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Whether a document is still older than a time.
fn is_old(root: &Path, found: &Found, before: SystemTime) -> bool {
    let Some(shelf) = found.digits.get(..2) else { return false };
    let path = root.join(&found.scope).join("sha256").join(shelf).join(&found.digits);
    fs::metadata(path).and_then(|about| about.modified()).is_ok_and(|time| time < before)
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The entries of a folder; none of one that does not exist, or that is a file.
fn folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_documents_are_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("shop/uid-1/sha256/ab");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("abcd"), "{}").unwrap();
        fs::create_dir_all(root.path().join(".unfinished")).unwrap();
        fs::write(root.path().join(".unfinished/one"), "{}").unwrap();
        let now = SystemTime::now();
        assert_eq!(documents(root.path(), now - UNUSED).unwrap(), []);
        let found = documents(root.path(), now + UNUSED).unwrap();
        let expected = Found { scope: "shop/uid-1".to_owned(), digits: "abcd".to_owned() };
        assert_eq!(found, std::slice::from_ref(&expected));
        assert!(is_old(root.path(), &expected, now + UNUSED));
        assert!(!is_old(root.path(), &expected, now - UNUSED), "it was stored again after the list");
        let named = |digest: &str| HashMap::from([("shop/uid-1".to_owned(), Some(digest.to_owned()))]);
        assert!(is_named(&named("sha256:abcd"), &expected));
        assert!(!is_named(&named("sha256:other"), &expected), "an earlier save");
        assert!(!is_named(&HashMap::new(), &expected), "a revision that was deleted");
        let undecodable = HashMap::from([("shop/uid-1".to_owned(), None)]);
        assert!(is_named(&undecodable, &expected), "an object of another version may name any");
    }
}
