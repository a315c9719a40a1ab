//! Stoa on its own with a remote of record: what is decided gets there, what people push there is decided, and neither
//! waits for the other.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::remote::{ControlRemote, committed};
use stoa_e2e::{Kubectl, Server as _, Standalone, eventually, git};
use stoa_git::testing::{Behaviour, SshServer};

/// Longer than a remote may be away before organizations are told.
const PATIENCE: Duration = Duration::from_secs(120);

fn recorded(kubectl: &Kubectl, organization: &str, status: &str) -> Value {
    kubectl.watch("", &format!("organization/{organization}"), PATIENCE, |organization| {
        let recorded = condition(organization, "Recorded");
        (recorded["status"] == status).then_some(recorded)
    })
}

fn described(kubectl: &Kubectl, organization: &str, description: &str) {
    kubectl.watch("", &format!("organization/{organization}"), PATIENCE, |organization| {
        (organization["spec"]["description"] == description).then_some(())
    });
}

fn label(kubectl: &Kubectl, organization: &str, value: &str) {
    kubectl.run(&["label", "--overwrite", "organization", organization, &format!("tier={value}")]);
}

fn until_pushed(remote: &ControlRemote, file: &str, text: &str) {
    eventually(&format!("{file} has {text}"), PATIENCE, || {
        remote.file(file).is_some_and(|file| file.contains(text)).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn remote_joins_decisions_and_pushes_after_outage() {
    let remote = ControlRemote::start().await;
    let mut server = Standalone::start_with(&remote.arguments());
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let name = &organization.name;
    let file = format!("organizations/{name}/organization.yaml");
    label(&kubectl, name, "front");
    until_pushed(&remote, &file, "tier: front");

    remote.push(&file, |text| text.unwrap().replace("description: A test", "description: Pushed # by hand"));
    described(&kubectl, name, "Pushed");
    label(&kubectl, name, "back");
    until_pushed(&remote, &file, "tier: back");
    assert!(remote.file(&file).unwrap().contains("# by hand"));

    // Away: writes go on, and whoever wants to know can.
    remote.server.behave(Behaviour::Away);
    for n in 0..20 {
        label(&kubectl, name, &format!("away-{n}"));
    }
    let said = recorded(&kubectl, name, "False");
    assert_eq!(said["reason"], "RemoteUnavailable", "{said:#}");
    assert!(said["message"].as_str().unwrap().contains("503"), "{said:#}");
    kubectl.raw("/readyz");
    let metrics = kubectl.raw("/metrics");
    for line in ["stoa_git_remote_up 0", "stoa_git_failing 1"] {
        assert!(metrics.lines().any(|told| told == line), "no {line}");
    }
    assert!(!remote.file(&file).unwrap().contains("away"));
    remote.server.behave(Behaviour::Normal);
    until_pushed(&remote, &file, "tier: away-19");
    assert_eq!(recorded(&kubectl, name, "True")["reason"], "Available");
    let events = |kind: &str| {
        let about = format!("--field-selector=type={kind},involvedObject.kind=Organization,involvedObject.name={name}");
        let told = kubectl.run(&[
            "get",
            "events",
            "--output=jsonpath={range .items[*]}{.reason} {.count}{'\\n'}{end}",
            &about,
        ]);
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(events("Warning"), ["RemoteUnavailable 1"]);
    assert!(events("Normal").contains(&"Recorded 1".to_owned()), "{:?}", events("Normal"));

    // Another token is taken when it is there, and none is told.
    let (wrong, new) = ("this-one-is-wrong", "and-this-one-is-new");
    remote.show_token(wrong);
    remote.server.set_password(new);
    label(&kubectl, name, "locked-out");
    let said = recorded(&kubectl, name, "False");
    assert_eq!(said["reason"], "RemoteUnauthorized", "{said:#}");
    remote.show_token(new);
    until_pushed(&remote, &file, "tier: locked-out");
    let said = recorded(&kubectl, name, "True");
    let organization = kubectl.get(&["organization", name]);
    let told = format!("{}{said:#}{organization:#}{}", server.log(), kubectl.raw("/metrics"));
    for secret in [ControlRemote::TOKEN, wrong, new] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }

    // The copy here may be lost.
    server.kill();
    std::fs::remove_dir_all(server.data().join("control.git")).unwrap();
    remote.push(&file, |text| text.unwrap().replace("description: Pushed", "description: Pushed again"));
    server.restart();
    described(&kubectl, name, "Pushed again");
    label(&kubectl, name, "after-all");
    until_pushed(&remote, &file, "tier: after-all");
    let commits = committed(&remote.repository());
    assert!(commits.len() > 24 && commits.values().all(|count| *count == 1), "{commits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ssh_carries_pushes_sources_and_deployments() {
    let Some(ssh) = SshServer::start().await else { return };
    let remote = ControlRemote::start().await;
    let server = Standalone::start_with(&remote.arguments_over(&ssh));
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let name = &organization.name;
    let key = ssh.private_key();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
        "metadata": {"name": "git", "namespace": name},
        "stringData": {"ssh-privatekey": key, "known_hosts": ssh.known_hosts()}});
    kubectl.apply(&secret.to_string());
    let url = |repository: &Path| ssh.url(&format!("{}@", SshServer::user()), repository);
    let source = json!({"spec": {"remote": url(organization.source.path()), "secretRef": {"name": "git"}}});
    let target = json!({"spec": {"gitops": {"repository": url(&organization.deploy), "createBranch": true,
        "secretRef": {"namespace": name, "name": "git"}}}});
    for (object, patch) in [("source/config", source), (&*format!("workspace/{name}"), target)] {
        kubectl.run(&["patch", object, "--namespace", name, "--type=merge", "--patch", &patch.to_string()]);
    }

    let commit = organization.stack("web", &config_maps(&format!("{name}-web"), 1, "a"));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["source"]["commit"], commit, "{run:#}");
    let deployed = run["status"]["gitopsCommit"].as_str().unwrap_or_else(|| panic!("{run:#}"));
    assert_eq!(deployed, git(&organization.deploy, &["rev-parse", "main"]).trim());

    let file = format!("organizations/{name}/organization.yaml");
    label(&kubectl, name, "front");
    until_pushed(&remote, &file, "tier: front");
    remote.push(&file, |text| text.unwrap().replace("description: A test", "description: Pushed"));
    described(&kubectl, name, "Pushed");
    let told = format!("{}{run:#}{}", server.log(), kubectl.raw("/metrics"));
    for line in key.lines().filter(|line| !line.starts_with('-')) {
        assert!(!told.contains(line), "{line} in {told}");
    }
}
