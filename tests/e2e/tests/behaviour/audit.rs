//! The audit log of Stoa itself, whose policy in the test bed records what certain groups do, and what is done with
//! anything named `audited`.

use kube::api::DynamicObject;
use serde_json::{Value, json};
use stoa_e2e::{Cluster, Server as _, eventually, unique};

use crate::PATIENCE;

/// Creates a Source as somebody whose group is recorded at a level; returns the events about it, in order.
fn recorded(level: &str, remote: &str) -> Vec<Value> {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let name = unique("audit");
    kubectl.run(&["create", "namespace", &name]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let source = json!({
        "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Source", "metadata": {"name": "one", "namespace": name},
        "spec": {"remote": remote},
    });
    std::fs::write(file.path(), source.to_string()).unwrap();
    let group = format!("--as-group=audited:{level}");
    let file = file.path().to_str().unwrap();
    kubectl.run(&["create", "--filename", file, "--as=ann", "--as-group=system:masters", &group]);
    let events = eventually("the events", PATIENCE, || {
        let mut events = cluster.stoa_audit();
        events.retain(|event| event["objectRef"]["namespace"] == name.as_str() && event["verb"] == "create");
        (events.len() >= 2).then_some(events)
    });
    kubectl.run(&["delete", "namespace", &name, "--wait=false"]);
    events
}

/// What every level says of a creation.
fn check(events: &[Value], level: &str) {
    let stages: Vec<_> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
    assert_eq!(events[0]["auditID"], events[1]["auditID"]);
    for event in events {
        assert_eq!(event["level"], level);
        assert_eq!(event["user"]["username"], "ann");
        let groups = event["user"]["groups"].as_array().unwrap();
        assert!(groups.contains(&json!("system:authenticated")), "{groups:?}");
        assert_eq!(
            (&event["objectRef"]["resource"], &event["objectRef"]["apiGroup"]),
            (&json!("sources"), &json!("config.stoa.dev"))
        );
    }
    assert!(events[0].get("responseStatus").is_none() && events[0].get("requestObject").is_none(), "{:#}", events[0]);
    // Before its body was read, nobody knew what the object is called.
    assert_eq!((events[0]["objectRef"].get("name"), &events[1]["objectRef"]["name"]), (None, &json!("one")));
    assert_eq!(events[1]["responseStatus"]["code"], 201);
    assert_eq!(events[1]["annotations"]["authorization.k8s.io/decision"], "allow");
}

#[test]
fn metadata_audit_omits_request_content() {
    let marker = unique("marker");
    let events = recorded("metadata", &format!("file:///{marker}.git"));
    check(&events, "Metadata");
    let all = Value::from(events).to_string();
    assert!(!all.contains(&marker), "{all}");
    for field in ["requestObject", "responseObject"] {
        assert!(!all.contains(field), "{all}");
    }
}

#[test]
fn higher_levels_say_what_was_sent_and_answered() {
    let events = recorded("request", "file:///sent.git");
    check(&events, "Request");
    assert_eq!(events[1]["requestObject"]["spec"]["remote"], "file:///sent.git");
    assert!(events[1].get("responseObject").is_none(), "{:#}", events[1]);
    let events = recorded("request-response", "file:///answered.git");
    check(&events, "RequestResponse");
    assert_eq!(events[1]["requestObject"]["spec"]["remote"], "file:///answered.git");
    let answered = &events[1]["responseObject"];
    assert_eq!(answered["spec"]["remote"], "file:///answered.git");
    assert!(answered["metadata"]["uid"].is_string() && answered["metadata"].get("managedFields").is_none());
}

#[tokio::test]
async fn whoever_impersonates_is_recorded_beside_whom() {
    let cluster = Cluster::shared();
    let direct = cluster.replicas().swap_remove(0);
    let name = unique("audit");
    let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/sources/audited");
    let request = http::Request::get(&path)
        .header("impersonate-user", "bob")
        .header("impersonate-group", "system:masters")
        .body(Vec::new())
        .unwrap();
    let refused = direct.request::<DynamicObject>(request).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 404), "{refused:?}");
    let events = tokio::task::spawn_blocking(move || {
        eventually("the events", PATIENCE, || {
            let mut events = cluster.stoa_audit();
            events.retain(|event| event["requestURI"] == path.as_str());
            (events.len() >= 2).then_some(events)
        })
    });
    let events = events.await.unwrap();
    let (first, last) = (&events[0], &events[1]);
    assert_eq!((&first["stage"], first.get("impersonatedUser")), (&json!("RequestReceived"), None));
    assert_eq!(last["stage"], "ResponseComplete");
    assert_ne!(last["user"]["username"], "bob");
    assert_eq!(last["impersonatedUser"]["username"], "bob");
    assert_eq!((&last["responseStatus"]["code"], &last["responseStatus"]["reason"]), (&json!(404), &json!("NotFound")));
}
