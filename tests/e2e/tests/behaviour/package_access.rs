//! Permissions on packages: by repository, and by the separation of authors and approvers.

use serde_json::{Value, json};
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually, unique};

use crate::{
    PATIENCE,
    package_lifecycle::{Packages, init, reference, wait_for},
    package_variants::{blueprint, next},
};

/// Lets a user do this in the namespace of some packages. Each rule has a group, a resource, verbs and names.
fn grant(packages: &Packages, user: &str, rules: &[(&str, &str, &[&str], &[&str])]) {
    let name = unique("role");
    let metadata = json!({"name": name, "namespace": packages.namespace});
    let rules: Vec<_> = rules
        .iter()
        .map(|(group, resource, verbs, names)| {
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names})
        })
        .collect();
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
    });
    packages.kubectl.apply(&role.to_string());
    packages.kubectl.apply(&binding.to_string());
}

const PACKAGES: &str = "porch.kpt.dev";
const REPOSITORIES: &str = "config.porch.kpt.dev";

fn revision(packages: &Packages, package: &str, task: &serde_json::Value) -> String {
    json!({
        "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision",
        // The server chooses another name.
        "metadata": {"name": "any", "namespace": packages.namespace},
        "spec": {"packageName": package, "repository": "blueprints", "workspaceName": "v1", "tasks": [task]},
    })
    .to_string()
}

fn propose(user: &Kubectl, packages: &Packages, name: &str, lifecycle: &str) {
    let patch = json!({"spec": {"lifecycle": lifecycle}}).to_string();
    let args = ["patch", "packagerevisions.porch.kpt.dev", name, "--namespace", &packages.namespace];
    user.run(&[&args[..], &["--type=merge", "--patch", &patch]].concat());
}

/// Tries until it succeeds: a decision of the cluster may be remembered for ten seconds.
fn allowed<T>(attempt: impl Fn() -> Result<T, String>) -> T {
    let mut last = String::new();
    eventually("the user is allowed", PATIENCE, || match attempt() {
        Ok(done) => Some(done),
        Err(error) => {
            if error != last {
                eprintln!("still: {error}");
            }
            last = error;
            None
        }
    })
}

#[test]
fn edits_and_clones_are_granted_by_repository() {
    let packages = Packages::in_cluster();
    let upstream = packages.create("basens", "v1", &init());
    packages.publish(&upstream);
    let name = unique("ann");
    let user = Cluster::shared().kubectl().impersonate(&name);
    let all: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
    grant(
        &packages,
        &name,
        &[(PACKAGES, "packagerevisions", all, &[]), (PACKAGES, "packagerevisionresources", all, &[])],
    );
    let own = revision(&packages, "own", &init());
    let refused = allowed(|| match user.try_create(&own) {
        Err(error) if error.contains("cannot edit") => Ok(error),
        Err(error) => Err(error),
        Ok(created) => panic!("{created} was created without the verb edit"),
    });
    assert!(refused.contains("repositories") && refused.contains("blueprints"), "{refused}");
    grant(&packages, &name, &[(REPOSITORIES, "repositories", &["edit"], &["blueprints"])]);
    allowed(|| user.try_create(&own));
    // An upstream needs a verb of its own.
    let clone = json!({"type": "clone", "clone": {"upstreamRef": {"upstreamRef": reference(&upstream)}}});
    let clone = revision(&packages, "copy", &clone);
    let refused = user.try_create(&clone).unwrap_err();
    assert!(refused.contains("cannot clone"), "{refused}");
    grant(&packages, &name, &[(REPOSITORIES, "repositories", &["clone"], &["blueprints"])]);
    allowed(|| user.try_create(&clone));
    // Guardrails and registrations are a right to the Repository itself.
    let patch = ["--type=merge", "--patch", r#"{"spec": {"validators": [{"image": "set-labels:v0.2.0"}]}}"#];
    let args = ["patch", "repositories.config.porch.kpt.dev", "blueprints", "--namespace", &packages.namespace];
    let refused = user.refused(&[&args[..], &patch[..]].concat());
    assert!(refused.contains("(Forbidden)"), "{refused}");
}

#[test]
fn author_cannot_approve_without_approve_own() {
    let packages = Packages::in_cluster();
    let (author, approver) = (unique("ann"), unique("bob"));
    let admin = Cluster::shared().kubectl();
    let (as_author, as_approver) = (admin.impersonate(&author), admin.impersonate(&approver));
    let all: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
    for user in [&author, &approver] {
        let rules: &[(&str, &str, &[&str], &[&str])] = &[
            (PACKAGES, "packagerevisions", all, &[]),
            (PACKAGES, "packagerevisions/approval", all, &[]),
            (REPOSITORIES, "repositories", &["edit", "approve"], &["blueprints"]),
        ];
        grant(&packages, user, rules);
    }
    let name = "blueprints.basens.v1";
    allowed(|| as_author.try_create(&revision(&packages, "basens", &init())));
    propose(&as_author, &packages, name, "Proposed");
    assert_eq!(packages.revision(name)["status"]["changedBy"][0]["name"], author.as_str());
    // A push writes the status, which a decision would conflict with.
    wait_for("the proposal is in Git", || packages.revision(name)["status"]["git"]["lifecycle"] == "Proposed");
    let refused = packages.try_to_decide(&as_author, name, "Published").unwrap_err();
    assert!(refused.contains("approve-own"), "{refused}");
    allowed(|| packages.try_to_decide(&as_approver, name, "Published"));
    assert_eq!(packages.revision(name)["status"]["publishedBy"], approver.as_str());
    // The deletion waits for somebody else, too.
    propose(&as_approver, &packages, name, "DeletionProposed");
    let delete = ["delete", "packagerevisions.porch.kpt.dev", name, "--namespace", &packages.namespace];
    let refused = as_approver.refused(&delete);
    assert!(refused.contains("approve-own"), "{refused}");
    grant(&packages, &approver, &[(PACKAGES, "packagerevisions", &["approve-own"], &[name])]);
    allowed(|| {
        let output = as_approver.command(&delete).output().unwrap();
        if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
    });
}

/// Upgrades the package `copy` as somebody, and waits for the end; the operation.
fn upgrade(user: &Kubectl, packages: &Packages) -> Result<Value, String> {
    let name = unique("op");
    let operation = json!({
        "apiVersion": "delivery.stoa.dev/v1alpha1", "kind": "PackageOperation",
        "metadata": {"name": name, "namespace": packages.namespace},
        "spec": {"operation": "Upgrade", "requireApproval": false, "selector": {"packages": ["copy"]}},
    });
    user.try_create(&operation.to_string())?;
    let object = format!("packageoperation/{name}");
    Ok(packages.kubectl.watch(&packages.namespace, &object, PATIENCE, |operation| {
        let phase = operation["status"]["phase"].as_str().unwrap_or_default();
        ["Succeeded", "Failed", "Canceled"].contains(&phase).then(|| operation.clone())
    }))
}

#[test]
fn bulk_operations_have_the_rights_of_their_creator() {
    let packages = Packages::in_cluster();
    let upstream = blueprint(&packages, "basens");
    let clone = json!({"type": "clone", "clone": {"upstreamRef": {"upstreamRef": reference(&upstream)}}});
    let copy = packages.create("copy", "v1", &clone);
    packages.publish(&copy);
    next(
        &packages,
        &upstream,
        "v2",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: new\n",
    );
    wait_for("the newer upstream is shown", || packages.revision(&copy)["status"]["upstream"]["outdated"] == true);

    let name = unique("ann");
    let user = Cluster::shared().kubectl().impersonate(&name);
    let denied = |right: &str| {
        allowed(|| match upgrade(&user, &packages) {
            Err(error) if error.contains(right) => Ok(()),
            Err(error) => Err(error),
            Ok(operation) => panic!("{operation:#} was created without {right}"),
        });
    };
    denied("packageoperations");
    grant(&packages, &name, &[("delivery.stoa.dev", "packageoperations", &["create"], &[])]);
    denied("packagerevisions");
    grant(&packages, &name, &[(PACKAGES, "packagerevisions", &["create"], &[])]);
    // The operation has the rights of its creator on the repositories, too.
    let failed = allowed(|| upgrade(&user, &packages));
    assert_eq!(failed["status"]["phase"], "Failed", "{failed:#}");
    let message = failed["status"]["packages"][0]["message"].as_str().unwrap();
    assert!(message.contains("clone") && message.contains("blueprints"), "{message}");
    assert_eq!(packages.names().iter().filter(|name| name.contains(".copy.op")).count(), 0, "nothing is written");
    grant(&packages, &name, &[(REPOSITORIES, "repositories", &["clone", "edit"], &["blueprints"])]);
    let done = allowed(|| match upgrade(&user, &packages)? {
        operation if operation["status"]["phase"] == "Succeeded" => Ok(operation),
        // A decision of the cluster may be remembered.
        operation => Err(operation["status"]["packages"][0]["message"].to_string()),
    });
    let draft = packages.revision(done["status"]["packages"][0]["revision"].as_str().unwrap());
    assert_eq!(draft["status"]["changedBy"][0]["name"], name.as_str(), "{draft:#}");
    assert!(
        packages.files(draft["metadata"]["name"].as_str().unwrap())["settings.yaml"].as_str().unwrap().contains("new")
    );
}
