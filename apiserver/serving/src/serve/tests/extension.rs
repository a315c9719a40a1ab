//! A server that is made of flags, behind a fake of a cluster.

use std::{fs, path::Path};

use clap::Parser;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stoa_log::MemoryLog;
use stoa_meta::definition::ResourceDefinition;
use stoa_registry::strategy::DefaultStrategy;

use super::{fake_cluster::FakeCluster, *};
use crate::{extension::ExtensionServer, options::RecommendedOptions};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "fleet.example.com", version = "v1", kind = "Net", namespaced)]
pub(super) struct NetSpec {
    pub(super) mesh: i32,
}

pub(super) const NETS: &str = "/apis/fleet.example.com/v1/namespaces/shop/nets";

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    server: RecommendedOptions,
}

/// A net in the namespace `shop`.
pub(super) fn net(name: &str, mesh: i32) -> Net {
    let mut net = Net::new(name, NetSpec { mesh });
    net.metadata = ObjectMeta { namespace: Some("shop".to_owned()), ..net.metadata };
    net
}

/// The flags of a server with all its files in this folder, behind a cluster.
pub(super) fn flags(folder: &Path, cas: &Cas, cluster: &FakeCluster) -> RecommendedOptions {
    let issued = cas.serving.issue(&CertificateRequest::server("nets").loopback()).unwrap();
    let write = |flag: &str, name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        format!("--{flag}={}", path.display())
    };
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let flags = [
        "nets".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        write("tls-cert-file", "tls.crt", &issued.certificate_pem),
        write("tls-private-key-file", "tls.key", &issued.key_pem),
        write("kubeconfig", "kubeconfig", &kubeconfig.to_string()),
        write("audit-policy-file", "policy.yaml", policy),
        format!("--audit-log-path={}", folder.join("audit.log").display()),
    ];
    Flags::try_parse_from(flags).unwrap().server
}

#[tokio::test]
async fn flags_build_server_with_cluster_users() {
    let cluster = FakeCluster::start(|spec| spec["user"] == "ann").await;
    cluster.state.tokens.lock().insert("secret".to_owned(), json!({"username": "ann"}));
    let (folder, cas) = (tempfile::tempdir().unwrap(), Cas::new());
    let extension = ExtensionServer::connect(&flags(folder.path(), &cas, &cluster)).await.unwrap();
    let registry = extension
        .registry(Arc::new(MemoryLog::new()))
        .register(ResourceDefinition::of::<Net>(), DefaultStrategy::<Net>::default())
        .build()
        .await
        .unwrap();
    registry.api::<Net>().create(&net("trawl", 40)).await.unwrap();

    let running = Running::of(extension.builder(&registry).bind().await.unwrap(), &cas, Arc::default());
    let mut client = running.connect(Identity::Nobody).await;
    let list = client.get_with(NETS, &[("Authorization", "Bearer secret")]).await.json();
    assert_eq!(list["items"][0]["spec"]["mesh"], 40, "{list}");
    let anonymous = client.get(NETS).await;
    assert_eq!(anonymous.code, StatusCode::FORBIDDEN, "{anonymous:?}");
    let metrics = client.get_with("/metrics", &[("Authorization", "Bearer secret")]).await.text;
    assert!(metrics.contains("apiserver_audit_event_total"), "{metrics}");
    let index = client.get_with("/", &[("Authorization", "Bearer secret")]).await;
    for path in ["/unknown", "/api", "/apis/other.dev/v1", "/livez/unknown"] {
        let unknown = client.get_with(path, &[("Authorization", "Bearer secret")]).await;
        assert_eq!((unknown.code, &unknown.text), (StatusCode::NOT_FOUND, &index.text), "{path}");
    }
    running.end().await;
    let recorded = fs::read_to_string(folder.path().join("audit.log")).unwrap();
    assert!(recorded.contains(r#""username":"ann""#) && recorded.contains("system:anonymous"), "{recorded}");
}

#[tokio::test]
async fn what_a_server_follows_ends_with_it() {
    let cluster = FakeCluster::start(|_| true).await;
    let (folder, cas) = (tempfile::tempdir().unwrap(), Cas::new());
    let extension = ExtensionServer::connect(&flags(folder.path(), &cas, &cluster)).await.unwrap();
    let registry = extension.registry(Arc::new(MemoryLog::new()));
    let registry =
        registry.register(ResourceDefinition::of::<Net>(), DefaultStrategy::<Net>::default()).build().await.unwrap();
    let mut changes = registry.api::<Net>().subscribe(None);
    cluster.state.watched().await;
    drop(extension);
    tokio::time::timeout(Duration::from_secs(20), async { while changes.next().await.is_some() {} })
        .await
        .expect("watches of the registry end");
}
