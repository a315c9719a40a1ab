//! Repository of content Function: lists its functions at the times of its schedule, and keeps one Function object for each.
//!
//! The functions are those that files in Git describe, the images of a registry, or, without either, those of the function-runners.
//! An answer has all functions, so a synchronization compares the objects with it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::{
    events::Kind,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_kinds::{package_names::function_name, repository::FUNCTIONS};
use stoa_machinery::{
    ApiError, RequestContext,
    registry::{DeleteOptions, ListOptions},
};
use stoa_proto::{FunctionsRequest, FunctionsResponse, OfferedFunction};
use stoa_types::{
    common::condition,
    porch::{FUNCTION_INPUT, FUNCTION_KEYWORD, FUNCTION_TYPE, Function, FunctionConfig, FunctionSpec, NameReference},
    porchconfig::Repository,
    reason,
};
use tokio_util::sync::CancellationToken;

use super::{
    package_repositories::{Found, next_time, until, write_status},
    sources::wait_after,
};
use crate::packages::{Address, PackageService, unanswered};

/// How many repositories are synchronized at once.
const AT_ONCE: usize = 4;
/// How long a synchronization may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The first wait after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// The longest name of a label after its prefix.
const LABEL: usize = 63;

/// The last synchronization of a repository.
#[derive(Clone, Debug)]
struct Synchronized {
    of: (Option<String>, Option<i64>),
    /// When the next one is due.
    next: Timestamp,
    failures: u32,
}

type Memory = Arc<Mutex<HashMap<ObjectKey, Synchronized>>>;

pub(crate) async fn run(service: PackageService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let memory = Memory::default();
    let triggers = vec![Trigger::on(&registry.api::<Repository>(), |repository| vec![queue::key_of(repository)])];
    let reconcile = |key| reconcile(service.clone(), memory.clone(), key);
    queue::drive_some(service.services().queues.of("function-repositories"), AT_ONCE, triggers, end, reconcile).await;
}

fn context() -> RequestContext {
    RequestContext::internal("function-repositories").with_status()
}

async fn reconcile(service: PackageService, memory: Memory, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let repositories = service.services().lookup.api::<Repository>()?;
    let found = repositories.get_opt(&key.0, &key.1).await?;
    let Some(repository) = found.filter(|repository| repository.spec.content == FUNCTIONS) else {
        memory.lock().remove(&key);
        write(&service, &key, &FunctionsResponse::default()).await?;
        return Ok(None);
    };
    let now = service.services().now();
    let of = (repository.metadata.uid.clone(), repository.metadata.generation);
    let last = memory.lock().get(&key).cloned().filter(|last| last.of == of);
    if let Some(last) = last.as_ref().filter(|last| last.next > now) {
        return Ok(Some(until(last.next, now)));
    }
    let failures = last.map_or(0, |last| last.failures);
    let synchronized = synchronize(&service, &repository, &key).await;
    let (wait, failures) = match &synchronized {
        Ok(_) => (until(next_time(&repository, now), now), 0),
        Err(_) => (wait_after(failures.saturating_add(1), RETRY), failures.saturating_add(1)),
    };
    let next = now.checked_add(wait).unwrap_or(Timestamp::MAX);
    memory.lock().insert(key.clone(), Synchronized { of, next, failures });
    report(&service, &repository, synchronized.as_ref(), next).await?;
    Ok(Some(until(next, now)))
}

/// The outcome of a synchronization.
struct Outcome {
    revision: String,
    count: usize,
    /// The errors of single functions.
    problems: Vec<String>,
}

async fn synchronize(service: &PackageService, repository: &Repository, key: &ObjectKey) -> Result<Outcome, ApiError> {
    let request = request(service, repository, &key.0).await?;
    let answer = tokio::time::timeout(PATIENCE, service.services().runner.functions(request)).await;
    let late = || ApiError::service_unavailable(format!("the repository did not answer within {PATIENCE:?}"));
    let found = answer.map_err(|_| late())?.map_err(|status| unanswered(&status))?;
    let mut problems: Vec<String> =
        found.problems.iter().map(|problem| format!("{}: {}", problem.file, problem.message)).collect();
    let (count, refused) = write(service, key, &found).await?;
    problems.extend(refused);
    Ok(Outcome { revision: found.revision, count, problems })
}

async fn request(
    service: &PackageService,
    repository: &Repository,
    namespace: &str,
) -> Result<FunctionsRequest, ApiError> {
    let Some(address) = Address::of(repository) else { return Ok(FunctionsRequest::default()) };
    let source = address.source(service.services(), namespace).await?;
    let git = repository.spec.git.clone().unwrap_or_default();
    let directory = git.directory.trim_matches('/').to_owned();
    Ok(FunctionsRequest { source: Some(source), branch: git.branch, directory })
}

/// Creates, changes and removes the Functions of a repository; returns their number and the errors of those that have none.
async fn write(
    service: &PackageService,
    (namespace, repository): &ObjectKey,
    found: &FunctionsResponse,
) -> Result<(usize, Vec<String>), ApiError> {
    let api = service.services().lookup.api::<Function>()?.with_context(context());
    let selector = format!("spec.repositoryRef.name={repository}");
    let options = ListOptions { field_selector: Some(selector), ..ListOptions::default() };
    let existing = api.list_with(Some(namespace), &options).await?;
    let mut existing: BTreeMap<String, Function> =
        existing.into_iter().map(|function| (function.name_any(), function)).collect();
    let (mut wanted, mut refused) = (BTreeMap::<String, Function>::new(), Vec::new());
    for offered in &found.functions {
        let object = object(namespace, repository, offered);
        let name = object.name_any();
        match wanted.get(&name) {
            None => drop(wanted.insert(name, object)),
            Some(first) if first.spec == object.spec => {}
            Some(first) => refused.push(format!(
                "{}: function {} has the same name {name}; use one image and tag for one function",
                offered.image, first.spec.image
            )),
        }
    }
    let mut count = 0;
    for (name, object) in wanted {
        let written = match existing.remove(&name) {
            None => api.create(&object).await.map(drop),
            Some(function) if function.spec == object.spec && function.labels() == object.labels() => Ok(()),
            Some(_) => {
                let change = |function: &mut Function| {
                    function.spec = object.spec.clone();
                    function.metadata.labels.clone_from(&object.metadata.labels);
                };
                queue::unless_gone(api.update_with(namespace, &name, change).await).map(drop)
            }
        };
        match written {
            Ok(()) => count += 1,
            // One function that is no object hides no other.
            Err(error) if queue::is_refusal(&error) => {
                refused.push(format!("{}: {}", object.spec.image, error.message()))
            }
            Err(error) => return Err(error),
        }
    }
    for name in existing.keys() {
        queue::unless_gone(api.delete(namespace, name, &DeleteOptions::default()).await)?;
    }
    Ok((count, refused))
}

fn object(namespace: &str, repository: &str, offered: &OfferedFunction) -> Function {
    let names = |names: &[stoa_proto::TypeName]| {
        let name = |name: &stoa_proto::TypeName| FunctionConfig {
            api_version: name.api_version.clone(),
            kind: name.kind.clone(),
        };
        names.iter().map(name).collect()
    };
    let mut function = Function::new(
        &function_name(repository, &offered.image),
        FunctionSpec {
            image: offered.image.clone(),
            repository_ref: NameReference { name: repository.to_owned() },
            function_types: offered.types.clone(),
            function_configs: names(&offered.configs),
            keywords: offered.keywords.clone(),
            description: offered.description.clone(),
            documentation_url: offered.documentation_url.clone(),
            input_types: names(&offered.inputs),
            idempotent: offered.idempotent,
        },
    );
    function.metadata.namespace = Some(namespace.to_owned());
    function.metadata.labels = Some(labels(&function.spec));
    function
}

/// The labels by which a function is selected. A word that is no name of a label has none.
fn labels(spec: &FunctionSpec) -> BTreeMap<String, String> {
    let any = ["any"];
    let inputs: Vec<&str> = match spec.input_types.as_slice() {
        [] => any.to_vec(),
        types => types.iter().map(|input| input.kind.as_str()).collect(),
    };
    let of = |prefix: &'static str, words: Vec<&str>| {
        let words = words.into_iter().filter(|word| is_label(word));
        words.map(|word| (format!("{prefix}{word}"), "true".to_owned())).collect::<Vec<_>>()
    };
    let types = of(FUNCTION_TYPE, spec.function_types.iter().map(String::as_str).collect());
    let keywords = of(FUNCTION_KEYWORD, spec.keywords.iter().map(String::as_str).collect());
    types.into_iter().chain(keywords).chain(of(FUNCTION_INPUT, inputs)).collect()
}

fn is_label(word: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = word.as_bytes();
    let is_plain = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    word.len() <= LABEL && is_plain && is_edge(bytes.first()) && is_edge(bytes.last())
}

/// Writes the outcome into the status, and an Event when the repository becomes or remains unreadable.
async fn report(
    service: &PackageService,
    repository: &Repository,
    found: Result<&Outcome, &ApiError>,
    next: Timestamp,
) -> Result<(), ApiError> {
    let services = service.services();
    let outcome = match found {
        Ok(found) => Ok(Found {
            content: "functions",
            message: format!("the repository was read; it has {} functions", found.count),
            revision: &found.revision,
            packages: None,
            problems: &found.problems,
        }),
        Err(error) => Err((reason::SOURCE_UNREACHABLE, error)),
    };
    write_status(services, repository, outcome, next).await?;
    let conditions = repository.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let was_unready = condition(conditions, reason::READY).is_some_and(|ready| ready.status == "False");
    match found {
        Err(error) => services.recorder.record(repository, Kind::Warning, reason::SOURCE_UNREACHABLE, error.message()),
        Ok(_) if was_unready => {
            services.recorder.record(repository, Kind::Normal, reason::AVAILABLE, "the repository can be read again");
        }
        Ok(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_has_labels_to_select_it() {
        let offered = OfferedFunction {
            image: "registry.example.com/fn/set-team:v1".to_owned(),
            types: vec!["mutator".to_owned()],
            keywords: vec!["team".to_owned(), "two words".to_owned()],
            inputs: vec![stoa_proto::TypeName { api_version: "apps/v1".to_owned(), kind: "Deployment".to_owned() }],
            idempotent: Some(true),
            ..OfferedFunction::default()
        };
        let function = object("acme", "functions", &offered);
        assert_eq!(function.name_any(), "functions.set-team.v1");
        let labels: Vec<&str> = function.labels().keys().map(String::as_str).collect();
        assert_eq!(
            labels,
            ["input.function.stoa.dev/Deployment", "keyword.function.stoa.dev/team", "type.function.stoa.dev/mutator",]
        );
        let any = object("acme", "functions", &OfferedFunction { inputs: Vec::new(), ..offered });
        assert!(any.labels().contains_key("input.function.stoa.dev/any"));
        assert_eq!(any.spec.idempotent, Some(true));
    }
}
