//! The content of package revisions: documents by digest, and files of commits.
//!
//! The documents are in the server's own folder of documents. A file that is no text has no field in
//! PackageRevisionResources, so its document keeps it in base64, and a save leaves it alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stoa_kinds::package_repositories::Content;
use stoa_machinery::ApiError;
use stoa_packages::{Mode, Tree, TreeError};
use stoa_proto::{FilesRequest, PackageFile, Source};
use stoa_runs::{
    backends::Backends,
    runner::{PackageFiles, Runner},
};
use stoa_storage::documents::{Digest, DocumentError, DocumentStore};

use super::unanswered;

/// The folder of the documents, beside those of Backends.
pub(super) const FOLDER: &str = "_packages";

/// The most bytes of documents in memory.
const CACHE_BYTES: usize = 64 << 20;

/// The largest file that becomes a part of a document, in bytes. Larger ones stay in Git.
const FILE_BYTES: u32 = 8 << 20;

/// The version of documents that this server writes.
const SCHEMA_VERSION: u32 = 1;

/// The content of a package revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Document {
    pub(super) schema_version: u32,
    /// The files with text, by path.
    pub(crate) resources: BTreeMap<String, String>,
    /// The other files, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) binary: BTreeMap<String, String>,
    /// The files that may be executed.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) executable: BTreeSet<String>,
    /// The folder in Git of the files that are no part of the document, such as links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Folder>,
    /// As in [`Content`].
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) render_status: Value,
    /// As in [`Content`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// As in [`Content`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) managed_fields: Option<Value>,
}

/// A folder of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folder {
    /// The commit.
    pub(crate) commit: String,
    /// The path from the root of the repository.
    pub(crate) path: String,
}

impl Document {
    /// The document of these files.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut document = Self { schema_version: SCHEMA_VERSION, ..Self::default() };
        document.set(tree);
        document
    }

    /// Replaces all files.
    pub(crate) fn set(&mut self, tree: &Tree) {
        (self.resources, self.binary, self.executable) = Default::default();
        for (path, file) in tree.iter() {
            match std::str::from_utf8(&file.content) {
                Ok(text) if !text.contains('\0') => self.resources.insert(path.to_owned(), text.to_owned()),
                _ => self.binary.insert(path.to_owned(), BASE64_STANDARD.encode(&file.content)),
            };
            if file.is_executable {
                self.executable.insert(path.to_owned());
            }
        }
    }

    /// The same with the content that a client sent, which has no binary files.
    pub(crate) fn with(&self, content: Content) -> Self {
        let Content { resources, render_status, annotations, managed_fields } = content;
        let binary = self.binary.iter().filter(|(path, _)| !resources.contains_key(*path));
        let binary: BTreeMap<_, _> = binary.map(|(path, content)| (path.clone(), content.clone())).collect();
        let is_there = |path: &&String| resources.contains_key(*path) || binary.contains_key(*path);
        let executable = self.executable.iter().filter(is_there).cloned().collect();
        Self {
            schema_version: SCHEMA_VERSION,
            base: self.base.clone(),
            resources,
            binary,
            executable,
            render_status,
            annotations,
            managed_fields,
        }
    }

    /// The files.
    ///
    /// # Errors
    ///
    /// [`TreeError`] for paths that no package has.
    pub(crate) fn tree(&self) -> Result<Tree, TreeError> {
        let mut tree = Tree::default();
        let mode = |path: &String| if self.executable.contains(path) { Mode::Executable } else { Mode::Regular };
        for (path, text) in &self.resources {
            tree.add(path, mode(path), text.clone())?;
        }
        for (path, encoded) in &self.binary {
            tree.add(path, mode(path), BASE64_STANDARD.decode(encoded).unwrap_or_default())?;
        }
        Ok(tree)
    }

    /// The files as a push has them.
    pub(crate) fn files(&self) -> Vec<PackageFile> {
        let tree = self.tree().unwrap_or_default();
        let file = |(path, file): (&str, &stoa_packages::File)| PackageFile {
            path: path.to_owned(),
            content: file.content.clone(),
            is_executable: file.is_executable,
            ..PackageFile::default()
        };
        tree.iter().map(file).collect()
    }

    fn bytes(&self) -> usize {
        self.resources.iter().chain(&self.binary).map(|(path, content)| path.len() + content.len()).sum()
    }
}

/// Documents by digest, and the files of commits. The last ones stay in memory.
#[derive(Debug)]
pub(crate) struct Contents {
    backends: Backends,
    runner: Runner,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    documents: HashMap<String, Arc<Document>>,
    bytes: usize,
}

impl Contents {
    pub(crate) fn new(backends: Backends, runner: Runner) -> Self {
        Self { backends, runner, cache: Mutex::default() }
    }

    /// Reads a document.
    ///
    /// # Errors
    ///
    /// 503 where the folder is out of reach, 500 where the document is lost or damaged.
    pub(crate) async fn get(&self, scope: &str, digest: &str) -> Result<Arc<Document>, ApiError> {
        let name = format!("{scope}/{digest}");
        if let Some(document) = self.cached(&name) {
            return Ok(document);
        }
        let parsed: Digest = digest.parse().map_err(ApiError::internal)?;
        let found = self.store().await?.get(scope, &parsed).await.map_err(|error| failed(&error))?;
        let bytes = found.ok_or_else(|| {
            ApiError::internal(format_args!(
                "document {digest} with the files of the package revision is lost; restore it in {scope} from a copy of the \
                 server's documents"
            ))
        })?;
        let document: Document = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        if document.schema_version > SCHEMA_VERSION {
            let version = document.schema_version;
            let why =
                format!("document {digest} has schemaVersion {version}, which a newer server wrote; upgrade this one");
            return Err(ApiError::internal(why));
        }
        Ok(self.keep(name, document))
    }

    /// The files of a folder at a commit, which never change.
    ///
    /// # Errors
    ///
    /// 503 where the repository is out of reach.
    pub(crate) async fn of_commit(&self, source: &Source, commit: &str, path: &str) -> Result<Arc<Document>, ApiError> {
        let name = format!("{}\n{}\n{commit}\n{path}", source.organization, source.remote);
        if let Some(document) = self.cached(&name) {
            return Ok(document);
        }
        let (document, _) = self.read(source, commit, path).await?;
        Ok(self.keep(name, document))
    }

    /// The same with the id of the folder.
    pub(crate) async fn read(&self, source: &Source, commit: &str, path: &str) -> Result<(Document, String), ApiError> {
        let request = FilesRequest {
            source: Some(source.clone()),
            commit: commit.to_owned(),
            path: path.to_owned(),
            max_file_bytes: FILE_BYTES,
            with_binary: true,
        };
        let PackageFiles { tree, files } =
            self.runner.package_files(request).await.map_err(|status| unanswered(&status))?;
        let mut found = Tree::default();
        let mut is_whole = true;
        for file in files {
            if !file.kept.is_empty() {
                is_whole = false;
                continue;
            }
            let mode = if file.is_executable { Mode::Executable } else { Mode::Regular };
            found
                .add(&file.path, mode, file.content)
                .map_err(|error| ApiError::new(422, "Invalid", error.to_string()))?;
        }
        let mut document = Document::of(&found);
        document.base = (!is_whole).then(|| Folder { commit: commit.to_owned(), path: path.to_owned() });
        Ok((document, tree.tree))
    }

    /// Stores a document; returns its digest, and the document.
    ///
    /// # Errors
    ///
    /// 503 where the folder is out of reach.
    pub(crate) async fn put(&self, scope: &str, mut document: Document) -> Result<(String, Arc<Document>), ApiError> {
        document.schema_version = SCHEMA_VERSION;
        let bytes = serde_json::to_vec(&document).map_err(ApiError::internal)?;
        let digest = self.store().await?.put(scope, Bytes::from(bytes)).await.map_err(|error| failed(&error))?;
        let digest = digest.to_string();
        let document = self.keep(format!("{scope}/{digest}"), document);
        Ok((digest, document))
    }

    /// Removes all documents of a scope. Those that cannot be removed stay.
    pub(crate) async fn forget(&self, scope: &str) {
        let Ok(store) = self.store().await else { return };
        for digest in store.list(scope).await.unwrap_or_default() {
            if let Err(error) = store.delete(scope, &digest).await {
                tracing::warn!(scope, %digest, error = &error as &dyn std::error::Error, "a document stays");
            }
        }
    }

    /// Removes a document. One that cannot be removed stays.
    pub(crate) async fn forget_document(&self, scope: &str, digest: &str) {
        let (Ok(store), Ok(parsed)) = (self.store().await, digest.parse::<Digest>()) else { return };
        if let Err(error) = store.delete(scope, &parsed).await {
            tracing::warn!(scope, digest, error = &error as &dyn std::error::Error, "a document stays");
        }
    }

    async fn store(&self) -> Result<Arc<dyn DocumentStore>, ApiError> {
        self.backends.own(FOLDER).await.map_err(|error| failed(&error))
    }

    fn cached(&self, name: &str) -> Option<Arc<Document>> {
        self.cache.lock().documents.get(name).cloned()
    }

    fn keep(&self, name: String, document: Document) -> Arc<Document> {
        let (bytes, document) = (document.bytes(), Arc::new(document));
        let mut cache = self.cache.lock();
        if cache.bytes + bytes > CACHE_BYTES {
            *cache = Cache::default();
        }
        if bytes <= CACHE_BYTES && cache.documents.insert(name, document.clone()).is_none() {
            cache.bytes += bytes;
        }
        document
    }
}

fn failed(error: &DocumentError) -> ApiError {
    ApiError::service_unavailable(format!("the documents of packages are not available: {}", error.in_full()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.add("Kptfile", Mode::Regular, "kind: Kptfile\n").unwrap();
        tree.add("logo.png", Mode::Regular, vec![0x89, 0, 0xff]).unwrap();
        tree.add("run.sh", Mode::Executable, "#!/bin/sh\n").unwrap();
        tree
    }

    #[test]
    fn document_returns_the_files_it_was_made_of() {
        let document = Document::of(&tree());
        assert_eq!(document.tree().unwrap(), tree());
        let written = serde_json::to_vec(&document).unwrap();
        assert_eq!(serde_json::from_slice::<Document>(&written).unwrap(), document);
        assert_eq!(document.resources.keys().collect::<Vec<_>>(), ["Kptfile", "run.sh"]);
    }

    #[test]
    fn save_leaves_binary_files_and_modes_alone() {
        let resources = BTreeMap::from([("run.sh".to_owned(), "#!/bin/bash\n".to_owned())]);
        let saved = Document::of(&tree()).with(Content { resources, ..Content::default() });
        let saved = saved.tree().unwrap();
        assert_eq!(saved.paths().collect::<Vec<_>>(), ["logo.png", "run.sh"]);
        assert!(saved.get("run.sh").unwrap().is_executable);
    }
}
