//! Repository: a registered repository of packages.
//!
//! Elsewhere: `conflicts` compares registrations, and `package_access` has the verbs on repositories.

mod conflicts;

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition, content,
    definition::{Cell, Column},
    object::Object,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::porchconfig::{GitRepository, Repository, RepositorySpec, RepositoryType, UpstreamRepository};

use crate::{
    cron::Schedule,
    kind::{Kind, Surroundings},
    lookup::{Lookup, require_secret},
    ready,
    rights::{DEVELOPED, EDIT, MEMBERS, OBJECTS, OWNED, READ, READERS, Role, right},
    validation,
};

/// The content of a repository of packages.
pub const PACKAGES: &str = "Package";

/// The content of a repository of functions.
pub const FUNCTIONS: &str = "Function";

/// The kind Repository.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, .. }| {
        builder.register(definition, RepositoryStrategy { lookup })
    },
    rights: &[
        right(READERS, OBJECTS, READ),
        right(MEMBERS, &["status"], READ),
        DEVELOPED,
        OWNED,
        // Permissions on packages by repository: `package_access`.
        right(&[Role::Developer], OBJECTS, &["clone", "edit"]),
        right(&[Role::Approver], OBJECTS, &["approve"]),
        right(&[Role::Owner], OBJECTS, &["approve", "clone", "edit"]),
        right(&[Role::GarbageCollector], OBJECTS, EDIT),
    ],
    ..Kind::of::<Repository>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Repository>().columns(&[
        Column::new("Type", Cell::Path(&["spec", "type"]), "The type of the repository."),
        Column::new("Content", Cell::Path(&["spec", "content"]), "The content of the repository."),
        Column::new(
            "Deployment",
            Cell::Path(&["spec", "deployment"]),
            "Whether its packages are deployed as they are.",
        )
        .kind("boolean"),
        ready::status("Whether the repository was read."),
        Column::new("Address", Cell::Compute(address), "The address of the repository."),
        ready::reason(),
        ready::message(),
    ])
}

/// The address of a Git repository or registry.
fn address(object: &Object) -> Value {
    let of = |fields: [&str; 3]| object.get_path(&fields).cloned();
    of(["spec", "git", "repo"]).or_else(|| of(["spec", "oci", "registry"])).unwrap_or_default()
}

#[derive(Debug)]
struct RepositoryStrategy {
    lookup: Lookup,
}

/// Finds errors in a repository in Git.
fn git(git: &GitRepository, errors: &mut Vec<FieldError>) {
    validation::repository_address("spec.git.repo", &git.repo, errors);
    validation::repository_path("spec.git.directory", git.directory.trim_start_matches('/'), errors);
    if git.branch.is_empty() || git.branch.starts_with('-') || git.branch.contains([' ', ':', '~', '^', '?', '*', '\\'])
    {
        errors.push(FieldError::invalid("spec.git.branch", &git.branch, "must be the name of a branch"));
    }
}

/// The Secrets whose content a Git server or a registry gets, each with the address of that server.
fn secrets(repository: &Repository) -> Vec<(&str, &str)> {
    let RepositorySpec { git, upstream, oci, .. } = &repository.spec;
    let upstream = upstream.as_ref().and_then(|upstream| upstream.git.as_ref());
    let of_git = git.iter().chain(upstream).map(|git| (&git.repo, &git.secret_ref));
    let of_oci = oci.iter().map(|oci| (&oci.registry, &oci.secret_ref));
    let named = of_git.chain(of_oci).filter_map(|(address, secret)| Some((&**address, &*secret.as_ref()?.name)));
    named.filter(|(_, name)| !name.is_empty()).collect()
}

/// Finds errors in a default upstream.
fn upstream(upstream: &UpstreamRepository, name: &str, errors: &mut Vec<FieldError>) {
    match (&upstream.git, &upstream.repository_ref) {
        (Some(git), None) => {
            validation::repository_address("spec.upstream.git.repo", &git.repo, errors);
            validation::new_repository_address("spec.upstream.git.repo", &git.repo, errors);
        }
        (None, Some(reference)) if reference.name.is_empty() || reference.name == name => {
            let detail = "must name another Repository of the namespace";
            errors.push(FieldError::invalid("spec.upstream.repositoryRef.name", &reference.name, detail));
        }
        (None, Some(_)) => {}
        (Some(_), Some(_)) => {
            errors
                .push(FieldError::forbidden("spec.upstream.git", "repositoryRef names the upstream; set one of both"));
        }
        (None, None) => errors.push(FieldError::required("spec.upstream", "must have repositoryRef or git")),
    }
}

/// Finds errors in the type and the address of a repository.
fn origin(spec: &RepositorySpec, errors: &mut Vec<FieldError>) {
    let has_functions = spec.content == FUNCTIONS;
    match (spec.kind, &spec.git, &spec.oci) {
        (RepositoryType::Runner, _, _) if !has_functions => {
            errors.push(FieldError::not_supported("spec.type", "runner", &["git", "oci"]));
        }
        (RepositoryType::Git, Some(repository), None) => git(repository, errors),
        (RepositoryType::Oci, None, Some(oci)) => registry(&oci.registry, errors),
        (RepositoryType::Runner, None, None) => {}
        (RepositoryType::Git, None, _) => {
            let detail = match has_functions {
                true => "type git needs it; set spec.type to runner for the functions of the function-runners",
                false => "type git needs it; set spec.type to oci for the packages of a registry",
            };
            errors.push(FieldError::required("spec.git", detail));
        }
        (RepositoryType::Oci, _, None) => errors.push(FieldError::required("spec.oci", "type oci needs it")),
        (RepositoryType::Oci | RepositoryType::Runner, Some(_), _) => {
            errors.push(FieldError::forbidden("spec.git", "only type git has it"));
        }
        (RepositoryType::Git | RepositoryType::Runner, _, Some(_)) => {
            errors.push(FieldError::forbidden("spec.oci", "only type oci has it"));
        }
    }
}

/// Finds errors in the address of a registry. The runner reads it in full.
fn registry(address: &str, errors: &mut Vec<FieldError>) {
    let is_plain = |text: &str| {
        !text.is_empty()
            && text.len() <= 255
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_/:[]".contains(&byte))
    };
    let plain = address.strip_prefix("oci://").unwrap_or(address);
    if !plain.split_once('/').is_some_and(|(host, name)| is_plain(host) && is_plain(name) && !name.contains(':')) {
        let detail = "must be HOST[:PORT]/NAME without tag, such as registry.example.com/packages";
        errors.push(FieldError::invalid("spec.oci.registry", address, detail));
    }
}

#[async_trait]
impl Strategy for RepositoryStrategy {
    type Object = Repository;

    fn set_defaults(&self, object: &mut Repository) {
        if object.spec.content.is_empty() {
            PACKAGES.clone_into(&mut object.spec.content);
        }
    }

    fn validate(&self, object: &Repository) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let (spec, name) = (&object.spec, object.name_any());
        errors.extend(content::dns_label(&name).iter().map(|why| FieldError::invalid("metadata.name", &name, why)));
        match spec.content.as_str() {
            FUNCTIONS | PACKAGES => origin(spec, &mut errors),
            other => errors.push(FieldError::not_supported("spec.content", other, &[PACKAGES, FUNCTIONS])),
        }
        if let Some(schedule) = spec.sync.as_ref().map(|sync| &sync.schedule).filter(|schedule| !schedule.is_empty())
            && let Err(error) = schedule.parse::<Schedule>()
        {
            errors.push(FieldError::invalid("spec.sync.schedule", schedule, error));
        }
        if let Some(upstream) = &spec.upstream {
            self::upstream(upstream, &name, &mut errors);
        }
        for (field, functions) in [("mutators", &spec.mutators), ("validators", &spec.validators)] {
            let nameless = functions.iter().enumerate().filter(|(_, function)| function.image.is_empty());
            for (i, _) in nameless {
                errors.push(FieldError::required(format!("spec.{field}[{i}].image"), "must name a function"));
            }
        }
        if spec.read_only && spec.git.as_ref().is_some_and(|git| git.create_branch) {
            let detail = "the server pushes nothing to a repository with spec.readOnly";
            errors.push(FieldError::forbidden("spec.git.createBranch", detail));
        }
        if let Some(webhook) = &spec.webhook {
            validation::secret_beside("spec.webhook.secretRef", &webhook.secret_ref, &mut errors);
        }
        errors
    }

    fn validate_create(&self, _: &RequestContext, object: &Repository) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(git) = &object.spec.git {
            validation::new_repository_address("spec.git.repo", &git.repo, &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Repository, old: &Repository) -> Vec<FieldError> {
        let address = |repository: &Repository| {
            let git = repository.spec.git.clone().unwrap_or_default();
            let content = repository.spec.content.clone();
            let oci = repository.spec.oci.clone().filter(|_| content == PACKAGES).unwrap_or_default();
            [
                ("spec.oci.registry", oci.registry),
                ("spec.content", content),
                ("spec.git.repo", git.repo),
                ("spec.git.branch", git.branch),
                ("spec.git.directory", git.directory),
            ]
        };
        let changed = address(new).into_iter().zip(address(old)).filter(|(new, old)| new != old);
        let detail = "field is immutable; unregister the repository and register it again";
        changed.map(|((path, value), _)| FieldError::invalid(path, value, detail)).collect()
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Repository>) -> Result<(), ApiError> {
        let (new, old) = match change {
            Admission::Create(new) => (new, None),
            Admission::Update { new, old, subresource: "" } => (new, Some(old)),
            Admission::Update { .. } | Admission::Delete(_) => return Ok(()),
        };
        let namespace = new.namespace().unwrap_or_default();
        // Another server gets the content of the same Secret anew.
        let before = old.map(secrets).unwrap_or_default();
        for (_, name) in secrets(new).into_iter().filter(|shown| !before.contains(shown)) {
            require_secret(context, &namespace, name).await?;
        }
        // A repository that becomes writable may have a second writer.
        if old.is_none_or(|old| old.spec.read_only && !new.spec.read_only) {
            conflicts::refuse(&self.lookup, new).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_types::porchconfig::OciRepository;

    use super::*;

    #[test]
    fn repository_of_functions_has_one_origin() {
        let of = |kind, git: Option<&str>, oci: Option<&str>| {
            let spec = RepositorySpec {
                kind,
                content: FUNCTIONS.to_owned(),
                git: git.map(|repo| GitRepository {
                    repo: repo.to_owned(),
                    branch: "main".to_owned(),
                    ..Default::default()
                }),
                oci: oci.map(|registry| OciRepository { registry: registry.to_owned(), secret_ref: None }),
                ..RepositorySpec::default()
            };
            let mut errors = Vec::new();
            origin(&spec, &mut errors);
            errors.len()
        };
        let git = Some("https://git.example.com/functions.git");
        let oci = Some("registry.example.com:5000/functions");
        assert_eq!(of(RepositoryType::Runner, None, None), 0, "the functions of the function-runners");
        assert_eq!(of(RepositoryType::Git, git, None), 0);
        assert_eq!(of(RepositoryType::Oci, None, oci), 0);
        for (kind, git, oci) in [
            (RepositoryType::Git, None, None),
            (RepositoryType::Runner, git, None),
            (RepositoryType::Oci, None, None),
            (RepositoryType::Oci, git, oci),
            (RepositoryType::Git, None, oci),
            (RepositoryType::Oci, None, Some("registry.example.com")),
            (RepositoryType::Oci, None, Some("registry.example.com/a:v1")),
            (RepositoryType::Oci, None, Some("registry.example.com/a b")),
        ] {
            assert_eq!(of(kind, git, oci), 1, "{kind:?} {git:?} {oci:?}");
        }
    }

    #[test]
    fn repository_of_packages_is_in_git_or_a_registry() {
        let count = |spec: Value| {
            let mut errors = Vec::new();
            origin(&serde_json::from_value(spec).unwrap(), &mut errors);
            errors.len()
        };
        let git = json!({"repo": "https://git.example.com/packages.git", "branch": "main"});
        let oci = json!({"registry": "oci://registry.example.com:5000/packages"});
        assert_eq!(count(json!({"content": "Package", "git": git})), 0);
        assert_eq!(count(json!({"content": "Package", "type": "oci", "oci": oci})), 0);
        for wrong in [
            json!({"content": "Package", "type": "runner"}),
            json!({"content": "Package", "type": "oci"}),
            json!({"content": "Package", "type": "oci", "git": git, "oci": oci}),
            json!({"content": "Package", "oci": oci}),
            json!({"content": "Package", "type": "oci", "oci": {"registry": "registry.example.com"}}),
        ] {
            assert_eq!(count(wrong.clone()), 1, "{wrong}");
        }
    }
}
