//! What happens is told to an endpoint, through a crash, and what it does not take is delivered again.

use std::sync::atomic::Ordering::SeqCst;

use serde_json::Value;
use stoa_e2e::endpoint::Endpoint;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server as _};

#[test]
fn events_survive_crash_and_dead_letters_redeliver() {
    let cluster = Cluster::start();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let endpoint = Endpoint::start(503);
    organization.tell(&endpoint, "dev.stoa.run.*");
    organization.stack("web", &config_maps(&format!("{name}-web"), 1, "a"));
    organization.succeed("web", "Apply", "");
    let started = endpoint.until(503, "dev.stoa.run.started");
    let sink = format!("notificationsink/{name}");
    kubectl.run(&["wait", "--for=condition=Ready=False", "--timeout=120s", &sink]);

    cluster.kill("stoa");
    endpoint.code.store(200, SeqCst);
    cluster.restart();
    assert_eq!(endpoint.until(200, "dev.stoa.run.started"), started);
    endpoint.until(200, "dev.stoa.run.succeeded");
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", &sink]);
    assert_eq!(endpoint.id(401, "dev.stoa.run.started"), None, "it was signed");

    endpoint.code.store(422, SeqCst);
    endpoint.came.lock().unwrap().clear();
    organization.succeed("web", "Preview", "");
    kubectl.run(&["wait", "--for=jsonpath={.status.deadLetters}=2", "--timeout=120s", &sink]);
    let row = kubectl.run(&["get", "nsink", name, "--no-headers"]);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..5], [name, "127.0.0.1", "false", "False", "2"], "{row}");
    let path = format!("/apis/platform.stoa.dev/v1alpha1/notificationsinks/{name}");
    let letters: Value = serde_json::from_str(&kubectl.raw(&format!("{path}/deadletters"))).unwrap();
    let types: Vec<&str> =
        letters["items"].as_array().unwrap().iter().map(|item| item["event"]["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["dev.stoa.run.started", "dev.stoa.run.succeeded"]);
    endpoint.code.store(200, SeqCst);
    kubectl.run(&["create", "--raw", &format!("{path}/redelivery"), "--filename", "/dev/null"]);
    kubectl.run(&["wait", "--for=jsonpath={.status.deadLetters}=0", "--timeout=120s", &sink]);
    // A letter is none any more once it is on its way.
    for item in letters["items"].as_array().unwrap() {
        let event_type = item["event"]["type"].as_str().unwrap();
        assert_eq!(Some(endpoint.until(200, event_type).as_str()), item["id"].as_str());
    }
}
