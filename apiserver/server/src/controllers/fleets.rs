//! Fleets: reads the control plane of each environment, serves its objects, renders its files, and proposes them.
//!
//! A key is a namespace, which is an environment. A reconciliation asks the Git servers for the commits of all branches, at most every ten
//! seconds, and does the rest where something changed. One environment that fails holds up no other.
//!
//! - `status`: the statuses of the objects of an environment;
//! - `schedulers`: a controller of its own, for the answers of external schedulers.

pub(crate) mod schedulers;
mod status;

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::Deserialize;
use stoa_controller::{
    index::Member,
    object::{Kind, ObjectKey},
    queue::{self, Trigger},
};
use stoa_kinds::lookup::Lookup;
use stoa_machinery::{ApiError, registry::Registry};
use stoa_types::{
    delivery::{Promotion, PromotionPhase, PromotionSpec, PromotionStepPhase},
    scheduler::{
        BaseRepo, ClusterType, ConfigSchema, DeploymentTarget, Environment, GitOpsRepo, SchedulingPolicy, Template,
        Workload, WorkloadRegistration,
    },
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::status::Named;
use super::sources::wait_after;
use crate::fleet::{FRESH, FleetService, Frozen, Known, Proposal, ProposalState, Served, digest, serve};

/// How many environments are brought about at once.
const AT_ONCE: usize = 8;
/// How long changes are gathered: a commit changes several objects as a rule.
const GATHER: Duration = Duration::from_millis(500);
/// The first wait after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// How often objects are compared with those of Git though no file has changed.
const SERVE: Duration = Duration::from_secs(300);
/// How often a proposal is compared again though nothing has changed here: people close pull requests.
const AGAIN: Duration = Duration::from_secs(60);

/// The last comparison with a GitOps repository.
#[derive(Clone, Debug)]
struct Compared {
    at: Instant,
    generation: Option<i64>,
    state: ProposalState,
}

/// The content of a proposal: the generation of the GitOpsRepo, the commit of its branch, and the digest of the files. The two
/// are empty while the repository is away.
type Attempt = (Option<i64>, String, String);

/// A proposal that failed. Only its next attempt waits: Git is read as often as before.
#[derive(Debug)]
struct Refused {
    attempt: Attempt,
    count: u32,
    until: Instant,
}

#[derive(Clone, Debug, Default)]
struct Memory {
    compared: Arc<Mutex<HashMap<ObjectKey, Compared>>>,
    refused: Arc<Mutex<HashMap<ObjectKey, Refused>>>,
    failures: Arc<Mutex<HashMap<String, u32>>>,
    /// When the objects of a namespace were brought to those of Git last, and whether that left nothing to do.
    served: Arc<Mutex<HashMap<String, (Instant, Served)>>>,
    delivered: Arc<Deliveries>,
}

/// The last deliveries of webhooks, by Environment: `None` before the first one.
#[derive(Debug, Default)]
struct Deliveries(Mutex<HashMap<ObjectKey, Option<MicroTime>>>);

impl Deliveries {
    /// Whether an Environment has a delivery that it had not when it was seen before.
    fn have_next(&self, environment: &Environment) -> bool {
        let last = environment.status.as_ref().and_then(|status| status.last_webhook_time.clone());
        let before = self.0.lock().insert(queue::key_of(environment), last.clone());
        before.is_some_and(|before| last.is_some() && before != last)
    }
}

pub(crate) async fn run(service: FleetService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let memory = Memory::default();
    let (delivered, of_delivery) = (memory.delivered.clone(), service.clone());
    let environments = Trigger::on(&registry.api::<Environment>(), move |environment| {
        if delivered.have_next(environment) {
            // The branches may have moved since the last request.
            of_delivery.expire_looks();
        }
        vec![(environment.name_any(), environment.name_any())]
    });
    let triggers = vec![
        environments,
        of_namespace::<BaseRepo>(&registry),
        of_namespace::<WorkloadRegistration>(&registry),
        of_namespace::<Workload>(&registry),
        of_namespace::<DeploymentTarget>(&registry),
        of_namespace::<ClusterType>(&registry),
        of_namespace::<SchedulingPolicy>(&registry),
        of_namespace::<ConfigSchema>(&registry),
        of_namespace::<Template>(&registry),
        of_namespace::<GitOpsRepo>(&registry),
        waves(&registry),
    ];
    let reconcile = |(namespace, _): ObjectKey| reconcile(service.clone(), memory.clone(), namespace);
    queue::drive_some(service.services().queues.of("fleets"), AT_ONCE, triggers, end, reconcile).await;
    service.forget_all();
}

fn of_namespace<K: Kind + Sync>(registry: &Arc<Registry>) -> Trigger {
    Trigger::on(&registry.api::<K>(), |object| {
        let namespace = object.namespace().unwrap_or_default();
        vec![(namespace.clone(), namespace)]
    })
    .within(GATHER)
}

/// The environments of a Promotion whose waves change.
fn waves(registry: &Arc<Registry>) -> Trigger {
    Trigger::on_change(&registry.api::<Promotion>(), |promotion: &Member<PromotionSpec, Waves>| {
        let environments = promotion.spec.environments.iter().map(|step| &step.environment);
        environments.map(|environment| (environment.clone(), environment.clone())).collect()
    })
    .within(GATHER)
}

/// The part of a Promotion's status that decides which folders stay as they are.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Waves {
    phase: PromotionPhase,
    environments: Vec<Wave>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Wave {
    environment: String,
    phase: PromotionStepPhase,
    wave: Option<i64>,
}

async fn reconcile(service: FleetService, memory: Memory, namespace: String) -> Result<Option<Duration>, ApiError> {
    let before = service.known(&namespace);
    let known = service.read(&namespace).await?;
    if known.reading.is_empty() && before.is_none() {
        return Ok(None);
    }
    let reconciliation = Reconciliation { service, memory, namespace };
    reconciliation.bring_about(before, known).await
}

/// The reconciliation of an environment.
struct Reconciliation {
    service: FleetService,
    memory: Memory,
    namespace: String,
}

impl Reconciliation {
    fn lookup(&self) -> &Lookup {
        &self.service.services().lookup
    }

    async fn bring_about(&self, before: Option<Arc<Known>>, known: Arc<Known>) -> Result<Option<Duration>, ApiError> {
        let namespace = self.namespace.as_str();
        if known.reading.is_unread() {
            status::of_sources(self.service.services(), namespace, &known.reading, &Served::default()).await?;
            return Ok(Some(self.failed()));
        }
        if let Some(environment) = &known.reading.environment {
            self.service.services().cluster.ensure_namespace(namespace, &environment.name_any()).await?;
        }
        let served = self.serve(before.as_deref(), &known).await?;
        status::of_sources(self.service.services(), namespace, &known.reading, &served).await?;
        let is_scheduled_alike =
            before.as_ref().is_some_and(|before| std::ptr::eq(before.fleet.schedule(), known.fleet.schedule()));
        if !is_scheduled_alike {
            status::of_policies(self.service.services(), namespace, &known.fleet).await?;
        }
        status::of_workloads(self.service.services(), namespace, &known.reading).await?;
        let repos = self.lookup().api::<GitOpsRepo>()?.list(Some(namespace), "").await?;
        if repos.is_empty() {
            let is_over = known.reading.is_empty();
            self.service.keep(namespace, known.clone());
            if is_over {
                self.service.forget(namespace);
                return Ok(None);
            }
            return Ok(Some(self.next(&known)));
        }
        let known = match self.service.render(namespace, &known).await {
            Ok(known) => known,
            Err(error) => {
                for repo in &repos {
                    status::of_unrendered(self.service.services(), repo, &error).await?;
                }
                return Ok(Some(self.failed()));
            }
        };
        // A promotion records its wave before Git has its commit, and Git was read above.
        let frozen = self.service.frozen(namespace, &known).await?;
        for repo in &repos {
            self.propose(repo, &known, &frozen).await?;
        }
        Ok(Some(self.next(&known)))
    }

    /// Brings the objects to those of Git, where that may make a difference.
    async fn serve(&self, before: Option<&Known>, known: &Known) -> Result<Served, ApiError> {
        let last = self.memory.served.lock().get(&self.namespace).cloned();
        if let Some((at, served)) = last.filter(|(at, served)| at.elapsed() < SERVE && served.changes == 0)
            && before.is_some_and(|before| before.reading.is_same(&known.reading))
        {
            tracing::trace!(namespace = self.namespace, ago = ?at.elapsed(), "the objects are those of Git");
            return Ok(served);
        }
        let served = serve(&self.service, &self.namespace, &known.reading).await?;
        self.memory.served.lock().insert(self.namespace.clone(), (Instant::now(), served.clone()));
        Ok(served)
    }

    /// The time to the next reconciliation.
    fn next(&self, known: &Known) -> Duration {
        if !known.reading.failed.is_empty() {
            return self.failed();
        }
        self.memory.failures.lock().remove(&self.namespace);
        FRESH
    }

    fn failed(&self) -> Duration {
        let mut failures = self.memory.failures.lock();
        let count = failures.entry(self.namespace.clone()).or_default();
        *count = count.saturating_add(1);
        wait_after(*count, RETRY)
    }

    /// Compares the files with a repository, and proposes what differs. A refusal is in the status.
    async fn propose(&self, repo: &GitOpsRepo, known: &Known, frozen: &Frozen) -> Result<(), ApiError> {
        let Some(tree) = known.tree.clone() else { return Ok(()) };
        let (key, named) = (queue::key_of(repo), Named::of(&tree, known));
        let proposal =
            Proposal { service: &self.service, namespace: &self.namespace, repo, known, tree: &tree, frozen };
        let away: Attempt = (repo.metadata.generation, String::new(), String::new());
        if self.waits(&key, &away) {
            return Ok(());
        }
        let base = match proposal.base_commit().await {
            Ok(base) => base,
            Err(refusal) => {
                self.note(&key, away, true);
                return status::of_refused(self.service.services(), repo, &named, refusal).await;
            }
        };
        let attempt: Attempt = (repo.metadata.generation, base.clone(), digest(&tree, frozen));
        if self.waits(&key, &attempt) {
            return Ok(());
        }
        let last = self.memory.compared.lock().get(&key).cloned();
        let is_current = |last: &Compared| {
            last.at.elapsed() < AGAIN
                && last.state.blocked.is_none()
                && (last.generation, &last.state.base_commit, &last.state.digest) == (attempt.0, &attempt.1, &attempt.2)
        };
        if last.as_ref().is_some_and(is_current) {
            return Ok(());
        }
        match proposal.propose().await {
            Ok(state) => {
                status::of_proposed(self.service.services(), repo, &named, &state).await?;
                self.note(&key, attempt, state.blocked.is_some());
                let compared = Compared { at: Instant::now(), generation: repo.metadata.generation, state };
                self.memory.compared.lock().insert(key, compared);
                Ok(())
            }
            Err(refusal) => {
                self.note(&key, attempt, true);
                self.memory.compared.lock().remove(&key);
                status::of_refused(self.service.services(), repo, &named, refusal).await
            }
        }
    }

    /// Whether the same proposal failed and is not to be tried yet.
    fn waits(&self, key: &ObjectKey, attempt: &Attempt) -> bool {
        self.memory.refused.lock().get(key).is_some_and(|of| of.attempt == *attempt && Instant::now() < of.until)
    }

    /// Has the same proposal wait longer after each failure.
    fn note(&self, key: &ObjectKey, attempt: Attempt, has_failed: bool) {
        let mut refused = self.memory.refused.lock();
        let before = refused.remove(key).filter(|of| of.attempt == attempt).map_or(0, |of| of.count);
        if has_failed {
            let count = before.saturating_add(1);
            let until = Instant::now() + wait_after(count, RETRY);
            refused.insert(key.clone(), Refused { attempt, count, until });
        }
    }
}

#[cfg(test)]
mod tests {
    use stoa_types::scheduler::EnvironmentSpec;

    use super::*;

    #[test]
    fn first_delivery_and_each_later_one_count_once() {
        let deliveries = Deliveries::default();
        let mut environment = Environment::new("dev", EnvironmentSpec::default());
        assert!(!deliveries.have_next(&environment));
        for time in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"] {
            let time = MicroTime(time.parse().expect("a time"));
            environment.status.get_or_insert_default().last_webhook_time = Some(time);
            assert!(deliveries.have_next(&environment));
            assert!(!deliveries.have_next(&environment));
        }
        // A replica that has just begun to lead knows no commit that could be old.
        assert!(!Deliveries::default().have_next(&environment));
    }
}
