//! Finds the functions of a repository by the files that describe them.
//!
//! Start at [`read`]. A file that cannot be read is a problem, which hides no other function.

use git2::{ObjectType, Repository, Tree};
use stoa_engine_git::{bounded, files as git_files};
use stoa_packages::function_metadata::{self, FILES};
use stoa_packages::git_layout;
use stoa_proto::{FunctionsRequest, FunctionsResponse, GitRef, Problem};
use tonic::Code;

use super::discover;
use crate::failure::{Failure, problem, reason};
use crate::functions::offered;
use crate::source::{Cache, error, normalized, parse_commit};

/// The most functions of a repository, and the most folders that are searched.
const MOST: usize = 2000;
const MOST_FOLDERS: usize = 100_000;
/// The deepest level.
const DEEPEST: usize = 32;
/// The largest description, in bytes.
const LARGEST: usize = 64 << 10;
/// The reason of descriptions that cannot be read.
const INVALID: &str = "InvalidFunction";

/// Reads the functions at the head of a branch.
pub(crate) fn read(cache: &Cache, request: &FunctionsRequest) -> Result<FunctionsResponse, Failure> {
    let branch = git_layout::branch_ref(&request.branch);
    let directory = normalized(request.directory.trim_matches('/'))?;
    let heads = cache.list()?;
    let Some(head) = heads.iter().find(|head| head.name == branch).map(|head| head.oid) else {
        let message = format!("branch {:?} does not exist in the repository; create it", request.branch);
        return Err(Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message));
    };
    if !cache.has(head) {
        let missing = GitRef { name: branch.clone(), commit: head.to_string() };
        discover::fetch(cache, Some(&heads), &[&missing], &branch)?;
    }
    let repository = &cache.repository;
    let explain = |err: git2::Error| match bounded::is_too_large(&err) {
        true => {
            Failure::new(Code::InvalidArgument, reason::TOO_LARGE, format!("{}; set spec.git.directory", err.message()))
        }
        false => error::here(&err),
    };
    let commit = parse_commit(&head.to_string())?;
    let folder = git_files::folder(repository, commit, &directory).map_err(explain)?.ok_or_else(|| {
        let message = format!("is no folder at branch {:?}", request.branch);
        Failure::of(
            Code::NotFound,
            vec![Problem { file: directory.clone(), ..problem(reason::PATH_NOT_FOUND, message) }],
        )
    })?;
    let mut search = Search { repository, found: FunctionsResponse::default(), folders: 0 };
    search.folder(&directory, &folder, 0).map_err(explain)?;
    let mut found = search.found;
    found.functions.sort_by(|a, b| (&a.image, &a.path).cmp(&(&b.image, &b.path)));
    Ok(FunctionsResponse { revision: head.to_string(), ..found })
}

struct Search<'r> {
    repository: &'r Repository,
    found: FunctionsResponse,
    folders: usize,
}

impl Search<'_> {
    fn folder(&mut self, path: &str, tree: &Tree<'_>, depth: usize) -> Result<(), git2::Error> {
        self.folders += 1;
        if self.folders > MOST_FOLDERS || depth > DEEPEST {
            return Err(bounded::too_many(&format!("folders below {path:?}")));
        }
        for entry in tree {
            // A name that is no text is in no path of the API.
            let Ok(name) = entry.name() else { continue };
            let below = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            match entry.kind() {
                Some(ObjectType::Tree) => {
                    let folder = bounded::tree(self.repository, entry.id())?;
                    self.folder(&below, &folder, depth + 1)?;
                }
                Some(ObjectType::Blob) if FILES.contains(&name) && entry.filemode() != 0o120_000 => {
                    self.description(path, below, entry.id())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn description(&mut self, folder: &str, file: String, id: git2::Oid) -> Result<(), git2::Error> {
        if self.found.functions.len() + self.found.problems.len() >= MOST {
            return Err(bounded::too_many("functions"));
        }
        let mut wrong = |message: String| {
            self.found.problems.push(Problem { file: file.clone(), ..problem(INVALID, message) });
        };
        if bounded::size(self.repository, id)? > LARGEST {
            wrong(format!("has more than {} KiB; move its content to other files", LARGEST >> 10));
            return Ok(());
        }
        let content = bounded::file(self.repository, id)?.content().to_vec();
        let Ok(text) = String::from_utf8(content) else {
            wrong("is not UTF-8".to_owned());
            return Ok(());
        };
        match function_metadata::parse(&text) {
            Ok(described) => self.found.functions.extend(described.into_iter().map(|of| offered(of, folder))),
            Err(error) => wrong(stoa_outbound::causes(&error)),
        }
        Ok(())
    }
}
