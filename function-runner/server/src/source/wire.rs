//! The encoding of content between processes.

use super::{Content, SourceFile};

/// The content of a path.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Files {
    #[prost(message, repeated, tag = "1")]
    pub(crate) files: Vec<File>,
    /// Only of a folder.
    #[prost(message, optional, tag = "2")]
    pub(crate) folder: Option<Folder>,
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

impl From<Content> for Files {
    fn from(content: Content) -> Self {
        let (files, folder) = match content {
            Content::File(file) => (vec![file], None),
            Content::Folder { path, files, others, warnings } => (files, Some(Folder { path, others, warnings })),
        };
        let files = files.into_iter().map(|SourceFile { path, bytes }| File { path, bytes }).collect();
        Self { files, folder }
    }
}

impl From<Files> for Content {
    fn from(content: Files) -> Self {
        let mut files = content.files.into_iter().map(|File { path, bytes }| SourceFile { path, bytes });
        match content.folder {
            Some(Folder { path, others, warnings }) => Self::Folder { path, files: files.collect(), others, warnings },
            None => Self::File(files.next().unwrap_or_else(|| SourceFile { path: String::new(), bytes: Vec::new() })),
        }
    }
}
