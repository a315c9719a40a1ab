//! Profiles of the server, as those who operate it take them.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use stoa_e2e::{Kubectl, Server as _, Standalone, run};

/// How long samples are taken.
const SECONDS: u32 = 2;
const LIST: &str = "/apis/platform.stoa.dev/v1alpha1/backends?limit=1";

/// Takes a profile with kubectl.
fn profile(kubectl: &Kubectl, seconds: u32) -> Vec<u8> {
    let path = format!("/debug/pprof/profile?seconds={seconds}");
    let output = kubectl.command(&["get", "--raw", &path]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Has Go's pprof say what was sampled.
fn traces(profile: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), profile).unwrap();
    run(Command::new("go").args(["tool", "pprof", "-symbolize=none", "-traces"]).arg(file.path()))
}

/// Samples a server that answers requests; the names of the samples.
async fn sampled(client: &kube::Client, kubectl: &Kubectl) -> String {
    let over = Arc::<AtomicBool>::default();
    let asking = [(); 4].map(|()| {
        let (client, over) = (client.clone(), over.clone());
        tokio::spawn(async move {
            while !over.load(Relaxed) {
                client.request_text(Request::get(LIST).body(Vec::new()).unwrap()).await.unwrap();
            }
        })
    });
    let kubectl = kubectl.clone();
    let profile = tokio::task::spawn_blocking(move || profile(&kubectl, SECONDS)).await.unwrap();
    // Go needs the processor, too.
    over.store(true, Relaxed);
    for asks in asking {
        tokio::time::timeout(Duration::from_secs(30), asks).await.expect("an answer").unwrap();
    }
    tokio::task::spawn_blocking(move || traces(&profile)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn profile_tells_what_requests_take_while_they_are_answered() {
    // From the runtime's threads to the encryption, through the filters.
    const FUNCTIONS: [&str; 4] = ["std::thread::", "tokio::runtime::", "rustls::", "stoa_serving::serve::chain::"];
    let stoa = Standalone::start();
    let kubectl = stoa.kubectl();
    let kubeconfig = Kubeconfig::read_from(&kubectl.kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let mut traces = String::new();
    // A busy machine may have little time for the requests.
    for _ in 0..10 {
        traces += &sampled(&client, &kubectl).await;
        if FUNCTIONS.iter().all(|function| traces.contains(function)) {
            return;
        }
    }
    panic!("not all of {FUNCTIONS:?} are in\n{traces}");
}

#[test]
fn profiles_can_be_switched_off() {
    let stoa = Standalone::start_with(&["--profiling=false".to_owned()]);
    let said = stoa.kubectl().refused(&["get", "--raw", "/debug/pprof/"]);
    assert!(said.contains("NotFound"), "{said}");
}
