//! Hooks of charts: Jobs that run before and after the changes of a Run, in Helm's order. The annotations count in any manifest.

use std::time::Duration;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition};
use stoa_e2e::{Cluster, Kubectl, Server as _};

use crate::rendering;

/// A Job of this event that completes at once.
fn job(namespace: &str, name: &str, annotations: &str) -> String {
    job_of(namespace, name, annotations, "completions: 0")
}

fn job_of(namespace: &str, name: &str, annotations: &str, spec: &str) -> String {
    format!(
        "---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}, annotations: {{{annotations}}}}}
spec:
  {spec}
  template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: none}}]}}}}
"
    )
}

fn config_map(namespace: &str, name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}{more}}}\ndata: {{a: b}}\n"
    )
}

/// The uid of an object; nothing if it is not there.
fn uid(kubectl: &Kubectl, namespace: &str, object: [&str; 2]) -> Option<String> {
    let object = kubectl.try_get(&[object[0], object[1], "--namespace", namespace])?;
    Some(object["metadata"]["uid"].as_str().unwrap().to_owned())
}

/// The ids of hooks with their phases, in the order of a Run's status.
fn hooks(run: &Value) -> Vec<String> {
    let resources = run["status"]["resources"].as_array().into_iter().flatten();
    let hooks = resources.filter(|resource| resource["action"] == "Hook");
    hooks
        .map(|hook| {
            format!("{} {}", hook["id"].as_str().unwrap().rsplit(':').next().unwrap(), hook["phase"].as_str().unwrap())
        })
        .collect()
}

fn commit(kubectl: &Kubectl, organization: &Organization, files: &[String]) {
    organization.source.commit("apps/web/all.yaml", &files.concat());
    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: web, namespace: {name}}},
          spec: {{project: {name}, workspaces: [{name}]}}}}",
        name = organization.name
    ));
}

#[test]
fn hooks_run_at_their_events_in_order() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let (name, kubectl) = (organization.name.clone(), cluster.kubectl());
    let created = |kind: &str, object: &str| uid(&kubectl, &name, [kind, object]);
    let all = [
        config_map(&name, "settings", ""),
        config_map(&name, "kept", ", annotations: {helm.sh/resource-policy: keep}"),
        job(&name, "last", "helm.sh/hook: post-install"),
        job(&name, "second", "helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-weight: '5'"),
        job(&name, "first", "helm.sh/hook: pre-install, helm.sh/hook-delete-policy: hook-succeeded"),
        job(&name, "goodbye", "helm.sh/hook: pre-delete"),
        job(&name, "tested", "helm.sh/hook: test"),
    ];
    commit(&kubectl, &organization, &all);
    let preview = organization.succeed("web", "Preview", "");
    assert_eq!(hooks(&preview), ["first Planned", "second Planned", "last Planned"]);
    let summary = &preview["status"]["plan"]["summary"];
    assert_eq!((&summary["create"], &summary["hooks"]), (&2.into(), &3.into()), "{preview:#}");

    let run = organization.succeed("web", "Apply", "");
    assert_eq!(hooks(&run), ["first Done", "second Done", "last Done"]);
    let log = kubectl.raw(&format!(
        "/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{}/log",
        run["metadata"]["name"].as_str().unwrap()
    ));
    let order =
        ["hook:pre-install:batch/v1:Job", "v1:ConfigMap", "hook:post-install:batch/v1:Job"].map(|id| log.rfind(id));
    assert!(order[0].is_some() && order.is_sorted(), "{log}");
    assert_eq!(created("job", "first"), None, "its policy deletes it");
    let second = created("job", "second").unwrap();
    let last = created("job", "last");
    assert_eq!(["goodbye", "tested"].map(|job| created("job", job)), [None, None]);
    assert_eq!(organization.recorded("web").0, 2, "hooks are no part of the deployment");
    let refresh = organization.succeed("web", "Refresh", "");
    assert_eq!(refresh["status"]["plan"]["summary"]["update"], 0, "hooks do not drift: {refresh:#}");

    // An upgrade runs its own hooks, and replaces the objects of the earlier ones.
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(hooks(&run), ["second Done"]);
    assert_ne!(created("job", "second").unwrap(), second);
    assert_eq!(created("job", "last"), last);
    let run = organization.succeed("web", "Apply", "skipHooks: true");
    assert_eq!(hooks(&run), [""; 0]);

    let run = organization.succeed("web", "Destroy", "");
    assert_eq!(hooks(&run), ["goodbye Done"]);
    assert!(created("configmap", "settings").is_none());
    assert!(created("configmap", "kept").is_some(), "its policy keeps it");
    assert!(created("job", "goodbye").is_some());
}

/// A template of a chart with a Job that completes at once.
fn template(name: &str, annotations: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata:
  name: {{{{ .Release.Name }}}}-{name}
  annotations:
{annotations}
spec:
  completions: 0
  template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: {{{{ .Values.image }}}}}}]}}}}
"
    )
}

#[test]
fn chart_hooks_run_around_its_changes() {
    if !rendering::is_there() {
        return;
    }
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let (name, kubectl) = (organization.name.clone(), cluster.kubectl());
    let created = |kind: &str, object: &str| uid(&kubectl, &name, [kind, object]);
    let file = |path: &str, text: &str| organization.source.commit(&format!("apps/chart/{path}"), text);
    file("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    file("values.yaml", "image: none\ncolor: blue\n");
    file(
        "templates/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\ndata: {color: {{ .Values.color }}}\n",
    );
    let policy = "    helm.sh/hook-delete-policy: hook-succeeded,before-hook-creation";
    file("templates/migrate.yaml", &template("migrate", &format!("    helm.sh/hook: pre-install\n{policy}")));
    file(
        "templates/prepare.yaml",
        &template("prepare", "    helm.sh/hook: pre-install,pre-upgrade\n    helm.sh/hook-weight: \"-5\""),
    );
    file("templates/notify.yaml", &template("notify", "    helm.sh/hook: post-install,post-upgrade"));
    file("templates/tests/check.yaml", &template("check", "    helm.sh/hook: test"));
    let generator = format!("{{type: Helm, helm: {{name: web, namespace: {name}}}}}");
    rendering::stack(&kubectl, &name, "web", "apps/chart", &generator);

    let run = organization.succeed("web", "Apply", "");
    assert_eq!(hooks(&run), ["web-prepare Done", "web-migrate Done", "web-notify Done"]);
    assert_eq!(created("job", "web-migrate"), None, "its policy deletes it");
    let prepared = created("job", "web-prepare").unwrap();
    assert!(created("job", "web-notify").is_some() && created("configmap", "web-settings").is_some());
    assert_eq!(created("job", "web-check"), None, "tests of a chart do not run");
    assert_eq!(organization.recorded("web").0, 1, "hooks are no part of the deployment");

    file("values.yaml", "image: none\ncolor: green\n");
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(hooks(&run), ["web-prepare Done", "web-notify Done"]);
    assert_ne!(created("job", "web-prepare").unwrap(), prepared, "the object of the earlier hook is replaced");
    let settings = kubectl.get(&["configmap", "web-settings", "--namespace", &name]);
    assert_eq!(settings["data"]["color"], "green");
    organization.succeed("web", "Destroy", "");
    assert_eq!(created("configmap", "web-settings"), None);
}

#[test]
fn failed_hook_fails_run_by_name() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let (name, kubectl) = (organization.name.clone(), cluster.kubectl());
    let created = |kind: &str, object: &str| uid(&kubectl, &name, [kind, object]);
    let failing = job_of(&name, "migrate", "helm.sh/hook: pre-install", "activeDeadlineSeconds: 1");
    commit(
        &kubectl,
        &organization,
        &[config_map(&name, "settings", ""), failing, job(&name, "after", "helm.sh/hook: post-install")],
    );
    let run = organization.ended(&organization.start("web", "Apply", ""), Duration::from_secs(120));
    let message = condition(&run, "Failed")["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&format!("batch/v1:Job:{name}:migrate")), "{message}");
    assert!(message.contains("the pre-install hook failed: "), "{message}");
    assert!(message.contains(&format!("kubectl logs -n {name} job/migrate")), "{message}");
    assert_eq!(hooks(&run), ["migrate Failed", "after Skipped"]);
    assert!(created("configmap", "settings").is_none(), "nothing is applied after a failed hook");

    commit(
        &kubectl,
        &organization,
        &[config_map(&name, "settings", ""), job(&name, "migrate", "helm.sh/hook: pre-install")],
    );
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(hooks(&run), ["migrate Done"], "nothing was installed before");
}
