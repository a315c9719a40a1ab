//! Archives of working copies as bodies of `stacks/generate` and `stacks/preview`: `tar c . | kubectl create --raw … -f -`.
//!
//! kubectl sends no media type with a raw body, so that its first bytes say what it is.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
};

use super::generate::Generate;

/// The media types of archives.
const TYPES: &[&str] = &["application/x-tar", "application/gzip", "application/x-gzip"];
/// The first bytes of a gzip file.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// The mark of a tar archive, and its position in the first header.
const TAR: (usize, &[u8]) = (257, b"ustar");

/// The archive in the body of a call; `None` where it has another body.
///
/// # Errors
///
/// 400 for a body that is no archive and has the media type of one.
pub(super) fn of(call: &SubresourceCall) -> Result<Option<Bytes>, ApiError> {
    let content_type = call.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (position, mark) = TAR;
    let is_archive =
        call.body.starts_with(GZIP) || call.body.get(position..).is_some_and(|rest| rest.starts_with(mark));
    match TYPES.contains(&content_type.as_str()) {
        _ if is_archive => Ok(Some(call.body.clone())),
        false => Ok(None),
        true => Err(ApiError::bad_request(
            "the body is no tar archive; send the output of tar, plain or compressed by gzip",
        )),
    }
}

/// `stacks/preview`: the plan of a working copy, or a Run.
#[derive(Debug)]
pub(super) struct Preview {
    pub(super) generate: Arc<Generate>,
    /// Starts a Run.
    pub(super) others: Arc<dyn SubresourceHandler>,
}

#[async_trait]
impl SubresourceHandler for Preview {
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        match of(&call)? {
            Some(archive) => self.generate.preview(call, archive).await,
            None => self.others.call(call).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};
    use stoa_machinery::RequestContext;

    use super::*;

    #[test]
    fn first_bytes_tell_archives() {
        let call = |content_type: &'static str, body: Vec<u8>| SubresourceCall {
            context: RequestContext::internal("tests"),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            method: Method::POST,
            query: Vec::new(),
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))]),
            body: body.into(),
        };
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        for (content_type, body, expected) in [
            ("", tar.clone(), Some(true)),
            ("application/json", GZIP.to_vec(), Some(true)),
            ("application/x-tar", tar, Some(true)),
            ("", b"{}".to_vec(), Some(false)),
            ("", Vec::new(), Some(false)),
            ("application/gzip; x=y", b"{}".to_vec(), None),
        ] {
            let found = of(&call(content_type, body));
            assert_eq!(found.ok().map(|found| found.is_some()), expected, "{content_type}");
        }
    }
}
