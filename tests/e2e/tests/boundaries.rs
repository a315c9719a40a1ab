//! Either process ends, as by a crash, at every named boundary of an apply (`stoa_failpoint`). Afterwards the run ends
//! well by itself, what is recorded is what is there, nothing happened twice, and nothing is left to do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server, Standalone, eventually, run};

const OBJECTS: usize = 3;
/// How long a process may take to get to a boundary, and a run to end after the restart.
const PATIENCE: Duration = Duration::from_secs(90);

/// What can be made to crash at a boundary.
trait Armed: Server {
    /// Starts both processes anew, one of which is to end at a boundary and make this file.
    fn arm(&mut self, point: &str, file: &Path);

    /// Brings back what has ended.
    fn recover(&mut self, point: &str);
}

impl Armed for Standalone {
    fn arm(&mut self, point: &str, file: &Path) {
        self.kill();
        self.restart_with(&[(stoa_failpoint::VARIABLE, &format!("{point}={}", file.display()))]);
    }

    fn recover(&mut self, point: &str) {
        // It starts another runner by itself.
        if stoa_failpoint::SERVER.contains(&point) {
            self.kill();
            self.restart();
        }
    }
}

impl Armed for Cluster {
    fn arm(&mut self, point: &str, file: &Path) {
        self.kill("stoa");
        self.kill("runner");
        self.restart_with(&[(stoa_failpoint::VARIABLE, &format!("{point}={}", file.display()))]);
    }

    fn recover(&mut self, _: &str) {
        self.restart();
    }
}

/// Rolls a stack out, with a crash at a boundary, and checks what came of it; returns the run's name.
fn crash_at(server: &mut dyn Armed, organization: &Organization, point: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reached");
    server.arm(point, &file);
    let spec = config_maps(&format!("{}-{point}", organization.name), OBJECTS, "a");
    // The crash may come before the answer to what began the run.
    let begun = organization.try_start(point, &spec);
    eventually(&format!("{point} is reached"), PATIENCE, || file.exists().then_some(()));
    server.recover(point);
    let name = begun.unwrap_or_else(|| {
        let runs = organization.of_stack("runs", point);
        runs[0]["metadata"]["name"].as_str().unwrap().to_owned()
    });

    let ended = organization.ended(&name, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Succeeded", "after a crash at {point}: {ended:#}");
    let revisions: Vec<Value> =
        organization.of_stack("releases", point).iter().map(|release| release["spec"]["revision"].clone()).collect();
    assert_eq!(revisions, [1], "releases after a crash at {point}");
    assert_eq!(organization.of_stack("resources", point).len(), OBJECTS + 1, "records after a crash at {point}");
    let preview = organization.succeed(point, "Preview", "");
    let summary = preview["status"]["plan"]["summary"].clone();
    let left = ["create", "update", "delete", "replace", "adopt", "forget"].map(|what| summary[what].as_i64());
    assert!(left.iter().all(|count| count.unwrap_or(0) == 0), "left to do after a crash at {point}: {summary}");
    name
}

/// Imports objects that others made, with a crash at a boundary: they are on record once, and none has changed.
fn crash_import_at(cluster: &mut Cluster, organization: &Organization, point: &str) {
    let (stack, namespace) = (format!("import-{point}"), format!("{}-import-{point}", organization.name));
    let kubectl = cluster.kubectl();
    let mut objects = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}\n");
    for number in 0..OBJECTS {
        let metadata = format!("name: c{number}, namespace: {namespace}");
        objects += &format!("---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{{metadata}}}, data: {{value: b}}}}\n");
    }
    kubectl.apply(&objects);
    organization.stack(&stack, &config_maps(&namespace, OBJECTS, "a"));
    let versions = || {
        let path = "jsonpath={.items[*].metadata.resourceVersion}";
        kubectl.run(&["get", "configmaps", "c0", "c1", "c2", "--namespace", &namespace, "--output", path])
    };
    let before = versions();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reached");
    cluster.arm(point, &file);
    let run = organization.start(&stack, "Import", "");
    eventually(&format!("{point} is reached"), PATIENCE, || file.exists().then_some(()));
    cluster.recover(point);
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Succeeded", "after a crash at {point}: {ended:#}");
    assert_eq!(ended["status"]["release"], 1, "after a crash at {point}: {ended:#}");
    assert_eq!(organization.of_stack("releases", &stack).len(), 1);
    assert_eq!(organization.of_stack("resources", &stack).len(), OBJECTS + 1, "records after a crash at {point}");
    assert_eq!(versions(), before, "after a crash at {point}");
}

#[test]
fn a_crash_at_any_boundary_of_a_rollout_to_git_leaves_one_commit() {
    let points: Vec<&str> = [stoa_failpoint::SERVER, stoa_failpoint::RUNNER].concat();
    let share = points.len().div_ceil(4);
    thread::scope(|scope| {
        for points in points.chunks(share) {
            scope.spawn(move || {
                let mut server = Standalone::start();
                let organization = Organization::create(&server);
                let runs: Vec<String> =
                    points.iter().map(|point| crash_at(&mut server, &organization, point)).collect();
                let commit =
                    |run: &String| organization.run(run)["status"]["gitopsCommit"].as_str().unwrap().to_owned();
                let mut of_runs: Vec<String> = runs.iter().map(commit).collect();
                let log = ["log", "--format=%H", "main"];
                let log = run(Command::new("git").arg("--git-dir").arg(&organization.deploy).args(log));
                let mut commits: Vec<String> = log.lines().map(str::to_owned).collect();
                commits.sort();
                of_runs.sort();
                assert_eq!(commits, of_runs, "after crashes at {points:?}");
            });
        }
    });
}

#[test]
fn a_crash_at_a_boundary_of_a_call_to_a_cluster_creates_nothing_twice() {
    let mut cluster = Cluster::start();
    let organization = Organization::create(&cluster);
    let points = ["intent-recorded", "call-allowed", "call-made", "result-heard", "result-recorded", "result-kept"];
    for point in points {
        crash_at(&mut cluster, &organization, point);
    }
    crash_import_at(&mut cluster, &organization, "result-recorded");
    let created = |event: &Value| {
        event["objectRef"]["resource"] == "configmaps"
            && event["responseStatus"]["code"] == 201
            && !event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="))
    };
    let audit = cluster.audit();
    for point in points {
        let namespace = format!("{}-{point}", organization.name);
        let of_point = |event: &&Value| {
            event["objectRef"]["namespace"] == *namespace && event["objectRef"]["name"] != "kube-root-ca.crt"
        };
        let mut names: Vec<&str> = audit
            .iter()
            .filter(of_point)
            .filter(|event| created(event))
            .map(|event| event["objectRef"]["name"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert!(count == names.len() && count <= OBJECTS, "created after a crash at {point}: {names:?}");
    }
}
