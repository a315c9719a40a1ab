//! Changes that people merge: whatever ends at a boundary of a run that proposes them, there is one pull request of one
//! commit, and the run ends well once that is merged.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use stoa_e2e::crashes::{PATIENCE, crash_in};
use stoa_e2e::fixture::{Organization, config_maps, workspace};
use stoa_e2e::repeat::{Random, leave_part, repeat, seed};
use stoa_e2e::{Kubectl, Server as _, Standalone, eventually, git, run, skipped};
use stoa_failpoint::{OF_GIT, OF_PROPOSALS, RUNNER, SERVER};
use stoa_test_gitea::{GiteaServer, USER};

use super::{OBJECTS, is_rolled_out};

/// How many servers go through the boundaries at once.
const SERVERS: usize = 2;

/// An organization whose workspace leads to a repository of a Git server, by pull requests.
struct Proposing<'a> {
    gitea: &'a GiteaServer,
    kubectl: Kubectl,
    organization: Organization,
    /// The repository's address.
    address: String,
}

impl<'a> Proposing<'a> {
    fn new(gitea: &'a GiteaServer, server: &Standalone) -> Self {
        let (kubectl, organization) = (server.kubectl(), Organization::create(server));
        let name = &organization.name;
        let address = gitea.create(name);
        kubectl.apply_secret(name, "forge", &[("username", USER), ("password", &gitea.token)]);
        let target = format!(
            "  gitops:
    repository: \"{address}\"
    branch: main
    secretRef: {{namespace: {name}, name: forge}}
    mode: PullRequest
    pullRequest: {{provider: Gitea}}
"
        );
        kubectl.apply(&workspace(name, name, &target));
        Self { gitea, kubectl, organization, address }
    }

    /// Merges what a run waits for, if it does; the run, if it can be read.
    fn merge(&self, run: &str) -> Option<Value> {
        let run = self.kubectl.try_get(&["run", run, "--namespace", &self.organization.name])?;
        if run["status"]["phase"] == "AwaitingMerge" {
            let number = run["status"]["pullRequest"]["number"].as_u64().unwrap();
            let path = format!("repos/{USER}/{}/pulls/{number}", self.organization.name);
            // Until the run has seen it, it goes on waiting.
            if self.gitea.call("GET", &path, None)["state"] == "open" {
                self.gitea.merge(&self.organization.name, number);
            }
        }
        Some(run)
    }

    /// Proposes a stack of this name, with a crash at the boundary; the run's name.
    fn crash_at(&self, server: &mut Standalone, point: &str) -> String {
        let spec = config_maps(&format!("{}-{point}", self.organization.name), OBJECTS, "a");
        let start = || self.organization.try_start(point, &spec);
        crash_in(server, &self.organization, point, point, &start, &|run| drop(self.merge(run)))
    }

    /// Merges what is left to be merged, and checks what came of the runs, by the boundary.
    fn end(&self, runs: &BTreeMap<&str, String>) {
        let mut uids = BTreeMap::new();
        for (point, name) in runs {
            let ended = eventually(&format!("the run that was interrupted at {point} ends"), PATIENCE, || {
                let run = self.merge(name)?;
                let phase = run["status"]["phase"].as_str().unwrap_or_default();
                matches!(phase, "Succeeded" | "Failed" | "Canceled").then_some(run)
            });
            is_rolled_out(&self.organization, point, &ended);
            uids.insert(ended["metadata"]["uid"].as_str().unwrap().to_owned(), 1);
        }
        let pulls =
            self.gitea.call("GET", &format!("repos/{USER}/{}/pulls?state=all&limit=50", self.organization.name), None);
        let mut proposed: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for pull in pulls.as_array().unwrap() {
            let branch = pull["head"]["ref"].as_str().unwrap().to_owned();
            proposed.entry(branch).or_default().push(pull["merged"].clone());
        }
        let name = &self.organization.name;
        let once = runs.keys().map(|point| (format!("stoa/{name}/{point}/{name}"), vec![json!(true)])).collect();
        assert_eq!(proposed, once, "what was merged, by branch");
        assert_eq!(self.commits(), uids, "how many commits each run has");
    }

    /// How many commits each run has on the branch that everything is merged into, by its uid.
    fn commits(&self) -> BTreeMap<String, usize> {
        let folder = tempfile::tempdir().unwrap();
        let address = GiteaServer::with_password(&self.address, USER);
        run(Command::new("git").args(["clone", "--quiet", "--bare", &address]).arg(folder.path()));
        let format = "--format=%(trailers:key=Stoa-Run,valueonly,separator=%x2C)";
        let log = git(folder.path(), &["log", format, "main"]);
        let mut commits = BTreeMap::new();
        for uid in log.lines().filter(|uid| !uid.is_empty()) {
            *commits.entry(uid.to_owned()).or_default() += 1;
        }
        commits
    }
}

#[test]
fn proposal_crash_leaves_one_pull_request() {
    let Some(gitea) = GiteaServer::start() else {
        skipped("crashes of runs that open pull requests, since STOA_TEST_GITEA is not set");
        return;
    };
    let seed = seed();
    eprintln!("STOA_TEST_SEED={seed}");
    let mut own = [OF_GIT, OF_PROPOSALS].concat();
    let mut others: Vec<&str> = [SERVER, RUNNER].concat();
    others.retain(|point| !own.contains(point));
    let mut random = Random::new(seed);
    random.shuffle(&mut others);
    others.truncate(repeat());
    leave_part(&mut random, &mut own);
    let points = [own, others].concat();
    eprintln!("{points:?}");
    thread::scope(|scope| {
        for points in points.chunks(points.len().div_ceil(SERVERS)) {
            let gitea = &gitea;
            scope.spawn(move || {
                let mut server = Standalone::start();
                let proposing = Proposing::new(gitea, &server);
                let runs = points.iter().map(|point| (*point, proposing.crash_at(&mut server, point))).collect();
                proposing.end(&runs);
            });
        }
    });
}
