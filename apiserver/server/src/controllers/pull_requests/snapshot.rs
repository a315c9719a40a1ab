//! The snapshot of one Source for a reconciliation: its Stacks, and which of them each pull request changes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt as _;
use stoa_controller::object::ObjectKey;
use stoa_kinds::{source_path::path, trigger};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_proto::{CompareRequest, CompareResponse, ValuesFiles};
use stoa_pulls::{PullError, PullRequest, PullRequests};
use stoa_runs::{Services, StepError, runner, target};
use stoa_types::{Project, Run, Source, Stack, labels, reason};
use tokio::time::Instant;

use super::{
    AGAIN,
    listing::{Changed, Known, Refusal, branch},
    plans::{There, plans_of, remove},
    publish::note_known,
    reporter::{News, Planned},
};

/// How long the comparison of two commits may take.
const COMPARE: Duration = Duration::from_secs(20);
/// How long a look asks about merges and comparisons; the rest is for the next look.
const LOOK: Duration = Duration::from_secs(60);

/// Why not all was done.
pub(super) enum Stop {
    /// The server of the pull requests is away, or asks to be left alone. Nothing more is done.
    Server(PullError),
    /// Something is wrong with one pull request, and the others are gone on with.
    One(Refusal),
    /// The same, and it may soon pass.
    Runner(String),
    /// There is more to ask for than there was time.
    Time,
}

impl Stop {
    fn of_comparison((why, message): Refusal) -> Self {
        if why == reason::SOURCE_UNREACHABLE { Self::Runner(message) } else { Self::One((why, message)) }
    }

    /// Keeps the first of these, but for one that asks to go on earlier.
    fn keep(self, first: &mut Option<Self>) {
        if matches!((first.as_ref(), &self), (None, _) | (Some(Self::One(_)), Self::Runner(_))) {
            *first = Some(self);
        }
    }
}

/// What a look at one source works with.
pub(super) struct SourceSnapshot {
    pub(super) services: Services,
    pub(super) known: Known,
    pub(super) key: ObjectKey,
    pub(super) client: Arc<dyn PullRequests>,
}

impl SourceSnapshot {
    /// Finds merges and makes the plans of all pull requests; the number of those that change stacks.
    pub(super) async fn bring_about(
        &self,
        mut source: Source,
        pulls: &[(PullRequest, String)],
    ) -> Result<Result<usize, Stop>, ApiError> {
        let of = (source.uid(), source.metadata.generation);
        let base = source.status.as_ref().and_then(|status| status.observed_commit.clone());
        let Some(base) = base else {
            return Ok(Err(Stop::Runner("the commit of the source is not known yet".to_owned())));
        };
        let all = self.stacks().await?;
        let stacks: Vec<_> = all.iter().filter(|(stack, _)| is_following(&source, stack)).cloned().collect();
        let runs = plans_of(&self.services, &self.key).await?;
        let (mut there, mut kept) = (There::new(&runs), HashSet::new());
        let (mut planned, mut trouble) = (Vec::new(), None);
        let until = Instant::now() + LOOK;
        // First, since runs wait for it.
        let mut merges = self.merges(&source, &runs, pulls, until).await?;
        if merges.refused.is_none() && !merges.is_partial {
            source = note_known(&self.services, &source, &base).await?;
        }
        for (pull, commit) in pulls {
            match self.changed(&source, &stacks, pull.number, [&base, commit], until).await {
                // It was merged since it was listed, and what was told of it stays.
                Ok(None) => self.hold(&mut merges, &runs, pull.number).await?,
                Ok(Some(changed)) => {
                    let (plans, left_out) = self.plans(&source, pull, commit, &changed, &mut there).await?;
                    kept.extend(plans.iter().map(|plan| plan.run.clone()));
                    planned.push(Planned { pull: pull.clone(), commit: commit.clone(), plans, left_out });
                }
                Err(stop) => {
                    let number = pull.number.to_string();
                    let is_its = |run: &&Run| run.labels().get(labels::PULL_REQUEST) == Some(&number);
                    kept.extend(runs.iter().filter(is_its).map(Run::name_any));
                    stop.keep(&mut trouble);
                }
            }
        }
        let followed = self.followed(&mut merges, &all).await?;
        kept.extend(merges.kept);
        // Before anything is told: a server that is away keeps nothing going that is out of date.
        remove(&self.services, runs.iter().filter(|run| !kept.contains(&run.name_any()))).await?;
        let open: HashSet<u64> = pulls.iter().map(|(pull, _)| pull.number).collect();
        self.known.retain(&self.key, |number| open.contains(&number));
        if let Some(error) = merges.refused {
            return Ok(Err(Stop::Server(error)));
        }
        let changing = planned.iter().filter(|pull| !pull.plans.is_empty()).count();
        self.known.note_news(&self.key, News { of, client: self.client.clone(), open, planned, followed });
        there.failed.told()?;
        if merges.is_partial {
            return Ok(Err(Stop::Time));
        }
        Ok(trouble.map_or(Ok(changing), Err))
    }

    /// The stacks of the source's projects, and where they are in it.
    async fn stacks(&self) -> Result<Vec<(Stack, String)>, ApiError> {
        let (namespace, name) = &self.key;
        let of_source =
            ListOptions { field_selector: Some(format!("spec.source.name={name}")), ..ListOptions::default() };
        let projects = self.services.lookup.api::<Project>()?.list_with(Some(namespace), &of_source).await?;
        let projects: HashMap<String, Project> = projects.into_iter().map(|it| (it.name_any(), it)).collect();
        let with_path = |stack: Stack| {
            let path = path(&stack, projects.get(&stack.spec.project)?);
            Some((stack, path))
        };
        self.services.lookup.api::<Stack>()?.list_of(Some(namespace), &ListOptions::default(), with_path).await
    }

    /// The stacks whose folder a pull request changes; nothing where it is merged already.
    async fn changed<'a>(
        &self,
        source: &Source,
        stacks: &'a [(Stack, String)],
        number: u64,
        [base, commit]: [&str; 2],
        until: Instant,
    ) -> Result<Option<Vec<&'a Stack>>, Stop> {
        let mut paths: Vec<String> = stacks.iter().map(|(_, path)| path.clone()).collect();
        paths.sort();
        paths.dedup();
        // Stacks of one path may have other files: then a change of any of them is one of both.
        let mut values_files: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (stack, path) in stacks.iter().filter(|(stack, _)| !target::values_files(stack).is_empty()) {
            values_files.entry(path.clone()).or_default().extend_from_slice(target::values_files(stack));
        }
        let mut hasher = DefaultHasher::new();
        (base, commit, &paths, &values_files).hash(&mut hasher);
        let question = hasher.finish();
        let changed = match self.known.changed(&self.key, number, question) {
            Some(changed) => changed,
            None if paths.is_empty() => Some(Arc::default()),
            None => {
                let what = format!("what {commit} changes");
                if let Some(why) = self.known.put_off(&self.key, number, &what) {
                    return Err(Stop::of_comparison(why));
                }
                if self.has_moved(base).await {
                    return Err(Stop::Time);
                }
                if Instant::now() >= until {
                    return Err(Stop::Runner(format!("pull request {number} waits in the queue for comparison")));
                }
                let changed = match self.compare(source, [base, commit], paths, values_files).await {
                    Ok(changed) => changed,
                    Err(halt) => {
                        let (why, message) = halt.into_reason(reason::SOURCE_UNREACHABLE);
                        let why = (why, format!("pull request {number}: {message}"));
                        self.known.note_put_off(&self.key, number, what, why.clone(), AGAIN);
                        return Err(Stop::of_comparison(why));
                    }
                };
                self.known.note_changed(&self.key, number, question, changed.clone());
                changed
            }
        };
        let of = |changed: Arc<[String]>| {
            stacks.iter().filter(|(_, path)| changed.contains(path)).map(|(stack, _)| stack).collect()
        };
        Ok(changed.map(of))
    }

    /// Whether the branch is found at another commit by now: what was merged is asked for before anything else.
    async fn has_moved(&self, base: &str) -> bool {
        let Ok(sources) = self.services.lookup.api::<Source>() else { return false };
        let now = sources.get_opt(&self.key.0, &self.key.1).await.ok().flatten();
        now.is_some_and(|now| now.status.is_some_and(|status| status.observed_commit.as_deref() != Some(base)))
    }

    async fn compare(
        &self,
        source: &Source,
        [base, commit]: [&str; 2],
        paths: Vec<String>,
        values_files: BTreeMap<String, Vec<String>>,
    ) -> Result<Changed, StepError> {
        let source = target::source(&self.services, source).await?;
        let (base, commit) = (base.to_owned(), commit.to_owned());
        let values_files =
            values_files.into_iter().map(|(path, values_files)| (path, ValuesFiles { values_files })).collect();
        let request = CompareRequest { source: Some(source), base, commit, paths, values_files };
        let response = tokio::time::timeout(COMPARE, self.services.runner.compare(request)).await;
        let response =
            response.map_err(|_| StepError::Retry(format!("the repository did not answer within {COMPARE:?}")))?;
        let response = response.map_err(|status| runner::halt(&status, reason::SOURCE_UNREACHABLE))?;
        let CompareResponse { changed, is_in_base } = response.into_inner();
        Ok((!is_in_base).then(|| changed.into()))
    }
}

fn is_following(source: &Source, stack: &Stack) -> bool {
    stack.metadata.deletion_timestamp.is_none()
        && trigger::operation(stack.spec.trigger).is_some()
        && ["latest", &source.spec.reference, branch(source)].contains(&stack.spec.desired_version.as_str())
}
