//! The Terraform providers of a Workspace.

use super::*;

/// The errors of a workspace with these providers.
async fn check(terraform: Value) -> Vec<String> {
    let world = World::new().await;
    let workspace =
        json!({"metadata": {"name": "cloud"}, "spec": {"backend": {"name": "default"}, "terraform": terraform}});
    match world.make("platform.stoa.dev/v1alpha1", "Workspace", "", workspace).await {
        Ok(_) => Vec::new(),
        Err(error) => causes(&error),
    }
}

fn with_mirror(mirror: Value) -> Value {
    json!({"mirror": mirror, "lock": "provider \"a\" {}"})
}

fn with_provider(provider: Value) -> Value {
    let mut terraform = with_mirror(json!({"directory": "/opt/stoa/providers"}));
    terraform["providers"] = json!([{"name": "random", "source": "random"}, provider]);
    terraform
}

#[tokio::test]
async fn lock_of_the_source_may_count() {
    let mut without = with_mirror(json!({"directory": "/opt"}));
    without.as_object_mut().unwrap().remove("lock");
    assert_eq!(check(without).await, [] as [&str; 0]);
}

#[tokio::test]
async fn workspace_has_terraform_providers() {
    let secret = json!({"namespace": "platform", "name": "aws"});
    let aws = json!({"name": "aws", "source": "hashicorp/aws", "configuration": {"region": "eu-central-1"},
        "environmentSecretRef": secret, "configurationSecretRef": secret});
    assert_eq!(check(with_provider(aws)).await, [""; 0]);
    let mirror = json!({"url": "https://mirror.example.com:8443/providers/", "secretRef": secret});
    assert_eq!(check(with_mirror(mirror)).await, [""; 0]);
    let world = World::new().await;
    let terraform = with_mirror(json!({"directory": "/opt"}));
    for (name, beside) in [
        ("clusters", json!({"kubernetes": {"clusters": [{"name": "main", "inCluster": true}]}})),
        ("repository", json!({"gitops": {"repository": "file:///deploy.git"}})),
    ] {
        let mut spec = json!({"backend": {"name": "default"}, "terraform": terraform});
        spec.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
        let workspace = json!({"metadata": {"name": name}, "spec": spec});
        let made = world.make("platform.stoa.dev/v1alpha1", "Workspace", "", workspace).await.unwrap();
        assert_eq!(made.get_path(&["spec", "terraform", "network"]), Some(&json!("Allow")));
    }
}

#[tokio::test]
async fn validation_restricts_terraform_providers() {
    let secret = json!({"namespace": "platform", "name": "aws"});
    let directory = |path: &str| with_mirror(json!({"directory": path}));
    let url = |url: &str| with_mirror(json!({"url": url}));
    let template = |template: &str| with_mirror(json!({"repositoryTemplate": template}));
    let source = |source: &str| with_provider(json!({"name": "other", "source": source}));
    for (wrong, field) in [
        (with_mirror(json!({})), "mirror"),
        (with_mirror(json!({"directory": "/opt", "url": "https://mirror.example.com/"})), "mirror.url"),
        (with_mirror(json!({"directory": "/opt", "secretRef": secret})), "mirror.secretRef"),
        (with_mirror(json!({"directory": "/opt", "repositoryTemplate": "a/${type}"})), "mirror.repositoryTemplate"),
        (template("registry.example.com/providers"), "mirror.repositoryTemplate"),
        (template("registry.example.com/${kind}/${type}"), "mirror.repositoryTemplate"),
        (template("https://registry.example.com/${type}"), "mirror.repositoryTemplate"),
        (template("ann:hunter2@registry.example.com/${type}"), "mirror.repositoryTemplate"),
        (template("registry.example.com/${type}:1"), "mirror.repositoryTemplate"),
        (directory("opt"), "mirror.directory"),
        (directory("/opt/../etc"), "mirror.directory"),
        (url("http://localhost/providers/"), "mirror.url"),
        (url("https://mirror.example.com/providers"), "mirror.url"),
        (url("https://mirror.example.com/?a=/"), "mirror.url"),
        (url("https://ann:hunter2@mirror.example.com/"), "mirror.url"),
        (url("mirror"), "mirror.url"),
        (
            with_mirror(json!({"url": "https://mirror.example.com/", "secretRef": {"name": "mirror"}})),
            "mirror.secretRef.namespace",
        ),
        (with_provider(json!({"name": "", "source": "hashicorp/aws"})), "providers[1].name"),
        (with_provider(json!({"name": "A", "source": "hashicorp/aws"})), "providers[1].name"),
        (source(""), "providers[1].source"),
        (source("../aws"), "providers[1].source"),
        (source("hashicorp/aws/5.1.0/linux"), "providers[1].source"),
        (source("hashicorp/random"), "providers[1].source"),
        (
            with_provider(json!({"name": "aws", "source": "aws", "environmentSecretRef": {"name": "aws"}})),
            "providers[1].environmentSecretRef.namespace",
        ),
        (
            with_provider(json!({"name": "aws", "source": "aws",
                "configurationSecretRef": {"namespace": "platform", "name": ""}})),
            "providers[1].configurationSecretRef.name",
        ),
    ] {
        let found = check(wrong.clone()).await;
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
        assert!(found[0].starts_with(&format!("spec.terraform.{field}: ")), "{wrong}: {found:?}");
        assert!(!found[0].contains("hunter2"), "{found:?}");
    }
    // The list has a key, so the schema rejects a second entry of a name.
    let twice = check(with_provider(json!({"name": "random", "source": "aws"}))).await;
    assert!(twice.iter().all(|cause| cause.starts_with("spec.terraform.providers[1]")), "{twice:?}");
    assert!(!twice.is_empty());
}
