//! Namespaces of a standalone server: one that is deleted takes along everything in it, as the
//! namespace controller of a cluster does.

mod conditions;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_controller::{
    finalizers::remove_finalizer,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_kinds::{core_v1::NAMESPACE_FINALIZER, lookup::Lookup};
use stoa_machinery::{
    ApiError, Object, RequestContext, Scope,
    registry::{DeleteOptions, ListOptions, Registry, Store},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::conditions::Findings;

/// Namespaces that are always there: `default` also has the Events of cluster-scoped objects.
const BUILT_IN: &[&str] = &["default", "stoa-system"];
/// How often to look whether a namespace is empty: each look reads all that is in it.
const WAIT: RangeInclusive<Duration> = Duration::from_millis(300)..=Duration::from_secs(30);

pub(crate) async fn run(registry: Arc<Registry>, lookup: Lookup, queues: queue::Metrics, end: CancellationToken) {
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
    queue::drive(queues.of("namespaces"), triggers, end, |key| look(registry.clone(), lookup.clone(), key)).await;
}

async fn look(registry: Arc<Registry>, lookup: Lookup, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let namespaces = lookup.api::<Namespace>()?;
    let Some(namespace) = namespaces.get_opt("", &name).await? else { return Ok(None) };
    let is_kept = namespace.finalizers().iter().any(|f| f == NAMESPACE_FINALIZER);
    if namespace.metadata.deletion_timestamp.is_none() || !is_kept {
        return Ok(None);
    }
    let began = Instant::now();
    let tell = |found: Findings| {
        let namespaces = namespaces.clone();
        let name = name.clone();
        async move {
            let tell = |n: &mut Namespace| found.tell(n.status.get_or_insert_default(), Timestamp::now());
            namespaces.update_status_with("", &name, tell).await.map(|_| found.is_empty())
        }
    };
    if namespace.status.as_ref().is_none_or(|status| status.phase.as_deref() != Some("Terminating")) {
        // Nothing new may come into it from now on.
        tell(Findings::default()).await?;
    }
    if !tell(remove_content(&registry, &name).await?).await? {
        return Ok(Some(queue::wait_after_look(began.elapsed(), WAIT)));
    }
    remove_finalizer(&namespaces, &namespace, NAMESPACE_FINALIZER).await?;
    Ok(None)
}

/// Deletes what is in a namespace; what is left then.
async fn remove_content(registry: &Registry, namespace: &str) -> Result<Findings, ApiError> {
    let context = RequestContext::internal("namespaces");
    let (list, options) = (ListOptions::default(), DeleteOptions::default());
    let mut found = Findings::default();
    // The objects of a view are deleted with those of its base.
    let is_stored = |store: &&Arc<Store>| store.definition().scope == Scope::Namespaced && !store.is_view();
    for store in registry.stores().filter(is_stored) {
        let failures = store.delete_each(&context, namespace, &options).await.unwrap_or_else(|error| vec![error]);
        found.failures.extend(failures.iter().map(|error| error.message().to_owned()));
        let left = store.list(Some(namespace), &list).await?.items;
        if left.is_empty() {
            continue;
        }
        let definition = store.definition();
        let resource = [&*definition.plural, &*definition.group].join(".");
        found.remaining.insert(resource.trim_end_matches('.').to_owned(), left.len());
        for finalizer in left.iter().flat_map(|stored| finalizers(&stored.object())) {
            *found.finalizers.entry(finalizer).or_default() += 1;
        }
    }
    Ok(found)
}

fn finalizers(object: &Object) -> Vec<String> {
    let finalizers = object.get_path(&["metadata", "finalizers"]).and_then(Value::as_array);
    finalizers.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}
