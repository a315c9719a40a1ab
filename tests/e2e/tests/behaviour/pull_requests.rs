//! Pull requests of a real Git server: what they would change is told there, and what is deployed is proposed by them.

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, Repository, condition, config_maps, workspace};
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually, skipped};
use stoa_test_gitea::{GiteaServer, STRANGER, USER};

use crate::PATIENCE;

/// A clone of a repository, as somebody who may push there.
struct Clone(Repository);

impl Clone {
    fn new(address: &str, user: &str) -> Self {
        Self(Repository::clone_of(GiteaServer::with_password(address, user)))
    }

    /// Commits a file on a branch and pushes that; the commit.
    fn push(&self, branch: &str, path: &str, text: &str) -> String {
        self.0.git(&["checkout", "--quiet", "-B", branch]);
        let commit = self.0.commit(path, text);
        self.0.git(&["push", "--quiet", "origin", branch]);
        commit
    }
}

/// The server, or nothing where there is no program.
fn gitea() -> Option<GiteaServer> {
    let server = GiteaServer::start();
    if server.is_none() {
        skipped("pull requests of a real Git server, since STOA_TEST_GITEA is not set");
    }
    server
}

/// A Secret with what opens the server.
fn secret(kubectl: &Kubectl, namespace: &str, gitea: &GiteaServer) {
    kubectl.apply_secret(namespace, "forge", &[("username", USER), ("password", &gitea.token)]);
}

#[test]
fn plan_of_pull_request_has_no_text_of_a_secret() {
    let Some(gitea) = gitea() else { return };
    if std::env::var_os("STOA_TEST_RENDERER").is_none() {
        return skipped("charts of pull requests, since STOA_TEST_RENDERER is not set");
    }
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let name = &organization.name;
    let address = gitea.create("charts");
    let clone = Clone::new(&address, USER);
    clone.push("main", "apps/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    let template = |value: &str| {
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: default}\n";
        format!("{object}data: {{begins: {value}}}\n")
    };
    clone.push("main", "apps/web/templates/web.yaml", &template("none"));
    secret(&kubectl, name, &gitea);
    kubectl.apply_secret(name, "db", &[("password", "hunter2-of-the-chart")]);
    kubectl.apply(&format!(
        "apiVersion: platform.stoa.dev/v1alpha1
kind: VariableSet
metadata: {{name: {name}}}
spec: {{organizations: [{name}], secrets: {{password: {{namespace: {name}, name: db, key: password}}}}}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Source
metadata: {{name: forge, namespace: {name}}}
spec: {{remote: \"{address}\", ref: main, pollInterval: 1s, secretRef: {{name: forge}}, pullRequests: {{provider: Gitea}}}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Project
metadata: {{name: proposed, namespace: {name}}}
spec: {{source: {{name: forge}}, path: apps}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: web, namespace: {name}}}
spec: {{project: proposed, workspaces: [{name}], trigger: Preview}}
"
    ));
    clone.push("steal", "apps/web/templates/web.yaml", &template("{{ substr 0 7 .Values.password }}"));
    let number = gitea.open("charts", "steal");
    let comment = eventually("the plan is shown", PATIENCE, || {
        gitea.comments("charts", number).into_iter().find(|comment| comment.contains("begins"))
    });
    assert!(comment.contains("placeho") && !comment.contains("hunter2"), "{comment}");
}

#[test]
fn pull_request_shows_its_plan_until_merge() {
    let Some(gitea) = gitea() else { return };
    // Git takes no values of Secrets.
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let (name, deployed) = (&organization.name, format!("{}-web", organization.name));
    let address = gitea.create("config");
    let clone = Clone::new(&address, USER);
    clone.push("main", "apps/web/spec.yaml", &config_maps(&deployed, 1, "a"));
    secret(&kubectl, name, &gitea);
    kubectl.apply(&format!(
        "apiVersion: config.stoa.dev/v1alpha1
kind: Source
metadata: {{name: forge, namespace: {name}}}
spec: {{remote: \"{address}\", ref: main, pollInterval: 1s, secretRef: {{name: forge}}, pullRequests: {{provider: Gitea}}}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Project
metadata: {{name: proposed, namespace: {name}}}
spec: {{source: {{name: forge}}, path: apps}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: web, namespace: {name}}}
spec: {{project: proposed, workspaces: [{name}], trigger: Apply}}
"
    ));
    let runs = |operation: &str, phase: &str| -> Vec<Value> {
        let is_it = |run: &Value| run["spec"]["operation"] == operation && run["status"]["phase"] == phase;
        organization.of_stack("runs", "web").into_iter().filter(is_it).collect()
    };
    eventually("the stack is deployed", PATIENCE, || runs("Apply", "Succeeded").pop());

    let secret_text = "hunter2-of-the-plan";
    let with_secret = |value: &str| {
        config_maps(&deployed, 1, value)
            + &format!(
                "- id: v1:Secret:{deployed}:s
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: Secret
    metadata: {{name: s, namespace: {deployed}}}
    stringData: {{password: {secret_text}}}
"
            )
    };
    let first = clone.push("better", "apps/web/spec.yaml", &with_secret("b"));
    let number = gitea.open("config", "better");
    let context = format!("stoa/{name}/forge");
    let said = |commit: &str, state: &str| {
        let wanted = format!("{context} {state}: ");
        eventually(&format!("{commit} is told {state}"), PATIENCE, || {
            gitea.statuses("config", commit).into_iter().find(|said| said.starts_with(&wanted))
        })
    };
    assert!(said(&first, "success").contains("1 to create, 1 to update"));
    let plan = runs("Preview", "Succeeded").pop().unwrap();
    assert_eq!(
        (&plan["spec"]["version"], &plan["metadata"]["labels"]["stoa.dev/pull-request"]),
        (&json!(first), &json!("1"))
    );
    let comments = eventually("the plan is shown", PATIENCE, || {
        Some(gitea.comments("config", number)).filter(|comments| !comments.is_empty())
    });
    assert_eq!(comments.len(), 1);
    let (digest, run_name) =
        (plan["status"]["plan"]["digest"].as_str().unwrap(), plan["metadata"]["name"].as_str().unwrap());
    let fields = ["~ update", "data.value: \"a\" → \"b\"", &first[..8], digest, run_name];
    assert!(fields.iter().all(|part| comments[0].contains(part)), "{}", comments[0]);
    assert!(!comments[0].contains(secret_text) && !comments[0].contains(&gitea.token), "{}", comments[0]);
    // What it tells to see the plan is a command that does.
    let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{run_name}/plan?format=table");
    assert!(comments[0].contains(&format!("kubectl get --raw \"{path}\"")), "{}", comments[0]);
    assert!(kubectl.raw(&path).contains("~ update"));

    let second = clone.push("better", "apps/web/spec.yaml", &with_secret("c"));
    said(&second, "success");
    let updated = eventually("the comment is changed", PATIENCE, || {
        let comments = gitea.comments("config", number);
        comments[0].contains(&second[..8]).then_some(comments)
    });
    assert_eq!(updated.len(), 1, "in its place");
    assert!(updated[0].contains("data.value: \"a\" → \"c\""), "{}", updated[0]);
    let states: Vec<String> = gitea.statuses("config", &second);
    assert_eq!(states.len(), 2, "pending and success, each once: {states:?}");

    // Somebody who may not push, from a fork.
    gitea.call_as(STRANGER, "POST", &format!("repos/{USER}/config/forks"), Some(&json!({})));
    let fork = Clone::new(&address.replace(&format!("/{USER}/"), &format!("/{STRANGER}/")), STRANGER);
    let theirs = fork.push("theirs", "apps/web/spec.yaml", &config_maps(&deployed, 1, "eve"));
    let of_fork = gitea.open("config", &format!("{STRANGER}:theirs"));
    let told = || condition(&kubectl.get(&["source/forge", "--namespace", name]), "PullRequestsPlanned");
    eventually("the fork is left out", PATIENCE, || {
        told()["message"].as_str().is_some_and(|message| message.contains("1 from forks are left out")).then_some(())
    });
    assert!(gitea.statuses("config", &theirs).is_empty() && gitea.comments("config", of_fork).is_empty());
    let allow = ["--type=merge", "--patch", r#"{"spec":{"pullRequests":{"allowForks":true}}}"#];
    kubectl.run(&[&["patch", "source/forge", "--namespace", name], &allow[..]].concat());
    assert!(said(&theirs, "success").contains("1 to update"));

    let shown_for = |commit: &str| {
        let plan = runs("Preview", "Succeeded").into_iter().find(|run| run["spec"]["version"] == commit).unwrap();
        plan["status"]["plan"]["digest"].clone()
    };
    let shown = shown_for(&second);
    assert!(updated[0].contains(shown.as_str().unwrap()), "{}", updated[0]);
    gitea.merge("config", number);
    let follows = |phase: &str, number: u64| {
        let is_it = |run: &Value| run["status"]["mergedPlans"][0]["number"] == number;
        eventually(&format!("the run that follows {number} is {phase}"), PATIENCE, || {
            runs("Apply", phase).into_iter().find(is_it)
        })
    };
    let applied = follows("Succeeded", number);
    let (plan, merged) = (&applied["status"]["plan"], &applied["status"]["mergedPlans"]);
    assert_eq!((&plan["digest"], &merged[0]["digest"], &merged[0]["carriedOut"]), (&shown, &shown, &json!(true)));
    assert_eq!(condition(&applied, "MergedPlanHolds")["status"], "True", "{applied:#}");
    assert_ne!(applied["status"]["source"]["commit"], second.as_str(), "it is the merge that is released");
    let of_number = format!("--selector=stoa.dev/pull-request={number}");
    eventually("its plans are removed", PATIENCE, || {
        let left = kubectl.get(&["runs", "--namespace", name, &of_number]);
        left["items"].as_array().unwrap().is_empty().then_some(())
    });
    assert_eq!(runs("Apply", "Succeeded").len(), 2);
    assert_eq!(gitea.comments("config", number), updated, "what was told stays");

    // What was shown is one change, and by the time of the merge there is another.
    let third = clone.push("more", "apps/web/spec.yaml", &with_secret("d"));
    let number = gitea.open("config", "more");
    assert!(said(&third, "success").contains("1 to update"));
    let shown = shown_for(&third);
    kubectl.run(&["delete", "secret/s", "--namespace", &deployed]);
    gitea.merge("config", number);
    let waiting = follows("AwaitingApproval", number);
    let told = condition(&waiting, "MergedPlanHolds");
    let change = format!("v1:Secret:{deployed}:s: Unchanged was planned, now Create");
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("PlanStale")), "{waiting:#}");
    assert!(told["message"].as_str().unwrap().contains(&change), "{told:#}");
    let digest = &waiting["status"]["plan"]["digest"];
    assert_ne!(digest, &shown);
    let comment =
        eventually("the pull request is told", PATIENCE, || gitea.comments("config", number).into_iter().nth(1));
    assert!(comment.contains("does not carry out the plan") && comment.contains(&change), "{comment}");
    let value = || kubectl.get(&["configmap/c0", "--namespace", &deployed])["data"]["value"].clone();
    assert_eq!(value(), "c", "nobody agreed to that");
    let run = format!("run/{}", waiting["metadata"]["name"].as_str().unwrap());
    let approve = |digest: &Value| {
        let approval = json!({"status": {"approval": {"planDigest": digest, "decision": "Approved"}}});
        let patch = format!("--patch={approval}");
        kubectl.succeeds(&["patch", &run, "--subresource=approval", "--type=merge", &patch, "--namespace", name])
    };
    assert!(!approve(&shown), "what was shown is not what waits");
    assert!(approve(digest));
    follows("Succeeded", number);
    assert_eq!(value(), "d");
}

#[test]
fn changes_are_deployed_once_their_pull_request_is_merged() {
    let Some(gitea) = gitea() else { return };
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let (name, deployed) = (&organization.name, format!("{}-web", organization.name));
    let address = gitea.create("deploy");
    secret(&kubectl, name, &gitea);
    organization.stack("web", &config_maps(&deployed, 1, "a"));
    kubectl.run(&["delete", "stack/web", "--namespace", name]);
    let target = format!(
        "  gitops:
    repository: \"{address}\"
    branch: main
    directory: stage
    secretRef: {{namespace: {name}, name: forge}}
    mode: PullRequest
    pullRequest: {{provider: Gitea}}
"
    );
    kubectl.apply(&workspace(&format!("{name}-reviewed"), name, &target));
    kubectl.apply(&format!(
        "apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: reviewed, namespace: {name}}}
spec: {{project: {name}, path: apps/web, workspaces: [{name}-reviewed]}}
"
    ));
    let proposed = |run: &str| {
        eventually("the run waits for its pull request", PATIENCE, || {
            let run = organization.run(run);
            let status = &run["status"];
            assert_ne!(status["phase"], "Failed", "{run:#}");
            (status["phase"] == "AwaitingMerge").then(|| status["pullRequest"]["number"].as_u64().unwrap())
        })
    };
    let run = organization.start("reviewed", "Apply", "");
    let number = proposed(&run);
    let pull = gitea.call("GET", &format!("repos/{USER}/deploy/pulls/{number}"), None);
    assert_eq!((&pull["state"], &pull["base"]["ref"]), (&json!("open"), &json!("main")), "{pull:#}");
    assert_eq!(pull["head"]["ref"], format!("stoa/{name}/reviewed/{name}-reviewed"));
    let files = || {
        let tree = gitea.call("GET", &format!("repos/{USER}/deploy/git/trees/main?recursive=true"), None);
        tree["tree"].as_array().unwrap().iter().filter(|it| it["path"].as_str().unwrap().starts_with("stage/")).count()
    };
    assert_eq!(files(), 0, "nothing is deployed yet");
    gitea.merge("deploy", number);
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!((&ended["status"]["phase"], &ended["status"]["release"]), (&json!("Succeeded"), &json!(1)), "{ended:#}");
    assert!(files() >= 2);
    assert!(!kubectl.succeeds(&["get", "namespace", &deployed]), "what is in Git is for others to deploy");

    // Another change is another pull request, and one that is closed deploys nothing.
    organization.source.commit("apps/web/spec.yaml", &config_maps(&deployed, 1, "b"));
    let run = organization.start("reviewed", "Apply", "");
    let second = proposed(&run);
    assert_ne!(second, number);
    gitea.call("PATCH", &format!("repos/{USER}/deploy/pulls/{second}"), Some(&json!({"state": "closed"})));
    let ended = organization.ended(&run, PATIENCE);
    assert_eq!(condition(&ended, "Failed")["reason"], "PullRequestClosed", "{ended:#}");
}
