//! Whether there is room for more of what is fetched, of sources and of GitOps repositories.

use stoa_git::cache::{Folders, Kept};

use crate::failure::Failure;

/// What is told where there is none.
pub(super) const LACKS_ROOM: &str =
    "what is kept of the organization's repositories that are in use takes more than its share; try again";

/// Whether more may be fetched into a folder, to make room for which what nobody uses goes. There is none where all have too
/// much that are in use, and those of the organization, that folder aside, more than half of what all may have: what one has
/// fetched does not fill the disk.
pub(super) async fn has_room(folders: &Folders, folder: &Kept, organization: &str) -> Result<bool, Failure> {
    if !folders.is_over() {
        return Ok(true);
    }
    let all = folders.clone();
    let made = on_files(move || Ok(all.make_room())).await?;
    let is_made = made.unwrap_or_else(|error| {
        tracing::warn!(%error, "caches that nobody uses cannot be removed");
        false
    });
    // What belongs to no organization has no share, as of processes.
    Ok(is_made || organization.is_empty() || folders.used_by(organization, folder) <= folders.most() / 2)
}

/// Notes how much a folder has by now.
pub(super) async fn measure(folders: &Folders, folder: &Kept) -> Result<(), Failure> {
    let (folders, folder) = (folders.clone(), folder.clone());
    on_files(move || {
        if let Err(error) = folders.measure(&folder) {
            tracing::warn!(%error, directory = %folder.path().display(), "it is not known how much a cache has");
        }
        Ok(())
    })
    .await
}

/// Does something with files on a thread that may wait for them.
pub(super) async fn on_files<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|err| Err(Failure::internal(&err)))
}
