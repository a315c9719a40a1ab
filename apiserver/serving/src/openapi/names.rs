//! The ids and tags of operations, and the articles in their descriptions.
//!
//! Follows `GetOperationIDAndTags` in `k8s.io/apiserver/pkg/endpoints/openapi`.

pub(super) fn tag(group: &str, version: &str) -> String {
    format!("{}_{version}", group_tag(group))
}

/// The tag of the operations of a group: its name in one word.
pub(super) fn group_tag(group: &str) -> String {
    let word = camel_group(group);
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// A group and version in the id of an operation.
pub(super) fn camel_version(group: &str, version: &str) -> String {
    format!("{}{}", camel_group(group), capitalized(version))
}

/// The group in one word, without the end that all of Kubernetes' own groups have.
pub(super) fn camel_group(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    group.strip_suffix(".k8s.io").unwrap_or(group).split(['.', '-']).map(capitalized).collect()
}

pub(super) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// One of a kind: `a Flunder`, `an Organization`; as `GetArticleForNoun` has it, plurals have no article.
pub(super) fn one(kind: &str) -> String {
    match kind.chars().next() {
        _ if kind.ends_with('s') && !kind.ends_with("ss") => kind.to_owned(),
        Some('A' | 'E' | 'I' | 'O' | 'U') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_one_word() {
        assert_eq!(tag("wardle.example.com", "v1alpha1"), "wardleExampleCom_v1alpha1");
        assert_eq!(camel_version("rbac.authorization.k8s.io", "v1"), "RbacAuthorizationV1");
        assert_eq!((group_tag("").as_str(), camel_version("", "v1").as_str()), ("core", "CoreV1"));
    }

    #[test]
    fn articles_are_those_of_upstream() {
        assert_eq!(
            ["Flunder", "Organization", "Endpoints", "StorageClass"].map(one),
            ["a Flunder", "an Organization", "Endpoints", "a StorageClass"]
        );
    }
}
