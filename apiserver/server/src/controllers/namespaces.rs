//! Namespaces of a standalone server: one that is deleted takes along everything in it, as the
//! namespace controller of a cluster does.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError, RequestContext, Scope,
    registry::{DeleteOptions, ListOptions, Registry},
};
use tokio_util::sync::CancellationToken;

use super::queue::{self, ObjectKey, Trigger};
use crate::kinds::lookup::Lookup;

/// Namespaces that are always there: `default` also has the Events of cluster-scoped objects.
const BUILT_IN: &[&str] = &["default", "stoa-system"];
/// What keeps a namespace until it is empty.
pub(crate) const FINALIZER: &str = "stoa.dev/namespace-content";
/// How often to look whether a namespace is empty.
const WAIT: Duration = Duration::from_millis(300);

pub(crate) async fn run(registry: Arc<Registry>, lookup: Lookup, end: CancellationToken) {
    let Ok(namespaces) = lookup.api::<Namespace>() else { return };
    for name in BUILT_IN {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some((*name).to_owned());
        match namespaces.create(&namespace).await {
            Ok(_) => {}
            Err(error) if error.is("AlreadyExists") => {}
            Err(error) => tracing::error!(%error, namespace = name, "a namespace that is always there is not"),
        }
    }
    let triggers = vec![Trigger::on(&namespaces, |n| vec![queue::key_of(n)])];
    queue::drive("namespaces", triggers, end, |key| look(registry.clone(), lookup.clone(), key)).await;
}

async fn look(registry: Arc<Registry>, lookup: Lookup, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let namespaces = lookup.api::<Namespace>()?;
    let Some(namespace) = namespaces.get_opt("", &name).await? else { return Ok(None) };
    let is_kept = namespace.finalizers().iter().any(|f| f == FINALIZER);
    if namespace.metadata.deletion_timestamp.is_none() || !is_kept {
        return Ok(None);
    }
    namespaces
        .update_status_with("", &name, |n: &mut Namespace| {
            n.status.get_or_insert_default().phase = Some("Terminating".to_owned());
        })
        .await?;
    let context = RequestContext::internal("namespaces");
    let (list, options) = (ListOptions::default(), DeleteOptions::default());
    let mut left = 0;
    for store in registry.stores().filter(|s| s.definition().scope == Scope::Namespaced) {
        store.delete_collection(&context, Some(&name), &list, &options).await?;
        left += store.list(Some(&name), &list).await?.items.len();
    }
    if left > 0 {
        return Ok(Some(WAIT));
    }
    namespaces.update_with("", &name, |n: &mut Namespace| n.finalizers_mut().retain(|f| f != FINALIZER)).await?;
    Ok(None)
}
