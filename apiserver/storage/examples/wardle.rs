//! What `hack/conformance` compares with Go's `k8s.io/sample-apiserver` and with custom resources: flunders as Go's are,
//! fischers beside them, and trawlers of `fleet.example.com/v1`, which have a status, a scale and a field to select by.
//! They are kept in the log that the flags name: on local files, on etcd, or else in memory.
//!
//! `hack/cluster up --wardle` starts it. Whoever looks for an example begins with `flunders.rs` of `stoa-machinery`.

use std::{error::Error, fs, marker::PhantomData, path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, Parser};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use stoa_machinery::{
    Object, ResourceDefinition, Strategy,
    definition::{Cell, Column},
    log::{Log, MemoryLog},
    options::RecommendedOptions,
    registry::Window,
    serve::{self, ExtensionServer},
    status::FieldError,
};
use stoa_storage::{
    EtcdLog, LocalLog,
    etcd::{EtcdOptions, EtcdTls},
    local::LocalOptions,
};

#[expect(dead_code, reason = "it is a program of its own")]
#[path = "../../machinery/examples/flunders.rs"]
mod flunders;
use flunders::{FlunderSpec, FlunderStatus};

/// A flunder as a type of Go's has it: the spec may be left out, and the status, which has nothing in it, is always there and
/// no subresource.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "wardle.example.com", version = "v1alpha1", kind = "Flunder", namespaced, no_spec)]
struct FlunderFields {
    #[serde(default)]
    spec: FlunderSpec,
    #[serde(default, rename = "status")]
    observed: FlunderStatus,
}

/// What a write of a flunder means is what it means in the example.
#[derive(Debug)]
struct FlunderStrategy;

impl Strategy for FlunderStrategy {
    type Object = Flunder;

    fn set_defaults(&self, flunder: &mut Flunder) {
        flunder.spec.spec.set_defaults();
    }

    fn validate(&self, flunder: &Flunder) -> Vec<FieldError> {
        flunder.spec.spec.validate()
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

/// A fischer disallows names of flunders.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "wardle.example.com", version = "v1alpha1", kind = "Fischer", no_spec)]
#[serde(rename_all = "camelCase")]
struct FischerFields {
    /// DisallowedFlunders holds a list of Flunder.Names that are disallowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    disallowed_flunders: Vec<String>,
}

/// What a trawler is to do.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "fleet.example.com", version = "v1", kind = "Trawler", namespaced, status = "TrawlerStatus")]
#[kube(shortname = "tr", category = "fleet", selectable = ".spec.port")]
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
    /// How deep it lies in the water, in metres.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    draught: Option<f64>,
    /// What is in its hold.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    hold: Map<String, Value>,
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

/// Objects are whatever a client says they are, but an update has to say which version it is of, as of custom resources.
#[derive(Debug)]
struct Conditional<T>(PhantomData<fn() -> T>);

impl<T> Strategy for Conditional<T>
where
    T: Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Object = T;

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

/// What Kubernetes says of the column that a kind has when it declares none.
const CREATED_AT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// When an object was created, as Go's default table has it: what was never created, such as a bookmark, was in the year 1.
fn created_at(object: &Object) -> Value {
    match object.meta_str("creationTimestamp") {
        "" => "0001-01-01T00:00:00Z".into(),
        time => time.into(),
    }
}

/// Serves what the conformance program compares.
#[derive(Parser)]
struct Options {
    /// How many changes of each kind are remembered for watches to go on from
    #[arg(long, default_value_t = 10_000)]
    history: usize,
    #[command(flatten)]
    storage: StorageOptions,
    #[command(flatten)]
    server: RecommendedOptions,
}

/// Where the log is; in memory if nothing is given. The flags for etcd are kube-apiserver's.
#[derive(Args)]
struct StorageOptions {
    /// The folder of a log on local files
    #[arg(long, conflicts_with = "etcd_servers")]
    data_dir: Option<PathBuf>,
    /// The etcd servers to keep the log on (scheme://host:port), separated by commas
    #[arg(long, value_delimiter = ',', requires_all = ["etcd_cafile", "etcd_certfile", "etcd_keyfile"])]
    etcd_servers: Vec<String>,
    /// Who may have signed etcd's certificates, PEM
    #[arg(long, requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd, PEM
    #[arg(long, requires = "etcd_servers")]
    etcd_certfile: Option<PathBuf>,
    /// The key of that certificate, PEM
    #[arg(long, requires = "etcd_servers")]
    etcd_keyfile: Option<PathBuf>,
    /// The prefix of everything in etcd
    #[arg(long, default_value = "/wardle")]
    etcd_prefix: String,
}

impl StorageOptions {
    async fn open(self) -> Result<Arc<dyn Log>, Box<dyn Error>> {
        if let Some(folder) = self.data_dir {
            return Ok(Arc::new(LocalLog::open(&folder, LocalOptions::default())?));
        }
        if self.etcd_servers.is_empty() {
            return Ok(Arc::new(MemoryLog::new()));
        }
        let read = |file: Option<PathBuf>| file.map(fs::read_to_string).transpose();
        let tls = EtcdTls {
            ca_pem: read(self.etcd_cafile)?,
            client_pem: read(self.etcd_certfile)?.zip(read(self.etcd_keyfile)?),
        };
        let options = EtcdOptions { tls, ..EtcdOptions::new(self.etcd_servers, self.etcd_prefix) };
        Ok(Arc::new(EtcdLog::open(options).await?))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).init();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(Options::parse()))
}

async fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let server = ExtensionServer::connect(&options.server).await?;
    let columns = [Column::new("Created At", Cell::Compute(created_at), CREATED_AT).kind("date")];
    let registry = server
        .registry(options.storage.open().await?)
        .register(ResourceDefinition::of::<Flunder>().columns(&columns), FlunderStrategy)
        .register(ResourceDefinition::of::<Fischer>().columns(&columns), Conditional::<Fischer>(PhantomData))
        .register(ResourceDefinition::of::<Trawler>(), Conditional::<Trawler>(PhantomData))
        .window(Window { events: options.history, age: Duration::ZERO, ..Window::default() })
        .build()
        .await?;
    server.run(&registry, serve::shutdown_signal()?).await?;
    Ok(())
}
