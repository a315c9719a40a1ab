//! The branch and the pull request by which an environment proposes its files to its GitOps repository.
//!
//! An environment has one branch, `deployment/<environment>`, and one pull request, which later changes update. Commits and pull
//! requests of people stay as they are. A pull request that people close is not opened again before the files change.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use bytes::Bytes;
use stoa_fleet::{
    render::{File, PROMOTED_COMMIT, Tree},
    results::problems,
};
use stoa_proto::{FileDifference, GitPerson, PackageFile, ProposeFilesRequest, ProposeFilesResponse};
use stoa_pulls::{
    Address, CommentText, Credentials, Pauses, Provider, PullError, PullRequest, PullRequests, Server, Text, is_marked,
    marked, quoted,
};
use stoa_types::{
    reason,
    scheduler::{FleetPullRequest, FleetWave, GitOpsRepo},
};

use super::{
    FleetService, Frozen, Known,
    reading::SourceKey,
    repositories::{self, Keys, Refusal, Remote, is_owned_by_git},
};

/// The author of commits.
pub(super) const AUTHOR: (&str, &str) = ("Stoa", "noreply@stoa.dev");
/// The label of a pull request with another promoted commit, by the name that Kalypso gives it.
const PROMOTED: &str = "promoted";
/// How many files a pull request names.
const NAMED: usize = 100;

/// A GitOps repository with the files that it is to have.
pub(crate) struct Proposal<'p> {
    pub(crate) service: &'p FleetService,
    pub(crate) namespace: &'p str,
    pub(crate) repo: &'p GitOpsRepo,
    pub(crate) known: &'p Known,
    pub(crate) tree: &'p Tree,
    pub(crate) frozen: &'p Frozen,
}

/// The state of a proposal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProposalState {
    /// The digest of the files.
    pub(crate) digest: String,
    pub(crate) base_commit: String,
    /// The files in which the branch differs.
    pub(crate) changed: Vec<String>,
    /// The promoted commit of the files.
    pub(crate) promoted: String,
    /// The wave of a Promotion that the files are of.
    pub(crate) wave: Option<FleetWave>,
    pub(crate) pull: Option<FleetPullRequest>,
    /// A reason and a message; the branch stays as it is.
    pub(crate) blocked: Option<Refusal>,
}

/// The digest of all files that are proposed.
pub(crate) fn digest(tree: &Tree, frozen: &Frozen) -> String {
    let mut hasher = DefaultHasher::new();
    for (path, File { content, .. }) in tree.files.iter().filter(|(path, _)| !frozen.has(path)) {
        (path, content).hash(&mut hasher);
    }
    tree.broken.keys().chain(frozen.folders()).for_each(|folder| folder.hash(&mut hasher));
    if let Some(FleetWave { promotion, number, .. }) = &frozen.wave {
        (promotion, number).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

impl Proposal<'_> {
    /// The head of the branch that changes are proposed to.
    pub(crate) async fn base_commit(&self) -> Result<String, Refusal> {
        let remote = self.remote().await?;
        let FleetService { services, looks, .. } = self.service;
        repositories::look(services, looks, &remote.source, &self.repo.spec.branch).await
    }

    /// Compares the files with the branch, and proposes the differences.
    pub(crate) async fn propose(&self) -> Result<ProposalState, Refusal> {
        let remote = self.remote().await?;
        let answer = self.ask(&remote, self.head()).await?;
        let ProposeFilesResponse { base_commit, head_commit, changes, foreign, is_pushed, rejected } = answer;
        let mut state = ProposalState {
            digest: digest(self.tree, self.frozen),
            wave: self.frozen.wave.clone(),
            base_commit,
            promoted: self.known.fleet.inputs().promoted_commit.clone().unwrap_or_default(),
            changed: changes.iter().map(|change| change.path.clone()).collect(),
            ..ProposalState::default()
        };
        if is_pushed {
            tracing::info!(
                namespace = self.namespace,
                commit = head_commit,
                files = changes.len(),
                "files are proposed"
            );
        }
        if !rejected.is_empty() {
            let why = format!("{} does not accept branch {}: {rejected}", self.repo.spec.repo, self.head());
            state.blocked = Some((reason::PR_FAILED, why));
            return Ok(state);
        }
        let pulls = match server(&self.service.pauses, &self.repo.spec.repo, &remote.keys) {
            Ok(pulls) => pulls,
            Err(refusal) if changes.is_empty() => {
                tracing::debug!(?refusal, "there is nothing to propose");
                return Ok(state);
            }
            Err(refusal) => {
                state.blocked = Some(refusal);
                return Ok(state);
            }
        };
        let pulled = match changes.is_empty() {
            true => self.withdraw(&pulls).await.map(|()| Ok(None)),
            false => self.open(&pulls, &head_commit, &changes, &foreign).await,
        };
        match pulled.map_err(explain)? {
            Ok(pull) => state.pull = pull,
            Err((pull, refusal)) => {
                state.pull = pull;
                state.blocked = Some(refusal);
            }
        }
        if !foreign.is_empty() {
            let why = format!(
                "branch {} has commits of others, which Stoa never overwrites: {foreign}; merge or close its pull request, \
                 and delete the branch",
                self.head()
            );
            state.blocked = Some((reason::COMMITS_OF_OTHERS, why));
        }
        Ok(state)
    }

    /// The differences between the branch and the files, with the contents in the branch. Nothing is committed.
    pub(crate) async fn differences(&self) -> Result<Vec<FileDifference>, Refusal> {
        let remote = self.remote().await?;
        Ok(self.ask(&remote, String::new()).await?.changes)
    }

    async fn remote(&self) -> Result<Remote, Refusal> {
        let (services, environment) = (self.service.services(), self.known.reading.environment.as_ref());
        let is_owned = is_owned_by_git(self.repo);
        repositories::remote(services, self.namespace, environment, &self.repo.spec.repo, is_owned).await
    }

    async fn ask(&self, remote: &Remote, head: String) -> Result<ProposeFilesResponse, Refusal> {
        let file = |(path, file): (&String, &File)| PackageFile {
            path: path.clone(),
            content: Bytes::copy_from_slice(file.content.as_bytes()),
            ..PackageFile::default()
        };
        let services = self.service.services();
        let deletable = self.frozen.deletable();
        let (name, email) = AUTHOR;
        let author = GitPerson { name: name.to_owned(), email: email.to_owned(), seconds: services.now().as_second() };
        let request = ProposeFilesRequest {
            source: Some(remote.source.clone()),
            base: self.repo.spec.branch.clone(),
            with_contents: head.is_empty(),
            head,
            files: self.tree.files.iter().filter(|(path, _)| !self.frozen.has(path)).map(file).collect(),
            kept: self.tree.broken.keys().chain(self.frozen.folders()).cloned().collect(),
            owner: self.owner(),
            message: format!("{}\n\n{}", self.title(), self.commits()),
            author: Some(author),
            keeps_others: self.known.fleet.inputs().keeps_files() || deletable.is_some_and(BTreeSet::is_empty),
            deletable: deletable.into_iter().flatten().cloned().collect(),
            expected_base: String::new(),
        };
        services.runner.propose_files(request).await.map_err(|status| repositories::refusal(&status))
    }

    fn owner(&self) -> String {
        format!("{}/{}", self.namespace, self.repo.metadata.name.as_deref().unwrap_or_default())
    }

    fn marker(&self) -> String {
        format!("stoa:fleet:{}", self.owner())
    }

    fn head(&self) -> String {
        format!("deployment/{}", self.namespace)
    }

    /// The title, by the words of Kalypso.
    fn title(&self) -> String {
        format!("Update manifests in {} from {}", self.repo.spec.branch, self.head())
    }

    /// The commits that the files are made of.
    fn commits(&self) -> String {
        let mut text = String::new();
        for (key, folder) in &self.known.reading.folders {
            let name = match key {
                SourceKey::Environment => format!("Environment {}", self.namespace),
                key => key.to_string(),
            };
            let _ = writeln!(text, "- {name}: {} of {}", folder.commit, folder.of.repo);
        }
        text
    }

    /// Closes our pull request: the branch has the files.
    async fn withdraw(&self, pulls: &dyn PullRequests) -> Result<(), PullError> {
        let Some(pull) = self.ours(pulls).await? else { return Ok(()) };
        let body = format!("Branch {} has these files already.", quoted(&self.repo.spec.branch));
        let comment = CommentText { marker: "stoa:withdrawn", body: &body, before: None };
        pulls.comment(pull.number, &comment).await?;
        pulls.close(pull.number).await
    }

    /// Our open pull request.
    async fn ours(&self, pulls: &dyn PullRequests) -> Result<Option<PullRequest>, PullError> {
        let found = pulls.find(&self.head(), &self.repo.spec.branch).await?;
        Ok(found.filter(|pull| is_marked(&pull.body, &self.marker())))
    }

    async fn open(
        &self,
        pulls: &dyn PullRequests,
        commit: &str,
        changes: &[FileDifference],
        foreign: &str,
    ) -> Result<Result<Option<FleetPullRequest>, (Option<FleetPullRequest>, Refusal)>, PullError> {
        let (head, base) = (self.head(), &self.repo.spec.branch);
        let (text, marker) = (self.text(changes), self.marker());
        // The description of a branch on which people work stays.
        let may_update = foreign.is_empty();
        let wanted = Wanted { head: &head, base, commit, marker: &marker, text: &text, may_update };
        let pull = match settle(pulls, &wanted).await? {
            Settled::Open(pull) => pull,
            Settled::Closed(number) => {
                let why = format!(
                    "people closed pull request {number} with these files; change the fleet, or delete branch {head}, to propose \
                     them again"
                );
                return Ok(Err((None, (reason::PR_FAILED, why))));
            }
        };
        if foreign.is_empty() && changes.iter().any(|change| change.path == PROMOTED_COMMIT) {
            pulls.label(pull.number, PROMOTED).await?;
        }
        let number = i64::try_from(pull.number).unwrap_or(i64::MAX);
        Ok(Ok(Some(FleetPullRequest { number, url: pull.url, branch: head, commit: commit.to_owned() })))
    }

    fn text(&self, changes: &[FileDifference]) -> Text {
        let mut body = format!(
            "Stoa proposes the files of environment {} to branch {}.\n\n{}\n",
            quoted(self.namespace),
            quoted(&self.repo.spec.branch),
            self.commits()
        );
        for change in changes.iter().take(NAMED) {
            let _ = write!(body, "- {} {}", change.change.to_lowercase(), quoted(&change.path));
            if let Some(File { provenance, .. }) = self.tree.files.get(&change.path) {
                if !provenance.template.is_empty() {
                    let _ = write!(body, ", template {}", quoted(&provenance.template));
                }
                if !provenance.policies.is_empty() {
                    let _ = write!(body, ", policies {}", quoted(&provenance.policies.join(", ")));
                }
                if !provenance.config_maps.is_empty() {
                    let _ = write!(body, ", configuration {}", quoted(&provenance.config_maps.join(", ")));
                }
            }
            body.push('\n');
        }
        if changes.len() > NAMED {
            let _ = writeln!(body, "- and {} more", changes.len() - NAMED);
        }
        if changes.iter().any(|change| change.path == PROMOTED_COMMIT) {
            body.push_str("\nThis promotes another commit of the base repository.\n");
        }
        let named = changes.iter().take(NAMED).filter_map(|change| self.tree.files.get_key_value(&change.path));
        for problem in named.flat_map(|(path, file)| problems(path, &file.content)) {
            let _ = writeln!(body, "\nIts reader would reject {}", quoted(&problem));
        }
        if let Some(FleetWave { promotion, number, frozen_cluster_types }) = &self.frozen.wave {
            let _ = write!(
                body,
                "\nThis is wave {number} of Promotion {}. The folders of {frozen_cluster_types} cluster types of later waves \
                 stay as they are.\n",
                quoted(promotion)
            );
        }
        for (folder, broken) in self.tree.broken.iter().filter(|(folder, _)| !self.frozen.has(folder)).take(NAMED) {
            let problems = broken.problems.join("; ");
            let _ = writeln!(body, "\nFolder {} stays as it is: {}", quoted(folder), quoted(&problems));
        }
        body.push_str(
            "\nLater changes update this pull request. Stoa never overwrites commits of others on the branch.",
        );
        Text { title: self.title(), body: marked(&body, &self.marker()) }
    }
}

/// The server of a repository's pull requests, with the keys of its Secret.
pub(super) fn server(pauses: &Pauses, repo: &str, keys: &Keys) -> Result<Server, Refusal> {
    let key = |name: &str| keys.get(name).map(Vec::as_slice);
    let text = |name: &str| key(name).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim);
    let provider = Provider::of(text("provider"), repo);
    let failed = |why: String| (reason::PR_FAILED, format!("pull requests of {repo}: {why}"));
    let address = Address::new(provider, repo, None).map_err(|error| failed(error.to_string()))?;
    let server = Server::new(address, &Credentials::of_keys(key), pauses.clone());
    server
        .map(Server::quoting_at_remote_alone)
        .map_err(|_| failed("the key ca.crt of the secret has no certificate authorities".to_owned()))
}

/// A pull request as it is to be.
pub(super) struct Wanted<'w> {
    /// The branch with the commit, and the branch that it is for.
    pub(super) head: &'w str,
    pub(super) base: &'w str,
    pub(super) commit: &'w str,
    /// The marker of our description.
    pub(super) marker: &'w str,
    pub(super) text: &'w Text,
    /// Whether our description of before may change.
    pub(super) may_update: bool,
}

/// The state of a wanted pull request.
pub(super) enum Settled {
    /// It is open.
    Open(Box<PullRequest>),
    /// People closed this one at the same commit, and no other is opened.
    Closed(u64),
}

/// Opens a pull request, or updates ours that is open. The words of people stay.
pub(super) async fn settle(pulls: &dyn PullRequests, wanted: &Wanted<'_>) -> Result<Settled, PullError> {
    let Wanted { head, base, commit, marker, text, may_update } = *wanted;
    match pulls.find(head, base).await? {
        Some(pull) => {
            let is_ours = may_update && is_marked(&pull.body, marker);
            if is_ours && (pull.title != text.title || pull.body.trim_end() != text.body.trim_end()) {
                pulls.update(pull.number, text).await?;
            }
            Ok(Settled::Open(Box::new(pull)))
        }
        None => match pulls.find_closed(head, base, commit).await? {
            Some(closed) => Ok(Settled::Closed(closed.number)),
            None => pulls.open(head, base, text).await.map(|pull| Settled::Open(Box::new(pull))),
        },
    }
}

fn explain(error: PullError) -> Refusal {
    (reason::PR_FAILED, format!("pull requests: {error}"))
}

#[cfg(test)]
mod tests {
    use stoa_fleet::render::{Broken, Provenance};

    use super::*;

    #[test]
    fn digest_follows_from_contents_and_broken_folders() {
        let file = |content: &str, policy: &str| File {
            content: content.to_owned(),
            provenance: Provenance { policies: vec![policy.to_owned()], ..Provenance::default() },
        };
        let tree = |content: &str, policy: &str| Tree {
            files: [("a/b".to_owned(), file(content, policy))].into(),
            ..Tree::default()
        };
        let digest = |tree: &Tree| super::digest(tree, &Frozen::default());
        assert_eq!(digest(&tree("x", "p")), digest(&tree("x", "q")), "the origin is no content");
        assert_ne!(digest(&tree("x", "p")), digest(&tree("y", "p")));
        let mut broken = tree("x", "p");
        broken.broken.insert("c/d".to_owned(), Broken { assignment: "d".to_owned(), problems: Vec::new() });
        assert_ne!(digest(&broken), digest(&tree("x", "p")));
    }
}
