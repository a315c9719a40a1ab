//! Reads whether clusters run the commits that were made for them: each reconciler of the workspace, and the repository once.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use stoa_proto::{Compliance, LookAtComplianceRequest, LookAtComplianceResponse, ReconcilerCompliance};
use stoa_runtime::Caller;
use stoa_runtime_gitops::{Compliance as State, Lineage, Reading};
use stoa_runtime_kubernetes::{Access, ClusterConfig, ObjectName};
use stoa_types::platform::{Reconciler, ReconcilerObject};

use crate::failure::Failure;
use crate::runtimes::Runtimes;
use crate::service::required;

/// The timeout of one reconciler.
const PATIENCE: Duration = Duration::from_secs(15);
/// The tenant of requests for several organizations, which name none. Together they get the share of one organization. No
/// organization has such a name.
const SEVERAL: &str = "/compliance";

/// The tenant of a request.
pub(crate) fn organization(request: &LookAtComplianceRequest) -> &str {
    if request.organization.is_empty() { SEVERAL } else { &request.organization }
}

fn object<'a>(of: &'a ReconcilerObject, group: &'a str, versions: &'a [&'a str], plural: &'a str) -> ObjectName<'a> {
    ObjectName { group, versions, plural, namespace: &of.namespace, name: &of.name }
}

impl Runtimes {
    /// Compares each commit with the revisions that the clusters run. Unreadable reconcilers are `Unknown`.
    pub(crate) async fn look_at_compliance(
        &self,
        request: LookAtComplianceRequest,
    ) -> Result<LookAtComplianceResponse, Failure> {
        let organization = organization(&request).into();
        let LookAtComplianceRequest { workspace, kubeconfigs, commits, .. } = request;
        let workspace = required(workspace, "workspace")?;
        // The name under which these calls take turns with runs.
        let run = format!("compliance of {}", workspace.name).into();
        let who = Caller { organization, run };
        let Some((runtime, spec)) = self.repository(&workspace, &who)? else {
            return Err(Failure::request("the workspace has no GitOps repository; set spec.gitops"));
        };
        let reconcilers = spec.map(|spec| spec.reconcilers).unwrap_or_default();
        let readings = join_all(reconcilers.iter().map(|reconciler| async {
            let kubeconfig = kubeconfigs.get(&reconciler.name).map(|bytes| bytes.to_vec());
            let read = tokio::time::timeout(PATIENCE, self.read(&who, reconciler, kubeconfig)).await;
            read.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
        }))
        .await;
        let revisions: BTreeSet<String> =
            readings.iter().flatten().flat_map(Reading::commits).map(str::to_owned).collect();
        let lineage = match commits.is_empty() {
            true => Lineage::default(),
            false => match runtime.lineage(commits.iter().cloned().collect(), revisions).await {
                Ok(lineage) => lineage,
                Err(err) => Lineage::unknown(err.to_string()),
            },
        };
        let of = |commit: String| {
            let compare = |(reconciler, read): (&Reconciler, &Result<Reading, String>)| {
                let (state, message) = match read {
                    Ok(reading) => reading.of(&commit, &lineage),
                    Err(why) => (State::Unknown, why.clone()),
                };
                ReconcilerCompliance {
                    name: reconciler.name.clone(),
                    state: format!("{state:?}"),
                    revision: read.as_ref().map(|reading| reading.revision.clone()).unwrap_or_default(),
                    message,
                }
            };
            let compared = reconcilers.iter().zip(&readings).map(compare).collect();
            Compliance { commit, reconcilers: compared }
        };
        Ok(LookAtComplianceResponse { commits: commits.into_iter().map(of).collect() })
    }

    /// The status of a reconciler, or why it is unknown.
    async fn read(
        &self,
        who: &Caller,
        reconciler: &Reconciler,
        kubeconfig: Option<Vec<u8>>,
    ) -> Result<Reading, String> {
        let Reconciler { name, in_cluster, context, kustomization, application, .. } = reconciler;
        let context = context.clone();
        let access = match (in_cluster, kubeconfig) {
            (true, _) => Access::Own { kubeconfig: self.kubeconfig().cloned(), context },
            (false, Some(bytes)) => Access::Kubeconfig { bytes, context },
            (false, None) => return Err("its kubeconfig is missing".to_owned()),
        };
        let cluster = ClusterConfig { name: name.clone(), access };
        type Read = fn(&serde_json::Map<String, serde_json::Value>) -> Reading;
        let (object, kind, read): (_, _, Read) = match (kustomization, application) {
            (Some(of), _) => {
                let object = object(of, "kustomize.toolkit.fluxcd.io", &["v1", "v1beta2"], "kustomizations");
                (object, "Kustomization", Reading::kustomization)
            }
            (None, Some(of)) => {
                (object(of, "argoproj.io", &["v1alpha1"], "applications"), "Application", Reading::application)
            }
            (None, None) => return Err("it names neither a kustomization nor an application".to_owned()),
        };
        match cluster.object(self.connections(), self.kubernetes_limits(), who.clone(), &object).await {
            Ok(Some(object)) => Ok(read(&object)),
            Ok(None) => {
                let ObjectName { namespace, name, .. } = object;
                Err(format!("{kind} {namespace}/{name} does not exist in the cluster"))
            }
            Err(err) => Err(err.to_string()),
        }
    }
}
