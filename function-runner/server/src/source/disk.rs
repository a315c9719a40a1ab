//! Decides whether there is disk space to fetch more of a source, GitOps repository or package.

use stoa_git::cache::{Folders, Kept};

use crate::failure::Failure;

/// The message if there is no space.
pub(crate) const LACKS_ROOM: &str = "the organization's repositories in use exceed its share of the cache; retry later";

/// Whether more may be fetched into a folder. Unused folders are removed to make room. There is none if the folders in use exceed the
/// cache, and the organization's others use more than half of it: so no organization fills the disk.
pub(crate) async fn has_room(folders: &Folders, folder: &Kept, organization: &str) -> Result<bool, Failure> {
    if !folders.is_over() {
        return Ok(true);
    }
    let all = folders.clone();
    let made = on_files(move || Ok(all.make_room())).await?;
    let is_made = made.unwrap_or_else(|error| {
        tracing::warn!(%error, "unused caches cannot be removed");
        false
    });
    // Sources without an organization have no share, as for processes.
    Ok(is_made || organization.is_empty() || folders.used_by(organization, folder) <= folders.most() / 2)
}

/// Records the present size of a folder.
pub(crate) async fn measure(folders: &Folders, folder: &Kept) -> Result<(), Failure> {
    let (folders, folder) = (folders.clone(), folder.clone());
    on_files(move || {
        if let Err(error) = folders.measure(&folder) {
            tracing::warn!(%error, directory = %folder.path().display(), "the size of a cache is unknown");
        }
        Ok(())
    })
    .await
}

/// Works with files on a blocking thread.
pub(super) async fn on_files<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|err| Err(Failure::internal(&err)))
}
