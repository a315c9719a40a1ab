//! Faults of what is around the processes, in the middle of applies: a bucket that answers with errors, too late and not at
//! all, a disk that is full, a clock that is set. Every run ends well by itself, and what it made, released and recorded
//! is one.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::remote::committed;
use stoa_e2e::repeat::{Random, repeat, rounds};
use stoa_e2e::{Clock, Cluster, Disk, Server as _, Standalone, eventually};
use stoa_test_s3::{Fault, Faults, OssServer, S3Server};

use crate::{PATIENCE, backends::in_bucket, oss::in_oss};

const OBJECTS: usize = 5;
/// So many that something can happen while they are applied.
const MANY: usize = 200;
/// How many of them are there before it does.
const BEFORE: u64 = 10;

/// What becomes of a request; most come through. The service has this status and code where something is already.
fn fault(random: &mut Random, is_put: bool, (status, code): (u16, &'static str)) -> Option<Fault> {
    let fault = match random.below(16) {
        0 => Fault::Answer(500, "InternalError"),
        1 => Fault::AnswerAfter(500, "InternalError"),
        2 => Fault::Answer(503, "SlowDown"),
        3 => Fault::Reset,
        4 => Fault::Lost,
        5 => Fault::Cut,
        6 => Fault::Slow(random.delay(Duration::from_secs(3))),
        // As if something were there, which is so or is not.
        7 if is_put => Fault::Answer(status, code),
        8 if is_put => Fault::AnswerAfter(status, code),
        _ => return None,
    };
    Some(fault)
}

#[test]
fn unreliable_bucket_loses_no_applied_changes() {
    rounds(|random| {
        let bucket = S3Server::start("documents");
        let faults = Faults::before(bucket.port());
        let organization = Organization::create(&Cluster::shared());
        let backend = in_bucket(&organization, &bucket, &faults.url());
        lose_nothing(&organization, &backend, &faults, random.below(u64::MAX), (412, "PreconditionFailed"));
    });
}

#[test]
fn unreliable_oss_loses_no_applied_changes() {
    rounds(|random| {
        let server = OssServer::start("documents");
        let faults = Faults::before(server.port());
        let organization = Organization::create(&Cluster::shared());
        let backend = in_oss(&organization, &server, &OssServer::url_at(faults.port()));
        lose_nothing(&organization, &backend, &faults, random.below(u64::MAX), (409, "FileAlreadyExists"));
    });
}

/// Applies twice and goes back while requests for documents fail, in ways that follow from the seed.
fn lose_nothing(organization: &Organization, backend: &str, faults: &Faults, seed: u64, is_there: (u16, &'static str)) {
    let kubectl = Cluster::shared().kubectl();
    let name = organization.name.as_str();
    let namespace = format!("{name}-web");
    organization.stack("web", &config_maps(&namespace, OBJECTS, "first"));
    organization.keep_in(backend);

    let mut draw = Random::new(seed);
    faults.rule(move |request| fault(&mut draw, request.method == "PUT", is_there));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &config_maps(&namespace, OBJECTS, "second"));
    organization.succeed("web", "Apply", "");
    organization.succeed("web", "Rollback", "release: 1");
    eprintln!("something became of {} requests of {}", faults.faults(), faults.requests());
    assert!(faults.faults() > 0);
    faults.heal();

    let list = kubectl.get(&["configmaps", "--namespace", &namespace]);
    let values = list["items"].as_array().unwrap().iter().filter_map(|item| item["data"]["value"].as_str());
    assert_eq!(values.collect::<Vec<_>>(), ["first"; OBJECTS]);
    for (number, value) in [(1, "first"), (2, "second"), (3, "first")] {
        let release = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/web.{name}.{number}");
        let read = |part: &str| kubectl.raw(&format!("{release}/{part}"));
        assert!(read("state").contains(value) && read("spec").contains(value), "release {number}");
    }
    let mut revisions: Vec<Value> =
        organization.of_stack("releases", "web").iter().map(|it| it["spec"]["revision"].clone()).collect();
    revisions.sort_by_key(Value::as_u64);
    assert_eq!(revisions, [1, 2, 3]);
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(refresh["status"]["plan"]["summary"]["unchanged"], OBJECTS + 1, "{refresh:#}");
    organization.succeed("web", "Destroy", "");
}

/// A workspace of a server on its own that leads to the test bed's cluster.
fn lead_to(cluster: &Cluster, organization: &Organization) {
    organization.lead_to("main", &fs::read_to_string(cluster.kubectl().kubeconfig).unwrap(), "");
}

/// Begins to apply many objects and returns the run when some are there.
fn begin(server: &Standalone, organization: &Organization, value: &str) -> String {
    organization.stack("web", &config_maps(&format!("{}-web", organization.name), MANY, value));
    let run = organization.start("web", "Apply", "");
    let done = server.kubectl().watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
        run["status"]["progress"]["done"].as_u64().filter(|done| *done > BEFORE)
    });
    eprintln!("{done} of {MANY} objects are there");
    run
}

/// Waits for the end of a run, after which what it made, released and recorded is one.
fn check(cluster: &Cluster, organization: &Organization, run: &str, value: &str, release: u64) {
    let ended = organization.ended(run, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Succeeded", "{ended:#}");
    assert_eq!(ended["status"]["release"], release, "{ended:#}");
    let list = cluster.kubectl().get(&["configmaps", "--namespace", &format!("{}-web", organization.name)]);
    let values = list["items"].as_array().unwrap().iter().filter_map(|item| item["data"]["value"].as_str());
    assert_eq!(values.filter(|there| *there == value).count(), MANY);
    let mut revisions: Vec<u64> =
        organization.of_stack("releases", "web").iter().map(|it| it["spec"]["revision"].as_u64().unwrap()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=release).collect::<Vec<_>>());
    assert_eq!(organization.of_stack("resources", "web").len(), MANY + 1);
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(refresh["status"]["plan"]["summary"]["unchanged"], MANY + 1, "{refresh:#}");
}

/// Waits for the end of a run, which says so where its Backend had no room for a document; then another one goes on.
fn again_where_full(organization: &Organization, run: String) -> String {
    let ended = organization.ended(&run, PATIENCE);
    let failed = condition(&ended, "Failed");
    if failed.is_null() {
        return run;
    }
    assert_eq!(failed["reason"], "BackendFull", "{ended:#}");
    eprintln!("{}", failed["message"]);
    organization.start("web", "Apply", "")
}

#[test]
fn apply_continues_once_disk_space_returns() {
    rounds(|random| {
        let Some(disk) = Disk::mount(64) else { return };
        let cluster = Cluster::shared();
        let mut server = Standalone::start_at(disk.path().join("data"));
        let organization = Organization::create(&server);
        lead_to(&cluster, &organization);
        let run = begin(&server, &organization, "first");
        disk.fill();
        // A page that was begun has room for a small write.
        let large = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{generateName: large-, namespace: {}}}, data: {{value: {}}}}}",
            organization.name,
            "x".repeat(8 << 10)
        );
        let refused = eventually("a write is refused", PATIENCE, || server.kubectl().try_create(&large).err());
        let full = Duration::from_secs(2) + random.delay(Duration::from_secs(if repeat() > 1 { 30 } else { 3 }));
        eprintln!("full for {full:?}: {refused}");
        thread::sleep(full);
        disk.clear();
        let run = again_where_full(&organization, run);
        check(&cluster, &organization, &run, "first", 1);

        // The disk gets full while the source is fetched.
        organization.stack("web", &config_maps(&format!("{}-web", organization.name), MANY, "second"));
        let run = organization.start("web", "Apply", "");
        thread::sleep(random.delay(Duration::from_secs(1)));
        disk.fill();
        thread::sleep(full);
        disk.clear();
        let run = again_where_full(&organization, run);
        check(&cluster, &organization, &run, "second", 2);

        // All of it is in Git, once, and is there after a restart.
        let patch = ["--type=merge", "--output=json", "--patch={\"spec\":{\"description\":\"After\"}}"];
        let patched = server.kubectl().run(&[&["patch", "organization", &organization.name], &patch[..]].concat());
        let patched: Value = serde_json::from_str(&patched).unwrap();
        let version = patched["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let repository = server.data().join("control.git");
        eventually("the last write is in Git", PATIENCE, || {
            committed(&repository).contains_key(&version).then_some(())
        });
        let doubled: Vec<_> = committed(&repository).into_iter().filter(|(_, count)| *count > 1).collect();
        assert!(doubled.is_empty(), "committed more than once: {doubled:?}");
        server.kill();
        server.restart();
        assert_eq!(organization.run(&run)["status"]["release"], 2);
        organization.succeed("web", "Destroy", "");
    });
}

#[test]
fn apply_survives_any_clock_change() {
    rounds(|random| {
        let (cluster, clock) = (Cluster::shared(), Clock::new());
        let mut server = Standalone::start();
        server.kill();
        server.restart_with(&clock.variables());
        let organization = Organization::create(&server);
        lead_to(&cluster, &organization);
        let run = begin(&server, &organization, "first");
        // Forward and back again. Where certificates are not valid yet, or any more, nothing can go on.
        let hours = i64::try_from(1 + random.below(48)).unwrap();
        eprintln!("set forward by {hours} h");
        clock.set(3600 * hours);
        check(&cluster, &organization, &run, "first", 1);
        let run = begin(&server, &organization, "second");
        clock.set(0);
        check(&cluster, &organization, &run, "second", 2);
        for complaint in ["is lost", "was not renewed", "was lost"] {
            let log = server.log();
            let line = log.lines().find(|line| line.contains(complaint));
            assert_eq!(line, None, "time is measured, whatever a clock says");
        }
        organization.succeed("web", "Destroy", "");
    });
}

/// A Stack that applies what is pushed and is looked at for drift by itself.
fn follow(server: &Standalone, organization: &Organization, stack: &str, value: &str) {
    let name = &organization.name;
    organization.source.commit(&format!("apps/{stack}/spec.yaml"), &config_maps(&format!("{name}-{stack}"), 1, value));
    server.kubectl().apply(&format!(
        "apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: {stack}, namespace: {name}}}
spec: {{project: {name}, workspaces: [{name}], trigger: Apply, driftInterval: 10s}}
"
    ));
}

/// A Spec of what never becomes healthy, since there are no nodes.
fn unhealthy(namespace: &str) -> String {
    let deployment = "  attributes:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web, namespace: NAMESPACE}
    spec:
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec: {containers: [{name: web, image: example.com/web:1}]}
";
    let id = format!("- id: apps/v1:Deployment:{namespace}:web\n  type: Kubernetes\n");
    [config_maps(namespace, 0, ""), id, deployment.replace("NAMESPACE", namespace)].concat()
}

#[test]
fn clock_reset_delays_no_run_trigger_or_restart() {
    rounds(|random| {
        let (cluster, clock) = (Cluster::shared(), Clock::new());
        let mut server = Standalone::start();
        server.kill();
        server.restart_with(&clock.variables());
        // All that is recorded now is of a later time; its certificates, which it makes at each start, are not.
        let hours = i64::try_from(24 + random.below(24)).unwrap();
        clock.set(3600 * hours);
        let organization = Organization::create(&server);
        lead_to(&cluster, &organization);
        let small = format!("{}-small", organization.name);
        let live = |value: &str| {
            let there = ["get", "configmap/c0", "--namespace", &small, "--output=jsonpath={.data.value}"];
            let output = cluster.kubectl().command(&there).output().unwrap();
            (output.stdout == value.as_bytes()).then_some(())
        };
        follow(&server, &organization, "small", "first");
        eventually("what is pushed is applied", PATIENCE, || live("first"));
        organization.stack("never", &unhealthy(&format!("{}-never", organization.name)));
        let never = organization.start("never", "Apply", "timeout: 8s");
        server.kubectl().watch(&organization.name, &format!("run/{never}"), PATIENCE, |run| {
            run["status"]["startTime"].is_string().then_some(())
        });
        let run = begin(&server, &organization, "first");
        let queued = organization.start("web", "Apply", "");

        eprintln!("set back by {hours} h");
        clock.set(0);
        let late = organization.ended(&never, PATIENCE);
        assert_eq!(condition(&late, "Failed")["reason"], "TimedOut", "{late:#}");
        check(&cluster, &organization, &run, "first", 1);
        let queued = organization.ended(&queued, PATIENCE);
        assert_eq!(queued["status"]["phase"], "Succeeded", "{queued:#}");
        cluster.kubectl().run(&["delete", "configmap/c0", "--namespace", &small]);
        eventually("the drift is found", PATIENCE, || {
            let stack = server.kubectl().get(&["stack", "small", "--namespace", &organization.name]);
            (condition(&stack, "Drifted")["status"] == "True").then_some(())
        });
        follow(&server, &organization, "small", "second");
        eventually("what is pushed is applied", PATIENCE, || live("second"));

        // Leases that were taken at a later time hold up nobody after a crash.
        clock.set(3600 * hours);
        let run = begin(&server, &organization, "second");
        server.kill();
        clock.set(0);
        server.restart_with(&clock.variables());
        check(&cluster, &organization, &run, "second", 2);
        for complaint in ["is lost", "was not renewed"] {
            let log = server.log();
            let line = log.lines().find(|line| line.contains(complaint));
            assert_eq!(line, None, "time is measured, whatever a clock says");
        }
    });
}
