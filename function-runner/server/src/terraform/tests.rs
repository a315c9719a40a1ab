//! Providers from mirrors: scripts that play wrong ones, and real ones where `STOA_TEST_TERRAFORM_PROVIDERS` names them.

mod bed;
mod failures;
mod installations;

use std::collections::BTreeSet;
use std::time::Duration;

use stoa_git::cache::Bounds;
use stoa_pki::CertificateAuthority;
use stoa_proto::ProviderSecrets;
use stoa_terraform_provider::value::{Json, Value};

use self::bed::{Bed, Scene, provider};
use crate::secret_store::Variable;

/// The ids of the processes that runs of workspaces use.
async fn processes(scenes: &[Scene<'_>]) -> BTreeSet<u32> {
    let mut ids = BTreeSet::new();
    for scene in scenes {
        ids.insert(scene.get("frame").await.unwrap().process().id().unwrap());
    }
    ids
}

#[tokio::test]
async fn organizations_and_configurations_have_processes_of_their_own() {
    let Some(executable) = provider("frame") else { return };
    let bed = Bed::new();
    bed.unpacked("frame", "1.0.0", &executable);
    let scene = |organization: &str, folder: &str| {
        let configuration = format!(r#"{{"folder":{folder:?}}}"#);
        bed.scene(organization).with_configuration("frame", &configuration)
    };
    let ids = processes(&[scene("a", "/one"), scene("a", "/two"), scene("b", "/one"), scene("a", "/one")]).await;
    assert_eq!(ids.len(), 3);
    // What a resource and a Secret say is a part of the configuration, and the environment is.
    let mut secret = scene("a", "/one");
    let configuration = [("folder".to_owned(), "/three".into())].into();
    secret
        .workspace
        .provider_secrets
        .insert("frame".to_owned(), ProviderSecrets { configuration, ..Default::default() });
    let mut environment = scene("a", "/one");
    let variables = [("TOKEN".to_owned(), "secret".into())].into();
    environment
        .workspace
        .provider_secrets
        .insert("frame".to_owned(), ProviderSecrets { environment: variables, ..Default::default() });
    let own = scene("a", "/one").of_resource(r#"{"folder":"/two"}"#);
    let more = processes(&[secret, environment, own]).await;
    assert_eq!(more.difference(&ids).count(), 2, "the resource has the configuration of the second workspace");
}

#[tokio::test]
async fn settings_override_each_other_argument_by_argument() {
    let bed = Bed::new();
    let mut scene = bed
        .scene("a")
        .with_configuration("x", r#"{"a":"workspace","b":"workspace","c":"workspace","n":1.50}"#)
        .of_resource(r#"{"c":"resource"}"#);
    let secret = ["b", "c"].map(|name| (name.to_owned(), "secret".into())).into();
    let environment = [("TOKEN".to_owned(), "hunter2".into())].into();
    let secrets = ProviderSecrets { configuration: secret, environment };
    scene.workspace.provider_secrets.insert("x".to_owned(), secrets);
    let variable = |value: &str| Variable { value: value.to_owned(), is_secret: true };
    let variables = [("TOKEN", variable("weaker")), ("PASSWORD", variable("hunter3"))];
    scene.variables = variables.map(|(name, variable)| (name.to_owned(), variable)).into();
    let configured = scene.configured("x").unwrap();
    let expected = r#"{"a":"workspace","b":"secret","c":"resource","n":1.5}"#;
    assert_eq!(configured.configuration.to_string(), expected);
    let environment = [("PASSWORD".into(), "hunter3".into()), ("TOKEN".into(), "hunter2".into())];
    assert_eq!(configured.environment, environment);
    for secret in ["hunter2", "hunter3"] {
        assert_eq!(configured.secrets.redact(&format!("denied: {secret}")), "denied: (sensitive)");
    }
}

#[tokio::test]
async fn destination_has_no_secret() {
    let bed = Bed::new();
    assert_eq!(bed.scene("a").destination(), "Terraform providers");
    let destination = |configuration: &str, secret: &str| {
        let mut scene = bed.scene("a").with_configuration("x", configuration);
        let configuration = [("token".to_owned(), secret.as_bytes().to_vec().into())].into();
        let secrets = ProviderSecrets { configuration, ..Default::default() };
        scene.workspace.provider_secrets.insert("x".to_owned(), secrets);
        scene.destination()
    };
    let first = destination(r#"{"region":"a"}"#, "hunter2");
    assert!(first.starts_with("Terraform providers registry.terraform.io/hashicorp/x with configuration "), "{first}");
    assert_eq!(first, destination(r#"{"region":"a"}"#, "renewed"));
    assert_ne!(first, destination(r#"{"region":"b"}"#, "hunter2"));
}

#[tokio::test]
async fn calls_wait_for_a_process() {
    let Some(executable) = provider("frame") else { return };
    let bed = Bed::with_processes(1);
    bed.unpacked("frame", "1.0.0", &executable);
    let scene = |folder: &str| bed.scene("a").with_configuration("frame", &format!(r#"{{"folder":{folder:?}}}"#));
    let first = scene("/one").get("frame").await.unwrap();
    let next = scene("/two");
    let mut waiting = Box::pin(next.get("frame"));
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut waiting).await.is_err(), "the first one is in use");
    let id = first.process().id();
    drop(first);
    assert_ne!(waiting.await.unwrap().process().id(), id);
}

#[tokio::test]
async fn provider_reaches_servers_only_with_the_network() {
    let (Some(executable), Some(runner)) = (provider("tls"), bed::runner()) else { return };
    let bed = Bed::sandboxed(runner);
    bed.unpacked("tls", "4.0.4", &executable);
    let authority = CertificateAuthority::new("server test").unwrap();
    let server = installations::serve(&authority, |_| hyper::Response::default()).await;
    let read = async |scene: Scene<'_>| {
        let lease = scene.get("tls").await.unwrap();
        let config = format!(r#"{{"url":"{server}","verify_chain":false}}"#);
        let config = Value::from_json(Json::parse(config.as_bytes()).unwrap());
        let config = lease.schemas().data_sources["tls_certificate"].configuration(config).unwrap();
        lease.read_data_source("tls_certificate", &config).await.unwrap().diagnostics
    };
    let allowed = read(bed.scene("a")).await;
    assert!(!allowed.has_errors(), "{allowed}");
    let denied = read(bed.scene("a").without_network()).await.to_string();
    assert!(denied.contains("operation not permitted"), "{denied}");
}

#[tokio::test]
async fn unused_packages_may_be_swept() {
    let bed = Bed::idle_for(Duration::from_millis(100));
    bed.script("x", "exit 0");
    bed.scene("a").failure("x").await;
    let packages = || std::fs::read_dir(bed.caches().join("providers")).unwrap().count();
    assert_eq!(packages(), 1);
    let sweep = Bounds { unused: Duration::ZERO, bytes: 0 };
    let installed = bed.scene("a").package("x").await;
    assert_eq!((bed.folders.sweep(sweep).unwrap(), packages()), (0, 1), "it is in use");
    drop(installed);
    while bed.folders.sweep(sweep).unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(packages(), 0);
}

#[tokio::test]
async fn shutdown_ends_all_processes() {
    let Some(executable) = provider("random") else { return };
    let bed = Bed::new();
    bed.unpacked("random", "3.6.0", &executable);
    let scene = bed.scene("a");
    let lease = scene.get("random").await.unwrap();
    let process = format!("/proc/{}", lease.process().id().unwrap());
    bed.terraform.shut_down().await;
    assert!(!std::fs::exists(process).unwrap());
    drop(lease);
    let (message, passes) = scene.failure("random").await;
    assert!(passes && message.ends_with("the function-runner is shutting down"), "{message}");
}

#[tokio::test]
async fn sandboxed_provider_has_nothing_of_the_runner() {
    let (Some(executable), Some(runner)) = (provider("random"), bed::runner()) else { return };
    let bed = Bed::sandboxed(runner);
    bed.unpacked("random", "3.6.0", &executable);
    let mut scene = bed.scene("a").without_network();
    let environment = [("TOKEN".to_owned(), "secret".into())].into();
    let secrets = ProviderSecrets { environment, ..Default::default() };
    scene = scene.with_configuration("random", "{}");
    scene.workspace.provider_secrets.insert("random".to_owned(), secrets);
    let lease = scene.get("random").await.unwrap();
    assert!(lease.schemas().resources.contains_key("random_password"));
    let process = format!("/proc/{}", lease.process().id().unwrap());
    let read = |file: &str| std::fs::read_to_string(format!("{process}/{file}")).unwrap();
    let environment = read("environ");
    let names: BTreeSet<&str> =
        environment.split_terminator('\0').filter_map(|it| Some(it.split_once('=')?.0)).collect();
    let expected =
        ["PLUGIN_CLIENT_CERT", "PLUGIN_PROTOCOL_VERSIONS", "TF_LOG_SDK", "TF_PLUGIN_MAGIC_COOKIE", "TMPDIR", "TOKEN"];
    assert_eq!(names, BTreeSet::from(expected));
    let status = read("status");
    let says = |field: &str| status.lines().find_map(|line| line.strip_prefix(field)).map(str::trim);
    assert_eq!((says("NoNewPrivs:"), says("Seccomp:")), (Some("1"), Some("2")), "{status}");
    assert_eq!(says("CapEff:"), Some("0000000000000000"), "{status}");
    let folder = std::fs::read_link(format!("{process}/cwd")).unwrap();
    assert!(environment.contains(&format!("TMPDIR={}", folder.display())), "{environment}");
    // Its kernel ends it where the runner cannot.
    assert!(read("limits").lines().any(|line| line.starts_with("Max core file size") && line.contains(" 0 ")));
    drop(lease);
    bed.terraform.shut_down().await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn sandbox_executes_only_the_installed_file() {
    let (Some(executable), Some(runner)) = (provider("random"), bed::runner()) else { return };
    let bed = Bed::sandboxed(runner);
    bed.unpacked("random", "3.6.0", &executable);
    let scene = bed.scene("a");
    let installed =
        std::fs::canonicalize(format!("/proc/{}/exe", scene.get("random").await.unwrap().process().id().unwrap()));
    let installed = installed.unwrap();
    assert!(installed.starts_with(bed.caches()), "{}", installed.display());
    std::fs::remove_file(&installed).unwrap();
    std::fs::copy("/bin/true", &installed).unwrap();
    // Another organization needs another process.
    let other = bed.scene("b");
    let (message, passes) = other.failure("random").await;
    assert!(!passes && message.contains("is not the installed one"), "{message}");
    other.get("random").await.unwrap();
}

#[tokio::test]
async fn processes_and_calls_are_counted() {
    let Some(executable) = provider("random") else { return };
    let registry = prometheus::Registry::new();
    let bed = Bed::observed(super::ProviderMetrics::new(&registry).unwrap());
    bed.unpacked("random", "1.0.0", &executable);
    bed.script("broken", "exit 3");
    let text = || prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let scene = bed.scene("a");
    let lease = scene.get("random").await.unwrap();
    scene.failure("broken").await;
    lease.stop().await.unwrap();
    let found = text();
    for line in [
        "runner_provider_processes 1",
        r#"runner_provider_starts_total{result="ok"} 1"#,
        r#"runner_provider_starts_total{result="failed"} 1"#,
        "runner_provider_start_duration_seconds_count 1",
        "runner_provider_crashes_total 0",
        r#"runner_provider_calls_total{call="StopProvider",result="answered"} 1"#,
        r#"runner_provider_call_duration_seconds_count{call="StopProvider"} 1"#,
    ] {
        assert!(found.contains(line), "{line} is missing in {found}");
    }
    // Another program kills it.
    let id = rustix::process::Pid::from_raw(lease.process().id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    lease.process().ended().await;
    while !text().contains("runner_provider_crashes_total 1") {
        tokio::task::yield_now().await;
    }
    assert!(text().contains("runner_provider_processes 0"));
}
