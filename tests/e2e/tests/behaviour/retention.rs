//! A workspace says what is kept of what happened in it.

use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server as _, eventually};

use crate::PATIENCE;

#[test]
fn retention_preserves_newest_and_continues_numbering() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    for value in ["a", "b", "c"] {
        organization.stack("web", &config_maps(&namespace, if value == "a" { 2 } else { 1 }, value));
        organization.succeed("web", "Apply", "");
    }
    let revisions = || -> Vec<i64> {
        let releases = organization.of_stack("releases", "web");
        let mut revisions: Vec<i64> = releases.iter().filter_map(|r| r["spec"]["revision"].as_i64()).collect();
        revisions.sort_unstable();
        revisions
    };
    let runs = || organization.of_stack("runs", "web").len();
    assert_eq!((revisions(), runs()), (vec![1, 2, 3], 3), "everything is kept unless the workspace says otherwise");
    let patch = r#"{"spec":{"retention":{"runs":2,"releases":2}}}"#;
    cluster.kubectl().run(&["patch", "workspace", name, "--type=merge", "--patch", patch]);
    eventually("the oldest go", PATIENCE, || (revisions() == [2, 3] && runs() == 2).then_some(()));
    let message = organization.refused("web", "Rollback", "release: 1");
    assert!(message.contains(&format!("release web.{name}.1 does not exist, or retention removed it")), "{message}");
    let back = organization.succeed("web", "Rollback", "release: 2");
    assert_eq!(back["status"]["release"], 4);
    eventually("the next goes", PATIENCE, || (revisions() == [3, 4] && runs() == 2).then_some(()));
    let value = cluster.kubectl().get(&["configmap/c0", "--namespace", &namespace])["data"]["value"].clone();
    assert_eq!(value, "b");
    // What was destroyed in a release that is kept is on record, and goes with it.
    let destroyed = || {
        let resources = organization.of_stack("resources", "web");
        resources.iter().filter(|resource: &&Value| resource["status"]["phase"] == "Destroyed").count()
    };
    eventually("the record of what was destroyed goes", PATIENCE, || (destroyed() == 0).then_some(()));
}
