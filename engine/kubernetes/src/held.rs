//! Looks for what others own in a namespace or of a kind, before that is deleted.
//!
//! Start at [`look`]. Whose objects are their annotations tell, by which a server selects nothing. So all kinds that are
//! deleted with a namespace are listed there, of each object no more than its metadata: no value of a Secret comes over.

use std::collections::HashSet;
use std::pin::pin;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use stoa_engine::{Contents, Held, Owner, Sensitive, StateResource};
use stoa_runtime::RuntimeError;

use crate::KubernetesRuntime;
use crate::cluster::{Cluster, decode};
use crate::error::CallError;
use crate::target::{Api, Gvk, collection_path};

/// Lists in flight at once.
const PARALLEL: usize = 16;
/// Nothing but metadata, of servers that can say so little: a server of Kubernetes can, and others may send all of it.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Everything that is served, in one document each for `/api` and `/apis`.
const SERVED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Made by whatever happens, many, and nobody's.
const EVENTS: &str = "events";

pub(crate) async fn held(
    runtime: &KubernetesRuntime,
    holder: &StateResource,
    contents: &Contents,
) -> Result<Held, RuntimeError> {
    let (index, _) = runtime.prior_target(holder)?;
    let cluster = runtime.cluster(index);
    look(cluster, &runtime.owner, contents).await.map_err(|err| err.into_runtime(&cluster.name, &Sensitive::default()))
}

/// Looks for what others than `owner` own of it.
///
/// What cannot be listed for now is an error: the same keeps Kubernetes from deleting it. What may not be listed is told.
pub(crate) async fn look(cluster: &Cluster, owner: &Owner, contents: &Contents) -> Result<Held, CallError> {
    let mut held = Held::of(contents);
    let kinds = match contents {
        Contents::Namespace(_) => match namespaced(cluster).await? {
            Some(kinds) => kinds,
            None => {
                held.note_unseen("anything (it is older than Kubernetes 1.27)".to_owned());
                return Ok(held);
            }
        },
        Contents::Kind { group, version: Some(version), kind, plural } => {
            let [group, version, kind] = [group, version, kind].map(Clone::clone);
            vec![(Gvk { group, version, kind }, Api { plural: plural.clone(), namespaced: true })]
        }
        Contents::Kind { group, version: None, plural, .. } => {
            held.note_unseen(format!("{plural}.{group} (in no version that is served)"));
            return Ok(held);
        }
    };
    let namespace = match contents {
        Contents::Namespace(name) => Some(name.as_str()),
        Contents::Kind { .. } => None,
    };
    let listed = stream::iter(kinds).map(async |(gvk, api)| {
        let objects = marked(cluster, owner, &collection_path(&gvk, &api, namespace)).await?;
        Ok::<_, CallError>((gvk, api, objects))
    });
    let mut listed = pin!(listed.buffer_unordered(PARALLEL));
    while let Some((gvk, api, objects)) = listed.try_next().await? {
        match objects {
            Some(objects) => objects.iter().for_each(|object| held.note(owner, &gvk.kind, object)),
            None if gvk.group.is_empty() => held.note_unseen(api.plural),
            None => held.note_unseen(format!("{}.{}", api.plural, gvk.group)),
        }
    }
    Ok(held)
}

#[derive(Deserialize)]
struct Item {
    metadata: Map<String, Value>,
}

/// The metadata of those objects of a collection that bear a mark which is not the owner's; `None` where it may not be
/// listed.
async fn marked(
    cluster: &Cluster,
    owner: &Owner,
    collection: &str,
) -> Result<Option<Vec<Map<String, Value>>>, CallError> {
    let pick = |item: &str| {
        let Item { metadata } = decode(item.as_bytes())?;
        let object = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
        Ok(owner.other(&object).is_some().then_some(object))
    };
    match cluster.pages(collection, METADATA, &pick).await {
        Ok((objects, _)) => Ok(Some(objects)),
        Err(CallError::Status(failure)) if matches!(failure.code, 403 | 405) => Ok(None),
        // The kind went meanwhile, or its definition was never served.
        Err(CallError::Status(failure)) if failure.code == 404 => Ok(Some(Vec::new())),
        Err(err) => Err(err),
    }
}

/// The kinds of which Kubernetes deletes what is in a namespace, each in the version that its group prefers. `None` where
/// the server does not tell all at once.
async fn namespaced(cluster: &Cluster) -> Result<Option<Vec<(Gvk, Api)>>, CallError> {
    let mut kinds = Vec::new();
    let mut seen = HashSet::new();
    for path in ["/api", "/apis"] {
        let body = cluster.get_as(SERVED, path).await?;
        let all: Served = decode(&body)?;
        if all.kind != "APIGroupDiscoveryList" {
            return Ok(None);
        }
        for ServedGroup { metadata: Named { name: group }, versions } in all.items {
            for ServedVersion { version, freshness, resources } in versions {
                if freshness == "Stale" && resources.is_empty() {
                    let message =
                        format!("nobody answers for {group}/{version}, and so nobody knows what there is of it");
                    return Err(CallError::Unreachable(message));
                }
                for ServedResource { resource, scope, verbs, response_kind } in resources {
                    let is_deleted =
                        scope == "Namespaced" && ["list", "delete"].iter().all(|verb| verbs.contains(*verb));
                    if is_deleted && resource != EVENTS && seen.insert((group.clone(), resource.clone())) {
                        let gvk = Gvk { group: group.clone(), version: version.clone(), kind: response_kind.kind };
                        kinds.push((gvk, Api { plural: resource, namespaced: true }));
                    }
                }
            }
        }
    }
    Ok(Some(kinds))
}

/// What Go leaves empty it writes as null, such as the verbs of an API that has subresources alone.
fn or_null<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct Served {
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "or_null")]
    items: Vec<ServedGroup>,
}

#[derive(Deserialize)]
struct ServedGroup {
    #[serde(default)]
    metadata: Named,
    #[serde(default, deserialize_with = "or_null")]
    versions: Vec<ServedVersion>,
}

#[derive(Deserialize, Default)]
struct Named {
    /// Empty for core.
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ServedVersion {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default, deserialize_with = "or_null")]
    resources: Vec<ServedResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServedResource {
    resource: String,
    scope: String,
    #[serde(default, deserialize_with = "or_null")]
    verbs: HashSet<String>,
    #[serde(default, deserialize_with = "or_null")]
    response_kind: ServedKind,
}

#[derive(Deserialize, Default)]
struct ServedKind {
    #[serde(default)]
    kind: String,
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

    /// What was asked for, as paths without their queries.
    type Asked = Arc<Mutex<Vec<String>>>;

    /// A cluster that answers these paths with a code and a body, and lists nothing of all others.
    fn cluster(answers: &[(&str, u16, Value)]) -> (Cluster, Asked) {
        let answers: Vec<_> =
            answers.iter().map(|(path, code, body)| ((*path).to_owned(), *code, body.clone())).collect();
        let asked = Asked::default();
        let heard = Arc::clone(&asked);
        let server = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let accepts = request.headers()[header::ACCEPT].to_str().unwrap();
            assert!(
                path == "/readyz"
                    || accepts.contains(if path.starts_with("/api") && path.matches('/').count() == 1 {
                        "APIGroupDiscoveryList"
                    } else {
                        "PartialObjectMetadataList"
                    })
            );
            heard.lock().unwrap().push(path.to_owned());
            let found = answers.iter().find(|(answered, ..)| path == answered);
            let (code, body) = found.map_or((200, json!({"items": null})), |(_, code, body)| (*code, body.clone()));
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        (Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default"))), asked)
    }

    fn resource(name: &str, kind: &str, scope: &str, verbs: &[&str]) -> Value {
        json!({"resource": name, "scope": scope, "verbs": verbs, "responseKind": {"kind": kind}})
    }

    fn groups(items: &Value) -> Value {
        json!({"kind": "APIGroupDiscoveryList", "items": items})
    }

    /// What a cluster says that it serves.
    fn served() -> [(&'static str, u16, Value); 2] {
        let all = ["create", "delete", "get", "list"];
        let core = json!([{"metadata": {}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            resource("configmaps", "ConfigMap", "Namespaced", &all), resource("secrets", "Secret", "Namespaced", &all),
            resource("events", "Event", "Namespaced", &all), resource("bindings", "Binding", "Namespaced", &["create"]),
            resource("nodes", "Node", "Cluster", &all)]}]}]);
        let others = json!([
            {"metadata": {"name": "x.dev"}, "versions": [
                {"version": "v2", "resources": [resource("webs", "Web", "Namespaced", &all)]},
                {"version": "v1", "resources": [resource("webs", "Web", "Namespaced", &all),
                    resource("olds", "Old", "Namespaced", &all)]}]},
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
    async fn all_that_goes_with_a_namespace_is_looked_at_once() {
        let maps = list(&[("ours", "shop/web/dev/uid"), ("theirs", "shop/api/dev/u-2")]);
        let webs = list(&[("site", "shop/db/stage/u-3")]);
        let mut answers = served().to_vec();
        answers.push(("/api/v1/namespaces/shop/configmaps", 200, maps));
        answers.push(("/apis/x.dev/v2/namespaces/shop/webs", 200, webs));
        let (cluster, asked) = cluster(&answers);
        let held = look(&cluster, &owner(), &Contents::Namespace("shop".to_owned())).await.unwrap();
        let refusal = held.refusal().unwrap();
        assert!(refusal.contains("ConfigMap theirs of shop/api/dev, Web site of shop/db/stage;"), "{refusal}");
        assert_eq!(held.warning(&"v1:Namespace:shop".into()), None);
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
    async fn objects_of_a_kind_are_looked_for_in_all_namespaces() {
        let contents = Contents::Kind {
            group: "x.dev".to_owned(),
            version: Some("v2".to_owned()),
            kind: "Web".to_owned(),
            plural: "webs".to_owned(),
        };
        let (cluster, asked) = cluster(&[("/apis/x.dev/v2/webs", 200, list(&[("site", "shop/db/stage/u-3")]))]);
        let refusal = look(&cluster, &owner(), &contents).await.unwrap().refusal().unwrap();
        assert!(refusal.contains("Web site in namespace shop of shop/db/stage;"), "{refusal}");
        assert_eq!(*asked.lock().unwrap(), ["/apis/x.dev/v2/webs"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_not_be_listed_is_told_and_what_cannot_be_is_an_error() {
        let secrets = |code: u16| ("/api/v1/namespaces/shop/secrets", code, json!({}));
        let looked = async |answers: Vec<(&str, u16, Value)>| {
            look(&cluster(&answers).0, &owner(), &Contents::Namespace("shop".to_owned())).await
        };
        let [core, others] = served();
        let held = looked(vec![core.clone(), others.clone(), secrets(403)]).await.unwrap();
        assert_eq!(held.refusal(), None);
        assert!(held.warning(&"a".into()).unwrap().contains("cannot list secrets in the cluster; "), "{held:?}");
        assert_eq!(looked(vec![core.clone(), others.clone(), secrets(404)]).await.unwrap().warning(&"a".into()), None);
        looked(vec![core.clone(), others, secrets(503)]).await.unwrap_err();

        // An API that is away and was never seen may have anything.
        let away = json!([{"metadata": {"name": "y.dev"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]);
        let err = looked(vec![core.clone(), ("/apis", 200, groups(&away))]).await.unwrap_err();
        assert!(matches!(&err, CallError::Unreachable(message) if message.contains("y.dev/v1")), "{err:?}");
        // A server from before there was one document.
        let held = looked(vec![core, ("/apis", 200, json!({"kind": "APIGroupList", "groups": []}))]).await.unwrap();
        assert!(held.warning(&"a".into()).is_some(), "{held:?}");
    }
}
