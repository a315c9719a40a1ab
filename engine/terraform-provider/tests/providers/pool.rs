//! The pool of warm processes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use stoa_terraform_provider::change::{Step, apply, plan};
use stoa_terraform_provider::pool::{Pool, PoolError, PoolOptions, ProviderSpec};
use stoa_terraform_provider::process::{DirectLauncher, Network};
use stoa_terraform_provider::value::Json;

use crate::support::{self, config};

fn options() -> PoolOptions {
    PoolOptions::new(Arc::new(DirectLauncher))
}

fn spec(provider: &str, configuration: &str) -> Option<ProviderSpec> {
    let executable = support::executable(provider)?;
    let digest = Sha256::digest(std::fs::read(&executable).unwrap()).into();
    let configuration = Json::parse(configuration.as_bytes()).unwrap();
    let (tenant, network, environment) = ("a".into(), Network::Allow, Vec::new());
    Some(ProviderSpec { tenant, network, executable, digest, environment, configuration })
}

#[tokio::test]
async fn one_process_serves_one_configuration() {
    let Some(one) = spec("frame", r#"{"folder":"/nowhere"}"#) else { return };
    let Some(two) = spec("frame", "{}") else { return };
    let pool = Pool::new(options());
    let leases: Vec<_> = (0..8).map(|_| pool.get(&one)).collect();
    let mut ids = BTreeSet::new();
    for lease in leases {
        ids.insert(lease.await.unwrap().process().id());
    }
    let (a, b) = tokio::join!(pool.get(&one), pool.get(&two));
    ids.insert(a.unwrap().process().id());
    assert_eq!(ids.len(), 1);
    assert!(!ids.contains(&b.unwrap().process().id()));
    assert_eq!(pool.processes(), 2);
}

#[tokio::test]
async fn tenants_and_networks_have_processes_of_their_own() {
    let Some(of_a) = spec("random", "{}") else { return };
    let pool = Pool::new(options());
    let of_b = ProviderSpec { tenant: "b".into(), ..of_a.clone() };
    let offline = ProviderSpec { network: Network::Deny, ..of_a.clone() };
    let mut ids = BTreeSet::new();
    for spec in [&of_a, &of_b, &offline, &of_a] {
        ids.insert(pool.get(spec).await.unwrap().process().id());
    }
    assert_eq!((ids.len(), pool.processes()), (3, 3));
}

#[tokio::test]
async fn a_tenant_leases_three_quarters() {
    let specs: Vec<_> = (0..4).filter_map(|number| spec("frame", &format!(r#"{{"folder":"/{number}"}}"#))).collect();
    let [first, second, third, fourth] = &specs[..] else { return };
    let pool = Pool::new(PoolOptions { processes: 4, ..options() });
    let _leases = (pool.get(first).await.unwrap(), pool.get(second).await.unwrap(), pool.get(third).await.unwrap());
    assert!(matches!(pool.get(fourth).await, Err(PoolError::Full(4))));
    pool.get(&ProviderSpec { tenant: "b".into(), ..fourth.clone() }).await.unwrap();
}

#[tokio::test]
async fn a_pool_that_is_shut_down_ends_all_processes() {
    let Some(spec) = spec("random", "{}") else { return };
    let Some(other) = self::spec("time", "{}") else { return };
    let pool = Pool::new(options());
    let leased = pool.get(&spec).await.unwrap();
    let ids = [leased.process().id(), pool.get(&other).await.unwrap().process().id()];
    pool.shut_down().await;
    for id in ids {
        assert!(!std::fs::exists(format!("/proc/{}", id.unwrap())).unwrap());
    }
    assert!(matches!(pool.get(&spec).await, Err(PoolError::Closed)));
}

#[tokio::test]
async fn a_provider_that_hangs_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("provider");
    std::fs::write(&executable, "#!/bin/sh\necho starting >&2; exec sleep 60\n").unwrap();
    std::fs::set_permissions(&executable, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let digest = Sha256::digest(std::fs::read(&executable).unwrap()).into();
    let (tenant, network, environment) = ("a".into(), Network::Deny, Vec::new());
    let configuration = Json::parse(b"{}").unwrap();
    let spec = ProviderSpec { tenant, network, executable, digest, environment, configuration };
    let pool = Pool::new(PoolOptions { start_limit: Duration::from_secs(5), ..options() });
    let error = pool.get(&spec).await.unwrap_err().to_string();
    assert!(error.contains("accepted no calls within") && error.ends_with("starting"), "{error}");
}

#[tokio::test]
async fn a_crash_fails_the_calls_in_flight_only() {
    let Some(spec) = spec("frame", "{}") else { return };
    let pool = Pool::new(options());
    let lease = pool.get(&spec).await.unwrap();
    let failing = config(&lease, "frame_thing", r#"{"name":"n","fail":"create:panic"}"#);
    let planned = plan(&lease, "frame_thing", None, &failing, None).await.unwrap();
    apply(&lease, &planned, Step::Create, &failing).await.unwrap_err();
    let next = pool.get(&spec).await.unwrap();
    assert_ne!(next.process().id(), lease.process().id());
    support::succeeded(&next.validate_resource("frame_thing", &failing).await.unwrap());
    assert_eq!(pool.processes(), 1);
}

#[tokio::test]
async fn a_worn_process_is_replaced_and_ends_with_its_last_lease() {
    let Some(spec) = spec("frame", "{}") else { return };
    let pool = Pool::new(PoolOptions { calls: 10, ..options() });
    let first = pool.get(&spec).await.unwrap();
    let thing = config(&first, "frame_thing", r#"{"name":"n"}"#);
    while first.calls() < 10 {
        first.validate_resource("frame_thing", &thing).await.unwrap();
    }
    let second = pool.get(&spec).await.unwrap();
    assert_ne!(second.process().id(), first.process().id());
    support::succeeded(&first.validate_resource("frame_thing", &thing).await.unwrap());
    let process = format!("/proc/{}", first.process().id().unwrap());
    assert!(std::fs::exists(&process).unwrap());
    drop(first);
    vanished(&process).await;
}

#[tokio::test]
async fn idle_processes_end() {
    let Some(spec) = spec("random", "{}") else { return };
    let pool = Pool::new(PoolOptions { idle: Duration::from_millis(100), ..options() });
    let lease = pool.get(&spec).await.unwrap();
    let process = format!("/proc/{}", lease.process().id().unwrap());
    let mut interval = tokio::time::interval(Duration::from_millis(200));
    interval.tick().await;
    interval.tick().await;
    // A lease is no idleness.
    assert_eq!(pool.processes(), 1);
    drop(lease);
    vanished(&process).await;
    assert_eq!(pool.processes(), 0);
}

#[tokio::test]
async fn processes_end_with_the_pool() {
    let Some(spec) = spec("random", "{}") else { return };
    let pool = Pool::new(options());
    let process = format!("/proc/{}", pool.get(&spec).await.unwrap().process().id().unwrap());
    assert!(std::fs::exists(&process).unwrap());
    drop(pool);
    vanished(&process).await;
}

#[tokio::test]
async fn the_longest_idle_process_makes_way() {
    let specs: Vec<_> =
        ["/a", "/b", "/c"].iter().filter_map(|it| spec("frame", &format!(r#"{{"folder":"{it}"}}"#))).collect();
    let [a, b, c] = &specs[..] else { return };
    let pool = Pool::new(PoolOptions { processes: 2, ..options() });
    let busy = pool.get(a).await.unwrap();
    let idle = pool.get(b).await.unwrap().process().id();
    let third = pool.get(c).await.unwrap();
    assert_eq!(pool.processes(), 2);
    assert!(matches!(pool.get(b).await, Err(PoolError::Full(2))));
    assert_eq!(pool.get(a).await.unwrap().process().id(), busy.process().id());
    drop(third);
    assert_ne!(pool.get(b).await.unwrap().process().id(), idle);
}

#[tokio::test]
async fn wrong_executables_and_configurations_are_errors() {
    let Some(good) = spec("frame", "{}") else { return };
    let pool = Pool::new(options());
    let changed = ProviderSpec { digest: [0; 32], ..good.clone() };
    assert!(matches!(pool.get(&changed).await, Err(PoolError::Changed(_))));
    let other = ProviderSpec { configuration: Json::parse(br#"{"other":1}"#).unwrap(), ..good.clone() };
    let error = pool.get(&other).await.unwrap_err().to_string();
    assert_eq!(error, "the configuration of the provider is wrong: value: unknown argument \"other\"");
    // A failed start is no process, and the next lease tries again.
    assert!(matches!(pool.get(&other).await, Err(PoolError::Configuration(_))));
    pool.get(&good).await.unwrap();
}

/// Waits until a process has ended and was waited for.
async fn vanished(process: &str) {
    let mut interval = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..6000 {
        if !std::fs::exists(process).unwrap() {
            return;
        }
        interval.tick().await;
    }
    panic!("{process} remains");
}
