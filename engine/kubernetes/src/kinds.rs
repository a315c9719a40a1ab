//! Kinds that a cluster does not serve: whether it will serve them soon, or serves them in another version.
//!
//! Elsewhere: `stoa_kubernetes_model::definitions` has the kinds that a plan creates.

use std::time::Duration;

use serde_json::{Map, Value};
use stoa_kubernetes_model::definitions::Definition;
use stoa_runtime::RuntimeError;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::discovery::{self, Discovered};
use crate::error::CallError;
use crate::target::{Api, Gvk, Target};

/// How long a kind may take from its definition to being served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const SERVED_POLL: Duration = Duration::from_millis(200);

/// How a kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is served so, in this version.
    Served(Gvk, Api),
    /// The cluster has a definition of it and does not serve it yet.
    Coming,
    /// Nothing.
    Unknown,
}

/// Looks for the kind of something that is wanted, and for a definition of it.
pub(crate) async fn find(cluster: &Cluster, gvk: &Gvk) -> Result<Known, CallError> {
    let missing = match cluster.discover(gvk).await? {
        Discovered::Served(api) => return Ok(Known::Served(gvk.clone(), api)),
        missing => missing,
    };
    Ok(if is_defined(cluster, gvk, &missing).await? { Known::Coming } else { Known::Unknown })
}

/// Finds the kind of a recorded object. An object is readable in every version of its group that has the kind, even
/// after its applied version was removed.
///
/// # Errors
///
/// Also when another server may have the kind and does not answer, so that its objects are unknown.
pub(crate) async fn find_in_any_version(cluster: &Cluster, gvk: &Gvk) -> Result<Known, CallError> {
    let recorded = match cluster.discover(gvk).await? {
        Discovered::Served(api) => return Ok(Known::Served(gvk.clone(), api)),
        missing => missing,
    };
    let listed = cluster.versions(&gvk.group).await?;
    let mut unanswered = Vec::new();
    for version in listed.iter().cloned() {
        let gvk = Gvk { version, ..gvk.clone() };
        let mut found = cluster.discover(&gvk).await?;
        if !matches!(found, Discovered::Served(_)) {
            // The kind may be served since the request.
            cluster.forget(&gvk);
            found = cluster.discover(&gvk).await?;
        }
        match found {
            Discovered::Served(api) => return Ok(Known::Served(gvk, api)),
            Discovered::NoVersion => unanswered.push(gvk),
            Discovered::NoKind => {}
        }
    }
    for gvk in unanswered {
        // Without a readable registration, only the list of versions is known.
        if is_anothers(cluster, &gvk).await?.unwrap_or(true) {
            return Err(discovery::unanswered(&gvk, None));
        }
    }
    let is_unlisted = recorded == Discovered::NoVersion && !listed.contains(&gvk.version);
    if is_unlisted && is_anothers(cluster, gvk).await? == Some(true) {
        return Err(discovery::unanswered(gvk, None));
    }
    Ok(Known::Unknown)
}

/// How a cluster serves a kind that is about to be applied. Waits for a kind whose definition exists.
pub(crate) async fn served(
    cluster: &Cluster,
    target: &Target,
    explain: &(dyn Fn(CallError) -> RuntimeError + Sync),
) -> Result<Api, RuntimeError> {
    if let Discovered::Served(api) = cluster.discover(&target.gvk).await.map_err(explain)? {
        return Ok(api);
    }
    let deadline = Instant::now() + SERVED_WITHIN;
    loop {
        cluster.forget(&target.gvk);
        match find(cluster, &target.gvk).await.map_err(explain)? {
            Known::Served(_, api) => return Ok(api),
            Known::Coming if Instant::now() <= deadline => tokio::time::sleep(SERVED_POLL).await,
            Known::Coming | Known::Unknown => return Err(unknown(target, &cluster.name)),
        }
    }
}

/// The path of the APIService of a group and version.
fn service_path(gvk: &Gvk) -> String {
    format!("/apis/apiregistration.k8s.io/v1/apiservices/{}.{}", gvk.version, gvk.group)
}

/// Whether another server is registered for a group and version, and may be unavailable. Local APIs are registered too,
/// until they are removed. `None` when the registration cannot be read.
async fn is_anothers(cluster: &Cluster, gvk: &Gvk) -> Result<Option<bool>, CallError> {
    match cluster.get(&service_path(gvk)).await {
        Ok(service) => {
            let spec = service.as_ref().and_then(|service| service.get("spec"));
            Ok(Some(spec.and_then(|spec| spec.get("service")).is_some_and(|server| !server.is_null())))
        }
        Err(CallError::Status(failure)) if failure.code == 403 => Ok(None),
        Err(CallError::Status(failure)) if failure.code == 404 => Ok(Some(false)),
        Err(err) => Err(err),
    }
}

/// Whether the cluster has a definition of a kind that is not served.
async fn is_defined(cluster: &Cluster, gvk: &Gvk, missing: &Discovered) -> Result<bool, CallError> {
    // A version that is served without the kind does not get it from a registration.
    if *missing == Discovered::NoVersion && or_nothing(cluster.get(&service_path(gvk)).await)?.is_some() {
        return Ok(true);
    }
    let crd = Gvk {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
    };
    let suffix = format!(".{}", gvk.group);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let found = cluster.list(&crd, path, &|name| name.ends_with(&suffix)).await;
    let is_of = |object: &Map<String, Value>| {
        Definition::of(object).is_some_and(|definition| definition.has(&gvk.group, &gvk.version, &gvk.kind))
    };
    Ok(or_nothing(found.map(Some))?.is_some_and(|found| found.objects.values().any(is_of)))
}

/// Without a readable definition, the kind counts as missing at once.
fn or_nothing<T>(found: Result<Option<T>, CallError>) -> Result<Option<T>, CallError> {
    match found {
        Err(CallError::Status(failure)) if matches!(failure.code, 403 | 404) => Ok(None),
        found => found,
    }
}

/// Forgets how the kind is served that a CustomResourceDefinition defines.
pub(crate) fn forget_defined(cluster: &Cluster, crd: &Map<String, Value>) {
    defined(crd).for_each(|gvk| cluster.forget(&gvk));
}

/// Records a changed definition.
pub(crate) fn note_defined(cluster: &Cluster, crd: &Map<String, Value>) {
    forget_defined(cluster, crd);
    defined(crd).for_each(|gvk| cluster.note_defined(gvk));
}

/// The kind that a CustomResourceDefinition defines, in each of its versions.
fn defined(crd: &Map<String, Value>) -> impl Iterator<Item = Gvk> {
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (group, kind) = (text(spec.pointer("/group")), text(spec.pointer("/names/kind")));
    let versions = spec.get("versions").and_then(Value::as_array).into_iter().flatten();
    versions.map(move |version| Gvk { group: group.clone(), version: text(version.get("name")), kind: kind.clone() })
}

pub(crate) fn unknown(target: &Target, cluster: &str) -> RuntimeError {
    let Gvk { kind, .. } = &target.gvk;
    RuntimeError::UnknownKind(format!(
        "cluster {cluster} has no kind {kind:?} in apiVersion {:?}",
        target.gvk.api_version()
    ))
}

/// The message about a kind that may be served later.
pub(crate) fn not_yet(target: &Target, cluster: &str) -> String {
    format!("cluster {cluster} does not serve {} {} yet", target.gvk.api_version(), target.gvk.kind)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use stoa_engine::Sensitive;

    use super::*;
    use crate::connections::Connection;

    /// A cluster that answers these paths with a code and a body, and knows no other.
    fn cluster(answers: &[(&str, u16, Value)]) -> Cluster {
        let answers: Vec<_> =
            answers.iter().map(|(path, code, body)| ((*path).to_owned(), *code, body.clone())).collect();
        let server = tower::service_fn(move |request: Request<Body>| {
            let found = answers.iter().find(|(path, ..)| request.uri().path() == path);
            let (code, body) = found.map_or((404, Value::Null), |(_, code, body)| (*code, body.clone()));
            let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")))
    }

    fn widget(version: &str) -> Gvk {
        Gvk { group: "example.com".to_owned(), version: version.to_owned(), kind: "Widget".to_owned() }
    }

    async fn check(answers: &[(&str, u16, Value)]) -> Result<Known, CallError> {
        find(&cluster(answers), &widget("v1")).await
    }

    const GROUP: &str = "/apis/example.com/v1";
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com";

    fn of_group(kind: &str) -> Value {
        json!({"resources": [{"name": "things", "kind": kind, "namespaced": true}]})
    }

    fn definitions(kind: &str, version: &str, served: bool) -> Value {
        json!({"metadata": {}, "items": [{"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
            "names": {"kind": kind}, "versions": [{"name": version, "served": served}]}}]})
    }

    #[tokio::test]
    async fn kind_with_definition_is_expected() {
        let served = [(GROUP, 200, of_group("Widget"))];
        let api = Api { plural: "things".to_owned(), namespaced: true };
        assert_eq!(check(&served).await.unwrap(), Known::Served(widget("v1"), api));
        let service = (SERVICE, 200, json!({"metadata": {"name": "v1.example.com"}}));
        let other = (GROUP, 200, of_group("Thing"));
        for (answers, known) in [
            (vec![], Known::Unknown),
            (vec![other.clone()], Known::Unknown),
            (vec![(DEFINITIONS, 200, definitions("Widget", "v1", true))], Known::Coming),
            (vec![other.clone(), (DEFINITIONS, 200, definitions("Widget", "v1", true))], Known::Coming),
            (vec![(DEFINITIONS, 200, definitions("Wigdet", "v1", true))], Known::Unknown),
            (vec![(DEFINITIONS, 200, definitions("Widget", "v2", true))], Known::Unknown),
            (vec![(DEFINITIONS, 200, definitions("Widget", "v1", false))], Known::Unknown),
            (vec![(DEFINITIONS, 403, Value::Null), (SERVICE, 403, Value::Null)], Known::Unknown),
            (vec![service.clone()], Known::Coming),
            (vec![service, other], Known::Unknown),
        ] {
            assert_eq!(check(&answers).await.unwrap(), known, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn unavailable_api_is_not_unknown() {
        for answers in [vec![(GROUP, 503, Value::Null)], vec![(DEFINITIONS, 503, Value::Null)]] {
            let error = check(&answers).await.unwrap_err().into_runtime("main", &Sensitive::default());
            assert!(error.is_retryable(), "{error:?}");
        }
    }

    #[tokio::test]
    async fn recorded_kind_is_searched_in_all_versions() {
        let versions = json!({"versions": [{"version": "v2"}, {"version": "v1"}]});
        let group = ("/apis/example.com", 200, versions);
        let (second, first) = (("/apis/example.com/v2", 200, of_group("Widget")), (GROUP, 200, of_group("Widget")));
        let other = ("/apis/example.com/v2", 200, of_group("Thing"));
        for (answers, found) in [
            (vec![group.clone(), second.clone(), first.clone()], Some("v1")),
            (vec![group.clone(), second.clone()], Some("v2")),
            (vec![second.clone()], None),
            (vec![group.clone(), other], None),
            (vec![group.clone()], None),
        ] {
            let api = Api { plural: "things".to_owned(), namespaced: true };
            let known = found.map_or(Known::Unknown, |version| Known::Served(widget(version), api));
            assert_eq!(find_in_any_version(&cluster(&answers), &widget("v1")).await.unwrap(), known, "{answers:?}");
        }
        // Where one cannot be asked, nobody knows.
        for answers in
            [vec![("/apis/example.com", 503, Value::Null)], vec![group, ("/apis/example.com/v2", 503, Value::Null)]]
        {
            find_in_any_version(&cluster(&answers), &widget("v1")).await.unwrap_err();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unregistered_api_counts_as_deleted() {
        let registered =
            |server: Value| (SERVICE, 200, json!({"metadata": {"name": "v1.example.com"}, "spec": server}));
        let theirs = registered(json!({"service": {"name": "widgets", "namespace": "shop"}}));
        let [own, unsaid] = [json!({"service": null}), json!({})].map(registered);
        let listed = ("/apis/example.com", 200, json!({"versions": [{"version": "v1"}]}));
        let other = ("/apis/example.com", 200, json!({"versions": [{"version": "v2"}]}));
        let second = ("/apis/example.com/v2", 200, of_group("Thing"));
        let unseen = (SERVICE, 403, Value::Null);
        for (answers, is_known) in [
            (vec![listed.clone(), theirs.clone()], false),
            (vec![theirs.clone()], false),
            (vec![other.clone(), second.clone(), theirs.clone()], false),
            (vec![listed.clone(), unseen.clone()], false),
            (vec![listed.clone(), (GROUP, 503, json!({"kind": "Status", "message": "service unavailable"}))], false),
            // It answers, and has no such kind.
            (vec![listed.clone(), (GROUP, 200, of_group("Thing")), theirs], true),
            // The definition went a moment ago.
            (vec![listed.clone(), own], true),
            (vec![listed.clone(), unsaid], true),
            (vec![listed], true),
            (vec![unseen], true),
            (vec![other, second], true),
        ] {
            match find_in_any_version(&cluster(&answers), &widget("v1")).await {
                Ok(known) => assert_eq!((known, is_known), (Known::Unknown, true), "{answers:?}"),
                Err(error) => {
                    let error = error.into_runtime("main", &Sensitive::default());
                    assert!(!is_known && error.is_retryable(), "{answers:?}: {error:?}");
                    assert!(error.to_string().contains("no server answers for API example.com/v1"), "{error}");
                }
            }
        }
    }
}
