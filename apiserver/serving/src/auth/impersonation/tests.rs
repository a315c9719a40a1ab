use std::collections::BTreeSet;

use async_trait::async_trait;
use http::HeaderName;
use stoa_meta::authorizer::Decision;

use super::*;
use crate::auth::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};

/// Refuses verbs and resources and remembers what it was asked, as `verb group/resource/subresource namespace/name`;
/// of the verb `impersonate`, without it.
#[derive(Debug, Default)]
struct Recorder {
    refused: BTreeSet<&'static str>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Authorizer for Recorder {
    async fn authorize(&self, user: &UserInfo, asked: &Attributes) -> Result<Decision, ApiError> {
        let Attributes { verb, group, resource, subresource, namespace, name, .. } = asked;
        let verb = verb.strip_prefix("impersonate").unwrap_or(verb);
        let extra: Vec<&str> = user.extra.values().flatten().map(String::as_str).collect();
        let text = format!("{verb} {group}/{resource}/{subresource} {namespace}/{name} {}", extra.join(","));
        self.asked.lock().push(text.trim().to_owned());
        let refuses = |word: &str| self.refused.contains(word);
        let constrained = refuses("constrained") && verb.contains(':');
        Ok(if constrained || refuses(resource) || refuses(verb) {
            Decision::Deny(String::new())
        } else {
            Decision::Allow(String::new())
        })
    }
}

fn user(name: &str) -> UserInfo {
    UserInfo { name: name.to_owned(), ..UserInfo::default() }
}

async fn ask_as(
    asking: &UserInfo,
    impersonation: &Impersonation,
    pairs: &[(&'static str, &'static str)],
    refused: &[&'static str],
) -> (Result<Option<Impersonated>, ApiError>, Vec<String>) {
    let mut headers = HeaderMap::new();
    headers.insert("accept", "x".parse().unwrap());
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    let recorder = Recorder { refused: refused.iter().copied().collect(), asked: Mutex::default() };
    let list = Attributes { verb: "list".to_owned(), resource: "pods".to_owned(), ..Attributes::default() };
    let found = impersonation.decide(&mut headers, asking, &list, &recorder).await;
    assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    (found, recorder.asked.into_inner())
}

/// Asks as one who may use no constrained mode.
async fn ask(
    pairs: &[(&'static str, &'static str)],
    refused: &[&'static str],
) -> (Result<Option<UserInfo>, ApiError>, Vec<String>) {
    let refused = [&["constrained"], refused].concat();
    let (found, asked) = ask_as(&user("admin"), &Impersonation::default(), pairs, &refused).await;
    let asked = asked.into_iter().filter(|asked| !asked.contains(':')).collect();
    (found.map(|found| found.map(|found| found.user)), asked)
}

#[tokio::test]
async fn every_part_is_asked_for() {
    let (found, asked) = ask(
        &[
            ("impersonate-user", "ann"),
            ("impersonate-group", "dev"),
            ("impersonate-group", "ops"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-example.com%2fscope", "a"),
        ],
        &[],
    )
    .await;
    let user = found.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", "7"));
    assert_eq!(user.groups, ["dev", "ops", AUTHENTICATED]);
    assert_eq!(user.extra["example.com/scope"], ["a"]);
    assert_eq!(
        asked,
        [
            "/users/ /ann",
            "authentication.k8s.io/uids/ /7",
            "/groups/ /dev",
            "/groups/ /ops",
            "authentication.k8s.io/userextras/example.com/scope /a",
        ]
    );
}

#[tokio::test]
async fn a_part_that_is_refused_refuses_the_request() {
    let (found, _) = ask(&[("impersonate-user", "ann"), ("impersonate-group", "dev")], &["groups"]).await;
    let error = found.unwrap_err();
    assert_eq!(error.code(), 403);
    // In the words of the first mode, which asked about the request itself.
    assert_eq!(
        error.message(),
        "pods is forbidden: User \"admin\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" at \
         the cluster scope"
    );
}

#[tokio::test]
async fn impersonated_service_account_has_its_default_groups() {
    let account = ("impersonate-user", "system:serviceaccount:shop:deployer");
    let (found, asked) = ask(&[account], &[]).await;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:shop", AUTHENTICATED];
    assert_eq!(found.unwrap().unwrap().groups, groups);
    assert_eq!(asked, ["/serviceaccounts/ shop/deployer"]);
    let (found, _) = ask(&[account, ("impersonate-group", "dev")], &[]).await;
    assert_eq!(found.unwrap().unwrap().groups, ["dev", AUTHENTICATED]);
}

#[tokio::test]
async fn anonymous_is_not_authenticated() {
    let (found, _) = ask(&[("impersonate-user", ANONYMOUS)], &[]).await;
    assert_eq!(found.unwrap().unwrap().groups, [UNAUTHENTICATED]);
}

#[tokio::test]
async fn without_a_user_the_rest_is_an_error() {
    for header in ["impersonate-group", "impersonate-uid", "impersonate-extra-a"] {
        let (found, asked) = ask(&[(header, "x")], &[]).await;
        assert_eq!(found.unwrap_err().code(), 400, "{header}");
        assert!(asked.is_empty());
    }
}

#[tokio::test]
async fn without_headers_nobody_is_asked() {
    let (found, asked) = ask(&[], &["users"]).await;
    assert_eq!(found.unwrap(), None);
    assert!(asked.is_empty());
}

#[tokio::test]
async fn constrained_mode_checks_request_and_user() {
    let headers = [("impersonate-user", "ann"), ("impersonate-group", "dev")];
    let (found, asked) = ask_as(&user("admin"), &Impersonation::default(), &headers, &[]).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.constraint, "impersonate:user-info");
    assert_eq!(found.user.groups, ["dev", AUTHENTICATED]);
    assert_eq!(
        asked,
        [
            "-on:user-info:list /pods/ /",
            ":user-info authentication.k8s.io/users/ /ann",
            ":user-info authentication.k8s.io/groups/ /dev",
        ]
    );
}

#[tokio::test]
async fn constrained_modes_make_nobody_a_master() {
    let headers = [("impersonate-user", "ann"), ("impersonate-group", "system:masters")];
    let (found, _) = ask_as(&user("admin"), &Impersonation::default(), &headers, &[]).await;
    assert_eq!(found.unwrap().unwrap().constraint, "");
    let (found, _) = ask_as(&user("admin"), &Impersonation::default(), &headers, &["constrained", "groups"]).await;
    assert_eq!(found.unwrap_err().code(), 403);
}

#[tokio::test]
async fn pod_impersonates_its_node_under_common_name() {
    let headers = [("impersonate-user", "system:node:one")];
    let mut agent = user("system:serviceaccount:kube-system:agent");
    agent.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec!["one".to_owned()]);
    let (found, asked) = ask_as(&agent, &Impersonation::default(), &headers, &[]).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.constraint, "impersonate:associated-node");
    assert_eq!(
        (found.user.name.as_str(), &found.user.groups[..]),
        ("system:node:one", &["system:nodes".to_owned(), AUTHENTICATED.to_owned()][..])
    );
    let key = "authentication.kubernetes.io/node-name";
    assert_eq!(
        asked,
        [
            format!("-on:associated-node:list /pods/ / {key}"),
            format!(":associated-node authentication.k8s.io/nodes/ /* {key}")
        ]
    );
    agent.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec!["two".to_owned()]);
    let (found, _) = ask_as(&agent, &Impersonation::default(), &headers, &[]).await;
    assert_eq!(found.unwrap().unwrap().constraint, "impersonate:arbitrary-node");
}

#[tokio::test]
async fn authorizer_asks_last_allowed_mode_first() {
    let impersonation = Impersonation::default();
    let headers = [("impersonate-user", "ann")];
    let (_, first) = ask_as(&user("admin"), &impersonation, &headers, &["constrained"]).await;
    let (_, second) = ask_as(&user("admin"), &impersonation, &headers, &["constrained"]).await;
    assert_eq!(first, ["-on:user-info:list /pods/ /", "/users/ /ann"]);
    assert_eq!(second, ["/users/ /ann"]);
}

#[tokio::test]
async fn constrained_modes_know_what_an_extra_looks_like() {
    for (header, complaint) in [
        ("impersonate-extra-scopes", "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        ("impersonate-extra-a_b%2fc", "a lowercase RFC 1123 subdomain"),
        ("impersonate-extra-example.com%2fa%20b", "Invalid path (regex used"),
    ] {
        let headers = [("impersonate-user", "ann"), (header, "x")];
        let (found, _) = ask_as(&user("admin"), &Impersonation::default(), &headers, &[""]).await;
        let message = found.unwrap_err().message().to_owned();
        assert!(message.contains(complaint), "{message}");
    }
}

/// As Go's `Header.Get` reads them.
#[tokio::test]
async fn the_first_of_several_users_counts() {
    let (found, _) = ask(&[("impersonate-user", "ann"), ("impersonate-user", "bob")], &[]).await;
    assert_eq!(found.unwrap().unwrap().name, "ann");
    let headers = [("impersonate-user", ""), ("impersonate-user", "bob")];
    assert!(ask(&headers, &[]).await.0.unwrap().is_none());
    let headers = [headers[0], headers[1], ("impersonate-group", "dev")];
    assert_eq!(ask(&headers, &[]).await.0.unwrap_err().code(), 400);
}
