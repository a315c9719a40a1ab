//! Properties of audit policies.

use http::{Method, Uri};
use serde_json::{Value, json};
use stoa_meta::{
    request::UserInfo,
    schema::{self, Format},
};

use super::{
    event::Level,
    policy::{Policy, Wanted},
};
use crate::http::RequestInfo;

/// A policy in YAML: it says the same in JSON, and a rule before all others decides alone.
pub(crate) fn audit_policies(data: &[u8]) {
    let policy = match Policy::parse(data) {
        Ok(policy) => policy,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut document = schema::parse(data, Format::Yaml).expect("it was read before").value;
    let again = |document: &Value| Policy::parse(document.to_string().as_bytes());
    assert_eq!(decisions(&again(&document).expect("it says the same")), decisions(&policy));
    let rules = document["rules"].as_array_mut().expect("a policy has rules");
    rules.insert(0, json!({ "level": "None" }));
    let silent = again(&document).expect("one rule more is no mistake");
    assert!(decisions(&silent).iter().all(|wanted| wanted.level == Level::None));
}

fn decisions(policy: &Policy) -> Vec<Wanted> {
    let requests = [
        (Method::GET, "/api/v1/namespaces/default/secrets/s"),
        (Method::POST, "/apis/test.example/v1/namespaces/default/widgets"),
        (Method::PUT, "/apis/test.example/v1/namespaces/default/widgets/w/status"),
        (Method::GET, "/apis/test.example/v1/widgets?watch=1"),
        (Method::GET, "/healthz/log"),
    ];
    let user = UserInfo { name: "ann".to_owned(), groups: vec!["dev".to_owned()], ..UserInfo::default() };
    let decide = |(method, target): &(Method, &'static str)| {
        policy.evaluate(&user, &RequestInfo::new(method, &Uri::from_static(target)))
    };
    requests.iter().map(decide).collect()
}
