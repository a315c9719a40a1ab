//! The installed packages of providers, which runs share.
//!
//! A package is in a folder of the caches: one for each mirror, set of credentials, provider and lock. So no organization runs a package
//! that was fetched with credentials that it did not show. The folders have the bounds of all caches, and stay while a process uses them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use sha2::{Digest as _, Sha256};
use stoa_git::cache::{Folders, Kept, UNFINISHED};
use stoa_terraform_provider::package::{
    Address, ArchiveLimits, FilesystemMirror, Hash, Installed, Installer, LockedProvider, NetworkMirror,
    Package as Files, Platform, VersionConstraint,
};

use crate::source::{LACKS_ROOM, has_room, measure};

use super::failure::{Failed, of_install, of_mirror, of_network, of_registry};
use super::mirror::{Mirror, MirrorClient};
use super::named;

/// The folder of packages among the caches.
const PACKAGES: &str = "providers";
/// The size of an archive, in bytes.
const ARCHIVE: u64 = 1 << 30;

/// A package that a run needs.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) address: &'a Address,
    pub(super) locked: &'a LockedProvider,
    pub(super) mirror: &'a Mirror,
    pub(super) organization: &'a str,
}

/// An installed package, whose folder stays until this is dropped.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) installed: Installed,
    _folder: Kept,
}

/// An installation, of which those who wait share the result.
type Installing = Shared<BoxFuture<'static, Result<Arc<Package>, Failed>>>;

struct Slot {
    installing: Installing,
    used: Instant,
}

type Slots = Mutex<HashMap<String, Slot>>;

/// The packages that were used not long ago.
pub(super) struct Packages {
    folders: Folders,
    slots: Arc<Slots>,
}

impl std::fmt::Debug for Packages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packages").field("folders", &self.folders).finish_non_exhaustive()
    }
}

impl Packages {
    /// No packages, in a runtime. Each is remembered for some time after its use. Its process lives as long.
    pub(super) fn new(folders: Folders, idle: Duration) -> Self {
        let slots = Arc::<Slots>::default();
        tokio::spawn(forget_unused(Arc::downgrade(&slots), idle));
        Self { folders, slots }
    }

    /// The package, which is installed first where that is necessary: once, however many wait for it. The installation goes on if they
    /// leave.
    pub(super) async fn get(&self, wanted: &Wanted<'_>) -> Result<Arc<Package>, Failed> {
        let name = name(wanted);
        let installing = {
            let mut slots = lock(&self.slots);
            let slot = slots.entry(name.clone()).or_insert_with(|| {
                let install = Install::new(&self.folders, &name, wanted);
                let interrupted = Failed::passing(format!("{}: its installation was interrupted", install.provider));
                let task = tokio::spawn(install.run());
                let installing = task.map(|done| done.unwrap_or(Err(interrupted))).boxed().shared();
                Slot { installing, used: Instant::now() }
            });
            slot.used = Instant::now();
            slot.installing.clone()
        };
        let done = installing.await;
        if done.is_err() {
            self.forget(wanted);
        }
        done
    }

    /// Has the next caller compare or install the files again.
    pub(super) fn forget(&self, wanted: &Wanted<'_>) {
        let mut slots = lock(&self.slots);
        let name = name(wanted);
        if slots.get(&name).is_some_and(|slot| slot.installing.peek().is_some()) {
            slots.remove(&name);
        }
    }
}

fn lock(slots: &Slots) -> MutexGuard<'_, HashMap<String, Slot>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the sweep for unused caches have the folders of packages that were not used for so long, until the packages end.
async fn forget_unused(slots: Weak<Slots>, idle: Duration) {
    let mut interval = tokio::time::interval(idle.max(Duration::from_millis(10)));
    loop {
        interval.tick().await;
        let Some(slots) = slots.upgrade() else { return };
        lock(&slots).retain(|_, slot| slot.installing.peek().is_none() || slot.used.elapsed() < idle);
    }
}

/// The name of a package's folder.
fn name(wanted: &Wanted<'_>) -> String {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    match wanted.mirror {
        Mirror::Folder(folder) => part(folder.as_os_str().as_encoded_bytes()),
        Mirror::Url(url, credentials) => {
            part(url.as_bytes());
            part(credentials.authorization().as_ref().map(|it| it.as_bytes()).unwrap_or_default());
            part(&credentials.authorities);
        }
        Mirror::Registry(registry) => {
            part(registry.template.as_bytes());
            for (key, value) in registry.keys.iter().collect::<BTreeMap<_, _>>() {
                part(key.as_bytes());
                part(value);
            }
        }
    }
    part(wanted.address.to_string().as_bytes());
    part(wanted.locked.version.to_string().as_bytes());
    let mut hashes: Vec<String> = wanted.locked.hashes.iter().map(Hash::to_string).collect();
    hashes.sort();
    hashes.iter().for_each(|hash| part(hash.as_bytes()));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One installation.
struct Install {
    folders: Folders,
    folder: Kept,
    /// The provider in messages.
    provider: String,
    organization: String,
    address: Address,
    locked: LockedProvider,
    mirror: Mirror,
}

impl Install {
    fn new(folders: &Folders, name: &str, wanted: &Wanted<'_>) -> Self {
        let folder = folders.take_for(PACKAGES, name, wanted.organization);
        Self {
            folders: folders.clone(),
            folder,
            provider: named(wanted.address, wanted.locked),
            organization: wanted.organization.to_owned(),
            address: wanted.address.clone(),
            locked: wanted.locked.clone(),
            mirror: wanted.mirror.clone(),
        }
    }

    async fn run(self) -> Result<Arc<Package>, Failed> {
        let installed = match self.cached().await? {
            Some(installed) => installed,
            None => {
                let room = has_room(&self.folders, &self.folder, &self.organization).await;
                if !room.map_err(|_| self.unread())? {
                    return Err(Failed::passing(format!("{} cannot be installed: {LACKS_ROOM}", self.provider)));
                }
                let installed = self.install().await;
                measure(&self.folders, &self.folder).await.map_err(|_| self.unread())?;
                installed?
            }
        };
        tracing::info!(provider = self.provider, digest = %installed.files, "installed");
        Ok(Arc::new(Package { installed, _folder: self.folder }))
    }

    fn unread(&self) -> Failed {
        Failed::passing(format!(
            "{} cannot be installed: the cache of the function-runner cannot be read",
            self.provider
        ))
    }

    fn installer(&self) -> Installer {
        Installer { cache: self.folder.path().to_owned(), limits: ArchiveLimits::default() }
    }

    async fn cached(&self) -> Result<Option<Installed>, Failed> {
        let (installer, address, locked) = (self.installer(), self.address.clone(), self.locked.clone());
        let found = self.on_files(move || Ok(installer.installed(&address, &locked))).await?;
        found.map_err(|error| of_install(&self.provider, &error))
    }

    async fn install(&self) -> Result<Installed, Failed> {
        let constraint: VersionConstraint = format!("= {}", self.locked.version)
            .parse()
            .map_err(|error| Failed::lasting(format!("{} cannot be installed: {error}", self.provider)))?;
        let platform = Platform::current();
        match &self.mirror {
            Mirror::Folder(folder) => {
                let (mirror, address) = (FilesystemMirror { root: folder.clone() }, self.address.clone());
                let found = self.on_files(move || Ok(mirror.find(&address, &constraint, &platform))).await?;
                let (_, files) = found.map_err(|error| of_mirror(&self.provider, &error))?;
                self.add(files, Vec::new()).await
            }
            Mirror::Url(url, credentials) => {
                let failed = |error| of_network(&self.provider, &error);
                let mirror = NetworkMirror::new(url).map_err(failed)?;
                let client = MirrorClient::new(url, credentials).map_err(|error| {
                    let secret = "ca.crt in the Secret of spec.terraform.mirror.secretRef";
                    Failed::lasting(format!("{} cannot be installed: {secret}: {error}", self.provider))
                })?;
                let new = self.unfinished().await?;
                let wanted = (&self.address, &constraint, &platform);
                let (_, files, hashes) = mirror.fetch(&client, wanted, new.path(), ARCHIVE).await.map_err(failed)?;
                self.add(files, hashes).await
            }
            Mirror::Registry(registry) => {
                let new = self.unfinished().await?;
                let wanted = (&self.address, &self.locked.version, &platform);
                let fetched = registry.fetch(wanted, new.path(), ARCHIVE).await;
                let archive = fetched.map_err(|error| of_registry(&self.provider, &error))?;
                self.add(Files::Archive(archive), Vec::new()).await
            }
        }
    }

    /// A new folder for a package that is not verified yet.
    async fn unfinished(&self) -> Result<tempfile::TempDir, Failed> {
        let path = self.folder.path().to_owned();
        let new = self.on_files(move || {
            std::fs::create_dir_all(&path)?;
            tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&path)
        });
        new.await
    }

    async fn add(&self, files: Files, hashes: Vec<Hash>) -> Result<Installed, Failed> {
        let (installer, address, locked) = (self.installer(), self.address.clone(), self.locked.clone());
        let added = self.on_files(move || Ok(installer.install(&address, &files, Some(&locked), &hashes))).await?;
        added.map_err(|error| of_install(&self.provider, &error))
    }

    /// Works with files on a blocking thread.
    async fn on_files<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, Failed> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        done.map_err(|error| Failed::passing(format!("{} cannot be installed: {error}", self.provider)))
    }
}
