//! Issues of fleets: the failures of an environment and of its assignments, each an issue of the GitOps repository.
//!
//! A key is a namespace, which is an environment. The wanted issues follow from statuses that other controllers write, so that a
//! server that takes no issue holds up neither the reading of Git nor a proposal. An issue is written where its text differs, and
//! closed when its failure is over.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::{
    events::Kind as EventKind,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::ApiError;
use stoa_pulls::{Issues, PullError, Text, quoted};
use stoa_types::{
    common::condition,
    reason,
    scheduler::{Environment, GitIssueStatus, GitOpsRepo, ReportedIssue},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::sources::wait_after;
use crate::fleet::{FleetService, Refusal};

/// How many environments are reported at once.
const AT_ONCE: usize = 4;
/// How long changes of statuses are gathered.
const GATHER: Duration = Duration::from_secs(2);
/// The timeout of one issue.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first wait after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// The most assignments of a repository that have an issue.
const MOST: usize = 20;

/// The repositories whose server took no issue, with the number of failures in a row and the end of the wait.
#[derive(Clone, Debug, Default)]
struct Failures(Arc<Mutex<HashMap<ObjectKey, (u32, Instant)>>>);

impl Failures {
    /// The rest of the wait of a repository.
    fn left(&self, key: &ObjectKey) -> Option<Duration> {
        let (_, until) = *self.0.lock().get(key)?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Counts a failure; the wait after it.
    fn add(&self, key: &ObjectKey) -> Duration {
        let mut failures = self.0.lock();
        let (count, until) = failures.entry(key.clone()).or_insert_with(|| (0, Instant::now()));
        *count = count.saturating_add(1);
        let wait = wait_after(*count, RETRY);
        *until = Instant::now() + wait;
        wait
    }

    fn clear(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

pub(crate) async fn run(service: FleetService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let failures = Failures::default();
    let of_environment = |environment: &Environment| vec![(environment.name_any(), environment.name_any())];
    let of_repo = |repo: &GitOpsRepo| {
        let namespace = repo.namespace().unwrap_or_default();
        vec![(namespace.clone(), namespace)]
    };
    let triggers = vec![
        Trigger::on(&registry.api::<Environment>(), of_environment).within(GATHER),
        Trigger::on(&registry.api::<GitOpsRepo>(), of_repo).within(GATHER),
    ];
    let reconcile = |(namespace, _): ObjectKey| reconcile(service.clone(), failures.clone(), namespace);
    queue::drive_some(service.services().queues.of("fleet-issues"), AT_ONCE, triggers, end, reconcile).await;
}

async fn reconcile(service: FleetService, failures: Failures, namespace: String) -> Result<Option<Duration>, ApiError> {
    let repos = service.services().lookup.api::<GitOpsRepo>()?.list(Some(&namespace), "").await?;
    if repos.is_empty() {
        return Ok(None);
    }
    let environment = service.environment(&namespace).await?;
    let mut next: Option<Duration> = None;
    for repo in &repos {
        let key = queue::key_of(repo);
        let wait = match failures.left(&key) {
            Some(left) => Some(left),
            None => match bring_about(&service, environment.as_ref(), repo).await? {
                Ok(()) => {
                    failures.clear(&key);
                    None
                }
                Err((why, message)) => {
                    service.services().recorder.record(repo, EventKind::Warning, why, message);
                    Some(failures.add(&key))
                }
            },
        };
        next = next.into_iter().chain(wait).min();
    }
    Ok(next)
}

/// Brings the issues of a repository to those that are wanted, and records them.
async fn bring_about(
    service: &FleetService,
    environment: Option<&Environment>,
    repo: &GitOpsRepo,
) -> Result<Result<(), Refusal>, ApiError> {
    let (namespace, name) = queue::key_of(repo);
    let wanted = wanted(&namespace, environment, repo);
    let issues = repo.status.iter().flat_map(|status| &status.issues);
    let before: Known = issues.map(|it| (it.assignment.clone(), it.issue.clone())).collect();
    let is_known = |(name, text): (&String, &Text)| is_reported(&before, name, text);
    if wanted.len() == before.len() && wanted.iter().all(is_known) {
        return Ok(Ok(()));
    }
    let mut now = before.clone();
    let outcome = match service.issues(&namespace, environment, repo).await {
        Ok(server) => write(&server, &format!("{namespace}/{name}"), &wanted, &mut now).await,
        Err(refusal) => Err(refusal),
    };
    if now != before {
        let issues = now.into_iter().map(|(assignment, issue)| ReportedIssue { assignment, issue });
        let issues: Vec<ReportedIssue> = issues.collect();
        let set = |object: &mut GitOpsRepo| {
            if object.metadata.uid == repo.metadata.uid {
                object.status.get_or_insert_default().issues.clone_from(&issues);
            }
        };
        let repos = service.services().lookup.api::<GitOpsRepo>()?;
        queue::unless_gone(repos.update_status_with(&namespace, &name, set).await)?;
    }
    Ok(outcome)
}

/// Issues by the name of the assignment. That of the environment has no name.
type Known = BTreeMap<String, GitIssueStatus>;

fn is_reported(known: &Known, name: &str, text: &Text) -> bool {
    known.get(name).is_some_and(|issue| issue.content_hash == digest(text))
}

/// Writes the issues that differ, and closes those that are over. `now` has what was done, also after a failure.
async fn write(
    issues: &dyn Issues,
    owner: &str,
    wanted: &BTreeMap<String, Text>,
    now: &mut Known,
) -> Result<(), Refusal> {
    let marker = |name: &str| format!("stoa:fleet-issue:{owner}/{name}");
    let number = |issue: &GitIssueStatus| u64::try_from(issue.issue_no).ok();
    for (name, text) in wanted {
        if is_reported(now, name, text) {
            continue;
        }
        let before = now.get(name).and_then(number);
        let found = in_time(issues.report(&marker(name), text, before)).await?;
        let issue_no = i64::try_from(found).unwrap_or(i64::MAX);
        now.insert(name.clone(), GitIssueStatus { issue_no, content_hash: digest(text) });
    }
    let over: Vec<String> = now.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
    for name in over {
        if let Some(number) = now.get(&name).and_then(number) {
            in_time(issues.resolve(number, &marker(&name))).await?;
        }
        now.remove(&name);
    }
    Ok(())
}

async fn in_time<T>(call: impl Future<Output = Result<T, PullError>>) -> Result<T, Refusal> {
    let failed = |why: String| (reason::ISSUE_FAILED, format!("issues: {why}"));
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(done) => done.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("the server did not answer within {PATIENCE:?}"))),
    }
}

fn digest(text: &Text) -> String {
    let mut hasher = DefaultHasher::new();
    (&text.title, &text.body).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The issues that the statuses of an environment and its repository ask for.
fn wanted(namespace: &str, environment: Option<&Environment>, repo: &GitOpsRepo) -> BTreeMap<String, Text> {
    let mut wanted = BTreeMap::new();
    let conditions = environment.and_then(|environment| environment.status.as_ref()).map(|status| &status.conditions);
    // A server that is out of reach needs no issue, and mostly is the one that would have it.
    let failed = |of: &&str| {
        let found = conditions.and_then(|conditions| condition(conditions, of))?;
        (found.status == "False" && found.reason != reason::SOURCE_UNREACHABLE).then(|| block(&found.message))
    };
    let failures: Vec<String> = [reason::READY, reason::FILES_VALID].iter().filter_map(failed).collect();
    if !failures.is_empty() {
        let title = format!("Environment {namespace} cannot be read");
        let about = format!("The files of environment {} have errors:", quoted(namespace));
        wanted.insert(String::new(), Text { title, body: body(&about, &failures.join("\n\n"), "the files are valid") });
    }
    let broken = repo.status.iter().flat_map(|status| &status.broken_assignments);
    for broken in broken.take(MOST) {
        let title = format!("Assignment {} cannot be rendered", broken.name);
        let (name, environment) = (quoted(&broken.name), quoted(namespace));
        let about =
            format!("Assignment {name} of environment {environment} cannot be rendered. Its folder stays as it is:");
        let body = body(&about, &block(&broken.message), "it is rendered");
        wanted.insert(broken.name.clone(), Text { title, body });
    }
    wanted
}

fn body(about: &str, failure: &str, end: &str) -> String {
    format!("{about}\n\n{failure}\n\nStoa updates this issue, and closes it when {end}.")
}

/// A text as a block of code, which means nothing to a Git server.
fn block(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use stoa_controller::conditions::set_condition;
    use stoa_pulls::{Address, Credentials, Pauses, Provider, Server, testing::Forge};
    use stoa_types::scheduler::{BrokenAssignment, EnvironmentStatus, GitOpsRepoStatus};

    use super::*;

    fn repo(broken: &[(&str, &str)]) -> GitOpsRepo {
        let broken = broken
            .iter()
            .map(|(name, message)| BrokenAssignment { name: (*name).to_owned(), message: (*message).to_owned() });
        let status = GitOpsRepoStatus { broken_assignments: broken.collect(), ..GitOpsRepoStatus::default() };
        GitOpsRepo { status: Some(status), ..GitOpsRepo::default() }
    }

    fn environment(ready: (&str, &str), valid: (&str, &str)) -> Environment {
        let mut status = EnvironmentStatus::default();
        for (of, (why, message)) in [(reason::READY, ready), (reason::FILES_VALID, valid)] {
            set_condition(&mut status.conditions, of, why == reason::AVAILABLE, why, message, None);
        }
        Environment { status: Some(status), ..Environment::default() }
    }

    #[test]
    fn failures_of_environment_and_assignments_are_wanted() {
        let good = (reason::AVAILABLE, "");
        let invalid = environment(good, (reason::INVALID_FILES, "a.yaml:3: no kind"));
        let found = wanted("dev", Some(&invalid), &repo(&[("web", "schema s\n/close")]));
        let titles: Vec<_> = found.iter().map(|(name, text)| (name.as_str(), text.title.as_str())).collect();
        assert_eq!(titles, [("", "Environment dev cannot be read"), ("web", "Assignment web cannot be rendered")]);
        assert!(found[""].body.contains("\n    a.yaml:3: no kind\n"), "{}", found[""].body);
        assert!(found["web"].body.contains("\n    schema s\n    /close\n"), "{}", found["web"].body);
        let away = environment((reason::SOURCE_UNREACHABLE, "no answer"), good);
        assert!(wanted("dev", Some(&away), &repo(&[])).is_empty());
        let names: Vec<String> = (0..100).map(|at| format!("a{at:03}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert_eq!(wanted("dev", None, &repo(&many)).len(), MOST);
    }

    #[test]
    fn failed_repository_waits_longer_and_longer() {
        let (failures, key) = (Failures::default(), ("dev".to_owned(), "dev".to_owned()));
        assert_eq!(failures.left(&key), None);
        let first = failures.add(&key);
        assert!(failures.left(&key).is_some_and(|left| left <= first));
        failures.add(&key);
        assert!(failures.add(&key) > first);
        failures.clear(&key);
        assert_eq!(failures.left(&key), None);
    }

    #[tokio::test]
    async fn issue_follows_its_failure_until_the_end() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("shop/deploy.git")).unwrap();
        let forge = Forge::start(root.path(), "s3cr3t").await;
        let server = |token: &str| {
            let address = Address::new(Provider::Gitea, "git@x:shop/deploy.git", Some(&forge.url())).unwrap();
            let credentials = Credentials { token: Some(token.to_owned()), ..Credentials::default() };
            Server::new(address, &credentials, Pauses::default()).unwrap()
        };
        let mut now = Known::new();
        let first = wanted("dev", None, &repo(&[("api", "one"), ("web", "one")]));
        let refused = write(&server("other"), "dev/dev", &first, &mut now).await.unwrap_err();
        assert_eq!((refused.0, now.len()), (reason::ISSUE_FAILED, 0));

        write(&server("s3cr3t"), "dev/dev", &first, &mut now).await.unwrap();
        let numbers: Vec<_> = now.iter().map(|(name, issue)| (name.as_str(), issue.issue_no)).collect();
        assert_eq!(numbers, [("api", 1), ("web", 2)]);
        let asked = forge.requests().len();
        write(&server("s3cr3t"), "dev/dev", &first, &mut now).await.unwrap();
        assert_eq!(forge.requests().len(), asked, "nothing differs");

        let second = wanted("dev", None, &repo(&[("web", "two")]));
        write(&server("s3cr3t"), "dev/dev", &second, &mut now).await.unwrap();
        let issues = forge.issues();
        let states: Vec<_> = issues.iter().map(|issue| issue["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["closed", "open"]);
        assert!(issues[1]["body"].as_str().unwrap().contains("    two"), "{issues:?}");
        assert_eq!(now.into_keys().collect::<Vec<_>>(), ["web"]);
    }
}
