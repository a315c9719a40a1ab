//! Identity and permission that the kube-apiserver decides, against a small fake of it.

use super::{fake_cluster::FakeCluster, *};
use crate::auth::{ANONYMOUS, AnyOf, ClusterAuthentication, Metrics, SubjectAccessReviewer, TokenReviewer};

const STACKS: &str = "/apis/g.io/v1/namespaces/shop/stacks";

fn with_tokens(fake: &FakeCluster) -> Setup {
    let reviewer: Arc<dyn Authenticator> = Arc::new(TokenReviewer::new(fake.client.clone(), Vec::new()));
    Setup { authenticator: Some(Arc::new(OrAnonymous(Union::new(vec![reviewer])))), ..Setup::default() }
}

fn bearer(token: &str) -> [(&'static str, String); 1] {
    [("Authorization", format!("Bearer {token}"))]
}

async fn get(client: &mut Client, token: &str) -> Answer {
    let headers = bearer(token);
    client.get_with(STACKS, &headers.each_ref().map(|(name, value)| (*name, value.as_str()))).await
}

#[tokio::test]
async fn a_token_is_reviewed_once_and_not_passed_on() {
    let fake = FakeCluster::start(|_| true).await;
    let user = json!({"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"scope": ["a"]}});
    fake.state.tokens.lock().insert("secret".to_owned(), user);
    let server = with_tokens(&fake).start().await;
    let mut client = server.connect(Identity::Nobody).await;
    for _ in 0..3 {
        let answer = get(&mut client, "secret").await.json();
        assert_eq!(answer["user"], "ann");
        assert_eq!(answer["uid"], "7");
        assert_eq!(answer["groups"], json!(["dev", "system:authenticated"]));
        assert_eq!(answer["extra"], json!({"scope": ["a"]}));
        assert!(!answer["headers"].as_array().unwrap().contains(&json!("authorization")));
    }
    assert_eq!(*fake.state.reviews.lock(), [json!({"token": "secret"})]);
    server.end().await;
}

#[tokio::test]
async fn wrong_token_returns_401_despite_anonymous_access() {
    let fake = FakeCluster::start(|_| true).await;
    fake.state.tokens.lock().insert("wrong".to_owned(), Value::Null);
    let server = with_tokens(&fake).start().await;
    let mut client = server.connect(Identity::Nobody).await;
    for _ in 0..2 {
        assert_eq!(get(&mut client, "wrong").await.code, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(fake.state.reviews.lock().len(), 1, "a wrong token is remembered, too");
    assert_eq!(client.get(STACKS).await.json()["user"], ANONYMOUS);
    server.end().await;
}

#[tokio::test]
async fn extra_space_before_token_triggers_warning() {
    let fake = FakeCluster::start(|_| true).await;
    let server = with_tokens(&fake).start().await;
    let mut client = server.connect(Identity::Nobody).await;
    let answer = get(&mut client, " secret").await;
    assert_eq!(answer.json()["user"], ANONYMOUS);
    let warning = "the provided Authorization header contains extra space before the bearer token, and is ignored";
    assert_eq!(answer.headers["warning"], format!("299 - \"{warning}\""));
    assert!(!get(&mut client, "wrong").await.headers.contains_key("warning"));
    server.end().await;
}

#[tokio::test]
async fn failed_token_review_repeats_on_next_request() {
    let fake = FakeCluster::start(|_| true).await;
    let server = with_tokens(&fake).start().await;
    let mut client = server.connect(Identity::Nobody).await;
    assert_eq!(get(&mut client, "early").await.code, StatusCode::UNAUTHORIZED);
    fake.state.tokens.lock().insert("early".to_owned(), json!({"username": "ann"}));
    assert_eq!(get(&mut client, "early").await.json()["user"], "ann");
    assert_eq!(fake.state.reviews.lock().len(), 2);
    server.end().await;
}

#[tokio::test]
async fn a_token_for_somebody_else_is_no_token() {
    let fake = FakeCluster::start(|_| true).await;
    for (token, audiences) in [("ours", json!(["other", "stoa"])), ("theirs", json!(["other"])), ("old", Value::Null)] {
        let user = json!({"username": "ann", "audiences": audiences});
        fake.state.tokens.lock().insert(token.to_owned(), user);
    }
    let reviewer = TokenReviewer::new(fake.client.clone(), vec!["stoa".to_owned()]);
    let server = Setup { authenticator: Some(Arc::new(reviewer)), ..Setup::default() }.start().await;
    let mut client = server.connect(Identity::Nobody).await;
    assert_eq!(get(&mut client, "ours").await.json()["user"], "ann");
    assert_eq!(get(&mut client, "theirs").await.code, StatusCode::UNAUTHORIZED);
    assert_eq!(get(&mut client, "old").await.code, StatusCode::UNAUTHORIZED);
    assert_eq!(fake.state.reviews.lock()[0], json!({"token": "ours", "audiences": ["stoa"]}));
    server.end().await;
}

#[tokio::test]
async fn client_retries_only_transient_review_failures() {
    let fake = FakeCluster::start(|_| true).await;
    fake.state.tokens.lock().insert("secret".to_owned(), json!({"username": "ann"}));
    let status = |code: u16, reason: &str| json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason});
    fake.state.failures.lock().push(status(500, "InternalError"));
    let server = with_tokens(&fake).start().await;
    let mut client = server.connect(Identity::Nobody).await;
    assert_eq!(get(&mut client, "secret").await.json()["user"], "ann");
    assert_eq!(fake.state.reviews.lock().len(), 2);

    fake.state.failures.lock().push(status(403, "Forbidden"));
    fake.state.tokens.lock().insert("other".to_owned(), json!({"username": "bob"}));
    assert_eq!(get(&mut client, "other").await.code, StatusCode::UNAUTHORIZED);
    // A failure says nothing about the token, so the next request asks again.
    assert_eq!(get(&mut client, "other").await.json()["user"], "bob");
    assert_eq!(fake.state.reviews.lock().len(), 4);
    server.end().await;
}

#[tokio::test]
async fn permission_is_asked_for_once_with_selectors() {
    let fake = FakeCluster::start(|spec| spec["user"] == "ann" && spec["resourceAttributes"]["verb"] == "list").await;
    let authorizer = AnyOf::delegating(Arc::new(SubjectAccessReviewer::new(fake.client.clone())));
    let setup = Setup { authorizer: Arc::new(authorizer), ..Setup::default() };
    let server = setup.start().await;
    let (ann, bob) = (setup.cas.client("ann"), setup.cas.client("bob"));
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    for _ in 0..3 {
        let answer = client.get(&format!("{STACKS}?labelSelector=a%3Db&fieldSelector=spec.project%3Dweb")).await;
        assert_eq!(answer.code, StatusCode::OK);
    }
    let mut client = server.connect(Identity::Certificate(&bob)).await;
    for _ in 0..2 {
        let answer = client.get(STACKS).await;
        assert_eq!(answer.code, StatusCode::FORBIDDEN);
        assert_eq!(
            answer.json()["message"],
            "stacks.g.io is forbidden: User \"bob\" cannot list resource \"stacks\" in API group \"g.io\" in the \
             namespace \"shop\": the fake says no"
        );
    }
    let reviews = fake.state.reviews.lock().clone();
    assert_eq!(reviews.len(), 2, "{reviews:?}");
    assert_eq!(
        reviews[0]["resourceAttributes"],
        json!({
            "verb": "list", "group": "g.io", "version": "v1", "resource": "stacks", "namespace": "shop",
            "labelSelector": {"rawSelector": "a=b"}, "fieldSelector": {"rawSelector": "spec.project=web"},
        })
    );
    assert_eq!(reviews[1]["groups"], json!(["system:authenticated"]));
    server.end().await;
}

#[tokio::test]
async fn without_a_decision_nobody_gets_in() {
    let fake = FakeCluster::start(|_| true).await;
    let authorizer = AnyOf::delegating(Arc::new(SubjectAccessReviewer::new(fake.client.clone())));
    let setup = Setup { authorizer: Arc::new(authorizer), ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let forbidden =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no rights"});
    fake.state.failures.lock().push(forbidden);
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let answer = client.get(STACKS).await;
    assert_eq!(answer.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    let path = format!("Internal Server Error: \"{STACKS}\": ");
    assert_eq!(answer.text, path + "Internal error occurred: the authorization decision could not be made\n");
    assert_eq!(client.get("/livez").await.text, "ok");
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
    // Nor may anybody be somebody else.
    let broken =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no rights"});
    fake.state.failures.lock().extend(vec![broken; 8]);
    let answer = client.get_with(STACKS, &[("impersonate-user", "bob")]).await;
    assert_eq!(answer.code, StatusCode::FORBIDDEN);
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("cannot impersonate") && message.ends_with("could not be made"), "{message}");
    server.end().await;
}

#[tokio::test]
async fn server_loads_and_follows_cluster_trust() {
    let (old, new) = (Cas::new(), Cas::new());
    let data =
        |cas: &Cas| [("client-ca-file".to_owned(), cas.client.certificate_pem().to_owned())].into_iter().collect();
    let fake = FakeCluster::start(|_| true).await;
    fake.state.set_config_map(data(&old));
    let trust = Arc::new(ClusterAuthentication::load(fake.client.clone()).await.unwrap());
    let stop = CancellationToken::new();
    let following = tokio::spawn({
        let (trust, client, stop) = (trust.clone(), fake.client.clone(), stop.clone());
        async move { trust.follow(client, stop).await }
    });
    let setup = Setup {
        authenticator: Some(Arc::new(Union::new(trust.authenticators(&Metrics::default())))),
        ..Setup::default()
    };
    let server = setup.start().await;
    let (of_old, of_new) = (old.client("ann"), new.client("ann"));
    let mut with_old = server.connect(Identity::Certificate(&of_old)).await;
    let mut with_new = server.connect(Identity::Certificate(&of_new)).await;
    assert_eq!(with_old.get(STACKS).await.code, StatusCode::OK);
    assert_eq!(with_new.get(STACKS).await.code, StatusCode::UNAUTHORIZED);

    fake.state.watched().await;
    fake.state.set_config_map(data(&new));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while with_new.get(STACKS).await.code != StatusCode::OK {
        assert!(tokio::time::Instant::now() < deadline, "the change was never taken over");
    }
    assert_eq!(with_old.get(STACKS).await.code, StatusCode::UNAUTHORIZED);
    stop.cancel();
    following.await.unwrap();
    server.end().await;
}
