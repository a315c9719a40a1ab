//! Who gets in, and as whom.

use jiff::Timestamp;
use stoa_pki::Validity;

use super::*;
use crate::auth::{ANONYMOUS, AnyOf, MastersOnly};

const STACKS: &str = "/apis/g.io/v1/namespaces/shop/stacks";
const SPOOFED: [(&str, &str); 4] = [
    ("X-Remote-User", "root"),
    ("X-Remote-Group", "system:masters"),
    ("X-Remote-Uid", "0"),
    ("X-Remote-Extra-Scope", "all"),
];

fn assert_no_credentials_left(answer: &Answer) {
    for name in answer.json()["headers"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        assert!(
            !name.starts_with("x-remote-") && !name.starts_with("impersonate-") && name != "authorization",
            "{name}"
        );
    }
}

fn assert_unauthorized(answer: &Answer) {
    assert_eq!(answer.code, StatusCode::UNAUTHORIZED, "{answer:?}");
    assert_eq!(
        answer.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
        })
    );
    assert!(!answer.headers["audit-id"].is_empty());
    assert_eq!(answer.headers["cache-control"], "no-cache, private");
}

#[tokio::test]
async fn headers_without_a_certificate_make_nobody() {
    let server = Setup::default().start().await;
    let answer = server.connect(Identity::Nobody).await.get_with(STACKS, &SPOOFED).await;
    assert_eq!(answer.json()["user"], ANONYMOUS);
    assert_eq!(answer.json()["groups"], json!(["system:unauthenticated"]));
    assert_no_credentials_left(&answer);
    server.end().await;
}

#[tokio::test]
async fn headers_with_a_users_certificate_make_that_user() {
    let setup = Setup::default();
    let server = setup.start().await;
    // Even of the name that only the proxy's CA may give.
    for name in ["ann", "front-proxy"] {
        let certificate = setup.cas.client(name);
        let answer = server.connect(Identity::Certificate(&certificate)).await.get_with(STACKS, &SPOOFED).await;
        assert_eq!(answer.json()["user"], name);
        assert_eq!(answer.json()["groups"], json!(["system:authenticated"]));
        assert_eq!(answer.json()["uid"], "");
        assert_no_credentials_left(&answer);
    }
    server.end().await;
}

#[tokio::test]
async fn headers_with_the_proxys_certificate_make_whom_they_say() {
    let setup = Setup::default();
    let server = setup.start().await;
    let proxy = setup.cas.proxy.issue(&CertificateRequest::client("front-proxy")).unwrap();
    for h2 in [false, true] {
        let mut client = if h2 {
            server.connect_h2(Identity::Certificate(&proxy)).await.0
        } else {
            server.connect(Identity::Certificate(&proxy)).await
        };
        let answer = client.get_with(STACKS, &SPOOFED).await;
        assert_eq!(answer.json()["user"], "root");
        assert_eq!(answer.json()["groups"], json!(["system:masters", "system:authenticated"]));
        assert_eq!(answer.json()["extra"], json!({"scope": ["all"]}));
        assert_no_credentials_left(&answer);
        // The proxy itself is nobody, as the client CA does not know it.
        assert_unauthorized(&client.get(STACKS).await);
    }
    server.end().await;
}

#[tokio::test]
async fn certificates_that_nobody_vouches_for_are_401() {
    let setup = Setup::default();
    let server = setup.start().await;
    let stranger = Cas::new();
    let now = Timestamp::now().as_second();
    let at = |offset: i64| Timestamp::from_second(now + offset).unwrap();
    let expired = Validity { not_before: at(-7200), not_after: at(-60) };
    let refused = [
        stranger.client("ann"),
        stranger.proxy.issue(&CertificateRequest::client("front-proxy")).unwrap(),
        setup.cas.proxy.issue(&CertificateRequest::client("other-proxy")).unwrap(),
        setup.cas.proxy.issue(&CertificateRequest::client("front-proxy").validity(expired)).unwrap(),
        setup.cas.client.issue(&CertificateRequest::client("ann").validity(expired)).unwrap(),
        setup.cas.client.issue(&CertificateRequest::server("ann").loopback()).unwrap(),
    ];
    for certificate in &refused {
        assert_unauthorized(&server.connect(Identity::Certificate(certificate)).await.get_with(STACKS, &SPOOFED).await);
    }
    server.end().await;
}

#[tokio::test]
async fn a_certificate_without_its_key_does_not_connect() {
    let setup = Setup::default();
    let server = setup.start().await;
    let (ann, thief) = (setup.cas.client("ann"), setup.cas.client("thief"));
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        // In TLS 1.3 the client learns of it with its first read.
        let failed = match server.try_connect(Identity::Stolen(&ann, &thief), false, version).await {
            Err(_) => true,
            Ok((mut client, _)) => client.send(Method::GET, STACKS, &[]).await.is_err(),
        };
        assert!(failed, "{version:?}");
        let (mut honest, _) = server.try_connect(Identity::Certificate(&ann), false, version).await.unwrap();
        assert_eq!(honest.get(STACKS).await.json()["user"], "ann", "{version:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn forbidden_user_receives_upstream_message() {
    let setup = Setup { authorizer: Arc::new(AnyOf::delegating(Arc::new(MastersOnly))), ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let answer = client.get(STACKS).await;
    assert_eq!(answer.code, StatusCode::FORBIDDEN);
    assert_eq!(answer.text.lines().count(), 1);
    let answer_of_list = answer.json();
    assert_eq!(
        answer_of_list,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "stacks.g.io is forbidden: User \"ann\" cannot list resource \"stacks\" in API group \"g.io\" in \
                        the namespace \"shop\": a standalone server serves only members of \"system:masters\"",
            "details": {"group": "g.io", "kind": "stacks"},
        })
    );
    let answer = client.get("/version").await;
    assert!(
        answer.json()["message"].as_str().unwrap().starts_with("forbidden: User \"ann\" cannot get path \"/version\"")
    );
    assert_eq!(client.get("/readyz").await.text, "ok");
    assert_eq!(client.get("/readyz/ping").await.code, StatusCode::FORBIDDEN);
    let lines = client.get(&format!("{STACKS}?pretty=true")).await;
    assert_eq!((lines.json(), lines.text.lines().count()), (answer_of_list, 13), "{}", lines.text);

    let admin = CertificateRequest::client("admin").organization("system:masters");
    let admin = setup.cas.client.issue(&admin).unwrap();
    let mut client = server.connect(Identity::Certificate(&admin)).await;
    assert_eq!(client.get(STACKS).await.json()["user"], "admin");
    assert_eq!(client.get("/readyz/ping").await.text, "ok");
    assert_eq!(client.get("/version").await.json()["gitVersion"], "v1.36.0");
    server.end().await;
}

#[tokio::test]
async fn impersonation_requires_permission_and_strips_headers() {
    let setup = Setup { authorizer: Arc::new(AnyOf::delegating(Arc::new(MastersOnly))), ..Setup::default() };
    let server = setup.start().await;
    let as_root = [("Impersonate-User", "root"), ("Impersonate-Group", "system:masters")];
    let ann = setup.cas.client("ann");
    let answer = server.connect(Identity::Certificate(&ann)).await.get_with(STACKS, &as_root).await;
    assert_eq!(answer.code, StatusCode::FORBIDDEN);
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with(
            "stacks.g.io is forbidden: User \"ann\" cannot impersonate-on:user-info:list resource \"stacks\""
        ),
        "{message}"
    );

    let admin = setup.cas.client.issue(&CertificateRequest::client("admin").organization("system:masters")).unwrap();
    let mut client = server.connect(Identity::Certificate(&admin)).await;
    let answer = client.get_with(STACKS, &as_root).await;
    assert_eq!(answer.json()["user"], "root");
    assert_eq!(answer.json()["groups"], json!(["system:masters", "system:authenticated"]));
    assert_no_credentials_left(&answer);
    // Whoever is impersonated is then asked about, too.
    let answer = client.get_with(STACKS, &[("Impersonate-User", "bob")]).await;
    assert_eq!(answer.code, StatusCode::FORBIDDEN);
    assert!(answer.json()["message"].as_str().unwrap().contains("User \"bob\" cannot list"));
    server.end().await;
}

#[tokio::test]
async fn an_http2_connection_of_nobody_ends_after_its_request() {
    let setup = Setup::default();
    let server = setup.start().await;
    let (mut client, ended) = server.connect_h2(Identity::Nobody).await;
    assert_eq!(client.get(STACKS).await.json()["user"], ANONYMOUS);
    ended.await.unwrap();
    let ann = setup.cas.client("ann");
    let (mut client, ended) = server.connect_h2(Identity::Certificate(&ann)).await;
    for _ in 0..2 {
        assert_eq!(client.get(STACKS).await.json()["user"], "ann");
    }
    assert!(!ended.is_finished());
    server.end().await;
}

#[tokio::test]
async fn the_version_is_a_route_of_its_own() {
    let running = Setup::default().start().await;
    let mut client = running.connect(Identity::Nobody).await;
    for path in ["/version", "/version/", "/version//"] {
        assert_eq!(client.get(path).await.json()["gitVersion"], "v1.36.0", "{path}");
        assert_eq!(client.send(Method::HEAD, path, &[]).await.unwrap().status(), 405, "{path}");
    }
    assert_eq!(client.get("/version/x").await.json()["reason"], "NotFound");
    // What only begins so is none of it.
    assert_eq!(client.get("/versions").await.json()["path"], "/versions");
    for accept in ["application/yaml", "application/*", "text/html"] {
        let answer = client.get_with("/version", &[("accept", accept)]).await;
        assert!(answer.text.contains("Available representations: application/json"), "{answer:?}");
        assert_eq!(answer.code, StatusCode::NOT_ACCEPTABLE);
    }
    let answer = client.get_with("/version", &[("content-type", "application/yaml")]).await;
    assert_eq!((answer.code.as_u16(), &answer.json()["message"]), (415, &json!("415: Unsupported Media Type")));
    assert_eq!(client.get_with("/version", &[("content-type", "application/json")]).await.code, StatusCode::OK);
    running.end().await;
}

#[tokio::test]
async fn the_root_lists_what_there_is() {
    let running = Setup::default().start().await;
    let mut client = running.connect(Identity::Nobody).await;
    let index = client.get("/").await.json();
    let paths: Vec<&str> = index["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    for path in ["/livez/ping", "/metrics", "/statusz", "/version"] {
        assert!(paths.contains(&path), "{path}");
    }
    assert_eq!(client.get("/index.html").await.json(), index);
    let status = client.get("/statusz").await;
    assert_eq!(status.headers["content-type"], "text/plain; charset=utf-8");
    assert!(status.text.contains("\nPaths: /healthz /livez /metrics /readyz /version\n"), "{status:?}");
    let object = "application/json;as=Statusz;v=v1alpha1;g=config.k8s.io";
    let status = client.get_with("/statusz", &[("accept", object)]).await;
    assert_eq!(status.headers["content-type"], "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz");
    assert!(status.headers.contains_key("warning"));
    let status = status.json();
    assert_eq!((&status["kind"], &status["metadata"]["name"]), (&json!("Statusz"), &json!("apiserver")));
    assert_eq!(status["binaryVersion"], "1.36.0");
    running.end().await;
}

#[tokio::test]
async fn path_without_required_resource_returns_error() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let path = "/apis/g.io/v1/watch?a=b";
    let answer = client.get(path).await;
    let why = "failed to create RequestInfo: unable to determine kind and namespace from url";
    let text = format!("Internal Server Error: \"{path}\": {why}, {path}\n");
    assert_eq!((answer.code, &answer.text), (StatusCode::INTERNAL_SERVER_ERROR, &text));
    assert!(answer.headers.contains_key("audit-id") && !answer.headers.contains_key("cache-control"), "{answer:?}");
    let counted = r#"apiserver_request_total{code="500",component="apiserver",dry_run="",group="",resource="",scope="",subresource="",verb="GET",version=""} 1"#;
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    // Nor does anybody know who keeps the connection.
    let (mut client, ended) = server.connect_h2(Identity::Nobody).await;
    assert_eq!(client.get(path).await.text, text);
    ended.await.unwrap();
    server.end().await;
}
