//! GitOpsRepo: the repository that the rendered folders are proposed to.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
    status::FieldError,
};
use stoa_types::scheduler::{GitOpsRepo, GitOpsRepoSpec, Repository};

use super::{
    environment,
    owned::{self, OwnedStrategy},
};
use crate::{
    kind::Kind,
    ready,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The kind GitOpsRepo.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(
            definition,
            OwnedStrategy::<GitOpsRepo>::of_repository(&surroundings, check, |repo| &repo.spec.repo),
        )
    },
    rights: &[
        right(READERS, OBJECTS, READ),
        right(MEMBERS, &["status"], READ),
        right(READERS, &["diff"], &["get"]),
        OWNED,
    ],
    ..Kind::of::<GitOpsRepo>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<GitOpsRepo>().columns(&[
        Column::new("Repository", Cell::Path(&["spec", "repo"]), "The repository."),
        Column::new("Branch", Cell::Path(&["spec", "branch"]), "The branch that pull requests are for."),
        Column::new("Files", Cell::Path(&["status", "changedFiles"]), "The number of files that wait for a merge.")
            .kind("integer"),
        Column::new("PR", Cell::Path(&["status", "pullRequest", "number"]), "The number of the pull request.")
            .kind("integer"),
        ready::status("Whether the branch has the rendered files, or a pull request proposes them."),
        Column::age(),
        ready::reason(),
        ready::message(),
        owned::column(),
    ])
}

fn check(repo: &GitOpsRepo, errors: &mut Vec<FieldError>) {
    let GitOpsRepoSpec { repo, branch, path } = &repo.spec;
    let folder = Repository { repo: repo.clone(), branch: branch.clone(), path: path.clone() };
    environment::repository("spec", &folder, errors);
}
