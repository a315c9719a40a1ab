//! The conformance suite of runtimes, against the cluster that `STOA_TEST_KUBECONFIG` names.

use std::sync::Arc;

use stoa_engine::Owner;
use stoa_runtime::Runtime;
use stoa_runtime::conformance::{self, Subject};
use stoa_runtime_kubernetes::{Access, ClusterConfig, KubernetesRuntime};
use tokio::runtime::Handle;

#[derive(Debug)]
struct Cluster;

impl Subject for Cluster {
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime> {
        let kubeconfig = std::env::var("STOA_TEST_KUBECONFIG").expect("STOA_TEST_KUBECONFIG names a kubeconfig");
        let access = Access::Own { kubeconfig: Some(kubeconfig.into()), context: None };
        let configs = [ClusterConfig { name: "main".to_owned(), access }];
        let made = tokio::task::block_in_place(|| Handle::current().block_on(KubernetesRuntime::new(&configs, owner)));
        Arc::new(made.expect("the kubeconfig is good"))
    }

    fn namespace(&self) -> Option<&str> {
        Some("default")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_conforms() {
    conformance::all(&Cluster).await;
}
