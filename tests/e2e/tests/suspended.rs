//! A function-runner is suspended in the middle of its calls, and goes on when another has long taken over.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::process::Command;
use std::thread;
use std::time::Duration;

use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::repeat::{Random, rounds};
use stoa_e2e::{Cluster, Proxy, Server as _, eventually, run};

const OBJECTS: usize = 600;
/// How many of them are there before the runner is suspended, at least and at most, so that it is in the middle of calls
/// for others.
const BEFORE: std::ops::Range<u64> = 20..200;
/// How long anything that has to happen may take on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than a runner takes that goes on with its calls.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// How many calls a runner has under way at once. What it was writing to its sockets when it was suspended goes out when it
/// wakes, before it can look at anything; one that went on would make hundreds in that time.
const UNDER_WAY: usize = 16;

/// The user of the test bed's own runner.
const FIRST: &str = "system:serviceaccount:stoa-system:function-runner";
/// The user of another one.
const SECOND: &str = "admin";

/// How many requests of a user that may change objects of ours kube-apiserver has answered.
fn calls(cluster: &Cluster, user: &str, namespace: &str) -> usize {
    let is_call = |event: &serde_json::Value| {
        event["user"]["username"] == user
            && !["get", "list", "watch"].contains(&event["verb"].as_str().unwrap_or_default())
            && event["objectRef"]["resource"] == "configmaps"
            && event["objectRef"]["namespace"] == namespace
            && !event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="))
    };
    cluster.audit(namespace).iter().filter(|event| is_call(event)).count()
}

#[test]
fn suspended_runner_makes_no_calls_after_takeover() {
    rounds(suspend);
}

fn suspend(random: &mut Random) {
    let proxy = Proxy::start();
    let cluster = Cluster::replicated_with(1, &[format!("--runner=https://localhost:{}", proxy.port())]);
    let first = cluster.env("RUNNER_URL").rsplit(':').next().unwrap().parse().unwrap();
    let process = cluster.env("RUNNER_PID");
    let signal = |signal: &str| run(Command::new("kill").args(["-s", signal, &process]));
    proxy.lead_to(first);
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, OBJECTS, "a"));
    let started = organization.start("web", "Apply", "");
    let before = BEFORE.start + random.below(BEFORE.end - BEFORE.start);
    let done = cluster.kubectl().watch(&organization.name, &format!("run/{started}"), PATIENCE, |run| {
        run["status"]["progress"]["done"].as_u64().filter(|done| *done > before)
    });
    signal("STOP");
    eprintln!("suspended when {done} of {OBJECTS} objects were seen to be there");
    let second = cluster.another_runner();
    proxy.lead_to(second.port());

    eventually("the other runner goes on", PATIENCE, || (calls(&cluster, SECOND, &namespace) > 0).then_some(()));
    let before = calls(&cluster, FIRST, &namespace);
    assert!(before < OBJECTS, "the first runner had made all its calls");
    signal("CONT");
    thread::sleep(AFTERWARDS);
    let ended = organization.ended(&started, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Succeeded", "{ended:#}");
    let after = calls(&cluster, FIRST, &namespace);
    assert!(after <= before + UNDER_WAY, "it was presumed dead, and went on from {before} to {after} calls");
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{started}/log", organization.name);
    let log = cluster.kubectl().raw(&path);
    assert!(log.contains("the connection to another function-runner was lost"), "{log}");

    // It is there, and as good as any other for what comes next.
    proxy.lead_to(first);
    organization.stack("web", &config_maps(&namespace, OBJECTS / 2, "b"));
    let next = organization.succeed("web", "Apply", "");
    assert_eq!(next["status"]["release"], 2, "{next:#}");
    assert!(calls(&cluster, FIRST, &namespace) >= before + OBJECTS, "its calls are seen in the audit log");
}
