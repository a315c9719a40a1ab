//! An organization creates its namespace, owns it, and takes it along.

use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Server, Standalone, git, unique};

use crate::PATIENCE;

fn manifest(name: &str, policy: &str) -> String {
    format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Organization, metadata: {{name: {name}}}, spec: {{deletionPolicy: {policy}}}}}"
    )
}

fn ready(server: &dyn Server, name: &str) {
    server.kubectl().run(&["wait", "--for=condition=Ready", "--timeout=120s", &format!("organization/{name}")]);
}

fn namespace_comes_and_goes(server: &dyn Server) {
    let kubectl = server.kubectl();
    let name = unique("org");
    kubectl.create(&manifest(&name, "Refuse"));
    ready(server, &name);
    let organization = kubectl.get(&["organization", &name]);
    let namespace = kubectl.get(&["namespace", &name]);
    assert_eq!(organization["status"]["namespace"], name.as_str());
    assert_eq!(organization["status"]["namespaceUID"], namespace["metadata"]["uid"]);
    assert_eq!(namespace["metadata"]["labels"]["stoa.dev/organization"], name.as_str());

    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Source, metadata: {{name: config, namespace: {name}}},
          spec: {{remote: \"file:///nowhere.git\"}}}}"
    ));
    kubectl.run(&["delete", "organization", &name, "--timeout=120s"]);
    assert!(!kubectl.succeeds(&["get", "namespace", &name]), "the namespace outlived its organization");
    // The same name is free again, and nothing of the old namespace shows in the new one.
    kubectl.create(&manifest(&name, "Refuse"));
    ready(server, &name);
    let sources = kubectl.get(&["sources", "--namespace", &name]);
    assert_eq!(sources["items"].as_array().unwrap().len(), 0, "{sources:#}");
    let again = kubectl.get(&["organization", &name]);
    assert_ne!(again["status"]["namespaceUID"], organization["status"]["namespaceUID"]);
    kubectl.run(&["delete", "organization", &name, "--wait=false"]);
}

#[test]
fn namespace_follows_its_organization_standalone() {
    namespace_comes_and_goes(&*Standalone::shared());
}

#[test]
fn namespace_follows_its_organization_in_cluster() {
    namespace_comes_and_goes(&Cluster::shared());
}

fn namespace_that_exists_is_not_adopted(server: &dyn Server) {
    let kubectl = server.kubectl();
    let name = unique("taken");
    kubectl.create(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"));
    let uid = kubectl.get(&["namespace", &name])["metadata"]["uid"].clone();
    match kubectl.try_create(&manifest(&name, "Refuse")) {
        Err(refused) => assert!(refused.contains(&name) && refused.contains("exist"), "{refused}"),
        Ok(_) => {
            let message = kubectl.watch("", &format!("organization/{name}"), PATIENCE, |organization| {
                let ready = condition(organization, "Ready");
                (ready["reason"] == "NamespaceExists").then(|| ready["message"].as_str().unwrap_or_default().to_owned())
            });
            assert!(message.contains(&name) && message.contains("exists"), "{message}");
            kubectl.run(&["delete", "organization", &name, "--timeout=120s"]);
        }
    }
    let namespace = kubectl.get(&["namespace", &name]);
    assert_eq!(namespace["metadata"]["uid"], uid, "the namespace is another one");
    assert!(namespace["metadata"]["deletionTimestamp"].is_null(), "the namespace of somebody else was deleted");
}

#[test]
fn namespace_that_exists_is_not_adopted_on_its_own() {
    namespace_that_exists_is_not_adopted(&*Standalone::shared());
}

#[test]
fn namespace_that_exists_is_not_adopted_in_a_cluster() {
    namespace_that_exists_is_not_adopted(&Cluster::shared());
}

#[test]
fn names_of_the_system_are_reserved() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    for name in ["default", "kube-system", "kube-public", "stoa-system"] {
        let refused = kubectl.create_refused(&manifest(name, "Refuse"));
        assert!(refused.contains("metadata.name") && refused.contains(name), "{refused}");
    }
}

fn infrastructure_follows_the_policy(server: &dyn Server, is_live: &dyn Fn(&Organization) -> bool) {
    let kubectl = server.kubectl();
    let organization = Organization::create(server);
    let name = &organization.name;
    organization.stack("web", &config_maps(&format!("{name}-web"), 2, "a"));
    organization.succeed("web", "Apply", "");
    assert!(is_live(&organization));

    let refused = kubectl.refused(&["delete", "organization", name]);
    assert!(refused.contains("(Forbidden)") && refused.contains("deletionPolicy"), "{refused}");
    let there = kubectl.get(&["organization", name]);
    assert!(there["metadata"]["deletionTimestamp"].is_null(), "a refused deletion began: {there:#}");

    kubectl.run(&[
        "patch",
        "organization",
        name,
        "--type=merge",
        "--patch={\"spec\":{\"deletionPolicy\":\"Destroy\"}}",
    ]);
    kubectl.run(&["delete", "organization", name, "--timeout=120s"]);
    assert!(!is_live(&organization), "the infrastructure outlived its organization");
    assert!(!kubectl.succeeds(&["get", "namespace", name]), "the namespace outlived its organization");
}

fn files(organization: &Organization) -> String {
    git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"])
}

#[test]
fn live_infrastructure_blocks_organization_deletion_standalone() {
    infrastructure_follows_the_policy(&*Standalone::shared(), &|organization| !files(organization).is_empty());
}

#[test]
fn live_infrastructure_blocks_organization_deletion_in_cluster() {
    let cluster = Cluster::shared();
    infrastructure_follows_the_policy(&cluster, &|organization| {
        cluster.kubectl().succeeds(&["get", "configmap", "c1", "--namespace", &format!("{}-web", organization.name)])
    });
}

#[test]
fn orphaned_infrastructure_stays_when_its_stack_goes() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    organization.succeed("web", "Apply", "");
    let policy = "--patch={\"spec\":{\"deletionPolicy\":\"Orphan\"}}";
    kubectl.run(&["patch", "stack", "web", "--namespace", name, "--type=merge", policy]);
    kubectl.run(&["delete", "stack", "web", "--namespace", name, "--timeout=120s"]);
    assert!(kubectl.succeeds(&["get", "configmap", "c1", "--namespace", &namespace]));
    // A stack that comes after it takes the objects over instead of creating them.
    organization.stack("web", &config_maps(&namespace, 2, "a"));
    let run = organization.succeed("web", "Preview", "");
    let summary = &run["status"]["plan"]["summary"];
    assert_eq!((&summary["adopt"], &summary["create"]), (&3.into(), &0.into()), "{run:#}");

    // Its releases follow those that the first one left.
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 2);
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", "--namespace", name, "stack/web"]);
    let diff = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/web.{name}.2/diff?format=json");
    let diff: serde_json::Value = serde_json::from_str(&kubectl.raw(&diff)).unwrap();
    assert_eq!((&diff["from"], &diff["summary"]["added"]), (&serde_json::Value::Null, &3.into()), "{diff:#}");
    organization.stack("web", &config_maps(&namespace, 2, "b"));
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 3);
    organization.succeed("web", "Refresh", "");
    let refused = organization.refused("web", "Rollback", "release: 1");
    assert!(refused.contains("belongs to an earlier stack of the same name"), "{refused}");
    assert_eq!(organization.succeed("web", "Rollback", "release: 2")["status"]["release"], 4);
    assert_eq!(organization.succeed("web", "Destroy", "")["status"]["release"], 5);
}

#[test]
fn project_takes_its_stacks_along() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    organization.stack("web", &config_maps("web", 1, "a"));
    kubectl.run(&["delete", "project", name, "--namespace", name, "--timeout=120s"]);
    assert!(!kubectl.succeeds(&["get", "stack", "web", "--namespace", name]));
}
