//! Module: finds the artifact, the program and the KCL package of each version, and their digests.
//!
//! A function-runner looks for them, in the registry or in its folder. Runs use the digests that were found last.

use std::time::Duration;

use kube::ResourceExt as _;
use stoa_controller::{
    conditions::set_condition,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::ApiError;
use stoa_proto::{FindModuleRequest, FindModuleResponse};
use stoa_runs::{Services, StepError, modules, runner};
use stoa_types::{
    Module,
    platform::{FoundModuleVersion, ModuleSource, ModuleVersion},
    reason,
};
use tokio_util::sync::CancellationToken;

/// How often to look again at what is ready, and at what is not.
const LOOK: Duration = Duration::from_secs(300);
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// How long a runner may take to find one version, which it downloads.
const PATIENCE: Duration = Duration::from_secs(330);
/// How many modules are looked at at once.
const AT_ONCE: usize = 8;

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(modules) = services.lookup.api::<Module>() else { return };
    let triggers = vec![Trigger::on_change(&modules, |module: &Wanted| vec![module.key()])];
    queue::drive_some(services.queues.of("modules"), AT_ONCE, triggers, end, |key| look(services.clone(), key)).await;
}

/// The part of a Module that decides what is looked for.
type Wanted = stoa_controller::index::Member<stoa_types::platform::ModuleSpec, serde::de::IgnoredAny>;

async fn look(services: Services, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let api = services.lookup.api::<Module>()?;
    let Some(module) = api.get_opt("", &name).await? else { return Ok(None) };
    let mut found = Vec::new();
    let mut problem = None;
    for version in &module.spec.versions {
        match find(&services, &module, version).await {
            Ok(answer) => found.push(of_answer(version, answer)),
            Err(halt) => {
                let (why, message) = halt.into_reason(reason::UNREACHABLE);
                problem.get_or_insert((why, format!("version {}: {message}", version.version)));
            }
        }
    }
    let is_ready = problem.is_none();
    let (why, message) = problem.unwrap_or_else(|| (reason::AVAILABLE, "all versions were found".to_owned()));
    api.update_status_with("", &name, |m: &mut Module| {
        // What was found is of the Module as it was, and this one is looked at next.
        if m.uid() != module.uid() || m.spec != module.spec {
            return;
        }
        let generation = m.metadata.generation;
        let status = m.status.get_or_insert_default();
        // Runs use the same versions while the registry does not answer.
        let is_wanted = |old: &FoundModuleVersion| {
            let is_same = |it: &ModuleVersion| it.version == old.version && is_pinned_to(it, old);
            module.spec.versions.iter().any(is_same) && !found.iter().any(|new| new.version == old.version)
        };
        status.versions.retain(is_wanted);
        status.versions.extend(found.iter().cloned());
        let order =
            |version: &FoundModuleVersion| module.spec.versions.iter().position(|it| it.version == version.version);
        status.versions.sort_by_key(order);
        set_condition(&mut status.conditions, reason::READY, is_ready, why, message.clone(), generation);
    })
    .await?;
    Ok(Some(if is_ready { LOOK } else { LOOK_AGAIN }))
}

/// Whether a version that was found before is the one that the spec wants now.
fn is_pinned_to(wanted: &ModuleVersion, found: &FoundModuleVersion) -> bool {
    wanted.digest.is_none() || wanted.digest == found.digest || wanted.digest == found.program
}

fn of_answer(version: &ModuleVersion, answer: FindModuleResponse) -> FoundModuleVersion {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let FindModuleResponse { digest, program, package } = answer;
    FoundModuleVersion {
        version: version.version.clone(),
        digest: some(digest),
        program: some(program),
        package: some(package),
    }
}

async fn find(services: &Services, module: &Module, version: &ModuleVersion) -> Result<FindModuleResponse, StepError> {
    let request = FindModuleRequest {
        path: module.spec.path.clone(),
        version: version.version.clone(),
        digest: version.digest.clone().unwrap_or_default(),
        in_folder: module.spec.source == ModuleSource::Folder,
        credentials: modules::credentials(services, &module.spec).await?,
    };
    let answer = tokio::time::timeout(PATIENCE, services.runner.find_module(request)).await.unwrap_or_else(|_| {
        Err(tonic::Status::deadline_exceeded(format!("there was no answer within {} s", PATIENCE.as_secs())))
    });
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) if status.code() == tonic::Code::Unimplemented => {
            let message = "the function-runner is older than the API server and finds no modules; upgrade it";
            Err(StepError::failed(reason::RUNNER_UNAVAILABLE, message))
        }
        Err(status) if runner::lacks_version(&status) => {
            Err(StepError::failed(reason::VERSION_NOT_FOUND, status.message()))
        }
        Err(status) => Err(runner::halt(&status, reason::UNREACHABLE)),
    }
}
