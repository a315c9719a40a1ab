//! What holds for what webhooks answer, whatever it is.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::review::{self, JSON_PATCH, ReviewVersion};
use crate::{
    fuzzing::{OBJECT, refused},
    http::patch::{Patch, PatchType},
    request::FieldValidation,
    schema::{self, Format},
};

/// The uid of the review that all answers are to.
const UID: &str = "u";

/// An answer: what is made of it is what stands in it, however that is written; those to other reviews are refused; only
/// mutating webhooks patch, and a patch is applied or refused.
pub(crate) fn admission_reviews(data: &[u8]) {
    for (version, mutates) in
        [ReviewVersion::V1, ReviewVersion::V1Beta1].into_iter().flat_map(|version| [(version, false), (version, true)])
    {
        let decode = |body: &[u8]| review::decode(version, UID, mutates, body);
        let said = schema::parse(data, Format::Json).map(|parsed| parsed.value);
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
        let warnings: Vec<Value> = answer.warnings.into_iter().map(Value::String).collect();
        assert_eq!(warnings, response["warnings"].as_array().cloned().unwrap_or_default());
        let Some((patch, patch_type)) = answer.patch else { continue };
        assert!(mutates);
        assert_eq!(response["patch"], BASE64_STANDARD.encode(&patch));
        if patch_type != JSON_PATCH {
            continue;
        }
        let parsed = Patch::parse(PatchType::Json, &patch, FieldValidation::Ignore);
        match parsed.and_then(|patch| patch.apply(&OBJECT, &Value::Null)) {
            Ok(patched) => assert!(serde_json::to_vec(&patched.0).is_ok()),
            Err(error) => refused(&error, &[400, 413, 422, 500]),
        }
    }
}
