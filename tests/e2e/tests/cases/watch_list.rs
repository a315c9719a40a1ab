//! Case `watch-list`: a client asks for a streaming list of every kind of Stoa.
//!
//! Reports: kubernetes/kubernetes#140890, cozystack/cozystack#2786.
//!
//! The answer has one ADDED event for each object, then a BOOKMARK with `k8s.io/initial-events-end` and a
//! resourceVersion. Without `resourceVersionMatch` the answer is 422, as from kube-apiserver. ResourceQuotas and garbage
//! collection with Stoa registered: `tests/controllers.rs`.

use futures_util::future::join_all;
use http::Request;
use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Caller, Cluster, Server as _};

const LIST: &str = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&timeoutSeconds=2";

/// The paths of all collections that can be watched, in a namespace where the kind has one.
fn collections(cluster: &Cluster, namespace: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for group in ["config", "platform", "delivery"] {
        let version = format!("/apis/{group}.stoa.dev/v1alpha1");
        let resources: Value = serde_json::from_str(&cluster.kubectl().raw(&version)).unwrap();
        for resource in resources["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let verbs = resource["verbs"].as_array().unwrap();
            if name.contains('/') || !verbs.iter().any(|verb| verb == "watch") {
                continue;
            }
            paths.push(match resource["namespaced"].as_bool().unwrap() {
                true => format!("{version}/namespaces/{namespace}/{name}"),
                false => format!("{version}/{name}"),
            });
        }
    }
    paths
}

async fn text(caller: &Caller, uri: &str) -> String {
    let request = Request::get(uri).body(Vec::new()).unwrap();
    caller.client().request_text(request).await.unwrap_or_else(|error| panic!("{uri}: {error}"))
}

/// Asserts that a streaming list has the objects of a plain list, then the bookmark that ends them.
async fn assert_streams(caller: &Caller, uri: &str, listed: &[Value]) {
    let answer = text(caller, uri).await;
    let events: Vec<Value> = answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = events.iter().position(|event| event["type"] == "BOOKMARK");
    let (added, bookmark) = events.split_at(end.unwrap_or_else(|| panic!("{uri}: no bookmark in {answer}")));
    assert!(added.iter().all(|event| event["type"] == "ADDED"), "{uri}: {answer}");
    let names: Vec<&Value> = added.iter().map(|event| &event["object"]["metadata"]["name"]).collect();
    // Other tests create objects of the cluster's kinds meanwhile.
    assert!(listed.iter().all(|name| names.contains(&name)), "{uri}: {names:?} lacks some of {listed:?}");
    let metadata = &bookmark[0]["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true", "{uri}");
    assert!(metadata["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0, "{uri}");
}

#[tokio::test]
async fn every_kind_answers_a_streaming_list() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    organization.stack("case", &config_maps(&format!("{}-case", organization.name), 1, "a"));
    organization.succeed("case", "Apply", "");
    let caller = cluster.front_door();
    let namespace = organization.name.as_str();
    let paths = collections(&cluster, namespace);
    assert!(paths.len() >= 10, "{paths:?}");
    let selections = [
        "".to_owned(),
        "&labelSelector=stoa.dev/stack%3Dcase".to_owned(),
        format!("&fieldSelector=metadata.name%3D{namespace}"),
    ];
    for selection in &selections {
        let lists = paths.iter().map(async |path| {
            let list: Value =
                serde_json::from_str(&text(&caller, &format!("{path}?{}", selection.trim_start_matches('&'))).await)
                    .unwrap();
            let items = list["items"].as_array().unwrap();
            // Only what this test made is certain to stay.
            let ours = items
                .iter()
                .map(|item| &item["metadata"])
                .filter(|it| it["namespace"] == *namespace || it["name"] == *namespace);
            ours.map(|metadata| metadata["name"].clone()).collect::<Vec<_>>()
        });
        let lists = join_all(lists).await;
        for version in ["", "&resourceVersion=", "&resourceVersion=0"] {
            let query = format!("{LIST}&resourceVersionMatch=NotOlderThan{version}{selection}");
            let uris: Vec<String> = paths.iter().map(|path| format!("{path}?{query}")).collect();
            join_all(uris.iter().zip(&lists).map(|(uri, listed)| assert_streams(&caller, uri, listed))).await;
        }
    }
    for path in &paths {
        let refused = caller.get(&format!("{path}?{LIST}"), &[]).await;
        assert_eq!(refused.code, 422, "{path}: {}", refused.body);
    }
    organization.succeed("case", "Destroy", "");
}
