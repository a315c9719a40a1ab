//! Revisions of GitOps reconcilers, as Flux and Argo CD write them.

/// The maximum length of an [`identity`], in characters.
const LONGEST: usize = 100;

/// The commit that a revision names: `<commit>`, `main@sha1:<commit>` or, before Flux 2, `main/<commit>`. In lower case.
pub fn commit(revision: &str) -> Option<String> {
    let name = revision.rsplit([':', '/', '@']).next().unwrap_or_default();
    (name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| name.to_ascii_lowercase())
}

/// The commit of a revision, or the part after `@` where it has none: a digest such as `sha256:…`, or the version of a chart. At
/// most 100 characters; `None` for an empty revision.
pub fn identity(revision: &str) -> Option<String> {
    commit(revision).or_else(|| {
        let name = revision.rsplit_once('@').map_or(revision, |(_, name)| name);
        let name: String = name.chars().take(LONGEST).collect();
        (!name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_names_a_commit_or_something_else() {
        let commit_id = "aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbb";
        for revision in [
            commit_id.to_owned(),
            format!("main@sha1:{commit_id}"),
            format!("feature/x@sha1:{commit_id}"),
            format!("main/{commit_id}"),
            format!("sha1:{}", commit_id.to_uppercase()),
        ] {
            assert_eq!(commit(&revision).as_deref(), Some(commit_id), "{revision}");
            assert_eq!(identity(&revision).as_deref(), Some(commit_id), "{revision}");
        }
        for (revision, expected) in
            [("latest@sha256:abc", Some("sha256:abc")), ("1.2.3+abc", Some("1.2.3+abc")), ("main@", None), ("", None)]
        {
            assert_eq!(commit(revision), None, "{revision}");
            assert_eq!(identity(revision).as_deref(), expected, "{revision}");
        }
        assert_eq!(identity(&"é".repeat(101)).unwrap().chars().count(), 100);
    }
}
