//! Collections of a cluster, read in pages.

use std::collections::HashMap;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cluster::{Cluster, JSON, decode};
use crate::error::CallError;
use crate::target::{Gvk, named_path};
use crate::watch::version_of;

/// The maximum number of objects in a page, and the divisor of it for pages that are too large.
const PAGE: u32 = 500;
const FEWER: u32 = 8;
/// How often a paged list restarts after an expired token, before it is read as a whole.
const RESTARTS: u32 = 2;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    /// `null` for an empty list of metadata.
    #[serde(borrow, default)]
    items: Option<Vec<&'a serde_json::value::RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    #[serde(rename = "continue")]
    next: String,
    resource_version: String,
}

/// Objects of a collection, by name.
pub(crate) struct Listed {
    pub(crate) objects: HashMap<String, Map<String, Value>>,
    /// As of when.
    pub(crate) version: String,
}

#[derive(Deserialize)]
struct Peek {
    metadata: PeekMeta,
}

#[derive(Deserialize)]
struct PeekMeta {
    name: String,
}

impl Cluster {
    /// The objects of a collection whose names are `wanted`. The others are never decoded.
    pub(crate) async fn list(
        &self,
        gvk: &Gvk,
        collection: &str,
        wanted: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Listed, CallError> {
        let pick = |item: &str| {
            let peek: Peek = decode(item.as_bytes())?;
            if !wanted(&peek.metadata.name) {
                return Ok(None);
            }
            let mut object: Map<String, Value> = decode(item.as_bytes())?;
            // Items of built-in lists have no apiVersion and kind.
            object.entry("apiVersion").or_insert_with(|| gvk.api_version().into());
            object.entry("kind").or_insert_with(|| gvk.kind.clone().into());
            Ok(Some((peek.metadata.name, object)))
        };
        let (found, version) = self.pages(collection, JSON, &pick).await?;
        Ok(Listed { objects: found.into_iter().collect(), version })
    }

    /// The results of `pick` for each object of a collection as JSON, and the version of the list. `accept` has the
    /// media types.
    pub(crate) async fn pages<T: Send>(
        &self,
        collection: &str,
        accept: &str,
        pick: &(dyn Fn(&str) -> Result<Option<T>, CallError> + Sync),
    ) -> Result<(Vec<T>, String), CallError> {
        let (mut found, mut next) = (Vec::new(), String::new());
        let (mut size, mut restarts) = (PAGE, 0);
        loop {
            // As client-go does in the end: what comes in one piece does not expire.
            let is_whole = restarts > RESTARTS && next.is_empty();
            let page_path = if is_whole {
                collection.to_owned()
            } else if next.is_empty() {
                format!("{collection}?limit={size}")
            } else {
                format!("{collection}?limit={size}&continue={}", utf8_percent_encode(&next, NON_ALPHANUMERIC))
            };
            let body = match self.get_as(accept, &page_path).await {
                Err(CallError::TooLarge) if size > 1 && !is_whole => {
                    size = (size / FEWER).max(1);
                    continue;
                }
                // The token is older than the server's history. The list restarts in pages, since a whole one may be
                // too large.
                Err(CallError::Status(failure)) if failure.code == 410 && !next.is_empty() && restarts <= RESTARTS => {
                    found.clear();
                    next.clear();
                    restarts += 1;
                    continue;
                }
                body => body?,
            };
            let page: Page<'_> = decode(&body)?;
            for item in page.items.into_iter().flatten() {
                found.extend(pick(item.get())?);
            }
            if page.metadata.next.is_empty() {
                return Ok((found, page.metadata.resource_version));
            }
            next = page.metadata.next;
        }
    }

    /// The object of a collection that has this name, and no other.
    pub(crate) async fn list_one(&self, collection: &str, name: &str) -> Result<Listed, CallError> {
        let found = self.get(&named_path(collection, name)).await?;
        let version = found.as_ref().and_then(version_of);
        // A watch without a version starts with the present objects.
        let version = version.unwrap_or_default().to_owned();
        Ok(Listed { objects: found.map(|object| (name.to_owned(), object)).into_iter().collect(), version })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Request;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::body;
    use crate::connections::Connection;

    /// A cluster that answers a list with objects of 16 MiB each, as many as are asked for.
    fn of_large_objects() -> Cluster {
        let server = tower::service_fn(|request: Request<Body>| {
            let limit = request.uri().query().and_then(|query| query.strip_prefix("limit=")?.split('&').next());
            let count: usize = limit.map_or(3, |limit| limit.parse().unwrap());
            let large = "x".repeat(body::LARGEST / 2);
            let items: Vec<Value> =
                (0..count.min(3)).map(|n| json!({"metadata": {"name": format!("w{n}")}, "large": large})).collect();
            let list = if limit.is_some() { json!({"items": items}) } else { json!({"all": items}) };
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(
                list.to_string().into_bytes(),
            ))))
        });
        Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")))
    }

    #[tokio::test]
    async fn answers_are_read_up_to_limit() {
        let cluster = of_large_objects();
        let error = cluster.get("/api/v1/namespaces/shop").await.unwrap_err();
        assert!(matches!(error, CallError::TooLarge), "{error:?}");
        let said = error.into_runtime("main", &stoa_engine::Sensitive::default());
        assert_eq!(said.to_string(), "cluster main: the answer is larger than 32 MiB and was not read");
        assert!(said.is_unanswered(), "what was asked for may have been done");
        assert_eq!(cluster.away(), None, "it answers");
        // What is too large together is asked for in smaller pages.
        let widgets = Gvk { group: "example.com".to_owned(), version: "v1".to_owned(), kind: "Widget".to_owned() };
        let listed = cluster.list(&widgets, "/apis/example.com/v1/widgets", &|_| true).await.unwrap();
        assert_eq!(listed.objects.keys().collect::<Vec<_>>(), ["w0"]);
    }

    #[tokio::test]
    async fn list_continues_with_any_token() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let (name, next) = match request.uri().query() {
                Some("limit=500") => ("w0", "a&limit=1+/"),
                Some("limit=500&continue=a%26limit%3D1%2B%2F") => ("w1", ""),
                other => panic!("{other:?}"),
            };
            let page = json!({"metadata": {"continue": next}, "items": [{"metadata": {"name": name}}]});
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(page.to_string().into_bytes())))
        });
        let connection = Connection::new(String::new(), Client::new(service, "default"));
        let cluster = Cluster::new("main".to_owned(), connection);
        let widgets = Gvk { group: "example.com".to_owned(), version: "v1".to_owned(), kind: "Widget".to_owned() };
        let listed = cluster.list(&widgets, "/apis/example.com/v1/widgets", &|_| true).await.unwrap();
        assert_eq!(listed.objects.len(), 2);
    }

    /// Lists two widgets in two pages, the token of the first of which expires so many times; what was asked for.
    async fn listed_though_tokens_expire(times: usize) -> (Result<usize, CallError>, Vec<String>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut left) = (Arc::clone(&asked), times);
        let server = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or("all").to_owned();
            let page = |names: &[&str], next: &str| {
                let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
                (200, json!({"metadata": {"continue": next}, "items": items}))
            };
            let (code, body) = match query.as_str() {
                "limit=500" => page(&["w0"], "t"),
                "all" => page(&["w0", "w1"], ""),
                _ if left > 0 => {
                    left -= 1;
                    (410, json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))
                }
                _ => page(&["w1"], ""),
            };
            seen.lock().unwrap().push(query);
            let response = http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(Ok::<_, std::convert::Infallible>(response.unwrap()))
        });
        let cluster = Cluster::new("main".to_owned(), Connection::new(String::new(), Client::new(server, "default")));
        let widgets = Gvk { group: "example.com".to_owned(), version: "v1".to_owned(), kind: "Widget".to_owned() };
        let listed = cluster.list(&widgets, "/apis/example.com/v1/widgets", &|_| true).await;
        let asked = asked.lock().unwrap().clone();
        (listed.map(|listed| listed.objects.len()), asked)
    }

    #[tokio::test]
    async fn expired_list_restarts_and_then_reads_whole() {
        let (pages, token) = ("limit=500", "limit=500&continue=t");
        let (listed, asked) = listed_though_tokens_expire(1).await;
        assert_eq!((listed.unwrap(), asked), (2, [pages, token, pages, token].map(str::to_owned).to_vec()));
        let (listed, asked) = listed_though_tokens_expire(usize::MAX).await;
        let expected = [pages, token, pages, token, pages, token, "all"].map(str::to_owned).to_vec();
        assert_eq!((listed.unwrap(), asked), (2, expected));
    }
}
