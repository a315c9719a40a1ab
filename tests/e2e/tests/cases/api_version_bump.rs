//! Case `api-version-bump`.
//!
//! Reports: pulumi/pulumi-kubernetes#546, hashicorp/terraform-provider-kubernetes#2743.

use serde_json::Value;

use crate::harness::{Case, STACK};

const SCALER: &str = "horizontalpodautoscalers.v2.autoscaling/web";
const POND: &str = "ponds.bump.example.com/garden";

#[test]
fn newer_api_version_updates_same_object() {
    let case = Case::new("api-version-bump");
    let get = |what: &str| case.kubectl().try_get(&[what, "--namespace", "bump"]);
    let uid = |what: &str| get(what).unwrap()["metadata"]["uid"].clone();
    case.apply("old");
    let before = [uid(SCALER), uid(POND)];

    let planned = case.preview("new");
    // The old ids are forgotten.
    for action in ["create", "delete", "replace", "adopt"] {
        assert_eq!(Case::count(&planned, action), 0, "{action}: {planned:#}");
    }
    assert_eq!(Case::count(&planned, "update"), 2, "{planned:#}");
    case.apply("new");
    assert_eq!([uid(SCALER), uid(POND)], before);
    let pond = get(POND).unwrap();
    assert_eq!((pond["spec"]["depth"].as_i64(), pond["spec"].get("fish")), (Some(3), None));
    let resources = case.organization.of_stack("resources", STACK);
    for kind in [":HorizontalPodAutoscaler:", ":Pond:"] {
        let is_live = |resource: &&Value| {
            resource["status"]["phase"] == "Applied" && resource["spec"]["id"].as_str().unwrap().contains(kind)
        };
        assert_eq!(resources.iter().filter(is_live).count(), 1, "{kind} {resources:#?}");
    }
    case.assert_settled();

    let deployment = uid("deployment/web");
    let planned = case.preview("dropped");
    assert_eq!((Case::count(&planned, "delete"), Case::count(&planned, "update")), (2, 0), "{planned:#}");
    case.apply("dropped");
    assert_eq!((get(SCALER), get(POND)), (None, None));
    assert_eq!(uid("deployment/web"), deployment);
    case.destroy();
}
