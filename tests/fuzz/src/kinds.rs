//! What holds for bodies of Stoa's own kinds.

use std::sync::LazyLock;

use stoa_kinds::kind::Kind;
use stoa_machinery::{
    request::FieldValidation,
    schema::{Decoder, Format},
};

static DECODERS: LazyLock<Vec<Decoder>> = LazyLock::new(|| {
    let decoder = |kind: &Kind| Decoder::new(&(kind.definition)()).expect("a derived schema is complete");
    stoa_kinds::kinds().map(decoder).collect()
});

/// A body in JSON or YAML, as each kind: what strict decoding takes, it takes again as it came out; refusals are 400,
/// and what validation finds names a field.
pub(crate) fn kinds(data: &[u8]) {
    let format = if data.trim_ascii_start().starts_with(b"{") { Format::Json } else { Format::Yaml };
    for decoder in DECODERS.iter() {
        let decoded = match decoder.decode(data, format, FieldValidation::Strict) {
            Ok(decoded) => decoded,
            Err(error) => {
                assert_eq!((error.code(), error.reason()), (400, "BadRequest"));
                continue;
            }
        };
        for error in decoder.structural_errors(&decoded.object) {
            assert!(!error.field.is_empty() && !error.message.is_empty(), "{error:?}");
        }
        let json = serde_json::to_vec(&decoded.object.0).expect("an object is written as JSON");
        let yaml = serde_saphyr::to_string(&decoded.object.0).expect("an object is written as YAML");
        for (body, format) in [(json.as_slice(), Format::Json), (yaml.as_bytes(), Format::Yaml)] {
            let again = decoder.decode(body, format, FieldValidation::Strict);
            let again = again.unwrap_or_else(|error| panic!("{}: {error:?}", String::from_utf8_lossy(body)));
            assert_eq!(again.object, decoded.object, "{}", String::from_utf8_lossy(body));
        }
    }
}
