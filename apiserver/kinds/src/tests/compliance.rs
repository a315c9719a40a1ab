//! What a Workspace says of where compliance is read.

use super::*;

/// What is wrong with a workspace that has this.
async fn check(compliance: Value) -> Vec<String> {
    let world = World::new().await;
    let spec = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git", "compliance": compliance}});
    let workspace = json!({"metadata": {"name": "dev"}, "spec": spec});
    match world.make("platform.stoa.dev/v1alpha1", "Workspace", "", workspace).await {
        Ok(_) => Vec::new(),
        Err(error) => causes(&error),
    }
}

#[tokio::test]
async fn workspace_says_where_compliance_is_read() {
    let flux = json!({"namespace": "flux-system", "name": "apps"});
    let secret = json!({"namespace": "platform", "name": "edge", "key": "kubeconfig"});
    let right = json!({"wait": "10m", "reconcilers": [
        {"name": "one", "inCluster": true, "kustomization": flux},
        {"name": "two", "kubeconfigSecretRef": secret, "application": {"namespace": "argocd", "name": "apps.dev"}},
    ]});
    assert_eq!(check(right).await, [""; 0]);
    let of = |reconciler: Value| json!({"reconcilers": [reconciler]});
    let path = "spec.gitops.compliance";
    for (wrong, field) in [
        (json!({"reconcilers": []}), "reconcilers"),
        (of(json!({"name": "", "inCluster": true, "kustomization": flux})), "reconcilers[0].name"),
        (of(json!({"name": "one", "kustomization": flux})), "reconcilers[0].kubeconfigSecretRef"),
        (
            of(json!({"name": "one", "inCluster": true, "kubeconfigSecretRef": secret, "kustomization": flux})),
            "reconcilers[0].kubeconfigSecretRef",
        ),
        (
            of(json!({"name": "one", "kubeconfigSecretRef": {"namespace": "", "name": "edge", "key": "kubeconfig"},
                "kustomization": flux})),
            "reconcilers[0].kubeconfigSecretRef.namespace",
        ),
        (of(json!({"name": "one", "inCluster": true})), "reconcilers[0].kustomization"),
        (
            of(json!({"name": "one", "inCluster": true, "kustomization": flux, "application": flux})),
            "reconcilers[0].application",
        ),
        // It is a part of a URL.
        (
            of(json!({"name": "one", "inCluster": true, "kustomization": {"namespace": "a/../b", "name": "apps"}})),
            "reconcilers[0].kustomization.namespace",
        ),
        (
            of(json!({"name": "one", "inCluster": true, "application": {"namespace": "argocd", "name": ""}})),
            "reconcilers[0].application.name",
        ),
        (
            json!({"interval": "1s", "reconcilers": [{"name": "one", "inCluster": true, "kustomization": flux}]}),
            "interval",
        ),
        (json!({"wait": "soon", "reconcilers": [{"name": "one", "inCluster": true, "kustomization": flux}]}), "wait"),
    ] {
        let found = check(wrong.clone()).await;
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert!(found[0].starts_with(&format!("{path}.{field}: ")), "{wrong}: {found:?}");
    }
}
