//! Starts, ends and capabilities of the providers of HashiCorp.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use stoa_terraform_provider::process::{DirectLauncher, Process, StartError, StartOptions};
use stoa_terraform_provider::protocol::{Call, CallError, MoveRequest, Protocol, RawState};
use stoa_terraform_provider::value::{Json, Value};

use crate::support;

/// An executable that is a shell script.
fn script(folder: &Path, text: &str) -> StartOptions {
    let path = folder.join("provider");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    StartOptions { time_limit: Duration::from_secs(5), ..StartOptions::new(path) }
}

#[tokio::test]
async fn failed_starts_name_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let start = async |text: &str| {
        let options = script(folder.path(), text);
        Process::start(&DirectLauncher, &options).await.expect_err("it does not start")
    };
    let ended = start("echo broken >&2; exit 0").await;
    assert!(matches!(ended, StartError::Ended { .. }) && ended.to_string().contains("exit status: 0"), "{ended}");
    assert!(ended.to_string().ends_with("its last output is:\nbroken"), "{ended}");
    let slow = start("echo starting >&2; exec sleep 60").await;
    assert!(matches!(slow, StartError::TimedOut { .. }) && slow.to_string().ends_with("starting"), "{slow}");
    let wrong = start("echo hello; exec sleep 60").await;
    assert!(matches!(wrong, StartError::Handshake { .. }), "{wrong}");
    let certificate = start(r#"echo "1|5|unix|$TMPDIR/plugin1|grpc|MIIB"; exec sleep 60"#).await;
    assert!(matches!(certificate, StartError::Handshake { .. }), "{certificate}");
    let deaf = start(r#"echo "1|5|unix|$TMPDIR/plugin1|grpc|"; exec sleep 60"#).await;
    assert!(matches!(deaf, StartError::Connect { .. }), "{deaf}");
    let missing = StartOptions::new(folder.path().join("missing"));
    let missing = Process::start(&DirectLauncher, &missing).await.expect_err("it does not exist");
    assert!(matches!(missing, StartError::Spawn { .. }), "{missing}");
}

#[tokio::test]
async fn a_long_path_for_sockets_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("x".repeat(80));
    std::fs::create_dir(&temporary).unwrap();
    let options = StartOptions { temporary, ..script(folder.path(), "exit 0") };
    let error = Process::start(&DirectLauncher, &options).await.expect_err("the path is too long");
    assert!(matches!(error, StartError::LongPath(_)), "{error}");
}

#[tokio::test]
async fn providers_start_with_their_capabilities() {
    // Protocol, plan_destroy, get_provider_schema_optional, move_resource_state.
    for (name, capabilities) in [
        ("random", [true, true, false]),
        ("tls", [true, false, false]),
        ("local", [true, true, true]),
        ("time", [true, true, true]),
    ] {
        let Some(options) = support::options(name) else { return };
        let folder = tempfile::tempdir().unwrap();
        let options = StartOptions { temporary: folder.path().to_owned(), ..options };
        let provider = support::start_with(&options, None).await;
        assert_eq!(provider.protocol(), Protocol::V5);
        assert!(provider.process().encrypted, "{name} has no certificate");
        let schemas = provider.schemas().clone();
        let found = schemas.capabilities;
        assert_eq!([found.plan_destroy, found.get_provider_schema_optional, found.move_resource_state], capabilities);
        assert!(!schemas.resources.is_empty());
        let sockets = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(sockets(), 1);
        let socket = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap();
        assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        provider.shut_down().await;
        assert_eq!(sockets(), 0, "the folder of the socket remains");

        // Another process works with these schemas, also where the call for them is required.
        let again = support::start_with(&options, Some(schemas)).await;
        let (resource, _) = again.schemas().resources.iter().next().unwrap();
        let nothing = again.schemas().resources[resource].block.absent();
        again.validate_resource(resource, &nothing).await.unwrap();
    }
}

#[tokio::test]
async fn provider_without_certificate_speaks_plain_text() {
    let Some(options) = support::options("random") else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = format!("unset PLUGIN_CLIENT_CERT; exec {}", options.executable.display());
    let plain = StartOptions { time_limit: Duration::from_secs(20), ..script(folder.path(), &text) };
    let provider = support::start_with(&plain, None).await;
    assert!(!provider.process().encrypted);
    provider.stop().await.unwrap();
}

#[tokio::test]
async fn certificate_of_another_program_is_refused() {
    let Some(options) = support::options("random") else { return };
    let folder = tempfile::tempdir().unwrap();
    // The first start leaves its certificate behind, and the second one sends that instead of its own.
    let text = format!(
        r#"mkfifo "$TMPDIR/line"
timeout -s KILL 20 {provider} > "$TMPDIR/line" &
IFS='|' read -r core version network socket kind certificate < "$TMPDIR/line"
other=$(cat {seen} 2>/dev/null || echo "$certificate")
echo "$certificate" > {seen}
echo "$core|$version|$network|$socket|$kind|$other"
wait"#,
        provider = options.executable.display(),
        seen = folder.path().join("seen").display(),
    );
    let options = StartOptions { time_limit: Duration::from_secs(20), ..script(folder.path(), &text) };
    let first = Process::start(&DirectLauncher, &options).await.unwrap();
    assert!(first.encrypted);
    first.shut_down().await;
    let error = Process::start(&DirectLauncher, &options).await.expect_err("the certificate is another one");
    assert!(matches!(error, StartError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn a_shut_down_provider_exits_at_once() {
    let Some(provider) = support::start("random").await else { return };
    let exit = provider.shut_down().await;
    assert!(exit.0.unwrap().success(), "{exit}");
}

#[tokio::test]
async fn a_killed_provider_is_a_crash() {
    let Some(provider) = support::start("random").await else { return };
    provider.process().kill();
    let nothing = provider.schemas().resources["random_id"].block.absent();
    let error = provider.validate_resource("random_id", &nothing).await.unwrap_err();
    let CallError::Crashed { call: Call::ValidateResource, object, exit, .. } = &error else { panic!("{error}") };
    assert_eq!((&object[..], &exit[..]), ("random_id", "signal: 9 (SIGKILL)"));
    assert!(provider.process().exit().is_some());
}

#[tokio::test]
async fn stopped_providers_accept_calls() {
    let Some(provider) = support::start("random").await else { return };
    provider.stop().await.unwrap();
    let config = support::config(&provider, "random_id", r#"{"byte_length":"2"}"#);
    support::succeeded(&provider.validate_resource("random_id", &config).await.unwrap());
}

#[tokio::test]
async fn calls_that_a_provider_lacks_are_unimplemented() {
    let Some(provider) = support::start("random").await else { return };
    let state = Json::parse(b"{}").unwrap();
    let request = MoveRequest {
        source_provider: "registry.terraform.io/stoa/other",
        source_type: "other_id",
        source: RawState { version: 0, json: &state },
        source_private: &[],
        source_identity: None,
    };
    let error = provider.move_state("random_id", request).await.unwrap_err();
    assert!(matches!(error, CallError::Unimplemented { call: Call::MoveResourceState, .. }), "{error}");
    let error = provider.validate_resource("random_x", &Value::Null).await.unwrap_err();
    assert_eq!(error.to_string(), "the provider has no resource \"random_x\"; it may need a newer version");
    assert!(provider.schemas().identities.is_empty());
}

#[tokio::test]
async fn diagnostics_name_the_attribute() {
    let Some(provider) = support::start("random").await else { return };
    let config = support::config(&provider, "random_string", r#"{"length":0}"#);
    let diagnostics = provider.validate_resource("random_string", &config).await.unwrap();
    assert!(diagnostics.has_errors());
    let path = diagnostics.0[0].path.as_ref().unwrap();
    assert_eq!(path.to_string(), "length");
}
