//! References to a Source, a Backend or a Module: it is deleted only after the objects that refer to it.

use kube::ResourceExt as _;
use stoa_controller::object::Kind;
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_types::{Project, Workspace};

use super::{lookup::Lookup, module::named_in};

/// The most objects that an error names.
const NAMED: usize = 10;

/// Names the Projects of a namespace that refer to a Source, also as that of their template: `projects web and api`.
/// Nothing where none does.
///
/// # Errors
///
/// When they cannot be read.
pub(crate) async fn projects_of_source(
    lookup: &Lookup,
    namespace: &str,
    source: &str,
) -> Result<Option<String>, ApiError> {
    let refers = |project: &Project| {
        let template = project.spec.template.iter().map(|template| &template.source);
        template.chain([&project.spec.source]).any(|of| of.name == source)
    };
    referring(lookup, Some(namespace), &ListOptions::default(), "project", refers).await
}

/// Names the Workspaces that refer to a Backend, as [`projects_of_source`] does.
///
/// # Errors
///
/// When they cannot be read.
pub(crate) async fn workspaces_of_backend(lookup: &Lookup, backend: &str) -> Result<Option<String>, ApiError> {
    let options =
        ListOptions { field_selector: Some(format!("spec.backend.name={backend}")), ..ListOptions::default() };
    referring(lookup, None, &options, "workspace", |_: &Workspace| true).await
}

/// Names the Workspaces that refer to a Module, as [`projects_of_source`] does.
///
/// # Errors
///
/// When they cannot be read.
pub(crate) async fn workspaces_of_module(lookup: &Lookup, module: &str) -> Result<Option<String>, ApiError> {
    let refers = |workspace: &Workspace| named_in(&workspace.spec).iter().any(|named| named.module == module);
    referring(lookup, None, &ListOptions::default(), "workspace", refers).await
}

/// Names the objects that refer to another and are not being deleted themselves.
async fn referring<K: Kind>(
    lookup: &Lookup,
    namespace: Option<&str>,
    options: &ListOptions,
    noun: &str,
    refers: impl Fn(&K) -> bool,
) -> Result<Option<String>, ApiError> {
    let name = |object: K| {
        let counts = object.meta().deletion_timestamp.is_none() && refers(&object);
        counts.then(|| object.name_any())
    };
    let mut names = lookup.api::<K>()?.list_of(namespace, options, name).await?;
    names.sort();
    Ok((!names.is_empty()).then(|| sentence(noun, &names)))
}

/// Lists names: `project web`, or `projects api, web and 3 more`.
fn sentence(noun: &str, names: &[String]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    let named = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => format!("{noun}{plural} {named}"),
        more => format!("{noun}{plural} {named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_names_ten_objects_at_most() {
        let names: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
        assert_eq!(sentence("project", &names[..1]), "project p0");
        assert_eq!(sentence("project", &names[..2]), "projects p0, p1");
        assert!(sentence("project", &names).ends_with("p8, p9 and 2 more"));
    }
}
