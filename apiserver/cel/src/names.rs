//! What names, label keys and label values may look like, in the words of
//! `k8s.io/apimachinery/pkg/api/validate/content` and `k8s.io/apimachinery/pkg/util/validation`.
//!
//! Each function returns the complaints, none when the value is good.

const DNS_1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// The longest DNS label, in bytes.
pub const DNS_LABEL_MAX: usize = 63;
/// The longest DNS subdomain, in bytes.
pub const DNS_SUBDOMAIN_MAX: usize = 253;
/// The longest label value, and the longest name part of a label key, in bytes.
pub const LABEL_MAX: usize = 63;

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// That a name is too long, as the older functions of `k8s.io/apimachinery/pkg/util/validation` put it.
pub fn too_long_name(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// That a value does not match a pattern, with examples of values that do.
pub fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn matches_dns_label(value: &str) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = value.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
}

fn matches_dns_subdomain(value: &str) -> bool {
    value.split('.').all(matches_dns_label)
}

fn matches_label_name(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Complaints about a DNS label (RFC 1123), such as a namespace's name.
pub fn dns_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        errors.push(too_long_name(DNS_LABEL_MAX));
    }
    if !matches_dns_label(value) {
        errors.push(if matches_dns_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                DNS_LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// Complaints about a DNS label (RFC 1035), such as a Service's name: it begins with a letter.
pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_LABEL_MAX {
        errors.push(too_long_name(DNS_LABEL_MAX));
    }
    if !matches_dns_label(value) || !value.starts_with(|first: char| first.is_ascii_lowercase()) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            DNS_1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Complaints about a DNS subdomain (RFC 1123), such as most objects' names.
pub fn dns_subdomain(value: &str) -> Vec<String> {
    dns_subdomain_of(value, too_long_name)
}

fn dns_subdomain_of(value: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors.push(too_long(DNS_SUBDOMAIN_MAX));
    }
    if !matches_dns_subdomain(value) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &format!("{DNS_LABEL}(\\.{DNS_LABEL})*"),
            &["example.com"],
        ));
    }
    errors
}

/// A name's beginning as it may be checked like a name: a dash at the end is fine there.
///
/// Upstream replaces the last two characters, not one; the result is only looked at.
pub fn mask_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => prefix.to_owned(),
    }
}

/// Complaints about a label key, which is also what annotation keys and finalizers are.
pub fn label_key(value: &str) -> Vec<String> {
    const MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                           alphanumeric character";
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut errors = Vec::new();
    let name = match value.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors
                    .extend(dns_subdomain_of(prefix, too_long).into_iter().map(|error| format!("prefix part {error}")));
            }
            *name
        }
        _ => {
            let regex = regex_error(MESSAGE, LABEL_KEY, EXAMPLES);
            return vec![format!(
                "a valid label key {regex} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !matches_label_name(name) {
        errors.push(format!("name part {}", regex_error(MESSAGE, LABEL_KEY, EXAMPLES)));
    }
    errors
}

/// Complaints about a label value, which may be empty.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !value.is_empty() && !matches_label_name(value) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &format!("({LABEL_KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(complaints: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
        for value in good {
            assert_eq!(complaints(value), Vec::<String>::new(), "{value:?}");
        }
        for value in bad {
            assert!(!complaints(value).is_empty(), "{value:?}");
        }
    }

    #[test]
    fn names_are_dns() {
        let long = "a".repeat(64);
        check(dns_label, &["a", "a-1", "0"], &["", "A", "-a", "a-", "a.b", "a_b", &long]);
        check(dns_1035_label, &["a", "a-1"], &["", "1a", "A", "-a", "a-", "a.b", &long]);
        let long = "a".repeat(254);
        check(dns_subdomain, &["a", "a.b-c.1"], &["", ".a", "a.", "a..b", "a/b", "A.b", &long]);
    }

    #[test]
    fn labels_are_qualified_names() {
        let long = "a".repeat(64);
        let long_name = format!("example.com/{long}");
        check(
            label_key,
            &["a", "A_b.c-1", "example.com/A"],
            &["", "/a", "a/", "a/b/c", "-a", "a-", "Example.com/a", "a b", &long_name],
        );
        check(label_value, &["", "a", "A_b.c-1"], &["-a", "a-", "a/b", "ä", &long]);
    }

    #[test]
    fn complaints_are_those_of_kubernetes() {
        assert_eq!(
            dns_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
              end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        let long = "a".repeat(254);
        assert_eq!(dns_label(&long[..64]), ["must be no more than 63 characters"]);
        assert_eq!(dns_subdomain(&long), ["must be no more than 253 characters"]);
        assert_eq!(label_key(&format!("{long}/a")), ["prefix part must be no more than 253 bytes"]);
    }

    #[test]
    fn dash_at_the_end_of_a_prefix_is_masked() {
        assert_eq!(mask_trailing_dash("web-"), "wea");
        assert_eq!(mask_trailing_dash("-"), "-");
        assert_eq!(mask_trailing_dash("web"), "web");
    }
}
