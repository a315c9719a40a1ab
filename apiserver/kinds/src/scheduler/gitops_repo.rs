//! GitOpsRepo: the repository that the rendered folders are proposed to.

use stoa_machinery::{
    definition::{Cell, Column},
    status::FieldError,
};
use stoa_types::scheduler::{GitOpsRepo, GitOpsRepoSpec, Repository};

use super::{
    environment,
    owned::{self, Owned},
};
use crate::{
    kind::Kind,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The kind GitOpsRepo.
pub static KIND: Kind = Kind {
    rights: &[
        right(READERS, OBJECTS, READ),
        right(MEMBERS, &["status"], READ),
        right(READERS, &["bundle", "diff"], &["get"]),
        OWNED,
    ],
    ..owned::kind::<GitOpsRepo>()
};

impl Owned for GitOpsRepo {
    const COLUMNS: &'static [Column] = &[
        Column::new("Repository", Cell::Path(&["spec", "repo"]), "The repository."),
        Column::new("Branch", Cell::Path(&["spec", "branch"]), "The branch that pull requests are for."),
        Column::new("Files", Cell::Path(&["status", "changedFiles"]), "The number of files that wait for a merge.")
            .kind("integer"),
        Column::new("PR", Cell::Path(&["status", "pullRequest", "number"]), "The number of the pull request.")
            .kind("integer"),
    ];
    const READY: Option<&'static str> =
        Some("Whether the branch has the rendered files, or a pull request proposes them.");

    fn check(&self, errors: &mut Vec<FieldError>) {
        let GitOpsRepoSpec { repo, branch, path } = &self.spec;
        let folder = Repository { repo: repo.clone(), branch: branch.clone(), path: path.clone() };
        environment::repository("spec", &folder, errors);
    }

    fn repository(&self) -> Option<&str> {
        Some(&self.spec.repo)
    }
}
