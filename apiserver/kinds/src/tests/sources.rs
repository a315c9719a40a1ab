//! Sources that are artifacts and charts.

use super::*;

async fn check(spec: Value) -> Vec<String> {
    let world = World::with_stack().await;
    let source = json!({"metadata": {"name": "artifact"}, "spec": spec});
    match world.make("config.stoa.dev/v1alpha1", "Source", "shop", source).await {
        Ok(_) => Vec::new(),
        Err(error) => causes(&error),
    }
}

#[tokio::test]
async fn sources_are_artifacts_and_charts() {
    for spec in [
        json!({"provider": "OCI", "remote": "oci://registry.example.com:5000/shop/config", "ref": ">=1.2, <2"}),
        json!({"provider": "OCI", "remote": "oci://registry.example.com/a", "secretRef": {"name": "registry"}}),
        json!({"provider": "Helm", "remote": "https://charts.example.com/stable", "chart": "web", "ref": "1.2.3"}),
        json!({"provider": "Helm", "remote": "http://localhost:8080", "chart": "web"}),
        json!({"provider": "Helm", "remote": "oci://registry.example.com/charts", "chart": "web_2.x"}),
    ] {
        assert_eq!(check(spec.clone()).await, [""; 0], "{spec}");
    }
}

#[tokio::test]
async fn validation_restricts_artifacts_and_charts() {
    let oci = |remote: &str| json!({"provider": "OCI", "remote": remote});
    let helm = |remote: &str, chart: &str| json!({"provider": "Helm", "remote": remote, "chart": chart});
    let with = |mut spec: Value, field: &str, value: Value| {
        spec[field] = value;
        spec
    };
    let artifact = || oci("oci://registry.example.com/a");
    let secret = json!({"secretRef": {"name": "hook"}});
    let pulls = json!({"provider": "Gitea", "url": "https://git.example.com"});
    for (spec, field) in [
        (oci("https://registry.example.com/a"), "spec.remote"),
        (oci("oci://registry.example.com"), "spec.remote"),
        (oci("oci://registry.example.com/A"), "spec.remote"),
        (oci("oci://registry.example.com/a:1"), "spec.remote"),
        (oci("oci://ann:hunter2@registry.example.com/a"), "spec.remote"),
        (with(artifact(), "chart", "web".into()), "spec.chart"),
        (with(artifact(), "webhook", secret), "spec.webhook"),
        (helm("https://charts.example.com", ""), "spec.chart"),
        (helm("https://charts.example.com", "../web"), "spec.chart"),
        (helm("http://charts.example.com", "web"), "spec.remote"),
        (helm("oci://registry.example.com", "web"), "spec.remote"),
        (helm("git@example.com:charts.git", "web"), "spec.remote"),
        (json!({"remote": "https://git.example.com/a.git", "chart": "web"}), "spec.chart"),
    ] {
        let found = check(spec.clone()).await;
        assert!(found.iter().any(|it| it.starts_with(&format!("{field}: "))), "{spec}: {found:?}");
        assert!(!found.iter().any(|it| it.contains("hunter2")), "{found:?}");
    }
    let found = check(with(artifact(), "pullRequests", pulls)).await;
    let expected = "spec.pullRequests: Forbidden: may only be set with provider Git";
    assert!(found.contains(&expected.to_owned()), "{found:?}");
}

#[tokio::test]
async fn charts_of_one_repository_are_several_sources() {
    let world = World::with_stack().await;
    let make = async |name: &str, chart: &str| {
        let spec = json!({"provider": "Helm", "remote": "https://charts.example.com", "chart": chart});
        let source = json!({"metadata": {"name": name}, "spec": spec});
        world.make("config.stoa.dev/v1alpha1", "Source", "shop", source).await.map(drop)
    };
    make("web", "web").await.unwrap();
    make("api", "api").await.unwrap();
    let error = causes(&make("again", "web").await.unwrap_err());
    assert_eq!(error, ["spec.remote: Forbidden: source \"web\" has the same repository: refer to that one instead"]);
}
