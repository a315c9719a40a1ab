//! New packages: clones of an upstream, and empty ones.
//!
//! Start at [`clone_package`] or [`init`].
//!
//! Follows `kpt pkg get` and `kpt pkg init` of kpt 1.0.0-beta.61.

use serde_json::{Value, json};

use crate::files::{KPTFILE, Tree, TreeError, has_objects};
use crate::identity::marked_tree;
use crate::kptfile::{Git, Info, Kptfile, KptfileError, UpdateStrategy, Upstream, UpstreamLock};
use crate::merge::{ListTypes, revise};
use crate::resources::{self, Resource};
use crate::text;

/// The name of the ConfigMap with the name of its package.
pub const PACKAGE_CONTEXT: &str = "kptfile.kpt.dev";

/// The file of the [`PACKAGE_CONTEXT`].
pub const PACKAGE_CONTEXT_FILE: &str = "package-context.yaml";

/// The annotation of objects that are not for a cluster.
const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";

/// A clone of an upstream.
#[derive(Clone, Copy, Debug)]
pub struct CloneRequest<'t> {
    /// Upstream's package.
    pub upstream: &'t Tree,
    /// The name of the new package, such as that of its folder.
    pub name: &'t str,
    /// The revision of upstream, with the full hash of its commit. `kpt pkg get` writes directories with a leading `/`.
    pub revision: &'t UpstreamLock,
    /// The strategy of its updates.
    pub strategy: UpdateStrategy,
    /// For a package that is deployed: its context. The values are data of a ConfigMap, such as `package-path`.
    pub context: Option<&'t [(&'t str, &'t str)]>,
}

/// Why a package cannot be cloned.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The Kptfile of upstream cannot be read.
    #[error("Kptfile of the upstream package cannot be read")]
    Kptfile(#[from] KptfileError),
    /// A file cannot be written.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Clones a package: with the name, the upstream and the revision in its Kptfile, and with a mark of upstream's name at each
/// object.
///
/// # Errors
///
/// [`CloneError::Kptfile`] when upstream has an invalid Kptfile.
pub fn clone_package(request: &CloneRequest<'_>) -> Result<Tree, CloneError> {
    let CloneRequest { upstream, name, revision, strategy, context } = *request;
    let mut tree = marked_tree(upstream);
    let own = match upstream.get(KPTFILE) {
        Some(file) => std::str::from_utf8(&file.content).map_err(|_| KptfileError::NotText)?.to_owned(),
        None => Kptfile::new(name).to_text(),
    };
    let old = Kptfile::parse(&own)?;
    let mut new = old.clone();
    name.clone_into(&mut new.metadata.name);
    new.metadata.namespace.clear();
    new.upstream = Some(Upstream {
        kind: revision.kind.clone(),
        git: revision.git.as_ref().map(|git| Git {
            repo: git.repo.clone(),
            directory: git.directory.clone(),
            reference: git.reference.clone(),
        }),
        update_strategy: strategy.name().to_owned(),
    });
    new.upstream_lock = Some(revision.clone());
    tree.write(KPTFILE, old.edit(&own, &new))?;
    if let Some(context) = context {
        write_context(&mut tree, name, context)?;
    }
    Ok(tree)
}

/// Writes the ConfigMap with the name of the package. It replaces one that is there.
fn write_context(tree: &mut Tree, name: &str, context: &[(&str, &str)]) -> Result<(), TreeError> {
    let mut data = json!({ "name": name });
    for (key, value) in context {
        data[*key] = (*value).into();
    }
    let is_context = |resource: &Resource| {
        resource.package.is_empty()
            && resource.api_version() == "v1"
            && resource.kind() == "ConfigMap"
            && resource.name() == PACKAGE_CONTEXT
    };
    let paths: Vec<String> = tree.paths().filter(|path| has_objects(path)).map(str::to_owned).collect();
    for path in paths {
        let package = crate::files::package_of(tree, &path);
        let Ok(before) = resources::read_file(tree, package, &path) else { continue };
        if !before.iter().any(is_context) {
            continue;
        }
        let mut after = before.clone();
        for resource in after.iter_mut().filter(|resource| is_context(resource)) {
            resource.value["data"] = data.clone();
        }
        if let Ok(written) = resources::write(tree, &before, &after) {
            *tree = written;
            return Ok(());
        }
    }
    tree.write(PACKAGE_CONTEXT_FILE, context_text(&data))
}

pub(crate) fn context_text(data: &Value) -> String {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {PACKAGE_CONTEXT}\n  annotations:\n    {LOCAL_CONFIG}: \"true\"\n"
    );
    let Ok(old) = text::read(&text) else { return text };
    let mut new = old.clone();
    new["data"] = data.clone();
    revise(&text, (&old, &new), &ListTypes::default(), None)
}

/// A new package.
#[derive(Clone, Copy, Debug, Default)]
pub struct Init<'t> {
    /// Its name.
    pub name: &'t str,
    /// A short description.
    pub description: &'t str,
    /// The URL of its web page.
    pub site: &'t str,
    /// Keywords.
    pub keywords: &'t [String],
}

/// Adds a Kptfile, a README.md and a context to a folder. Files that are there stay.
///
/// # Errors
///
/// [`TreeError`] when a folder has the name of one of the files.
pub fn init(folder: &Tree, init: &Init<'_>) -> Result<Tree, TreeError> {
    let mut tree = folder.clone();
    let files = [
        (KPTFILE, kptfile_text(init)),
        ("README.md", readme(init)),
        (PACKAGE_CONTEXT_FILE, context_text(&json!({"name": "example"}))),
    ];
    for (path, text) in files {
        if tree.get(path).is_none() {
            tree.write(path, text)?;
        }
    }
    Ok(tree)
}

fn kptfile_text(init: &Init<'_>) -> String {
    let plain = Kptfile::new(init.name);
    let mut kptfile = plain.clone();
    kptfile.metadata.annotations.insert(LOCAL_CONFIG.to_owned(), "true".to_owned());
    let info = Info {
        site: init.site.to_owned(),
        description: init.description.to_owned(),
        keywords: init.keywords.to_vec(),
        ..Info::default()
    };
    kptfile.info = Some(info).filter(|info| *info != Info::default());
    plain.edit(&plain.to_text(), &kptfile)
}

fn readme(init: &Init<'_>) -> String {
    let Init { name, description, .. } = init;
    format!(
        "# {name}\n\n## Description\n{description}\n\n## Usage\n\n### Fetch the package\n\
         `kpt pkg get REPO_URI[.git]/PKG_PATH[@VERSION] {name}`\n\
         Details: https://kpt.dev/reference/cli/pkg/get/\n\n### View package content\n`kpt pkg tree {name}`\n\
         Details: https://kpt.dev/reference/cli/pkg/tree/\n\n### Apply the package\n```\nkpt live init {name}\n\
         kpt live apply {name} --reconcile-timeout=2m --output=table\n```\n\
         Details: https://kpt.dev/reference/cli/live/\n"
    )
}

#[cfg(test)]
mod tests;
