//! Updates a package to another revision of its upstream.
//!
//! Start at [`update`]. It takes three trees and gives a new one; on an error nothing has changed. A tree has the files of a
//! package and of the packages in its folders.
//!
//! Elsewhere: `actions` decides what becomes of packages in folders, `packages` merges them, `objects` merges objects, `files` the other files,
//! `kptfiles` Kptfiles, and `replace` has the strategies that take upstream's files.
//!
//! Follows `internal/util/update` of kpt 1.0.0-beta.61, with the differences that the tests name.

mod actions;
mod files;
mod kptfiles;
mod objects;
mod packages;
mod replace;

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use stoa_engine::FieldPath;

use crate::files::{KPTFILE, Tree, TreeError, join};
use crate::identity::ObjectId;
use crate::kptfile::{Git, Kptfile, KptfileError, UpdateStrategy, UpstreamLock};
use crate::merge::{Cause, Conflict, Sides, as_text, is_whole};
use crate::resources::{ReadError, Resource, WriteError};
use crate::shown::{has_secrets, mask, shown};

/// An update of a package.
#[derive(Clone, Copy, Debug)]
pub struct Update<'t> {
    /// Upstream's package as it was fetched last; empty if that is unknown.
    pub origin: &'t Tree,
    /// Upstream's package now.
    pub upstream: &'t Tree,
    /// The package here.
    pub local: &'t Tree,
    /// The strategy, which the Kptfile then has. `None` uses that of the Kptfile.
    pub strategy: Option<UpdateStrategy>,
    /// The revision of `upstream`, which the Kptfile then has. `None` leaves that to the caller.
    pub revision: Option<&'t UpstreamLock>,
}

/// The result of an update.
#[derive(Clone, Debug)]
pub struct Updated {
    /// The package.
    pub tree: Tree,
    /// The strategy that was used.
    pub strategy: UpdateStrategy,
    /// The disagreements of upstream and this package, by file.
    pub conflicts: Vec<UpdateConflict>,
}

/// A disagreement of upstream and this package, and its values. An object, a file or a package stays as it is here; a field gets
/// upstream's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateConflict {
    /// The file, or the folder of the package.
    pub path: String,
    /// The object; `None` for a Kptfile, another file, or a package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectId>,
    /// The field; empty for the whole.
    #[serde(serialize_with = "as_text", skip_serializing_if = "is_whole")]
    pub field: FieldPath,
    /// The disagreement.
    pub cause: Cause,
    /// The value of the last fetch. Files have no values here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// Upstream's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Value>,
    /// The local value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<Value>,
}

impl UpdateConflict {
    pub(crate) fn of(path: String, conflict: Conflict) -> Self {
        let Conflict { field, cause, origin, upstream, local } = conflict;
        Self { path, object: None, field, cause, origin, upstream, local }
    }

    /// A conflict about an object, in which the values of a Secret are masked.
    pub(crate) fn of_object(resource: &Resource, mut conflict: Conflict) -> Self {
        if has_secrets(resource) {
            let Conflict { field, origin, upstream, local, .. } = &mut conflict;
            [origin, upstream, local].into_iter().flatten().for_each(|value| mask(field, value));
        }
        Self { object: Some(ObjectId::of(resource)), ..Self::of(resource.file(), conflict) }
    }

    /// A file or a package.
    pub(crate) fn of_path(path: &str, cause: Cause) -> Self {
        let path = path.to_owned();
        Self { path, object: None, field: FieldPath::default(), cause, origin: None, upstream: None, local: None }
    }
}

impl fmt::Display for UpdateConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, object, field, cause, origin, upstream, local } = self;
        f.write_str(path)?;
        if let Some(object) = object {
            write!(f, ": {object}")?;
        }
        let is_field = !is_whole(field);
        if is_field {
            write!(f, ": {field}")?;
        }
        let text = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), shown);
        match cause {
            Cause::ChangedOnBothSides if is_field => {
                let [origin, upstream, local] = [origin, upstream, local].map(text);
                write!(f, " changed from {origin} to {upstream} upstream and to {local} here; upstream's value is used")
            }
            Cause::ChangedOnBothSides => f.write_str(" changed upstream and here; it stays as it is here"),
            Cause::DeletedHere if is_field => {
                write!(f, " is deleted here and changed upstream to {}; upstream's value is used", text(upstream))
            }
            Cause::DeletedHere => f.write_str(" is deleted here and changed upstream; it stays deleted"),
            Cause::DeletedUpstream if is_field => {
                write!(f, " is deleted upstream and {} here; it is deleted, apart from local additions", text(local))
            }
            Cause::DeletedUpstream => f.write_str(" is deleted upstream and changed here; it stays"),
        }
    }
}

/// One of the three trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Upstream's package as it was fetched last.
    Origin,
    /// Upstream's package now.
    Upstream,
    /// The package here.
    Local,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Origin => "the last fetched revision of upstream",
            Self::Upstream => "upstream",
            Self::Local => "the local package",
        })
    }
}

/// Why a package cannot be updated. It is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// An object cannot be read.
    #[error("{side} cannot be read")]
    Read {
        /// The tree.
        side: Side,
        /// The reason.
        source: ReadError,
    },
    /// A Kptfile cannot be read.
    #[error("{path} of {side} cannot be read")]
    Kptfile {
        /// The tree.
        side: Side,
        /// The path.
        path: String,
        /// The reason.
        source: KptfileError,
    },
    /// The strategy fast-forward finds local changes.
    #[error(
        "local package files have been modified: {files:?}. use a different update strategy, such as resource-merge"
    )]
    LocalChanges {
        /// The files, by path.
        files: Vec<String>,
    },
    /// Two objects of one file are the same.
    #[error("{side} has duplicate objects {object} in {file}; {remedy}, or move it to another file")]
    Duplicate {
        /// The tree.
        side: Side,
        /// The object.
        object: Box<ObjectId>,
        /// The file.
        file: String,
        /// What makes it another object, as a part of a sentence.
        remedy: &'static str,
    },
    /// A package was added upstream and here.
    #[error("subpackage {path:?} added in both upstream and local; move the local one")]
    PackageOnBothSides {
        /// The folder.
        path: String,
    },
    /// An object cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file cannot be written.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Updates a package by its strategy.
///
/// # Errors
///
/// [`UpdateError`] when one of the trees cannot be read, or the strategy does not permit the update.
pub fn update(update: &Update<'_>) -> Result<Updated, UpdateError> {
    let strategy = match update.strategy {
        Some(strategy) => strategy,
        None => {
            let own = kptfile(Side::Local, update.local, "")?.unwrap_or_default();
            let named = own.upstream.map(|upstream| upstream.update_strategy).unwrap_or_default();
            UpdateStrategy::parse(&named).map_err(|source| kptfile_error(Side::Local, "", source))?
        }
    };
    apply(update, strategy)
}

/// Updates a package by this strategy, which the Kptfile has afterwards only if the update names it.
pub(crate) fn apply(update: &Update<'_>, used: UpdateStrategy) -> Result<Updated, UpdateError> {
    let Update { origin, upstream, local, strategy, revision } = *update;
    let sides = Sides { origin, upstream, local };
    if local.get(KPTFILE).is_none() {
        return Err(kptfile_error(Side::Local, "", KptfileError::Missing));
    }
    let (mut tree, mut conflicts) = match used {
        UpdateStrategy::ResourceMerge => packages::merge(sides)?,
        UpdateStrategy::FastForward => {
            replace::check_unchanged(sides)?;
            replace::replace(sides)?
        }
        UpdateStrategy::ForceDeleteReplace => replace::replace(sides)?,
        UpdateStrategy::CopyMerge => replace::copy(sides)?,
    };
    if strategy.is_some() || revision.is_some() {
        set_upstream(&mut tree, strategy, revision)?;
    }
    conflicts.sort_by(|one, other| (&one.path, &one.object).cmp(&(&other.path, &other.object)));
    Ok(Updated { tree, strategy: used, conflicts })
}

/// Records in the root Kptfile which revision it has, and the strategy.
fn set_upstream(
    tree: &mut Tree,
    strategy: Option<UpdateStrategy>,
    revision: Option<&UpstreamLock>,
) -> Result<(), UpdateError> {
    let Some(old) = kptfile(Side::Local, tree, "")? else { return Ok(()) };
    let mut new = old.clone();
    let upstream = new.upstream.get_or_insert_default();
    if let Some(strategy) = strategy {
        strategy.name().clone_into(&mut upstream.update_strategy);
    }
    if let Some(revision) = revision {
        upstream.kind.clone_from(&revision.kind);
        upstream.git = revision.git.as_ref().map(|git| Git {
            repo: git.repo.clone(),
            directory: git.directory.clone(),
            reference: git.reference.clone(),
        });
        new.upstream_lock = Some(revision.clone());
    }
    let text = old.edit(tree.text(KPTFILE).unwrap_or_default(), &new);
    Ok(tree.write(KPTFILE, text)?)
}

/// The Kptfile of a package, if it has one.
pub(crate) fn kptfile(side: Side, tree: &Tree, package: &str) -> Result<Option<Kptfile>, UpdateError> {
    let path = join(package, KPTFILE);
    let Some(file) = tree.get(&path) else { return Ok(None) };
    let text = std::str::from_utf8(&file.content).map_err(|_| kptfile_error(side, package, KptfileError::NotText))?;
    Kptfile::parse(text).map(Some).map_err(|source| kptfile_error(side, package, source))
}

fn kptfile_error(side: Side, package: &str, source: KptfileError) -> UpdateError {
    UpdateError::Kptfile { side, path: join(package, KPTFILE), source }
}

#[cfg(test)]
mod tests;
