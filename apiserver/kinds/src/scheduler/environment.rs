//! Environment: a stage of promotion, and the branch of the control plane that configures it.

use async_trait::async_trait;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError, RequestContext, content,
    definition::{Cell, Column},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::scheduler::{Environment, Repository};

use super::owned::{self, Owned, OwnedStrategy};
use crate::{
    kind::Kind,
    lookup::require,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, Right, Role, right},
    validation,
};

/// The Secret with the credentials for the repositories of a namespace, by the name that Kalypso gives it.
pub const SECRET: &str = "gh-repo-secret";

/// The kind Environment.
pub static KIND: Kind = Kind {
    register: |builder, definition, surroundings| {
        builder.register(definition, EnvironmentStrategy { owned: OwnedStrategy::of(&surroundings) })
    },
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED, PROMOTED],
    ..owned::kind::<Environment>()
};

/// Who promotes a commit into an environment.
const PROMOTED: Right = right(&[Role::Owner], OBJECTS, &["promote"]);

impl Owned for Environment {
    const COLUMNS: &'static [Column] = &[
        Column::new(
            "Repository",
            Cell::Path(&["spec", "controlPlane", "repo"]),
            "The repository of the control plane.",
        ),
        Column::new("Branch", Cell::Path(&["spec", "controlPlane", "branch"]), "The branch of the environment."),
    ];
    const READY: Option<&'static str> = Some("Whether the branch was read.");

    fn check(&self, errors: &mut Vec<FieldError>) {
        let name = self.name_any();
        // A namespace has this name.
        errors.extend(content::dns_label(&name).iter().map(|why| FieldError::invalid("metadata.name", &name, why)));
        repository("spec.controlPlane", &self.spec.control_plane, errors);
    }

    fn repository(&self) -> Option<&str> {
        Some(&self.spec.control_plane.repo)
    }
}

/// Finds errors in a folder of a repository.
pub(super) fn repository(path: &str, repository: &Repository, errors: &mut Vec<FieldError>) {
    validation::repository_address(&format!("{path}.repo"), &repository.repo, errors);
    validation::new_repository_address(&format!("{path}.repo"), &repository.repo, errors);
    branch(&format!("{path}.branch"), &repository.branch, errors);
    folder(&format!("{path}.path"), &repository.path, errors);
}

/// Finds errors in the name of a branch.
pub(super) fn branch(path: &str, branch: &str, errors: &mut Vec<FieldError>) {
    if branch.is_empty() || branch.starts_with('-') || branch.contains([' ', ':', '~', '^', '?', '*', '\\']) {
        errors.push(FieldError::invalid(path, branch, "must be the name of a branch"));
    }
}

/// Finds errors in the path of a folder, such as `.` and `./workloads`.
pub(super) fn folder(path: &str, folder: &str, errors: &mut Vec<FieldError>) {
    if stoa_fleet::folder(folder).is_none() {
        errors.push(FieldError::invalid(path, folder, "must be a folder of the repository"));
    }
}

#[derive(Debug)]
struct EnvironmentStrategy {
    owned: OwnedStrategy<Environment>,
}

#[async_trait]
impl Strategy for EnvironmentStrategy {
    type Object = Environment;

    fn validate(&self, object: &Environment) -> Vec<FieldError> {
        self.owned.validate(object)
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Environment>) -> Result<(), ApiError> {
        if let Admission::Create(new) = &change
            && !context.is_internal()
            && new.namespace().as_deref() != Some(&new.name_any())
        {
            // Its objects are written into the namespace with its name.
            require::<Environment>(context, "create", "", &new.name_any(), &new.name_any()).await?;
        }
        self.owned.admit(context, change).await
    }
}
