use std::{collections::BTreeSet, sync::Mutex};

use async_trait::async_trait;

use super::*;

/// Allows what it is told to and remembers what it was asked, as `group/resource/subresource namespace/name`.
#[derive(Debug, Default)]
struct Recorder {
    refused: BTreeSet<&'static str>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Authorizer for Recorder {
    async fn authorize(&self, user: &UserInfo, asked: &Attributes) -> Result<Decision, ApiError> {
        assert_eq!((user.name.as_str(), asked.verb.as_str()), ("admin", "impersonate"));
        let text =
            format!("{}/{}/{} {}/{}", asked.group, asked.resource, asked.subresource, asked.namespace, asked.name);
        self.asked.lock().unwrap().push(text);
        Ok(if self.refused.contains(asked.resource.as_str()) { Decision::Deny(String::new()) } else { Decision::Allow })
    }
}

async fn ask(
    pairs: &[(&'static str, &'static str)],
    refused: &[&'static str],
) -> (Result<Option<UserInfo>, ApiError>, Vec<String>) {
    let mut headers = HeaderMap::new();
    headers.insert("accept", "x".parse().unwrap());
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    let recorder = Recorder { refused: refused.iter().copied().collect(), asked: Mutex::default() };
    let admin = UserInfo { name: "admin".to_owned(), ..UserInfo::default() };
    let found = impersonate(&mut headers, &admin, &recorder).await;
    assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    (found, recorder.asked.into_inner().unwrap())
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
            "/groups/ /dev",
            "/groups/ /ops",
            "authentication.k8s.io/userextras/example.com/scope /a",
            "authentication.k8s.io/uids/ /7",
        ]
    );
}

#[tokio::test]
async fn a_part_that_is_refused_refuses_the_request() {
    let (found, _) = ask(&[("impersonate-user", "ann"), ("impersonate-group", "system:masters")], &["groups"]).await;
    let error = found.unwrap_err();
    assert_eq!(error.code(), 403);
    assert_eq!(
        error.message(),
        "groups \"system:masters\" is forbidden: User \"admin\" cannot impersonate resource \"groups\" in API group \
         \"\" at the cluster scope"
    );
}

#[tokio::test]
async fn a_service_account_has_its_groups_unless_others_are_named() {
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
