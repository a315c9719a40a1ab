use std::{collections::BTreeMap, fs};

use http::Method;
use stoa_meta::request::{Annotations, UserInfo};

use super::{
    event::Level,
    log::{LogFile, LogOptions},
    policy::{Policy, PolicyError},
};
use crate::http::RequestInfo;

fn policy(rules: &str) -> Result<Policy, PolicyError> {
    Policy::parse(format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}").as_bytes())
}

/// The level that a policy of one `Request` rule has for a request of ann, who is in `dev`.
#[track_caller]
fn check(rule: &str, method: Method, target: &str, matches: bool) {
    let policy = policy(&format!("- {{level: Request, {rule}}}")).unwrap();
    let ann = UserInfo { name: "ann".to_owned(), groups: vec!["dev".to_owned()], ..UserInfo::default() };
    let wanted = policy.evaluate(&ann, &RequestInfo::new(&method, &target.parse().unwrap()));
    assert_eq!(wanted.level, if matches { Level::Request } else { Level::None }, "{rule} {target}");
}

#[test]
fn rules_match_users_verbs_resources_and_paths() {
    let stack = "/apis/g.io/v1/namespaces/a/stacks/s";
    let status = "/apis/g.io/v1/namespaces/a/stacks/s/status";
    for (rule, target, matches) in [
        ("users: [ann]", stack, true),
        ("users: [bob]", stack, false),
        ("userGroups: [dev, ops]", stack, true),
        ("userGroups: [ops]", stack, false),
        ("verbs: [get]", stack, true),
        ("verbs: [list]", stack, false),
        ("namespaces: [a]", stack, true),
        ("namespaces: [b]", stack, false),
        ("namespaces: [a]", "/healthz", false),
        ("namespaces: ['']", "/apis/g.io/v1/nodes/n", true),
        ("resources: [{group: g.io}]", status, true),
        ("resources: [{group: g.io, resources: [stacks]}]", stack, true),
        ("resources: [{group: g.io, resources: [stacks]}]", status, false),
        ("resources: [{group: g.io, resources: [stacks/status]}]", status, true),
        ("resources: [{group: g.io, resources: ['stacks/*']}]", stack, true),
        ("resources: [{group: g.io, resources: ['*/status']}]", status, true),
        ("resources: [{group: g.io, resources: ['*/status']}]", stack, false),
        ("resources: [{group: '*', resources: ['*']}]", status, true),
        ("resources: [{group: g.io, resources: [stacks], resourceNames: [t]}]", stack, false),
        ("resources: [{group: other.io}]", stack, false),
        ("nonResourceURLs: ['/healthz*']", "/healthz/ping", true),
        ("nonResourceURLs: [/healthz]", "/healthz/ping", false),
        ("nonResourceURLs: ['*']", stack, false),
    ] {
        check(rule, Method::GET, target, matches);
    }
}

#[test]
fn bodies_of_secrets_are_never_recorded() {
    let policy = policy("- {level: RequestResponse}").unwrap().without_bodies("platform.stoa.dev", "backends");
    let level = |target: &str| {
        policy.evaluate(&UserInfo::default(), &RequestInfo::new(&Method::PUT, &target.parse().unwrap())).level
    };
    assert_eq!(level("/api/v1/namespaces/a/secrets/s"), Level::Metadata);
    assert_eq!(level("/apis/platform.stoa.dev/v1alpha1/backends/b"), Level::Metadata);
    assert_eq!(level("/api/v1/namespaces/a/configmaps/s"), Level::RequestResponse);
}

#[test]
fn a_policy_that_says_nothing_is_refused() {
    let error = |text: &str| Policy::parse(text.as_bytes()).unwrap_err();
    assert!(matches!(error("apiVersion: audit.k8s.io/v1\nkind: Policy"), PolicyError::Empty));
    assert!(matches!(error("apiVersion: audit.k8s.io/v1beta1\nkind: Policy"), PolicyError::Version(_)));
    assert!(matches!(error("rules: [{level: Loud}]"), PolicyError::Decode(_)));
    assert!(matches!(error("{"), PolicyError::Decode(_)));
    let both = policy("- {level: None, nonResourceURLs: [/a], namespaces: [b]}");
    assert!(matches!(both.unwrap_err(), PolicyError::Both(0)));
    let path = policy("- {level: None, nonResourceURLs: ['/a*b']}");
    assert!(matches!(path.unwrap_err(), PolicyError::Path { rule: 0, .. }));
}

#[test]
fn what_an_event_says_first_of_a_key_stays() {
    let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let more = Annotations { always: pairs(&[("a", "2"), ("b", "2")]), with_bodies: pairs(&[("b", "3"), ("c", "3")]) };
    let said = |with_bodies: bool| {
        let mut said = pairs(&[("a", "1")]);
        more.clone().add_to(&mut said, with_bodies);
        said
    };
    assert_eq!(said(false), pairs(&[("a", "1"), ("b", "2")]));
    assert_eq!(said(true), pairs(&[("a", "1"), ("b", "2"), ("c", "3")]));
}

/// Whether a line was written.
fn write(log: &LogFile, line: &[u8]) -> bool {
    let (told, written) = std::sync::mpsc::channel();
    log.write(line.to_vec(), move |is_written| told.send(is_written).unwrap());
    written.recv().unwrap()
}

#[test]
fn full_log_rotates_and_removes_oldest_backups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let options = LogOptions { path: path.clone(), max_backups: 2, max_megabytes: 1, ..LogOptions::default() };
    let log = LogFile::open(options).unwrap();
    let line = vec![b'x'; 700 << 10];
    for old in ["audit-2020-01-01T00-00-00.000.log", "audit-2020-01-02T00-00-00.000.log", "audit-notes.log"] {
        fs::write(folder.path().join(old), "old").unwrap();
    }
    assert!(write(&log, &line));
    assert!(write(&log, &line));
    let mut names: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(fs::metadata(&path).unwrap().len(), 700 << 10);
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(
        names.contains(&"audit-2020-01-02T00-00-00.000.log".to_owned())
            && names.contains(&"audit-notes.log".to_owned())
    );
}

#[test]
fn audit_log_recreates_removed_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs/audit.log");
    let options = LogOptions { path: path.clone(), max_megabytes: 1, ..LogOptions::default() };
    let log = LogFile::open(options).unwrap();
    let line = vec![b'x'; 700 << 10];
    let begins_anew = |why: &str| {
        assert!(write(&log, &line), "{why}");
        assert_eq!(fs::read(&path).unwrap(), line, "{why}");
    };
    begins_anew("opened");
    fs::remove_file(&path).unwrap();
    begins_anew("removed");
    fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    begins_anew("moved away");
    fs::remove_dir_all(folder.path().join("logs")).unwrap();
    begins_anew("removed with its folder");
    // Nothing can be opened for a while.
    fs::remove_dir_all(folder.path().join("logs")).unwrap();
    fs::write(folder.path().join("logs"), "no folder").unwrap();
    assert!(!write(&log, &line));
    fs::remove_file(folder.path().join("logs")).unwrap();
    begins_anew("openable again");
}
