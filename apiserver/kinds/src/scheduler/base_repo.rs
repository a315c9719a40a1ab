//! BaseRepo: objects that an environment shares with others, at a commit.

use stoa_machinery::{
    definition::{Cell, Column},
    status::FieldError,
};
use stoa_types::scheduler::{BaseRepo, BaseRepoSpec, Repository};

use super::{
    environment,
    owned::{self, Owned},
};
use crate::kind::Kind;

/// The kind BaseRepo.
pub(crate) static KIND: Kind = owned::kind::<BaseRepo>();

impl Owned for BaseRepo {
    const COLUMNS: &'static [Column] = &[
        Column::new("Repository", Cell::Path(&["spec", "repo"]), "The repository."),
        Column::new("Branch", Cell::Path(&["spec", "branch"]), "The branch."),
        Column::new("Commit", Cell::Path(&["spec", "commit"]), "The commit of the branch; empty for its head."),
    ];
    const READY: Option<&'static str> = Some("Whether the commit was read.");

    fn check(&self, errors: &mut Vec<FieldError>) {
        let BaseRepoSpec { repo, branch, path, commit } = &self.spec;
        let folder = Repository { repo: repo.clone(), branch: branch.clone(), path: path.clone() };
        environment::repository("spec", &folder, errors);
        if !(commit.is_empty()
            || (matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())))
        {
            errors.push(FieldError::invalid(
                "spec.commit",
                commit,
                "must be the whole id of a commit, in hexadecimal digits",
            ));
        }
    }

    fn repository(&self) -> Option<&str> {
        Some(&self.spec.repo)
    }
}
