//! The encoding of content between processes.

use super::{Content, LockFile, SourceFile, StackFiles};

/// The content of a path.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Files {
    #[prost(message, repeated, tag = "1")]
    pub(crate) files: Vec<File>,
    /// Only of a folder.
    #[prost(message, optional, tag = "2")]
    pub(crate) folder: Option<Folder>,
    /// The lock file of Terraform's providers.
    #[prost(message, optional, tag = "3")]
    pub(crate) lock: Option<Lock>,
}

/// The lock file of Terraform's providers, or its problem.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Lock {
    #[prost(oneof = "LockContent", tags = "1, 2")]
    content: Option<LockContent>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum LockContent {
    #[prost(message, tag = "1")]
    File(File),
    #[prost(message, tag = "2")]
    Problem(stoa_proto::Problem),
}

impl From<LockFile> for Lock {
    fn from(lock: LockFile) -> Self {
        let content = match lock {
            Ok(file) => LockContent::File(file.into()),
            Err(problem) => LockContent::Problem(problem),
        };
        Self { content: Some(content) }
    }
}

impl Lock {
    #[expect(clippy::result_large_err, reason = "the closure has the type of the file, which is there once")]
    pub(crate) fn into_file(self) -> Option<LockFile> {
        self.content.map(|content| match content {
            LockContent::File(file) => Ok(file.into()),
            LockContent::Problem(problem) => Err(problem),
        })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct File {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(bytes = "vec", tag = "2")]
    bytes: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Folder {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(string, repeated, tag = "2")]
    others: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    warnings: Vec<String>,
}

impl From<SourceFile> for File {
    fn from(SourceFile { path, bytes }: SourceFile) -> Self {
        Self { path, bytes }
    }
}

impl From<File> for SourceFile {
    fn from(File { path, bytes }: File) -> Self {
        Self { path, bytes }
    }
}

impl From<StackFiles> for Files {
    fn from(StackFiles { content, lock }: StackFiles) -> Self {
        let (files, folder) = match content {
            Content::File(file) => (vec![file], None),
            Content::Folder { path, files, others, warnings } => (files, Some(Folder { path, others, warnings })),
        };
        let files = files.into_iter().map(File::from).collect();
        Self { files, folder, lock: lock.map(Lock::from) }
    }
}

impl From<Files> for StackFiles {
    fn from(content: Files) -> Self {
        let mut files = content.files.into_iter().map(SourceFile::from);
        let lock = content.lock.and_then(Lock::into_file);
        let content = match content.folder {
            Some(Folder { path, others, warnings }) => {
                Content::Folder { path, files: files.collect(), others, warnings }
            }
            None => {
                Content::File(files.next().unwrap_or_else(|| SourceFile { path: String::new(), bytes: Vec::new() }))
            }
        };
        Self { content, lock }
    }
}
