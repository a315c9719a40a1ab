//! A whole API server behind a Kubernetes cluster, for small kinds: flunders and fischers of
//! `wardle.example.com/v1alpha1`, as Go's `k8s.io/sample-apiserver` has them, and trawlers of `fleet.example.com/v1`,
//! which have a status, a scale and a field to select by. Objects live as long as the process.
//!
//! It needs a certificate to serve with, a kubeconfig for the cluster, and an APIService that leads to it;
//! `hack/cluster up --wardle` prepares all of that.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Parser;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Client, Config, CustomResource, CustomResourceExt as _, config::Kubeconfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    Registry, ResourceDefinition, Strategy,
    audit::{Auditor, LogFile, LogOptions, Policy},
    auth::{AnyOf, ClusterAuthentication, OrAnonymous, SubjectAccessReviewer, TokenReviewer, Union},
    definition::{Cell, Column, SelectableField},
    log::MemoryLog,
    profile,
    registry::{ClusterNamespaces, Window},
    serve::{Api, Server, ServingCertificate},
    status::FieldError,
};
use tokio_util::sync::CancellationToken;

/// A flunder refers to another one, or to a fischer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Flunder {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: FlunderSpec,
    #[serde(default)]
    status: FlunderStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct FlunderSpec {
    /// A name of another flunder or fischer, depending on the reference type.
    #[serde(skip_serializing_if = "String::is_empty")]
    reference: String,
    /// The reference type, defaults to "Flunder" if reference is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_type: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct FlunderStatus {}

/// A fischer disallows names of flunders.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Fischer {
    metadata: ObjectMeta,
    /// DisallowedFlunders holds a list of Flunder.Names that are disallowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    disallowed_flunders: Vec<String>,
}

/// What a trawler is to do. All that a custom resource's derive says of it, names and status too, is served.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "fleet.example.com", version = "v1", kind = "Trawler", namespaced, status = "TrawlerStatus")]
#[kube(shortname = "tr", category = "fleet")]
#[kube(scale(
    spec_replicas_path = ".spec.nets",
    status_replicas_path = ".status.nets",
    label_selector_path = ".status.crew"
))]
struct TrawlerSpec {
    /// The port that it returns to.
    port: String,
    /// How many nets it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nets: Option<i64>,
}

/// What is known of a trawler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct TrawlerStatus {
    /// Where it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    /// How many nets are out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nets: Option<i64>,
    /// Who is at the nets, as a label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crew: Option<String>,
}

/// Says where a kind's objects are in the API.
macro_rules! resource {
    ($kind:ident, $plural:literal, $scope:ty) => {
        impl k8s_openapi::Resource for $kind {
            const API_VERSION: &'static str = "wardle.example.com/v1alpha1";
            const GROUP: &'static str = "wardle.example.com";
            const VERSION: &'static str = "v1alpha1";
            const KIND: &'static str = stringify!($kind);
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $scope;
        }

        impl k8s_openapi::Metadata for $kind {
            type Ty = ObjectMeta;
            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
resource!(Flunder, "flunders", NamespaceResourceScope);
resource!(Fischer, "fischers", ClusterResourceScope);

/// What a write of a flunder means.
#[derive(Debug)]
struct FlunderStrategy;

impl Strategy for FlunderStrategy {
    type Object = Flunder;

    fn set_defaults(&self, flunder: &mut Flunder) {
        set_defaults(&mut flunder.spec);
    }

    fn validate(&self, flunder: &Flunder) -> Vec<FieldError> {
        let FlunderSpec { reference, reference_type } = &flunder.spec;
        let empty = |field, kind| {
            let detail = format!("cannot be empty if referenceType is {kind}");
            vec![FieldError::invalid(field, "", detail)]
        };
        match (reference.as_str(), reference_type.as_deref()) {
            ("", Some("Flunder")) => empty("spec.flunderReference", "Flunder"),
            ("", Some("Fischer")) => empty("spec.fischerReference", "Fischer"),
            _ => Vec::new(),
        }
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

fn set_defaults(spec: &mut FlunderSpec) {
    if !spec.reference.is_empty() && spec.reference_type.as_deref().is_none_or(str::is_empty) {
        spec.reference_type = Some("Flunder".to_owned());
    }
    // A reference of no known type means nothing, and goes.
    if !matches!(spec.reference_type.as_deref(), Some("Flunder" | "Fischer")) {
        *spec = FlunderSpec::default();
    }
}

/// A fischer is whatever a client says it is.
#[derive(Debug)]
struct FischerStrategy;

impl Strategy for FischerStrategy {
    type Object = Fischer;

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

/// A trawler is, too; versions, generations and its status are seen to by the registry.
#[derive(Debug)]
struct TrawlerStrategy;

impl Strategy for TrawlerStrategy {
    type Object = Trawler;

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

/// What Kubernetes says of the column that a kind has when it declares none.
const CREATED_AT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Serves flunders and fischers behind a cluster.
#[derive(Parser)]
struct Options {
    /// How to reach the cluster
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The certificate to serve with, PEM
    #[arg(long)]
    tls_cert_file: PathBuf,
    /// Its key, PEM
    #[arg(long)]
    tls_private_key_file: PathBuf,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    bind_address: std::net::IpAddr,
    /// The port to listen on
    #[arg(long, default_value_t = 6443)]
    secure_port: u16,
    /// How many changes of each kind are remembered for watches to go on from
    #[arg(long, default_value_t = 10_000)]
    history: usize,
    /// Which requests are recorded
    #[arg(long, requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// Where they are recorded
    #[arg(long, requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(profile::enter_thread).build()?;
    runtime.block_on(serve())
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).init();
    let options = Options::parse();
    let end = CancellationToken::new();

    // Who may come in, and what they may do: the cluster says.
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig)?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)?;
    let trust = Arc::new(ClusterAuthentication::load(client.clone()).await?);
    let (follower, followed, until) = (trust.clone(), client.clone(), end.clone());
    tokio::spawn(async move { follower.follow(followed, until).await });
    let mut authenticators = trust.authenticators();
    authenticators.push(Arc::new(TokenReviewer::new(client.clone(), Vec::new())));
    let authorizer = Arc::new(AnyOf::delegating(Arc::new(SubjectAccessReviewer::new(client.clone()))));

    // What is served, and where it is kept.
    let columns = [Column::new("Created At", Cell::Path(&["metadata", "creationTimestamp"]), CREATED_AT).kind("date")];
    let port = [SelectableField { name: "spec.port", path: &["spec", "port"] }];
    let registry = Registry::builder(Arc::new(MemoryLog::new()))
        .register(ResourceDefinition::of::<Flunder>().columns(&columns), FlunderStrategy)
        .register(ResourceDefinition::of::<Fischer>().columns(&columns), FischerStrategy)
        .register(ResourceDefinition::from_crd(&Trawler::crd()).selectable(&port), TrawlerStrategy)
        .namespaces(ClusterNamespaces::start(client, end.clone()))
        .window(Window { events: options.history, age: Duration::ZERO })
        .end_with(end.clone())
        .build()
        .await?;

    let certificate = ServingCertificate::from_files(options.tls_cert_file, options.tls_private_key_file)?;
    let api = Arc::new(Api::new(&registry));
    let authenticator = Arc::new(OrAnonymous(Union::new(authenticators)));
    let mut server = Server::builder(Arc::new(certificate), authenticator, authorizer, api)
        .address(SocketAddr::new(options.bind_address, options.secure_port));
    if let (Some(policy), Some(path)) = (options.audit_policy_file, options.audit_log_path) {
        let log = LogFile::open(LogOptions { path, ..LogOptions::default() })?;
        let metrics = prometheus::Registry::new();
        server = server.auditor(Auditor::new(Policy::from_file(&policy)?, log, &metrics)?).registry(metrics);
    }
    let server = server.bind().await?;
    let stop = end.clone();
    tokio::spawn(async move {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("a handler");
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        stop.cancel();
    });
    server.run(end).await;
    Ok(())
}
