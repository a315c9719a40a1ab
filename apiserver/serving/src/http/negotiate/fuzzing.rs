//! Properties of `Accept` and `Content-Type` headers.

use http::{HeaderMap, HeaderValue, header};
use stoa_meta::{fuzzing::refused, patch::PatchType};

use super::{Convert, MediaType};

/// Accept and Content-Type: what is agreed on is something that was named, and refusals are 406 and 415.
pub(crate) fn accept(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let text = value.to_str().unwrap_or("").to_owned();
    let headers = HeaderMap::from_iter([(header::ACCEPT, value.clone()), (header::CONTENT_TYPE, value)]);
    match super::output(&headers) {
        Ok(accepted) => {
            let named = text.is_empty() || text.contains('*') || text.contains(accepted.media.as_str());
            match super::check_streamed(accepted) {
                Ok(()) => assert_eq!(accepted.media, MediaType::Json),
                Err(error) => refused(&error, &[406]),
            }
            assert!(named || text.contains("application"), "{text:?}: {accepted:?}");
            if let Some((convert, version)) = accepted.convert {
                let kind = match convert {
                    Convert::Table => "Table",
                    Convert::Partial => "PartialObjectMetadata",
                    Convert::PartialList => "PartialObjectMetadataList",
                };
                assert!(text.contains(kind) && text.contains(version), "{text:?}: {accepted:?}");
            }
        }
        Err(error) => refused(&error, &[406]),
    }
    for streams in [false, true] {
        if let Err(error) = super::check_produced(&headers, &[], streams) {
            refused(&error, &[406]);
        }
    }
    super::status_output(&headers);
    super::clauses(&text);
    if let Err(error) = super::input(&headers) {
        refused(&error, &[415]);
    }
    if let Err(error) = PatchType::of(&headers) {
        refused(&error, &[415]);
    }
}
