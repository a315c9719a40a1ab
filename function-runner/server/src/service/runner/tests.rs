//! The service within the limits of calls.

use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use stoa_git::cache::Folders;
use stoa_proto::{Problem, Target};
use stoa_workers::{Pool, SubprocessStarter};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;
use crate::args::{KclArgs, LimitArgs, PoolArgs, TerraformArgs};
use crate::failure::reason;
use crate::local::LocalRepositories;
use crate::metrics::Metrics;
use crate::source::ReaderPool;

const MIB: usize = 1 << 20;

/// A service in a folder, with these limits, until it is shut down.
fn service(folder: &Path, limits: LimitArgs, shutdown: &CancellationToken) -> RunnerService {
    let cache = Folders::new(folder.to_owned());
    let local = LocalRepositories::default();
    let sources = Sources::new(cache.clone(), local.clone(), ReaderPool::in_process());
    let metrics = Metrics::new().unwrap();
    let providers = metrics.providers.clone();
    let terraform = TerraformArgs::default().of_terraform(cache.clone(), folder.to_owned(), providers);
    let runtimes =
        Runtimes::new(None, cache.clone(), local, limits.of_runtimes(), ReaderPool::in_process(), Arc::new(terraform));
    let pool = PoolArgs::default();
    let trees = SubprocessStarter::new(pool.of_trees()).unwrap();
    let renderer = pool.of_renderer(cache.clone(), folder.to_owned());
    let modules = KclArgs::default().of_modules(&pool, folder.to_owned());
    let workers = Pool::new(pool.of_pool(), metrics.workers.clone());
    let generators = Generators::new(workers, trees, 1, renderer, modules);
    let calls = Calls::new(metrics, limits.of_calls(Duration::ZERO), shutdown.clone());
    RunnerService::new(Arc::new(calls), sources, generators, runtimes)
}

#[tokio::test(start_paused = true)]
async fn large_plans_without_memory_are_rejected() {
    let folder = tempfile::TempDir::new().unwrap();
    let limits = LimitArgs { max_calls_mib: 3, ..LimitArgs::default() };
    let service = service(folder.path(), limits, &CancellationToken::new());
    let code = async |bytes: usize| {
        let resource = vec![b' '; bytes].into();
        let state = vec![StateEntry { resource, ..StateEntry::default() }];
        let request = PlanRequest { state, ..PlanRequest::default() };
        FunctionRunner::plan(&service, Request::new(request)).await.unwrap_err()
    };
    let first = service.calls.memory("a", 2 * MIB).await.unwrap();
    let busy = code(MIB + 1).await;
    assert_eq!(busy.code(), Code::ResourceExhausted);
    assert_eq!(Problem::decode(busy.details()).unwrap().reason, reason::BUSY);
    for fits in [MIB, MIB - 1, 0] {
        assert_eq!(code(fits).await.code(), Code::InvalidArgument, "{fits}: there is memory, and no target");
    }
    let health = async |bytes: usize| {
        let resource = vec![b' '; bytes].into();
        let state = vec![StateEntry { resource, ..StateEntry::default() }];
        let request = HealthRequest { target: Some(Target::default()), state };
        FunctionRunner::health(&service, Request::new(request)).await.unwrap_err().code()
    };
    assert_eq!(health(MIB + 1).await, Code::ResourceExhausted);
    assert_eq!(health(MIB - 1).await, Code::InvalidArgument, "nothing of it is on record");
    drop(first);
    assert_eq!(code(MIB + 1).await.code(), Code::InvalidArgument, "the memory returned");
    assert_eq!(health(MIB + 1).await, Code::InvalidArgument);
    let all = service.calls.memory("a", 100 * MIB).await.unwrap();
    service.calls.memory("b", MIB).await.unwrap_err();
    drop(all);
}

#[test]
fn size_counts_documents_and_records() {
    let state = [StateEntry { resource: Bytes::from_static(b"{}"), ..StateEntry::default() }];
    assert_eq!(size(&[&Bytes::from_static(b"spec"), &Bytes::from_static(b"plan")], &state), 10);
}

#[tokio::test]
async fn calls_above_the_limit_are_rejected_at_once() {
    let folder = tempfile::TempDir::new().unwrap();
    let limits = LimitArgs { max_calls: 1, ..LimitArgs::default() };
    let shutdown = CancellationToken::new();
    let service = service(folder.path(), limits, &shutdown);
    let code = async || service.look(Request::new(LookRequest::default())).await.unwrap_err();
    let slot = service.calls.slot("a").unwrap();
    let busy = code().await;
    assert_eq!(busy.code(), Code::ResourceExhausted);
    assert_eq!(Problem::decode(busy.details()).unwrap().reason, reason::BUSY);
    drop(slot);
    assert_eq!(code().await.code(), Code::InvalidArgument, "there is a slot, and no source");

    let slot = service.calls.slot("a").unwrap();
    shutdown.cancel();
    let draining = code().await;
    assert_eq!(draining.code(), Code::Unavailable);
    assert_eq!(Problem::decode(draining.details()).unwrap().reason, reason::DRAINING);
    let mut idle = Box::pin(service.calls.idle());
    assert!(timeout(Duration::from_millis(20), &mut idle).await.is_err(), "a call is under way");
    drop(slot);
    idle.await;
}

#[tokio::test]
async fn long_calls_leave_slots_to_other_organizations() {
    let folder = tempfile::TempDir::new().unwrap();
    let limits = LimitArgs { max_calls: 4, ..LimitArgs::default() };
    let service = service(folder.path(), limits, &CancellationToken::new());
    let look = async |organization: &str| {
        let source = Some(Source { organization: organization.to_owned(), ..Source::default() });
        service.look(Request::new(LookRequest { source, ..LookRequest::default() })).await.unwrap_err()
    };
    let _hanging = ["a"; 3].map(|organization| service.calls.slot(organization).unwrap());
    let busy = look("a").await;
    let message = "organization \"a\" has reached its limit of 3 concurrent calls; retry later";
    assert_eq!((busy.code(), busy.message()), (Code::ResourceExhausted, message));
    assert_ne!(look("b").await.code(), Code::ResourceExhausted);
}
