//! Spellings of endpoints, and the JSON of reports.

use serde_json::json;

use super::*;

#[test]
fn endpoint_has_one_spelling() {
    let expected = "https://git.example.com/team/web/dev/functional-test";
    for (repo, branch, path) in [
        ("https://git.example.com/team/web", "dev", "functional-test"),
        ("https://git.example.com/team/web/", "dev", "./functional-test"),
        ("https://git.example.com/team/web", "dev", "functional-test/"),
    ] {
        assert_eq!(manifests_endpoint(repo, branch, path), expected);
    }
    assert_eq!(manifests_endpoint("https://git.example.com/web", "dev", "."), "https://git.example.com/web/dev");
    assert_eq!(normal_endpoint("git@example.com:web//dev/./a/"), "git@example.com:web/dev/a");
    assert_eq!(normal_endpoint(""), "");
}

#[test]
fn report_is_read_with_and_without_time() {
    let report = json!({
        "apiVersion": "hub.kalypso.io/v1alpha1",
        "kind": "DeploymentReport",
        "metadata": { "namespace": "fleet" },
        "spec": { "deployments": [
            { "reconciler": "drone-web", "gitOpsCommitId": "abc", "status": "in_progress", "time": "2026-01-01T00:00:00Z" },
            { "reconciler": "drone-api", "gitOpsCommitId": "def", "status": "failure", "statusMessage": "no image" },
        ] },
    });
    let report: DeploymentReport = serde_json::from_value(report).unwrap();
    let [late, current] = &report.spec.deployments[..] else { panic!("two deployments") };
    assert_eq!(late.time.as_ref().unwrap().0.as_second(), 1_767_225_600);
    assert_eq!((late.status, current.status), (DeploymentStatus::InProgress, DeploymentStatus::Failure));
    assert_eq!((current.status_message.as_str(), &current.time), ("no image", &None));
}

#[test]
fn statuses_have_the_names_of_kalypso() {
    for status in DeploymentStatus::ALL {
        assert_eq!(serde_json::to_value(status).unwrap(), json!(status.name()));
        assert_eq!(DeploymentStatus::named(status.name()), Some(status));
    }
    assert_eq!(DeploymentStatus::named(""), None);
}

#[test]
fn reconciler_stands_for_the_object_that_it_names() {
    let is = |reconciler_type: &str, name: &str, (kind, namespace, object): (&str, &str, &str)| {
        let spec = ReconcilerSpec {
            reconciler_type: reconciler_type.to_owned(),
            reconciler_name: name.to_owned(),
            ..ReconcilerSpec::default()
        };
        spec.stands_for(kind, namespace, object)
    };
    let kustomization = ("Kustomization", "flux-system", "web");
    for name in ["web", "flux-system/web", "Kustomization/flux-system/web"] {
        assert!(is("flux", name, kustomization), "{name}");
        assert!(is("other", name, kustomization), "{name}");
        assert!(!is("argocd", name, kustomization), "{name}");
    }
    for name in ["api", "shop/web", "HelmRelease/flux-system/web", "", "a/Kustomization/flux-system/web"] {
        assert!(!is("flux", name, kustomization), "{name}");
    }
    assert!(is("argocd", "web", ("Application", "argocd", "web")));
    assert!(!is("flux", "web", ("Application", "argocd", "web")));
}
