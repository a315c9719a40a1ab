//! BaseRepo: objects that an environment shares with others, at a commit.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
    status::FieldError,
};
use stoa_types::scheduler::{BaseRepo, BaseRepoSpec, Repository};

use super::{
    environment,
    owned::{self, OwnedStrategy},
};
use crate::{
    kind::Kind,
    ready,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The kind BaseRepo.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(
            definition,
            OwnedStrategy::<BaseRepo>::of_repository(&surroundings, check, |base| &base.spec.repo),
        )
    },
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED],
    ..Kind::of::<BaseRepo>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<BaseRepo>().columns(&[
        Column::new("Repository", Cell::Path(&["spec", "repo"]), "The repository."),
        Column::new("Branch", Cell::Path(&["spec", "branch"]), "The branch."),
        Column::new("Commit", Cell::Path(&["spec", "commit"]), "The commit of the branch; empty for its head."),
        ready::status("Whether the commit was read."),
        Column::age(),
        ready::reason(),
        ready::message(),
        owned::column(),
    ])
}

fn check(base: &BaseRepo, errors: &mut Vec<FieldError>) {
    let BaseRepoSpec { repo, branch, path, commit } = &base.spec;
    let folder = Repository { repo: repo.clone(), branch: branch.clone(), path: path.clone() };
    environment::repository("spec", &folder, errors);
    if !(commit.is_empty() || (matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())))
    {
        errors.push(FieldError::invalid(
            "spec.commit",
            commit,
            "must be the whole id of a commit, in hexadecimal digits",
        ));
    }
}
