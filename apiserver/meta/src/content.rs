//! Rules of names, label keys and label values, in the words of
//! `k8s.io/apimachinery/pkg/api/validate/content`.
//!
//! Each function returns the complaints, none when the value is good. Those that expressions in CEL know as well are
//! `stoa_cel`'s.

pub use stoa_cel::names::{
    DNS_LABEL_MAX, DNS_SUBDOMAIN_MAX, LABEL_MAX, dns_label, dns_subdomain, label_key, label_value, mask_trailing_dash,
};
use stoa_cel::names::{regex_error, too_long_name};

/// All annotations of an object together, keys and values, in bytes.
pub const ANNOTATIONS_MAX: usize = 256 << 10;

/// Complaints about a text that is to be one segment of a path.
///
/// Follows `IsValidPathSegmentName` in `k8s.io/apimachinery/pkg/api/validation/path`.
pub fn path_segment(value: &str) -> Vec<String> {
    if matches!(value, "." | "..") {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"].into_iter().filter(|c| value.contains(c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Complaints about a key of a ConfigMap or Secret, which may become the name of a file.
///
/// Follows `IsConfigMapKey` in `k8s.io/apimachinery/pkg/util/validation`.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors.push(too_long_name(DNS_SUBDOMAIN_MAX));
    }
    let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(is_good) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." | ".." => errors.push(format!("must not be '{value}'")),
        _ if value.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_config_maps_may_be_names_of_files() {
        let long = "a".repeat(254);
        for good in ["a", ".a", "A_b.c-1", "-", "_"] {
            assert_eq!(config_map_key(good), Vec::<String>::new(), "{good:?}");
        }
        for bad in ["", "a b", "a/b", ".", "..", "..a", &long] {
            assert!(!config_map_key(bad).is_empty(), "{bad:?}");
        }
        assert_eq!(config_map_key("."), ["must not be '.'"]);
        assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
    }
}
