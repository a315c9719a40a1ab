//! Foreign contents: lists the objects of other owners in a namespace, or of a kind, before its deletion.
//!
//! Start at [`find_in`]. Owners are in annotations, which a server cannot select by. Therefore all kinds of a namespace
//! are listed, by metadata only: no value of a Secret is transferred.

use std::pin::pin;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::{Owner, Sensitive, StateResource};
use stoa_kubernetes_model::{Cascade, ForeignContents, ForeignObject};
use stoa_runtime::RuntimeError;

use crate::KubernetesRuntime;
use crate::cluster::{Cluster, decode};
use crate::error::CallError;
use crate::served;
use crate::target::{Api, Gvk, collection_path};

/// Lists in flight at once.
const PARALLEL: usize = 16;
/// Nothing but metadata, of servers that can say so little: a server of Kubernetes can, and others may send all of it.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Many Events result from any change, and have no owner.
const EVENTS: &str = "events";

pub(crate) async fn find(
    runtime: &KubernetesRuntime,
    holder: &StateResource,
    contents: &Cascade,
) -> Result<ForeignContents, RuntimeError> {
    let (index, _) = runtime.prior_target(holder)?;
    find_in(runtime, runtime.cluster(index), contents).await
}

/// Lists the foreign contents.
///
/// A failed list is an error: Kubernetes cannot delete the namespace either. A forbidden list is in the result, and the
/// workspace decides about it.
pub(crate) async fn find_in(
    runtime: &KubernetesRuntime,
    cluster: &Cluster,
    contents: &Cascade,
) -> Result<ForeignContents, RuntimeError> {
    let foreign = collect(cluster, &runtime.owner, contents).await;
    let foreign = foreign.map_err(|err| err.into_runtime(&cluster.name, &Sensitive::default()))?;
    Ok(foreign.with_unlisted(runtime.unlisted))
}

async fn collect(cluster: &Cluster, owner: &Owner, contents: &Cascade) -> Result<ForeignContents, CallError> {
    let mut foreign = ForeignContents::default();
    let kinds = match contents {
        Cascade::Namespace(_) => namespaced(cluster, &mut foreign).await?,
        Cascade::Kind { group, version: Some(version), kind, plural } => {
            let [group, version, kind] = [group, version, kind].map(Clone::clone);
            vec![(Gvk { group, version, kind }, Api { plural: plural.clone(), namespaced: true })]
        }
        Cascade::Kind { group, version: None, plural, .. } => {
            foreign.add_unlistable(group, plural);
            return Ok(foreign);
        }
    };
    let namespace = match contents {
        Cascade::Namespace(name) => Some(name.as_str()),
        Cascade::Kind { .. } => None,
    };
    let lists = stream::iter(kinds).map(async |(gvk, api)| {
        let is_foreign = |object: &Map<String, Value>| contents.foreign(owner, object);
        let found = listed(cluster, &gvk, &collection_path(&gvk, &api, namespace), &is_foreign).await?;
        Ok::<_, CallError>((gvk, api, found))
    });
    let mut lists = pin!(lists.buffer_unordered(PARALLEL));
    while let Some((gvk, api, found)) = lists.try_next().await? {
        match found {
            Listed::Seen(objects) => objects.into_iter().for_each(|object| foreign.add(object)),
            Listed::Refused => foreign.add_unlisted(&gvk.group, &api.plural),
            Listed::Unlistable => foreign.add_unlistable(&gvk.group, &api.plural),
        }
    }
    Ok(foreign)
}

#[derive(Deserialize)]
struct Item {
    metadata: Map<String, Value>,
}

/// The result of a list.
enum Listed {
    /// The foreign objects.
    Seen(Vec<ForeignObject>),
    /// The credentials may not list them.
    Refused,
    /// Nobody can.
    Unlistable,
}

/// The foreign objects of a collection.
async fn listed(
    cluster: &Cluster,
    gvk: &Gvk,
    collection: &str,
    is_foreign: &(dyn Fn(&Map<String, Value>) -> Option<ForeignObject> + Sync),
) -> Result<Listed, CallError> {
    let pick = |item: &str| {
        let Item { metadata } = decode(item.as_bytes())?;
        // Metadata lists have another kind for their items.
        let called = [("apiVersion", gvk.api_version()), ("kind", gvk.kind.clone())];
        let mut object: Map<String, Value> =
            called.into_iter().map(|(field, value)| (field.to_owned(), value.into())).collect();
        object.insert("metadata".to_owned(), metadata.into());
        Ok(is_foreign(&object))
    };
    match cluster.pages(collection, METADATA, &pick).await {
        Ok((objects, _)) => Ok(Listed::Seen(objects)),
        Err(CallError::Status(failure)) => match failure.code {
            403 => Ok(Listed::Refused),
            405 => Ok(Listed::Unlistable),
            // The kind was removed meanwhile, or its definition was never served.
            404 => Ok(Listed::Seen(Vec::new())),
            _ => Err(CallError::Status(failure)),
        },
        Err(err) => Err(err),
    }
}

/// The kinds that Kubernetes deletes with a namespace, as far as they support server-side apply and thus an owner
/// annotation. Kinds without a list are added to the result.
async fn namespaced(cluster: &Cluster, foreign: &mut ForeignContents) -> Result<Vec<(Gvk, Api)>, CallError> {
    let mut kinds = Vec::new();
    for kind in served::all(cluster).await? {
        // Kubernetes skips kinds with neither verb (k8s.io/kubernetes/pkg/controller/namespace/deletion).
        let is_deleted = kind.has(&["delete"]) && (kind.has(&["list"]) || kind.has(&["deletecollection"]));
        if !kind.api.namespaced || !is_deleted || !kind.has(&["patch"]) || kind.api.plural == EVENTS {
            continue;
        }
        if kind.has(&["list"]) {
            kinds.push((kind.gvk, kind.api));
        } else {
            foreign.add_unlistable(&kind.gvk.group, &kind.api.plural);
        }
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response, header};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use stoa_engine::owner::MARK;
    use stoa_engine::spec::DELETE_CONTENTS;
    use stoa_kubernetes_model::UnlistedContents;
    use stoa_runtime::Runtime as _;

    use super::*;
    use crate::connections::Connection;

    fn owner() -> Owner {
        Owner {
            organization: "shop".to_owned(),
            stack: "web".to_owned(),
            workspace: "dev".to_owned(),
            stack_uid: "uid".to_owned(),
        }
    }

    /// The record of what is to be deleted.
    fn holder() -> StateResource {
        StateResource::named_by(&"v1:Namespace:shop".into()).unwrap().with_uid("u-1")
    }

    /// What was asked for, as paths without their queries.
    type Requests = Arc<Mutex<Vec<String>>>;

    /// A cluster that answers these paths with a code and a body, and lists nothing of all others.
    fn cluster(answers: &[(&str, u16, Value)]) -> (Cluster, Requests) {
        let answers: Vec<_> =
            answers.iter().map(|(path, code, body)| ((*path).to_owned(), *code, body.clone())).collect();
        let asked = Requests::default();
        let heard = Arc::clone(&asked);
        let server = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let accepts = request.headers()[header::ACCEPT].to_str().unwrap();
            let is_list = request.uri().query().is_some_and(|query| query.contains("limit="));
            assert_eq!(accepts.contains("APIGroupDiscoveryList"), matches!(path, "/api" | "/apis"));
            assert_eq!(accepts.contains("PartialObjectMetadataList"), is_list);
            let is_get = request.method() == http::Method::GET;
            heard.lock().unwrap().push(if is_get { path.to_owned() } else { format!("{} {path}", request.method()) });
            let found = answers.iter().find(|(answered, ..)| path == answered);
            let (code, body) = found.map_or((200, json!({"items": null})), |(_, code, body)| (*code, body.clone()));
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        (Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default"))), asked)
    }

    async fn look(cluster: &Cluster, contents: &Cascade) -> Result<ForeignContents, CallError> {
        collect(cluster, &owner(), contents).await
    }

    fn resource(name: &str, kind: &str, scope: &str, verbs: &[&str]) -> Value {
        json!({"resource": name, "scope": scope, "verbs": verbs, "responseKind": {"kind": kind}})
    }

    fn groups(items: &Value) -> Value {
        json!({"kind": "APIGroupDiscoveryList", "items": items})
    }

    /// What a cluster says that it serves.
    fn served() -> [(&'static str, u16, Value); 2] {
        let all = ["create", "delete", "get", "list", "patch"];
        let core = json!([{"metadata": {}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            resource("configmaps", "ConfigMap", "Namespaced", &all), resource("secrets", "Secret", "Namespaced", &all),
            resource("events", "Event", "Namespaced", &all), resource("bindings", "Binding", "Namespaced", &["create"]),
            resource("nodes", "Node", "Cluster", &all)]}]}]);
        let others = json!([
            {"metadata": {"name": "x.dev"}, "versions": [
                {"version": "v2", "resources": [resource("webs", "Web", "Namespaced", &all)]},
                {"version": "v1", "resources": [resource("webs", "Web", "Namespaced", &all),
                    resource("olds", "Old", "Namespaced", &all)]}]},
            // What nobody can mark, and what nobody deletes.
            {"metadata": {"name": "y.dev"}, "versions": [{"version": "v1", "resources": [
                resource("told", "Told", "Namespaced", &["delete", "get", "list"]),
                resource("kept", "Kept", "Namespaced", &["get", "list", "patch"])]}]},
            {"metadata": {"name": "custom.metrics.k8s.io"}, "versions": [{"version": "v1", "resources": [
                {"resource": "pods", "scope": "Namespaced", "verbs": null, "responseKind": null}]}, {"version": "v0", "resources": null}]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale",
                "resources": [resource("pods", "PodMetrics", "Namespaced", &["get", "list"])]}]}]);
        [("/api", 200, groups(&core)), ("/apis", 200, groups(&others))]
    }

    fn list(owners: &[(&str, &str)]) -> Value {
        let item = |(name, mark): &(&str, &str)| json!({"metadata": {"name": name, "namespace": "shop", "annotations": {MARK: mark}}});
        json!({"kind": "PartialObjectMetadataList", "items": owners.iter().map(item).collect::<Vec<_>>()})
    }

    #[tokio::test]
    async fn namespace_contents_are_listed_once() {
        let maps = list(&[("ours", "shop/web/dev/uid"), ("theirs", "shop/api/dev/u-2")]);
        let webs = list(&[("site", "shop/db/stage/u-3")]);
        let mut answers = served().to_vec();
        answers.push(("/api/v1/namespaces/shop/configmaps", 200, maps));
        answers.push(("/apis/x.dev/v2/namespaces/shop/webs", 200, webs));
        let (cluster, asked) = cluster(&answers);
        let foreign = look(&cluster, &Cascade::Namespace("shop".to_owned())).await.unwrap();
        let refusal = foreign.refusal(&holder()).unwrap();
        assert!(refusal.contains("(ConfigMap theirs of shop/api/dev, Web site of shop/db/stage);"), "{refusal}");
        assert_eq!(foreign.warnings(&"v1:Namespace:shop".into()), Vec::<String>::new());
        let mut asked = std::mem::take(&mut *asked.lock().unwrap());
        asked.sort();
        let expected = [
            "/api",
            "/api/v1/namespaces/shop/configmaps",
            "/api/v1/namespaces/shop/secrets",
            "/apis",
            "/apis/x.dev/v1/namespaces/shop/olds",
            "/apis/x.dev/v2/namespaces/shop/webs",
        ];
        assert_eq!(asked, expected);
    }

    #[tokio::test]
    async fn objects_of_kind_are_listed_in_all_namespaces() {
        let contents = Cascade::Kind {
            group: "x.dev".to_owned(),
            version: Some("v2".to_owned()),
            kind: "Web".to_owned(),
            plural: "webs".to_owned(),
        };
        let (cluster, asked) = cluster(&[("/apis/x.dev/v2/webs", 200, list(&[("site", "shop/db/stage/u-3")]))]);
        let refusal = look(&cluster, &contents).await.unwrap().refusal(&holder()).unwrap();
        assert!(refusal.contains("(Web site in namespace shop of shop/db/stage);"), "{refusal}");
        assert_eq!(*asked.lock().unwrap(), ["/apis/x.dev/v2/webs"]);
    }

    /// What was looked at in the namespace `shop`, as these are answered besides.
    async fn looked(
        answers: &[(&'static str, u16, Value)],
        more: &[(&'static str, u16, Value)],
    ) -> Result<ForeignContents, CallError> {
        let answers: Vec<_> = answers.iter().chain(more).cloned().collect();
        look(&cluster(&answers).0, &Cascade::Namespace("shop".to_owned())).await
    }

    const SECRETS: &str = "/api/v1/namespaces/shop/secrets";

    #[tokio::test(start_paused = true)]
    async fn forbidden_list_rejects_and_failed_list_errors() {
        let secrets = async |code: u16| looked(&served(), &[(SECRETS, code, json!({}))]).await;
        let refusal = secrets(403).await.unwrap().refusal(&holder()).unwrap();
        assert!(refusal.contains("cannot list secrets, so deleting it may delete objects of other owners; give the workspace's credentials the rule "), "{refusal}");
        let refusal = secrets(405).await.unwrap().refusal(&holder()).unwrap();
        assert!(
            refusal.contains("cannot list secrets, so deleting it may delete objects of other owners; to delete "),
            "{refusal}"
        );
        assert_eq!(secrets(404).await.unwrap().refusal(&holder()), None);
        secrets(503).await.unwrap_err();

        // An API that is away and was never seen may have anything.
        let [core, _] = served();
        let away = json!([{"metadata": {"name": "y.dev"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]);
        let err = looked(&[core.clone(), ("/apis", 200, groups(&away))], &[]).await.unwrap_err();
        assert!(matches!(&err, CallError::Unreachable(message) if message.contains("y.dev/v1")), "{err:?}");
        let err = looked(&[core, ("/apis", 200, json!({"kind": "Status"}))], &[]).await.unwrap_err();
        assert!(
            matches!(&err, CallError::Unreachable(message) if message.contains("GET /apis is not a discovery document")),
            "{err:?}"
        );
    }

    #[tokio::test]
    async fn unlistable_kinds_in_namespace_reject() {
        let verbs = ["create", "delete", "deletecollection", "patch"];
        let blind = json!([{"metadata": {"name": "y.dev"}, "versions": [{"version": "v1", "resources": [
            resource("blinds", "Blind", "Namespaced", &verbs),
            resource("left", "Left", "Namespaced", &["create", "delete", "patch"])]}]}]);
        let foreign = looked(&[("/api", 200, groups(&json!([]))), ("/apis", 200, groups(&blind))], &[]).await.unwrap();
        assert!(foreign.refusal(&holder()).unwrap().contains("cannot list blinds.y.dev,"), "{foreign:?}");
        let contents = Cascade::Kind {
            group: "x.dev".to_owned(),
            version: None,
            kind: "Web".to_owned(),
            plural: "webs".to_owned(),
        };
        let foreign = look(&cluster(&[]).0, &contents).await.unwrap();
        assert!(foreign.refusal(&holder()).unwrap().contains("cannot list webs.x.dev,"), "{foreign:?}");
    }

    #[tokio::test]
    async fn server_without_aggregated_discovery_is_an_error() {
        let answers = [("/api", 200, json!({"kind": "APIVersions", "versions": ["v1"]}))];
        let error = looked(&answers, &[]).await.unwrap_err();
        assert!(matches!(&error, CallError::Unreachable(why) if why.contains("Kubernetes 1.27")), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn deletion_checks_unlisted_contents_again() {
        let namespaces = json!({"resources": [{"name": "namespaces", "kind": "Namespace", "namespaced": false}]});
        let deleted = async |annotations: Value, unlisted: UnlistedContents| {
            let metadata = json!({"name": "shop", "uid": "u-1", "resourceVersion": "7", "annotations": annotations});
            let mut answers = served().to_vec();
            answers.extend([
                ("/api/v1", 200, namespaces.clone()),
                (
                    "/api/v1/namespaces/shop",
                    200,
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
                ),
                (SECRETS, 403, json!({})),
            ]);
            let (cluster, asked) = cluster(&answers);
            let runtime = KubernetesRuntime::of(vec![Arc::new(cluster)], owner()).with_unlisted_contents(unlisted);
            let outcome = runtime.delete(&holder()).await;
            let is_called = asked.lock().unwrap().iter().any(|path| path == "DELETE /api/v1/namespaces/shop");
            assert_eq!(outcome.is_ok(), is_called, "{outcome:?}");
            outcome
        };
        let refused = deleted(json!({}), UnlistedContents::Refuse).await.unwrap_err();
        assert!(
            matches!(&refused, RuntimeError::ForeignContents(why) if why.contains("cannot list secrets")),
            "{refused:?}"
        );
        deleted(json!({DELETE_CONTENTS: "true"}), UnlistedContents::Refuse).await.unwrap();
        deleted(json!({}), UnlistedContents::Ignore).await.unwrap();
    }

    #[tokio::test]
    async fn unmarked_contents_are_reported() {
        let metadata = |name: &str| json!({"metadata": {"name": name, "namespace": "shop", "uid": name}});
        let maps = json!({"items": [metadata("kube-root-ca.crt"), metadata("by-hand")]});
        let foreign = looked(&served(), &[("/api/v1/namespaces/shop/configmaps", 200, maps)]).await.unwrap();
        let told = foreign.warnings(&"v1:Namespace:shop".into());
        assert_eq!(told, ["v1:Namespace:shop: 1 object without an owner is deleted with it: ConfigMap by-hand"]);
        assert_eq!(foreign.refusal(&holder()), None);
        let refusal = foreign.refusal(&holder().adopted(true)).unwrap();
        assert!(refusal.starts_with("it existed before Stoa adopted it") && refusal.contains("(ConfigMap by-hand);"));
    }
}
