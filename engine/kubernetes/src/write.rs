//! Changes of objects: dry runs and applies by server-side apply.
//!
//! An object is read right before it is changed, and its version is a precondition. Thus nothing is taken from another
//! deployment that came between plan and call.
//!
//! Elsewhere: `deletion` deletes by the same rule.

use std::time::Duration;

use serde_json::{Map, Value};
use stoa_engine::declared::declared;
use stoa_engine::object::{self, is_terminating, secret_as_stored, without_aggregated_rules, without_bookkeeping};
use stoa_engine::owner::take_over_from;
use stoa_engine::spec::RECREATE;
use stoa_engine::{FieldConflict, Ignored, Owner, Sensitive};
use stoa_kubernetes_model::pruned::is_pruned;
use stoa_runtime::{Applied, ApplyRequest, KubernetesObject, Preview, RuntimeError};

use crate::KubernetesRuntime;
use crate::cluster::{ApplyOptions, Cluster, FIELD_MANAGER};
use crate::discovery::Discovered;
use crate::error::{CallError, Failure};
use crate::field_ownership::{self, DroppedFields, ReleasedFields};
use crate::kinds::{not_yet, note_defined, served};
use crate::read::unreachable;
use crate::replace;
use crate::target::{Api, Target};

/// A uid that no object has.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
/// How often an object is read again within one call because others keep writing it.
pub(crate) const READS: u32 = 5;
/// The pause for a server to read a changed definition.
const SETTLE: Duration = Duration::from_millis(200);

/// The object to send: with our owner annotation, and the strings of a Secret as `data`. A server records the apply of
/// `stringData`, and no manager of the resulting `data` (kubernetes/kubernetes#108008): dropped keys would stay, and
/// keys of others would be overwritten.
fn sent(owner: &Owner, attributes: &Map<String, Value>) -> Map<String, Value> {
    let marked = owner.marked(attributes);
    let is_text = |value: &Value| value.is_string() || value.is_null();
    let strings = marked.get("stringData").and_then(Value::as_object);
    // A value that is not text is rejected under the user's field.
    let are_texts = strings.is_some_and(|strings| strings.values().all(is_text));
    let stored = if are_texts { secret_as_stored(&marked) } else { None };
    stored.unwrap_or(marked)
}

/// Applies an object, and fields of other managers with it where they are to be taken: the answer, and which were.
async fn apply_taking(
    cluster: &Cluster,
    path: &str,
    wanted: &Map<String, Value>,
    request: &ApplyRequest<'_>,
    dry_run: bool,
) -> (Result<Map<String, Value>, CallError>, Vec<FieldConflict>) {
    let conflicts = match cluster.apply(path, wanted, ApplyOptions { dry_run, force: false }).await {
        Err(CallError::Status(failure))
            if failure.is_ownership_conflict() && request.takes(&failure.field_conflicts()) =>
        {
            failure.field_conflicts()
        }
        answer => return (answer, Vec::new()),
    };
    (cluster.apply(path, wanted, ApplyOptions { dry_run, force: true }).await, conflicts)
}

/// Validates the fields of an object whose namespace does not exist yet. It is applied with an unused uid, which a
/// server rejects after it has read the fields and before anything else
/// (k8s.io/apiserver/pkg/endpoints/handlers/patch.go). Without the uid, admission waits 50 ms for the namespace.
async fn check_fields(cluster: &Cluster, path: &str, mut wanted: Map<String, Value>) -> Result<(), Failure> {
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), NOBODY.into());
    }
    match cluster.apply(path, &wanted, ApplyOptions { dry_run: true, force: false }).await {
        Err(CallError::Status(failure)) if failure.is_schema_error() => Err(failure),
        _ => Ok(()),
    }
}

pub(crate) async fn preview(
    runtime: &KubernetesRuntime,
    request: &ApplyRequest<'_>,
    is_new: bool,
) -> Result<Preview, RuntimeError> {
    let (index, target) = runtime.desired_target(request.desired)?;
    let cluster = runtime.cluster(index);
    if cluster.away().is_some() {
        return Ok(Preview::Unverified(unreachable(cluster)));
    }
    let sensitive = Sensitive::of(&request.desired.attributes, &declared(request.desired));
    let api = match cluster.discover(&target.gvk).await.map_err(|err| err.into_runtime(&cluster.name, &sensitive))? {
        Discovered::Served(api) => api,
        Discovered::NoKind | Discovered::NoVersion => {
            return Ok(Preview::Unverified(not_yet(&target, &cluster.name)));
        }
    };
    let namespace = target.namespace_in(&api, cluster.default_namespace()).unwrap_or_default();
    let unplaced =
        || Preview::MissingNamespace(format!("namespace {namespace} does not exist in cluster {} yet", cluster.name));
    let path = cluster.path(&target, &api);
    // Changes of existing objects in a terminating namespace are not reported by the server.
    let is_asked_for = !is_new && !namespace.is_empty();
    let goes = runtime.namespaces.is_terminating(index, namespace)
        || (is_asked_for
            && runtime
                .namespaces
                .read_terminating(index, cluster, namespace)
                .await
                .map_err(|err| err.into_runtime(&cluster.name, &sensitive))?);
    if goes {
        return Err(terminating_namespace(cluster, namespace));
    }
    if runtime.namespaces.is_missing(index, namespace) {
        let wanted = sent(&runtime.owner, &request.desired.attributes);
        return match check_fields(cluster, &path, wanted).await {
            Ok(()) => Ok(unplaced()),
            Err(failure) => Err(CallError::Status(failure).into_runtime(&cluster.name, &sensitive)),
        };
    }
    let ignored = ignored(request)?;
    let mut attributes = request.desired.attributes.clone();
    if !ignored.is_empty() {
        // The read object has no managers.
        let live = cluster.get(&path).await.map_err(|err| err.into_runtime(&cluster.name, &sensitive))?;
        attributes = to_apply(attributes, live.as_ref(), &ignored);
    }
    let wanted = sent(&runtime.owner, &attributes);
    // A manifest that names a version is stale for good. Else another client wrote the object at the same moment.
    let is_own = names_version(&wanted);
    let is_raced = |answer: &Result<_, CallError>| match answer {
        Err(CallError::Status(failure)) => failure.is_stale() && !is_own,
        _ => false,
    };
    let (mut answer, mut conflicts) = apply_taking(cluster, &path, &wanted, request, true).await;
    for _ in 1..READS {
        if !is_raced(&answer) {
            break;
        }
        tokio::time::sleep(SETTLE).await;
        (answer, conflicts) = apply_taking(cluster, &path, &wanted, request, true).await;
    }
    // Validation may reject it for fields that an Apply releases before it applies. No release lifts a rejection of an
    // immutable field.
    let may_be_released = |failure: &Failure| failure.is_by_validation() && !failure.may_be_immutable();
    if matches!(&answer, Err(CallError::Status(failure)) if may_be_released(failure)) && request.prior.is_some() {
        let live = cluster.get(&path).await.map_err(|err| err.into_runtime(&cluster.name, &sensitive))?;
        if live.is_some_and(|live| of_others(&live, request, &ignored).is_some()) {
            let why = "an Apply first releases fields of other managers, which a dry run cannot do";
            return Ok(Preview::Unverified(why.to_owned()));
        }
    }
    match answer {
        Ok(object) => {
            let object = match of_others(&object, request, &ignored) {
                Some(released) => released.object,
                None => object,
            };
            let object = without_bookkeeping(object);
            Ok(if conflicts.is_empty() { Preview::Changed(object) } else { Preview::Contested(object, conflicts) })
        }
        Err(CallError::Status(failure)) if failure.may_be_immutable() && request.prior.is_some() => {
            let mut anew = sent(&runtime.owner, &to_apply(request.desired.attributes.clone(), None, &ignored));
            expect(&mut anew, None);
            let created = cluster.check_creation(&cluster.collection(&target, &api), &anew).await;
            let explain = |err: CallError| err.into_runtime(&cluster.name, &sensitive);
            let deleted_with = replace::deleted_with(&target.gvk);
            replace::decide(failure, created, request.desired.is_set(RECREATE), deleted_with, &explain)
        }
        Err(CallError::Status(failure)) if failure.is_missing_kind() && cluster.forget_older(&target.gvk) => {
            Box::pin(preview(runtime, request, is_new)).await
        }
        Err(CallError::Status(failure)) if failure.is_missing_namespace() => {
            runtime.namespaces.set_missing(index, namespace);
            Ok(unplaced())
        }
        Err(CallError::Status(failure)) if failure.is_terminating_namespace() => {
            runtime.namespaces.set_terminating(index, namespace);
            Err(terminating_namespace(cluster, namespace))
        }
        Err(CallError::Status(failure)) if failure.is_dry_run_unsupported() => {
            Ok(Preview::Unverified(sensitive.redact(&failure.status.message)))
        }
        Err(CallError::Status(failure)) if failure.is_stale() && is_own => {
            let message = sensitive.redact(&failure.status.message);
            Err(RuntimeError::Rejected {
                message: format!("{message}; remove metadata.resourceVersion from the manifest"),
                field: Some("metadata.resourceVersion".to_owned()),
                by_definition: false,
            })
        }
        Err(err) if request.prior.is_none() => Err(not_taken_over(err, &cluster.name, &sensitive)),
        Err(err) => Err(err.into_runtime(&cluster.name, &sensitive)),
    }
}

/// Why an unrecorded object cannot be adopted. Fields that others only updated are taken once it is recorded.
fn not_taken_over(err: CallError, cluster: &str, sensitive: &Sensitive) -> RuntimeError {
    let is_claimed = match &err {
        CallError::Status(failure) => failure.field_conflicts().iter().any(|conflict| conflict.applies),
        CallError::Unreachable(_) | CallError::TooLarge | CallError::Suspended(_) => false,
    };
    match err.into_runtime(cluster, sensitive) {
        RuntimeError::Conflict(message) if !is_claimed => RuntimeError::Conflict(format!(
            "{message}; or import the object by a Run first, after which an Apply takes the fields"
        )),
        error => error,
    }
}

/// A namespace that is being deleted.
fn terminating_namespace(cluster: &Cluster, namespace: &str) -> RuntimeError {
    RuntimeError::Terminating(Box::new(KubernetesObject {
        cluster: cluster.name.clone(),
        version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        name: namespace.to_owned(),
        ..KubernetesObject::default()
    }))
}

pub(crate) async fn apply(runtime: &KubernetesRuntime, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
    let (index, target) = runtime.desired_target(request.desired)?;
    let cluster = runtime.cluster(index);
    let mut was_taken = false;
    let (api, object) = match take_over(runtime, cluster, &target, request, &mut was_taken).await {
        Ok(taken) => taken,
        Err(error @ RuntimeError::Terminating(_)) => return Err(error),
        // Some fields are applied: the error must not say that nothing was done.
        Err(error) if was_taken => {
            let message = format!("cluster {}: only some fields were applied before this error: {error}", cluster.name);
            return Err(RuntimeError::Unavailable { message });
        }
        Err(error) => return Err(error),
    };
    if target.gvk.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        note_defined(cluster, &object);
    }
    if target.gvk.is("", "Namespace") {
        runtime.namespaces.set_existing(index, &target.name);
    }
    let applied = applied(cluster, target, &api, object);
    runtime.remember(&request.desired.id, &applied.live);
    Ok(applied)
}

/// The applied object, and how it is served. A field that a server has not observed in the definition yet is applied
/// again; `was_taken` says whether something was applied before that.
async fn take_over(
    runtime: &KubernetesRuntime,
    cluster: &Cluster,
    target: &Target,
    request: &ApplyRequest<'_>,
    was_taken: &mut bool,
) -> Result<(Api, Map<String, Value>), RuntimeError> {
    let sensitive = Sensitive::of(&request.desired.attributes, &declared(request.desired));
    let explain = |err: CallError, may_have_changed: bool| match may_have_changed {
        true => err.after_a_call().into_runtime(&cluster.name, &sensitive),
        false => err.into_runtime(&cluster.name, &sensitive).before_a_change(),
    };
    let (owner, from) = (&runtime.owner, take_over_from(request.desired));
    let ignored = ignored(request)?;
    let (mut waited, mut looks, mut may_have_changed) = (false, 1, false);
    loop {
        let api = served(cluster, target, &|err| explain(err, may_have_changed)).await?;
        let path = cluster.path(target, &api);
        let failed = match cluster.get(&path).await {
            Ok(live) => {
                if let Some(live) = &live {
                    RuntimeError::check_owner(owner, from, live)?;
                    if is_terminating(live) {
                        // It would go with what is applied to it.
                        return Err(RuntimeError::Terminating(Box::new(called(cluster, target.clone(), &api, live))));
                    }
                    if !is_applied(live) && !is_auto_created(target) {
                        request.check_unplanned(live)?;
                    }
                }
                may_have_changed = true;
                let is_unmanaged = live.as_ref().is_some_and(|live| managers(live).next().is_none());
                match released(cluster, &path, live, request, &ignored).await {
                    Ok(live) => {
                        let attributes = to_apply(request.desired.attributes.clone(), live.as_ref(), &ignored);
                        let mut wanted = sent(owner, &attributes);
                        // A later change of the object changes its version, and is found by the next read.
                        expect(&mut wanted, live.as_ref());
                        match apply_taking(cluster, &path, &wanted, request, false).await {
                            // It may have left out what it does not know of yet.
                            (Ok(object), _) if cluster.is_new(&target.gvk) && is_pruned(&wanted, &object) => {
                                *was_taken = true;
                                tokio::time::sleep(SETTLE).await;
                                continue;
                            }
                            // Without managers before, the first apply or `before-first-apply` has all fields now, and
                            // would keep dropped ones.
                            (Ok(object), _) if is_unmanaged && of_others(&object, request, &ignored).is_some() => {
                                *was_taken = true;
                                continue;
                            }
                            (Ok(object), _) => return Ok((api, object)),
                            (Err(err), _) => err,
                        }
                    }
                    Err(err) => err,
                }
            }
            Err(err) => err,
        };
        match failed {
            // Discovery knows a new kind a moment before its path is served, and by the server beside it later still.
            CallError::Status(failure) if failure.is_missing_kind() && (!waited || cluster.is_new(&target.gvk)) => {
                if waited {
                    tokio::time::sleep(SETTLE).await;
                }
                waited = true;
                cluster.forget(&target.gvk);
            }
            CallError::Status(failure) if failure.is_stale() && looks < READS => looks += 1,
            // The server may still validate by the former definition.
            CallError::Status(failure) if failure.is_by_definition() && cluster.is_new(&target.gvk) => {
                tokio::time::sleep(SETTLE).await;
            }
            CallError::Status(failure) if failure.is_terminating_namespace() => {
                return Err(with_cluster_name(runtime, cluster, explain(CallError::Status(failure), may_have_changed)));
            }
            err => return Err(explain(err, may_have_changed)),
        }
    }
}

/// A namespace error with the name of its cluster, if there are several.
fn with_cluster_name(runtime: &KubernetesRuntime, cluster: &Cluster, error: RuntimeError) -> RuntimeError {
    match error {
        RuntimeError::Rejected { message, field, by_definition } if runtime.clusters.len() > 1 => {
            RuntimeError::Rejected { message: format!("cluster {}: {message}", cluster.name), field, by_definition }
        }
        error => error,
    }
}

/// Dropped fields of an object that other managers have too.
fn of_others(object: &Map<String, Value>, request: &ApplyRequest<'_>, ignored: &Ignored) -> Option<ReleasedFields> {
    let (prior, wanted) = (request.prior?, &request.desired.attributes);
    // Nothing was applied to the object that replaced the recorded one.
    if matches!((prior.uid(), uid(object)), (Some(recorded), Some(uid)) if recorded != uid) {
        return None;
    }
    field_ownership::released(object, &DroppedFields { prior, wanted, keys: request.keys, ignored })
}

/// Releases dropped fields, so that the apply removes them. Returns the object after that.
async fn released(
    cluster: &Cluster,
    path: &str,
    live: Option<Map<String, Value>>,
    request: &ApplyRequest<'_>,
    ignored: &Ignored,
) -> Result<Option<Map<String, Value>>, CallError> {
    match live.as_ref().and_then(|live| Some((live, of_others(live, request, ignored)?))) {
        Some((live, released)) => cluster.patch(path, &field_ownership::patch(live, &released)).await.map(Some),
        None => Ok(live),
    }
}

/// Whether Stoa applied fields of the object, even without the owner annotation.
fn is_applied(object: &Map<String, Value>) -> bool {
    managers(object).any(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
}

fn managers(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let entries = object.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
    entries.into_iter().flatten()
}

fn is_auto_created(target: &Target) -> bool {
    object::is_auto_created(&target.gvk.group, &target.gvk.kind, &target.name)
}

/// The object to apply over a live one, without ignored fields of others.
fn to_apply(
    attributes: Map<String, Value>,
    live: Option<&Map<String, Value>>,
    ignored: &Ignored,
) -> Map<String, Value> {
    match live {
        Some(live) => ignored.applied(attributes, live, FIELD_MANAGER),
        None => without_aggregated_rules(attributes),
    }
}

/// The fields that are left to others.
fn ignored(request: &ApplyRequest<'_>) -> Result<Ignored, RuntimeError> {
    Ignored::of(request.desired)
        .map_err(|problem| RuntimeError::Invalid { message: problem.to_string(), field: Some(problem.field) })
}

/// Whether the manifest has a resourceVersion of its own.
fn names_version(wanted: &Map<String, Value>) -> bool {
    wanted.get("metadata").and_then(|metadata| metadata.get("resourceVersion")).is_some()
}

/// Makes the version of the read object a precondition.
fn expect(wanted: &mut Map<String, Value>, seen: Option<&Map<String, Value>>) {
    let version = seen.and_then(|seen| seen.get("metadata")?.get("resourceVersion")).cloned();
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.extend(version.map(|version| ("resourceVersion".to_owned(), version)));
    }
}

/// The object as it is now, and what Kubernetes calls it.
pub(crate) fn applied(cluster: &Cluster, target: Target, api: &Api, object: Map<String, Value>) -> Applied {
    let kubernetes = Some(called(cluster, target, api, &object));
    Applied { live: without_bookkeeping(object), kubernetes, ..Applied::default() }
}

/// The identity of an object, as the engine records it.
pub(crate) fn called(cluster: &Cluster, target: Target, api: &Api, object: &Map<String, Value>) -> KubernetesObject {
    let namespace = target.namespace_in(api, cluster.default_namespace()).unwrap_or_default().to_owned();
    KubernetesObject {
        cluster: cluster.name.clone(),
        uid: uid(object).unwrap_or_default().to_owned(),
        group: target.gvk.group,
        version: target.gvk.version,
        kind: target.gvk.kind,
        namespace,
        name: target.name,
    }
}

pub(crate) fn uid(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata")?.get("uid")?.as_str()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use stoa_engine::{Resource, StateResource};
    use stoa_runtime::Runtime as _;

    use super::*;
    use crate::connections::Connection;

    #[test]
    fn secret_strings_are_sent_as_data() {
        let [organization, stack, workspace, stack_uid] = ["shop", "web", "dev", "uid"].map(str::to_owned);
        let owner = Owner { organization, stack, workspace, stack_uid };
        let sent = |kind: &str, rest: Value| {
            let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "db"}});
            object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            let mut sent = sent(&owner, object.as_object().unwrap());
            assert_eq!(sent["metadata"]["annotations"], json!({stoa_engine::owner::MARK: owner.mark()}));
            sent.retain(|key, _| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
            Value::Object(sent)
        };
        let written = json!({"type": "Opaque", "data": {"user": "YQ=="}, "stringData": {"password": "hunter2"}});
        let expected = json!({"type": "Opaque", "data": {"user": "YQ==", "password": "aHVudGVyMg=="}});
        assert_eq!(sent("Secret", written), expected);
        for (kind, as_written) in [
            ("Secret", json!({"data": {"user": "YQ=="}})),
            // A server says what is wrong where people wrote it.
            ("Secret", json!({"stringData": {"port": 80}})),
            ("ConfigMap", json!({"data": {"a": "b"}, "stringData": {"c": "d"}})),
        ] {
            assert_eq!(sent(kind, as_written.clone()), as_written);
        }
    }

    #[test]
    fn edited_fields_suggest_import() {
        let refused = |managers: &[&str]| {
            let cause = |manager: &&str| {
                let message = format!("conflict with {manager}");
                json!({"reason": "FieldManagerConflict", "message": message, "field": ".data.a"})
            };
            let causes: Vec<Value> = managers.iter().map(cause).collect();
            let status = json!({"kind": "Status", "message": "Apply failed", "details": {"causes": causes}});
            let failure = Failure::new(409, None, status.to_string().as_bytes());
            let error = not_taken_over(CallError::Status(failure), "main", &Sensitive::default());
            let RuntimeError::Conflict(told) = error else { panic!("{error:?}") };
            assert!(told.contains("stoa.dev/force-conflicts"), "{told}");
            told.contains("import the object")
        };
        let (edit, claim) = ("\"kubectl-client-side-apply\" using v1", "\"flux\"");
        assert!(refused(&[edit]));
        // What is applied by others stays theirs after an Import, too.
        assert!(!refused(&[claim]) && !refused(&[edit, claim]));
    }

    #[test]
    fn auto_created_objects_are_recognized() {
        for (kind, name, expected) in [
            ("ServiceAccount", "default", true),
            ("ServiceAccount", "web", false),
            ("ConfigMap", "kube-root-ca.crt", true),
            ("ConfigMap", "default", false),
        ] {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
            let resource = stoa_engine::Resource {
                id: name.into(),
                kind: stoa_engine::ResourceType::Kubernetes,
                attributes: object.as_object().unwrap().clone(),
                depends_on: Vec::new(),
                extensions: Map::new(),
            };
            assert_eq!(is_auto_created(&Target::of_desired(&resource).unwrap()), expected, "{kind} {name}");
        }
    }
    /// A cluster with one Service of a port that kubectl wrote too. It rejects what is applied to it with this status, and
    /// accepts what is created.
    fn rejecting(code: u16, status: Value, live: Map<String, Value>) -> Cluster {
        let server = tower::service_fn(move |request: Request<Body>| {
            let content = request.headers().get("content-type").map_or("", |it| it.to_str().unwrap());
            let (code, answer) = match (request.uri().path(), content) {
                ("/api/v1", _) => {
                    let services = json!({"name": "services", "kind": "Service", "namespaced": true});
                    (200, json!({"resources": [services]}))
                }
                ("/api/v1/namespaces/shop", _) => {
                    (200, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
                }
                (_, "application/apply-patch+yaml") => (code, status.clone()),
                _ => (200, Value::Object(live.clone())),
            };
            let body = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")))
    }

    #[tokio::test]
    async fn only_rejection_that_release_lifts_is_unverified() {
        let service = |ports: Value| {
            let object = json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7"}, "spec": {"ports": ports}});
            object.as_object().unwrap().clone()
        };
        let check = async |manager: &str, (code, message, reason): (u16, &str, &str)| {
            let ports = json!({r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:name": {}}});
            let entry = json!({"manager": manager, "operation": if manager == "flux" { "Apply" } else { "Update" },
                "fieldsV1": {"f:spec": {"f:ports": ports}}});
            let mut live = service(json!([{"name": "http", "port": 80, "protocol": "TCP"}]));
            live["metadata"]["managedFields"] = json!([entry]);
            let cause = json!({"reason": reason, "message": message, "field": "spec.ports[1].name"});
            let causes = if reason.is_empty() { json!([]) } else { json!([cause]) };
            let status = json!({"kind": "Status", "message": message, "details": {"causes": causes}});
            let (id, kind) = ("v1:Service:shop:web".into(), stoa_engine::ResourceType::Kubernetes);
            let (depends_on, extensions) = (Vec::new(), Map::from_iter([(RECREATE.to_owned(), json!("true"))]));
            let attributes = service(json!([{"name": "http", "port": 8081}]));
            let desired = Resource { id, kind, attributes, depends_on, extensions };
            let named = StateResource::named_by(&desired.id).unwrap();
            let prior = StateResource { attributes: service(json!([{"name": "http", "port": 80}])), ..named };
            let cluster = Arc::new(rejecting(code, status, live.clone()));
            let [organization, stack, workspace, stack_uid] = ["shop", "web", "dev", "uid"].map(str::to_owned);
            let runtime = KubernetesRuntime::of(vec![cluster], Owner { organization, stack, workspace, stack_uid });
            runtime.preview(&ApplyRequest::new(&desired, Some(&prior)), Some(&live)).await
        };
        let duplicate = (422, "Duplicate value: \"http\"", "FieldValueDuplicate");
        for manager in ["kubectl-client-side-apply", "kubectl-create"] {
            assert!(matches!(check(manager, duplicate).await, Ok(Preview::Unverified(_))), "{manager}");
        }
        // An Apply releases no field of a manager that applies it.
        assert!(matches!(check("flux", duplicate).await, Err(RuntimeError::Rejected { .. })));
        let immutable = check("kubectl-create", (422, "field is immutable", "FieldValueInvalid")).await;
        assert!(matches!(immutable, Ok(Preview::Replaced(None))), "{immutable:?}");
        for denial in [
            (403, "services \"web\" is forbidden: User \"stoa\" cannot patch it", ""),
            (403, "admission webhook \"a.example.com\" denied the request: no", ""),
            (422, "admission webhook \"a.example.com\" denied the request: no", "FieldValueDuplicate"),
            (422, "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no", ""),
        ] {
            let refused = check("kubectl-create", denial).await;
            assert!(!matches!(refused, Ok(_) | Err(RuntimeError::Unavailable { .. })), "{denial:?}: {refused:?}");
        }
    }
}
