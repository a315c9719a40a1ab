//! The names of packages and of their revisions.

use stoa_machinery::{content, status::FieldError};

/// The name of a revision's object, as Porch has it: repository, package and workspace, joined by dots.
pub fn revision_name(repository: &str, package: &str, workspace: &str) -> String {
    format!("{}.{workspace}", package_name(repository, package))
}

/// The name of a package's object, as Porch has it.
pub fn package_name(repository: &str, package: &str) -> String {
    format!("{repository}.{}", package.replace('/', "."))
}

/// The name of a function's object: repository, name of the image and tag, joined by dots.
pub fn function_name(repository: &str, image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let (last, _) = last.split_once('@').unwrap_or((last, ""));
    let name = last.replace(':', ".").to_ascii_lowercase();
    let plain = |text: char| if text.is_ascii_alphanumeric() || text == '.' { text } else { '-' };
    let name: String = name.chars().map(plain).collect();
    // A label begins and ends with a letter or a digit.
    let labels = name.split('.').map(|label| label.trim_matches('-')).filter(|label| !label.is_empty());
    labels.fold(repository.to_owned(), |name, label| format!("{name}.{label}"))
}

/// Finds errors in the path of a package: DNS labels, with `/` between them.
pub(crate) fn package(path: &str, value: &str, errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(path, "must be the path of a package, such as network/basens"));
        return;
    }
    for part in value.split('/') {
        errors.extend(content::dns_label(part).iter().map(|why| FieldError::invalid(path, value, why)));
    }
}

/// Finds errors in the name of a workspace: a DNS label.
pub(crate) fn workspace(path: &str, value: &str, errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(path, "must name the changes of this revision"));
        return;
    }
    errors.extend(content::dns_label(value).iter().map(|why| FieldError::invalid(path, value, why)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_names_are_those_of_porch() {
        assert_eq!(revision_name("blueprints", "basens", "v1"), "blueprints.basens.v1");
        assert_eq!(revision_name("blueprints", "network/basens", "v1"), "blueprints.network.basens.v1");
    }

    #[test]
    fn function_names_have_image_and_tag() {
        for (image, name) in [
            ("registry.example.com:5000/fn/set-team:v0.2", "acme.set-team.v0.2"),
            ("registry.example.com/set_Team", "acme.set-team"),
            ("registry.example.com/set-team@sha256:00", "acme.set-team"),
            ("registry.example.com/set-team:v1_", "acme.set-team.v1"),
        ] {
            assert_eq!(function_name("acme", image), name);
        }
    }

    #[test]
    fn package_paths_consist_of_labels() {
        let count = |value: &str| {
            let mut errors = Vec::new();
            package("spec.packageName", value, &mut errors);
            errors.len()
        };
        assert_eq!(["basens", "network/basens"].map(count), [0, 0]);
        for bad in ["", "/basens", "a//b", "../a", "a.b", "A", "a/"] {
            assert_ne!(count(bad), 0, "{bad:?}");
        }
    }
}
