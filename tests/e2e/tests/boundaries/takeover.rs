//! Replicas that end at a boundary of a run and do not come back: another one takes the run over and sees it to its end.

use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use stoa_e2e::crashes::PATIENCE;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::repeat::{Random, repeat, seed};
use stoa_e2e::{Cluster, Server as _, eventually};
use stoa_failpoint::{SERVER, VARIABLE};

use super::{OBJECTS, created_in, is_rolled_out};

const REPLICAS: usize = 3;
const SERVED: [&str; 5] = ["wait", "--for=condition=Available", "--timeout=120s", "apiservice", "--all"];

/// Starts all replicas anew, the first of which that gets to a boundary ends there and makes this file.
fn arm(cluster: &Cluster, point: &str, file: &Path) {
    for replica in 0..REPLICAS {
        cluster.kill_replica(replica);
    }
    cluster.restart_with(&[(VARIABLE, &format!("{point}={}", file.display()))]);
}

/// The replicas that nobody finds at their ports.
fn ended(cluster: &Cluster) -> Vec<usize> {
    let urls = cluster.env("STOA_URLS");
    let is_gone = |url: &str| TcpStream::connect(url.trim_start_matches("https://")).is_err();
    urls.split(',').enumerate().filter(|(_, url)| is_gone(url)).map(|(replica, _)| replica).collect()
}

/// Rolls a stack out, with the end of the replica that has the run at a boundary; the run as it was when it had ended.
fn take_over(cluster: &Cluster, organization: &Organization, point: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reached");
    organization.stack(point, &config_maps(&format!("{}-{point}", organization.name), OBJECTS, "a"));
    arm(cluster, point, &file);
    let run = format!(
        "{{apiVersion: delivery.stoa.dev/v1alpha1, kind: Run, metadata: {{name: {point}, namespace: {}}}, \
         spec: {{stack: {point}, operation: Apply}}}}",
        organization.name
    );
    eventually(&format!("{point} is reached"), PATIENCE, || {
        // The crash may come before the answer; and by its name the run is made once, however often it is asked for.
        if !file.exists() {
            let _ = cluster.kubectl().try_create(&run);
        }
        file.exists().then_some(())
    });
    let began = Instant::now();
    let gone = eventually("a replica is gone", PATIENCE, || Some(ended(cluster)).filter(|gone| !gone.is_empty()));
    let other = (0..REPLICAS).find(|replica| !gone.contains(replica)).unwrap();
    let run = cluster.kubectl_of(other).watch(&organization.name, &format!("run/{point}"), PATIENCE, |run| {
        run["status"]["completionTime"].is_string().then(|| run.clone())
    });
    eprintln!("replica {gone:?} ended at {point}, and the run {:.1?} later", began.elapsed());
    assert_eq!((ended(cluster), gone.len()), (gone.clone(), 1), "one ended at {point}, and stayed away");
    cluster.restart();
    // The one that kube-apiserver asks may have been away.
    cluster.kubectl().run(&SERVED);
    run
}

/// Rolls stacks out, as many as there are rounds, each with the end of a replica at another boundary.
pub(super) fn roll_out() {
    let cluster = Cluster::replicated(REPLICAS);
    let organization = Organization::create(&cluster);
    let seed = seed();
    eprintln!("STOA_TEST_SEED={seed}");
    let mut points = stoa_failpoint::of_clusters();
    points.retain(|point| SERVER.contains(point));
    Random::new(seed).shuffle(&mut points);
    points.truncate(repeat());
    eprintln!("{points:?}");
    for point in &points {
        is_rolled_out(&organization, point, &take_over(&cluster, &organization, point));
    }
    let audit = cluster.audit(&organization.name);
    for point in points {
        let created = created_in(&audit, &format!("{}-{point}", organization.name));
        let is_once = created.values().all(|count| *count == 1);
        assert!(is_once && created.len() <= OBJECTS, "created after a replica ended at {point}: {created:?}");
    }
}
