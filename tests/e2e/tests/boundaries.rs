//! Either process ends, as by a crash, at every named boundary of an apply (`stoa_failpoint`). Afterwards the run ends
//! well by itself, what is recorded is what is there, nothing happened twice, and nothing is left to do.
//!
//! Of what runs do to objects that are there, [`Change`], each round ([`stoa_e2e::repeat`]) tries one boundary, so that as
//! many rounds as there are boundaries try them all. Of other runs, each round tries a third of the boundaries, and all with
//! `STOA_TEST_ALL`.
//!
//! Elsewhere: `proposals` has runs whose changes people merge, `takeover` replicas that do not come back.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::thread;

use serde_json::Value;
use stoa_e2e::crashes::{Armed, PATIENCE, crash_in};
use stoa_e2e::fixture::{ConfigMap, Objects, Organization, config_maps, config_maps_in, spec_of};
use stoa_e2e::repeat::{Random, leave_part, repeat, rounds, seed};
use stoa_e2e::{Cluster, Server as _, Standalone, git};

#[path = "boundaries/proposals.rs"]
mod proposals;
#[path = "boundaries/takeover.rs"]
mod takeover;

const OBJECTS: usize = 3;
/// Rolls a stack out, with a crash at a boundary, and checks what came of it; returns the run's name.
fn crash_at(server: &mut dyn Armed, organization: &Organization, point: &str) -> String {
    let spec = config_maps(&format!("{}-{point}", organization.name), OBJECTS, "a");
    let name = crash_in(server, organization, point, point, &|| organization.try_start(point, &spec), &|_| ());
    is_rolled_out(organization, point, &organization.ended(&name, PATIENCE));
    name
}

/// Checks what came of the first run of a stack that is named like the boundary.
fn is_rolled_out(organization: &Organization, point: &str, ended: &Value) {
    assert_eq!(ended["status"]["phase"], "Succeeded", "after a crash at {point}: {ended:#}");
    assert_eq!(organization.revisions(point), [1], "releases after a crash at {point}");
    assert_eq!(organization.recorded(point), (OBJECTS + 1, 0), "records after a crash at {point}");
    organization.nothing_is_left(point, "Preview");
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
    let start = || organization.try_to_start(&stack, "Import", "");
    let run = crash_in(cluster, organization, &stack, point, &start, &|_| ());
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!(ended["status"]["phase"], "Succeeded", "after a crash at {point}: {ended:#}");
    assert_eq!(ended["status"]["release"], 1, "after a crash at {point}: {ended:#}");
    assert_eq!(organization.revisions(&stack), [1]);
    assert_eq!(organization.recorded(&stack), (OBJECTS + 1, 0), "records after a crash at {point}");
    assert_eq!(versions(), before, "after a crash at {point}");
}

/// What a run does to objects that are there.
#[derive(Clone, Copy, Debug)]
enum Change {
    Update,
    Replace,
    Delete,
    Destroy,
    Rollback,
}

const CHANGES: [Change; 5] = [Change::Update, Change::Replace, Change::Delete, Change::Destroy, Change::Rollback];

impl Change {
    fn operation(self) -> (&'static str, &'static str) {
        match self {
            Self::Update | Self::Replace | Self::Delete => ("Apply", ""),
            Self::Destroy => ("Destroy", ""),
            Self::Rollback => ("Rollback", "release: 1"),
        }
    }

    /// A Spec of so many config maps with this value; they are made anew for another one where that is the change.
    fn spec(self, namespace: &str, count: usize, value: &str) -> String {
        let is_immutable = matches!(self, Self::Replace);
        spec_of(namespace, (0..count).map(|number| ConfigMap { number, value, is_immutable }))
    }

    /// Whether a run that does this comes to a boundary.
    fn comes_to(self, point: &str) -> bool {
        // What is gone has no health.
        !(matches!(self, Self::Delete | Self::Destroy) && stoa_failpoint::OF_HEALTH.contains(&point))
    }

    /// Deploys what the run is to change; how many releases there are then.
    fn prepare(self, organization: &Organization, stack: &str, namespace: &str) -> u64 {
        organization.stack(stack, &self.spec(namespace, OBJECTS, "a"));
        organization.succeed(stack, "Apply", "");
        if let Self::Rollback = self {
            organization.stack(stack, &self.spec(namespace, OBJECTS, "b"));
            organization.succeed(stack, "Apply", "");
        }
        let wanted = match self {
            Self::Update | Self::Replace => self.spec(namespace, OBJECTS, "b"),
            Self::Delete => self.spec(namespace, OBJECTS - 1, "a"),
            Self::Destroy => return 1,
            Self::Rollback => return 2,
        };
        organization.stack(stack, &wanted);
        1
    }

    /// Whether the run has made this of what was there.
    fn has_made(self, before: &Objects, after: &Objects) -> bool {
        let have = |objects: &Objects, value: &str| objects.values().all(|(_, there)| there == value);
        let same = |name: &String| before[name].0 == after[name].0;
        match self {
            Self::Destroy => after.is_empty(),
            Self::Delete => {
                after.len() == OBJECTS - 1 && after.iter().all(|(name, there)| before.get(name) == Some(there))
            }
            Self::Update => after.keys().eq(before.keys()) && have(after, "b") && after.keys().all(same),
            Self::Rollback => after.keys().eq(before.keys()) && have(after, "a") && after.keys().all(same),
            Self::Replace => after.keys().eq(before.keys()) && have(after, "b") && !after.keys().any(same),
        }
    }

    /// How many objects are left, the namespace included.
    fn left(self) -> usize {
        match self {
            Self::Update | Self::Replace | Self::Rollback => OBJECTS + 1,
            Self::Delete => OBJECTS,
            Self::Destroy => 0,
        }
    }
}

/// What a run is to change, and what there is of it.
struct Prepared {
    change: Change,
    point: &'static str,
    stack: String,
    namespace: String,
    releases: u64,
    before: Objects,
}

impl Prepared {
    fn new(cluster: &Cluster, organization: &Organization, change: Change, point: &'static str) -> Self {
        let stack = format!("{change:?}-{point}").to_lowercase();
        let namespace = format!("{}-{stack}", organization.name);
        let releases = change.prepare(organization, &stack, &namespace);
        let before = config_maps_in(&cluster.kubectl(), &namespace);
        assert_eq!(before.len(), OBJECTS, "{stack}: {before:?}");
        Self { change, point, stack, namespace, releases, before }
    }

    /// Makes the change, with a crash at the boundary, and checks what came of it.
    fn crash(&self, cluster: &mut Cluster, organization: &Organization) {
        let Self { change, point, stack, namespace, .. } = self;
        let (operation, fields) = change.operation();
        let start = || organization.try_to_start(stack, operation, fields);
        let name = crash_in(cluster, organization, stack, point, &start, &|_| ());
        let ended = organization.ended(&name, PATIENCE);
        assert_eq!(ended["status"]["phase"], "Succeeded", "{stack}: {ended:#}");
        let after = config_maps_in(&cluster.kubectl(), namespace);
        assert!(change.has_made(&self.before, &after), "{stack}: of {:?} it made {after:?}", self.before);
        assert_eq!(organization.revisions(stack), (1..=self.releases + 1).collect::<Vec<_>>(), "{stack}");
        assert_eq!(ended["status"]["release"], self.releases + 1, "{stack}: {ended:#}");
        assert_eq!(organization.recorded(stack), (OBJECTS + 1, OBJECTS + 1 - change.left()), "{stack}");
        if change.left() > 0 {
            organization.nothing_is_left(stack, "Refresh");
        }
    }

    /// How often an object may have been created: what is replaced, twice, however its run is interrupted.
    fn creations(&self) -> usize {
        if let Change::Replace = self.change { 2 } else { 1 }
    }
}

/// The first one by its name, since it waits most of the time, which others use.
#[test]
fn second_replica_takes_over_at_every_boundary() {
    takeover::roll_out();
}

#[test]
fn boundary_crash_applies_cluster_change_once() {
    let mut cluster = Cluster::start();
    let organization = Organization::create(&cluster);
    let seed = seed();
    eprintln!("STOA_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut cases: Vec<(Change, &'static str)> = Vec::new();
    for change in CHANGES {
        let mut points = stoa_failpoint::of_clusters();
        points.retain(|point| change.comes_to(point));
        random.shuffle(&mut points);
        cases.extend(points.into_iter().take(repeat()).map(|point| (change, point)));
    }
    eprintln!("{cases:?}");
    let all: Vec<Prepared> = thread::scope(|scope| {
        let (cluster, organization) = (&cluster, &organization);
        let share = cases.len().div_ceil(CHANGES.len());
        let prepare = |(change, point): &(Change, &'static str)| Prepared::new(cluster, organization, *change, point);
        let begun: Vec<_> = cases
            .chunks(share)
            .map(|cases| scope.spawn(move || cases.iter().map(prepare).collect::<Vec<_>>()))
            .collect();
        begun.into_iter().flat_map(|prepared| prepared.join().unwrap()).collect()
    });
    for prepared in &all {
        prepared.crash(&mut cluster, &organization);
    }
    let audit = cluster.audit(&organization.name);
    for prepared in &all {
        let created = created_in(&audit, &prepared.namespace);
        let often: Vec<_> = created.iter().filter(|(_, count)| **count > prepared.creations()).collect();
        assert!(often.is_empty() && created.len() <= OBJECTS, "{} created {created:?}", prepared.stack);
    }
}

/// How often each config map of a namespace was created, by what kube-apiserver answered.
fn created_in<'a>(audit: &'a [Value], namespace: &str) -> BTreeMap<&'a str, usize> {
    let mut created: BTreeMap<&str, usize> = BTreeMap::new();
    for event in audit {
        let object = &event["objectRef"];
        let name = object["name"].as_str().unwrap_or_default();
        // A dry run answers 201 too, and creates nothing.
        let is_dry = event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
        if object["resource"] == "configmaps"
            && object["namespace"] == *namespace
            && name != "kube-root-ca.crt"
            && event["responseStatus"]["code"] == 201
            && !is_dry
        {
            *created.entry(name).or_default() += 1;
        }
    }
    created
}

#[test]
fn git_rollout_crash_leaves_one_commit() {
    rounds(roll_out_to_git);
}

fn roll_out_to_git(random: &mut Random) {
    let mut points: Vec<&str> = [stoa_failpoint::SERVER, stoa_failpoint::RUNNER].concat();
    points.retain(|point| !stoa_failpoint::OF_PROPOSALS.contains(point));
    leave_part(random, &mut points);
    eprintln!("{points:?}");
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
                let log = git(&organization.deploy, &["log", "--format=%H", "main"]);
                let mut commits: Vec<String> = log.lines().map(str::to_owned).collect();
                commits.sort();
                of_runs.sort();
                assert_eq!(commits, of_runs, "after crashes at {points:?}");
            });
        }
    });
}

#[test]
fn cluster_call_crash_creates_nothing_twice() {
    let mut cluster = Cluster::start();
    rounds(|random| roll_out_to_a_cluster(&mut cluster, random));
}

fn roll_out_to_a_cluster(cluster: &mut Cluster, random: &mut Random) {
    let organization = Organization::create(cluster);
    let mut points =
        vec!["intent-recorded", "call-allowed", "call-made", "result-heard", "result-recorded", "result-kept"];
    leave_part(random, &mut points);
    eprintln!("{points:?}");
    for point in &points {
        crash_at(cluster, &organization, point);
    }
    crash_import_at(cluster, &organization, "result-recorded");
    let audit = cluster.audit(&organization.name);
    for point in points {
        let created = created_in(&audit, &format!("{}-{point}", organization.name));
        let is_once = created.values().all(|count| *count == 1);
        assert!(is_once && created.len() <= OBJECTS, "created after a crash at {point}: {created:?}");
    }
}
