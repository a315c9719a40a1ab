//! Either process is killed in the middle of a rollout, at ten random moments. After a restart every run ends well by
//! itself, and nothing happened twice.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server as _, Standalone, eventually, run};

const OBJECTS: usize = 200;
const ROUNDS: usize = 10;
/// How long after the restart a run may take.
const RECOVERY: Duration = Duration::from_secs(60);

/// Some part of `whole`, another one on every call.
fn part_of(whole: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1000;
    whole / 1000 * u32::try_from(random).expect("less than 1000")
}

/// Waits until the run does something, so that the moment of the crash is one of its work.
fn begun(organization: &Organization, name: &str) {
    eventually(&format!("run {name} begins"), Duration::from_secs(30), || {
        let phase = organization.run(name)["status"]["phase"].as_str().unwrap_or("Pending").to_owned();
        (phase != "Pending").then_some(())
    });
}

fn check_record(organization: &Organization, stack: &str, run: &Value) {
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    let releases = organization.of_stack("releases", stack);
    let revisions: Vec<&Value> = releases.iter().map(|release| &release["spec"]["revision"]).collect();
    assert_eq!(revisions, [1], "stack {stack} has other releases than its first");
    assert_eq!(organization.of_stack("resources", stack).len(), OBJECTS + 1, "records of stack {stack}");
}

#[test]
fn killed_rollouts_to_a_cluster_end_well_and_create_nothing_twice() {
    let cluster = Cluster::start();
    let organization = Organization::create(&cluster);
    let namespace = |round: usize| format!("{}-{round}", organization.name);

    // How long it takes undisturbed says when to disturb.
    organization.stack("round-0", &config_maps(&namespace(0), OBJECTS, "a"));
    let started = Instant::now();
    let run = organization.succeed("round-0", "Apply", "");
    let usual = started.elapsed();
    check_record(&organization, "round-0", &run);

    for round in 1..=ROUNDS {
        let stack = format!("round-{round}");
        organization.stack(&stack, &config_maps(&namespace(round), OBJECTS, "a"));
        let name = organization.start(&stack, "Apply", "");
        begun(&organization, &name);
        let (process, delay) = (["stoa", "runner"][round % 2], part_of(usual));
        thread::sleep(delay);
        cluster.kill(process);
        cluster.restart();
        eprintln!("round {round}: killed {process} after {delay:.1?}");
        check_record(&organization, &stack, &organization.ended(&name, RECOVERY));
    }

    let mut created: BTreeMap<String, usize> = BTreeMap::new();
    for event in cluster.audit() {
        // A dry run answers 201 too, and creates nothing.
        let dry = event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
        if event["responseStatus"]["code"] == 201 && event["objectRef"]["resource"] == "configmaps" && !dry {
            let reference = &event["objectRef"];
            let name = format!("{}/{}", reference["namespace"], reference["name"]);
            *created.entry(name).or_default() += 1;
        }
    }
    created.retain(|name, _| name.contains(&organization.name) && !name.contains("kube-root-ca.crt"));
    let twice: Vec<_> = created.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "created more than once: {twice:?}");
    assert_eq!(created.len(), (ROUNDS + 1) * OBJECTS, "objects created");
}

#[test]
fn killed_rollouts_to_git_end_well_in_one_commit_each() {
    let mut server = Standalone::start();
    let organization = Organization::create(&server);
    organization.stack("round-0", &config_maps("round-0", OBJECTS, "a"));
    let started = Instant::now();
    let run_0 = organization.succeed("round-0", "Apply", "");
    let usual = started.elapsed();
    check_record(&organization, "round-0", &run_0);

    for round in 1..=ROUNDS {
        let stack = format!("round-{round}");
        organization.stack(&stack, &config_maps(&stack, OBJECTS, "a"));
        let name = organization.start(&stack, "Apply", "");
        begun(&organization, &name);
        let delay = part_of(usual);
        thread::sleep(delay);
        server.kill();
        server.restart();
        eprintln!("round {round}: killed after {delay:.1?}");
        check_record(&organization, &stack, &organization.ended(&name, RECOVERY));
    }

    let log = run(Command::new("git").arg("--git-dir").arg(&organization.deploy).args(["log", "--format=%H", "main"]));
    assert_eq!(log.lines().count(), ROUNDS + 1, "commits in the deployment repository");
    let files = run(Command::new("git").arg("--git-dir").arg(&organization.deploy).args([
        "ls-tree",
        "-r",
        "--name-only",
        "main",
    ]));
    assert!(files.lines().count() >= (ROUNDS + 1) * OBJECTS, "files in the deployment repository:\n{files}");
    // The client is still the same one: the restarts kept address and identities.
    server.kubectl().run(&["get", "stacks", "--namespace", &organization.name]);
}
