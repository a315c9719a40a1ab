//! What is committed to a GitOps repository is read back from clusters. No Flux or Argo CD is here: the test writes the
//! status of their objects as they do, to a real kube-apiserver with their kinds, reduced to what is read.

use std::sync::OnceLock;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, Repository, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server};

use crate::PATIENCE;

/// The kinds as their owners define them, but for schemas: that of Argo CD has no subresource `status`.
const KINDS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kustomizations.kustomize.toolkit.fluxcd.io}
spec:
  group: kustomize.toolkit.fluxcd.io
  scope: Namespaced
  names: {kind: Kustomization, listKind: KustomizationList, plural: kustomizations, singular: kustomization, shortNames: [ks]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {kind: Application, listKind: ApplicationList, plural: applications, singular: application, shortNames: [app]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Defines the kinds of Flux and Argo CD in the shared cluster.
pub(crate) fn define_kinds(kubectl: &Kubectl) {
    static DEFINED: OnceLock<()> = OnceLock::new();
    // Tests run side by side.
    DEFINED.get_or_init(|| {
        kubectl.apply(KINDS);
        for kind in ["kustomizations.kustomize.toolkit.fluxcd.io", "applications.argoproj.io"] {
            kubectl.run(&["wait", "--for=condition=Established", "--timeout=120s", &format!("crd/{kind}")]);
        }
    });
}

struct World {
    cluster: Cluster,
    organization: Organization,
}

impl World {
    fn kubectl(&self, args: &[&str]) -> String {
        let namespace = ["--namespace", self.organization.name.as_str()];
        self.cluster.kubectl().run(&[args, &namespace].concat())
    }

    /// Writes a status as its controller would.
    fn reports(&self, object: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let mut args = vec!["patch", object, "--type=merge", "--patch", patch.as_str()];
        if object.starts_with("kustomization") {
            args.push("--subresource=status");
        }
        self.kubectl(&args);
    }

    fn flux(&self, applied: &str, attempted: &str, ready: [&str; 3]) {
        let generation: i64 = self.kubectl(&["get", FLUX, "--output=jsonpath={.metadata.generation}"]).parse().unwrap();
        let [status, reason, message] = ready;
        let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": message,
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let revision = |commit: &str| format!("main@sha1:{commit}");
        self.reports(
            FLUX,
            &json!({"observedGeneration": generation, "lastAppliedRevision": revision(applied),
                "lastAttemptedRevision": revision(attempted), "conditions": [ready]}),
        );
    }

    fn argo(&self, revision: &str, health: &str) {
        let status = json!({"sync": {"status": "Synced", "revision": revision}, "health": {"status": health}});
        self.reports(ARGO, &status);
    }

    /// Waits until the stack's condition `Compliant` is so; its message, and the compliance of its deployment.
    fn complies(&self, status: &str, reason: &str) -> (String, Value) {
        self.cluster.kubectl().watch(&self.organization.name, "stacks/web", PATIENCE, |stack| {
            let is = condition(stack, "Compliant");
            let is_so = is["status"] == status && is["reason"] == reason;
            let compliance = stack["status"]["deployments"][0]["compliance"].clone();
            is_so.then(|| (is["message"].as_str().unwrap().to_owned(), compliance))
        })
    }
}

const FLUX: &str = "kustomization.kustomize.toolkit.fluxcd.io/apps";
const ARGO: &str = "application.argoproj.io/apps";

#[test]
fn stack_reports_flux_and_argo_cd_compliance() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    define_kinds(&kubectl);
    let organization = Organization::create(&cluster);
    let name = organization.name.clone();
    let world = World { cluster, organization };
    // Who may get the two objects and nothing else.
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: reader, namespace: {name}}}}}
---
{{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {{name: apps, namespace: {name}}}, spec: {{interval: 1m}}}}
---
{{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {{name: apps, namespace: {name}}}, spec: {{project: default}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: reader, namespace: {name}}}
rules:
- {{apiGroups: [kustomize.toolkit.fluxcd.io], resources: [kustomizations], resourceNames: [apps], verbs: [get]}}
- {{apiGroups: [argoproj.io], resources: [applications], resourceNames: [apps], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: reader, namespace: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: {name}}}]
"
    ));
    let token = world.kubectl(&["create", "token", "reader", "--duration=1h"]);
    let mut config: Value =
        serde_json::from_str(&kubectl.run(&["config", "view", "--raw", "--minify", "--flatten", "--output=json"]))
            .unwrap();
    config["users"][0]["user"] = json!({"token": token.trim()});
    kubectl.apply_secret(&name, "edge", &[("kubeconfig", &config.to_string())]);
    let access = json!({"namespace": name, "name": "edge", "key": "kubeconfig"});
    let object = json!({"namespace": name, "name": "apps"});
    let gitops = json!({
        "repository": format!("file://{}", world.organization.deploy.display()), "branch": "main", "createBranch": true,
        "compliance": {"interval": "3s", "reconcilers": [
            {"name": "flux", "kubeconfigSecretRef": access, "kustomization": object},
            {"name": "argo", "kubeconfigSecretRef": access, "application": object},
        ]},
    });
    let patch = json!({"spec": {"kubernetes": null, "gitops": gitops}}).to_string();
    kubectl.run(&["patch", "workspace.platform.stoa.dev", &name, "--type=merge", "--patch", &patch]);

    world.organization.stack("web", &config_maps(&name, 1, "one"));
    let run = world.organization.succeed("web", "Apply", "");
    let commit = run["status"]["gitopsCommit"].as_str().unwrap().to_owned();
    // Nobody has reconciled anything: Flux says nothing, Argo CD not even whether it is in sync.
    let (message, compliance) = world.complies("Unknown", "ComplianceUnknown");
    assert!(
        message.contains("flux: it has applied nothing yet") && message.contains("argo: it does not report"),
        "{message}"
    );
    assert_eq!(compliance["commit"], commit);

    // Flux is at the commit, and Argo CD at a later one of somebody else.
    let clone = Repository::clone_of(&world.organization.deploy);
    let later = clone.commit("README.md", "What is deployed.\n");
    clone.git(&["push", "--quiet"]);
    world.flux(&commit, &commit, ["True", "ReconciliationSucceeded", "Applied revision"]);
    world.argo(&later, "Progressing");
    let (message, _) = world.complies("False", "Reconciling");
    assert!(message.contains("argo: its health is Progressing") && !message.contains("flux"), "{message}");
    world.argo(&later, "Healthy");
    let (_, compliance) = world.complies("True", "Compliant");
    let states: Vec<_> = compliance["reconcilers"].as_array().unwrap().iter().map(|of| &of["revision"]).collect();
    assert_eq!(states, [&json!(format!("main@sha1:{commit}")), &json!(later)]);

    // The next run commits something that does not become ready.
    world.organization.stack("web", &config_maps(&name, 1, "two"));
    let run = world.organization.succeed("web", "Apply", "");
    let next = run["status"]["gitopsCommit"].as_str().unwrap();
    world.flux(&commit, next, ["False", "HealthCheckFailed", "timeout waiting for: [Deployment/shop/web]"]);
    let (message, _) = world.complies("False", "NonCompliant");
    assert!(message.contains("flux: timeout waiting for: [Deployment/shop/web]"), "{message}");

    // Who may not look says so, and nothing of the credentials.
    world.kubectl(&["delete", "rolebinding", "reader"]);
    let (message, compliance) = world.complies("Unknown", "ComplianceUnknown");
    assert!(message.contains("cannot get resource \"kustomizations\""), "{message}");
    assert!(!compliance.to_string().contains(token.trim()));
}
