//! Properties of bodies that are no object of a kind.

use serde_json::Value;
use stoa_meta::{fuzzing::refused, schema::fuzzing::has_long_keys};
use stoa_registry::registry;

use super::Configuration;
use crate::http::{negotiate::MediaType, writes};

/// A body of what is no object of a kind, in both formats: options of a delete and the configuration of an apply. Read
/// as JSON it is what the same in YAML is.
pub(crate) fn bodies(data: &[u8]) {
    let configuration = match Configuration::parse(data) {
        Ok(configuration) => configuration.object,
        Err(error) => return refused(&error, &[400]),
    };
    if has_long_keys(&Value::Object(configuration.0.clone())) {
        return;
    }
    let json = serde_json::to_vec(&configuration.0).expect("a map is written as JSON");
    let again = Configuration::parse(&json).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(again.object, configuration);
    let options = |body: &[u8], media| writes::parse_delete_options(body, media);
    match (options(&json, MediaType::Json), options(&json, MediaType::Yaml)) {
        (Ok(options), Ok(same)) => {
            assert_eq!(format!("{options:?}"), format!("{same:?}"));
            if let Err(error) = registry::check_delete(&options) {
                refused(&error, &[400, 422]);
            }
        }
        (Err(error), Err(same)) => {
            refused(&error, &[400]);
            refused(&same, &[400]);
        }
        different => panic!("{different:?}"),
    }
    for media in [MediaType::Json, MediaType::Yaml] {
        if let Err(error) = options(data, media) {
            refused(&error, &[400]);
        }
    }
}
