//! Properties of continue tokens.

use stoa_meta::schema::binary::RAW_URL;

use super::token::{Continue, expired};

/// A token that is taken leads into the list, and is the same written anew.
pub(crate) fn continue_tokens(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // As it is, and as what a token holds.
    for token in [text.to_string(), RAW_URL.encode(data)] {
        match Continue::decode(&token) {
            Ok(token) => {
                assert!(!token.after.starts_with('/'));
                let again = Continue::decode(&token.encode()).expect("it was written here");
                assert_eq!(format!("{again:?}"), format!("{token:?}"));
                assert_eq!(expired(token).code(), 410);
            }
            Err(error) => assert_eq!((error.code(), error.reason()), (400, "BadRequest")),
        }
    }
}
