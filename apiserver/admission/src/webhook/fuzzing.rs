//! Properties of the answers of webhooks.

use serde_json::Value;
use stoa_meta::{
    fuzzing::OBJECT,
    patch::{apply_operations, json_operations},
    schema::binary,
};

use super::review::{self, JSON_PATCH, ReviewVersion};

/// The uid of the review that all answers are to.
const UID: &str = "u";

/// An answer: what is made of it is what stands in it, however that is written; those to other reviews are refused; only
/// mutating webhooks patch, and a patch is applied or refused.
pub(crate) fn admission_reviews(data: &[u8]) {
    for (version, mutates) in
        [ReviewVersion::V1, ReviewVersion::V1Beta1].into_iter().flat_map(|version| [(version, false), (version, true)])
    {
        let decode = |body: &[u8]| review::decode(version, UID, mutates, body);
        let said = review::parse(data).map(Value::Object);
        let answer = match (decode(data), &said) {
            (Ok(answer), _) => answer,
            (Err(error), said) => {
                assert!(error.contains("webhook"), "{error}");
                if let Ok(said) = said {
                    assert!(decode(said.to_string().as_bytes()).is_err(), "{said} is no mistake");
                }
                continue;
            }
        };
        let said = said.expect("it was read before");
        let response = &said["response"];
        assert_eq!(answer.allowed, response["allowed"] == true);
        if version == ReviewVersion::V1 {
            assert!(response["uid"] == UID && said["kind"] == "AdmissionReview", "{said}");
        }
        let texts = response["warnings"].as_array().into_iter().flatten();
        // Null is read as no text.
        let texts: Vec<&str> = texts.map(|text| text.as_str().unwrap_or("")).collect();
        assert_eq!(answer.warnings, texts);
        let Some((patch, patch_type)) = answer.patch else { continue };
        assert!(mutates);
        let written = response["patch"].as_str().expect("it is a text");
        assert_eq!(binary::STANDARD.decode(written).as_ref(), Ok(&patch));
        if patch_type != JSON_PATCH {
            continue;
        }
        let Ok(operations) = json_operations(&patch) else { continue };
        let mut document = Value::Object(OBJECT.0.clone());
        if apply_operations(&mut document, &operations).is_ok() {
            assert!(serde_json::to_vec(&document).is_ok());
        }
    }
}
