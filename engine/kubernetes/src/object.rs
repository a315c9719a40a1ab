//! Read of one object that no Run applies, such as the status of a GitOps tool.

use serde_json::{Map, Value};
use stoa_engine::Sensitive;
use stoa_runtime::{CallLimits, Caller, RuntimeError};

use crate::cluster::Cluster;
use crate::connect::ClusterConfig;
use crate::connections::Connections;
use crate::error::CallError;

/// An object of a namespaced kind.
#[derive(Clone, Copy, Debug)]
pub struct ObjectName<'a> {
    /// The API group.
    pub group: &'a str,
    /// The versions in which it is understood, the best first.
    pub versions: &'a [&'a str],
    /// The plural of the kind, as in URLs.
    pub plural: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl ClusterConfig {
    /// The object as it is, in the first of its versions that the cluster serves; `None` when it is not there, or its kind is
    /// not. The calls are those of the caller within the limits.
    pub async fn object(
        &self,
        connections: &Connections,
        limits: &CallLimits,
        caller: Caller,
        object: &ObjectName<'_>,
    ) -> Result<Option<Map<String, Value>>, RuntimeError> {
        let mut cluster: Cluster = self.connect(connections).await?;
        cluster.turns = limits.turns(&cluster.url, caller);
        let ObjectName { group, versions, plural, namespace, name } = object;
        for version in *versions {
            let path = format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}");
            match cluster.get(&path).await {
                Ok(found) => return Ok(found),
                Err(CallError::Status(failure)) if failure.is_missing_kind() => {}
                Err(err) => return Err(err.into_runtime(&self.name, &Sensitive::default())),
            }
        }
        Ok(None)
    }
}
