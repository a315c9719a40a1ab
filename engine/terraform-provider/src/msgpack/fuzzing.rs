//! Fuzz target: any bytes as a value of any type.

use super::{decode, encode};
use crate::value::{Json, Type, state};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("terraform_values", terraform_values)];

/// Fuzz input: a type in JSON, a line break, and msgpack.
///
/// A decoded value has the form of its type, and survives a second round trip. A value without unknown parts survives
/// a state too.
pub fn terraform_values(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(ty) = Type::parse(&data[..end]) else { return };
    let Ok(value) = decode(&data[end + 1..], &ty) else { return };
    assert!(value.conforms(&ty), "{value:?} is no {ty}");
    let encoded = encode(&value, &ty).expect("a decoded value has the form of its type");
    assert_eq!(decode(&encoded, &ty).expect("an encoded value is a value"), value);
    if let Ok(json) = state::to_json(&value, &ty) {
        // Reading JSON has a lower limit of depth than msgpack.
        if let Ok(json) = Json::parse(json.to_string().as_bytes()) {
            assert_eq!(state::from_json(&json, &ty).expect("a written state is a state"), value);
        }
    }
}
