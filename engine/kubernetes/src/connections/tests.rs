use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};
use stoa_engine::{Owner, Resource};
use stoa_runtime::{Live, ReadRequest, Runtime as _, RuntimeError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::{Access, ClusterConfig, KubernetesRuntime};

/// A server that records what it is asked, and has 1,200 ConfigMaps and the widgets of the plural that it is told.
#[derive(Debug, Default)]
struct Served {
    asked: Mutex<Vec<String>>,
    connections: AtomicUsize,
    /// The code of all answers, where it is not 0, but to whether it is ready.
    refusal: AtomicU16,
    plural: Mutex<Option<&'static str>>,
}

impl Served {
    async fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Arc::new(Self::default());
        let shared = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, SeqCst);
                tokio::spawn(Arc::clone(&shared).serve(stream));
            }
        });
        (server, url)
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        loop {
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece).await {
                    Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
                    _ => return,
                }
            }
            let head = String::from_utf8(std::mem::take(&mut request)).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let (code, body) = self.answer(&path);
            self.asked.lock().unwrap().push(path);
            let answer = format!("HTTP/1.1 {code} Said\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str) -> (u16, String) {
        let refusal = self.refusal.load(SeqCst);
        if refusal != 0 && path != "/readyz" {
            return (refusal, json!({"kind": "Status", "code": refusal, "message": "no"}).to_string());
        }
        let plural = *self.plural.lock().unwrap();
        let (collection, query) = path.split_once('?').unwrap_or((path, ""));
        let body = match collection {
            "/api/v1" => json!({"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}]}),
            "/apis/example.com/v1" => {
                json!({"resources": plural.map(|name| json!({"name": name, "kind": "Widget", "namespaced": true})).into_iter().collect::<Vec<_>>()})
            }
            "/api/v1/namespaces/shop/configmaps/c0" => json!({"metadata": {"name": "c0"}}),
            "/readyz" => Value::Null,
            "/api/v1/namespaces/shop/configmaps" => {
                let value = |name: &str| query.split('&').find_map(|it| it.strip_prefix(name)?.parse::<usize>().ok());
                let (from, limit) = (value("continue=").unwrap_or(0), value("limit=").unwrap_or(usize::MAX));
                let end = 1_200.min(from.saturating_add(limit));
                let next = if end < 1_200 { end.to_string() } else { String::new() };
                let items: Vec<Value> =
                    (from..end).map(|number| json!({"metadata": {"name": format!("c{number}")}})).collect();
                json!({"metadata": {"continue": next}, "items": items})
            }
            other
                if plural.is_some_and(|plural| other == format!("/apis/example.com/v1/namespaces/shop/{plural}/w")) =>
            {
                json!({"metadata": {"name": "w"}})
            }
            _ => return (404, "404 page not found\n".to_owned()),
        };
        (200, body.to_string())
    }

    /// What was asked since the last time, and over how many new connections.
    fn told(&self) -> (Vec<String>, usize) {
        (std::mem::take(&mut self.asked.lock().unwrap()), self.connections.swap(0, SeqCst))
    }
}

fn config(url: &str, token: &str) -> ClusterConfig {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let access = Access::Kubeconfig { bytes: kubeconfig.to_string().into_bytes(), context: None };
    ClusterConfig { name: "main".to_owned(), access }
}

fn resource(api_version: &str, kind: &str, name: &str) -> Resource {
    serde_json::from_value(json!({
        "id": format!("{api_version}:{kind}:shop:{name}"), "type": "Kubernetes",
        "attributes": {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}},
    }))
    .unwrap()
}

/// How many of them are there, as a run finds them that begins now.
async fn found(connections: &Connections, config: &ClusterConfig, wanted: &[Resource]) -> Result<usize, RuntimeError> {
    let [organization, stack, workspace, stack_uid] = ["shop", "web", "dev", "uid"].map(str::to_owned);
    let owner = Owner { organization, stack, workspace, stack_uid };
    let runtime = KubernetesRuntime::over(connections, std::slice::from_ref(config), owner).await?;
    let requests: Vec<ReadRequest<'_>> =
        wanted.iter().map(|resource| ReadRequest { desired: Some(resource), prior: None }).collect();
    let read = runtime.read(&requests).await?;
    let present = read.into_iter().collect::<Result<Vec<Live>, _>>()?;
    Ok(present.iter().filter(|live| matches!(live, Live::Present(_))).count())
}

#[tokio::test]
async fn runs_share_connection_and_discovery() {
    let (server, url) = Served::start().await;
    let (connections, one) = (Connections::default(), config(&url, "hunter2"));
    let wanted: Vec<Resource> = (0..1_000).map(|number| resource("v1", "ConfigMap", &format!("c{number}"))).collect();
    assert_eq!(found(&connections, &one, &wanted).await.unwrap(), 1_000);
    let page = "/api/v1/namespaces/shop/configmaps?limit=500";
    let pages = [page.to_owned(), format!("{page}&continue=500"), format!("{page}&continue=1000")];
    let (asked, made) = server.told();
    assert_eq!((asked.len(), &asked[0][..], &asked[1..], made), (4, "/api/v1", &pages[..], 1));
    // The plan of the next run asks for nothing but what is live.
    assert_eq!(found(&connections, &one, &wanted).await.unwrap(), 1_000);
    assert_eq!(server.told(), (pages.to_vec(), 0));
    // Whoever comes with other credentials has nothing of the first.
    assert_eq!(found(&connections, &config(&url, "swordfish"), &wanted[..1]).await.unwrap(), 1);
    assert_eq!(server.told(), (vec!["/api/v1".to_owned(), "/api/v1/namespaces/shop/configmaps/c0".to_owned()], 1));
    let shown = format!("{connections:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("swordfish"), "{shown}");
}

#[tokio::test]
async fn unauthorized_connection_is_renewed() {
    let (server, url) = Served::start().await;
    let (connections, config) = (Connections::default(), config(&url, "one"));
    let wanted = [resource("v1", "ConfigMap", "c0")];
    for code in [401, 403] {
        found(&connections, &config, &wanted).await.unwrap();
        server.told();
        server.refusal.store(code, SeqCst);
        found(&connections, &config, &wanted).await.unwrap_err();
        server.refusal.store(0, SeqCst);
        server.told();
        found(&connections, &config, &wanted).await.unwrap();
        let (asked, made) = server.told();
        assert_eq!((asked[0].as_str(), made), ("/api/v1", 1), "after {code}");
    }
}

#[tokio::test]
async fn changed_kinds_are_discovered_again() {
    let (server, url) = Served::start().await;
    let (connections, config) = (Connections::default(), config(&url, "one"));
    let wanted = [resource("example.com/v1", "Widget", "w")];
    let discovery = || "/apis/example.com/v1".to_owned();
    let object = |plural: &str| format!("/apis/example.com/v1/namespaces/shop/{plural}/w");
    found(&connections, &config, &wanted).await.unwrap_err();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=500".to_owned();
    assert_eq!(server.told().0, [discovery(), definitions]);
    *server.plural.lock().unwrap() = Some("widgets");
    assert_eq!(found(&connections, &config, &wanted).await.unwrap(), 1);
    assert_eq!(server.told().0, [discovery(), object("widgets")]);
    // Its definition was made anew with another plural: the old one is not there, which is not to say that the object is gone.
    *server.plural.lock().unwrap() = Some("gadgets");
    assert_eq!(found(&connections, &config, &wanted).await.unwrap(), 1);
    assert_eq!(server.told().0, [object("widgets"), discovery(), object("gadgets")]);
}

#[tokio::test(start_paused = true)]
async fn idle_and_excess_connections_are_closed() {
    let connection = |url: &str| {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        Connection::new(url.to_owned(), Client::try_from(config).unwrap())
    };
    let connections = Connections::default();
    let count = || connections.0.lock().unwrap().by_access.len();
    for number in 0..MOST + 1 {
        connections.put(number.to_string(), connection("a"));
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!(connections.get("0").is_none() && connections.get("1").is_some());
    assert_eq!(count(), MOST);
    tokio::time::sleep(IDLE - SWEEP).await;
    connections.get("1").unwrap();
    tokio::time::sleep(2 * SWEEP).await;
    assert_eq!(count(), 1, "the one that was used stays");
    for _ in 0..OLDEST.as_secs() / 60 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        connections.get("1");
    }
    assert_eq!(count(), 0, "however much it is used");
}
