//! The ClusterRoles that people get: each may do what it says and no more, as an access review says it and as requests
//! are answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use stoa_e2e::kinds::{Kind, kinds};
use stoa_e2e::{Caller, Cluster, Server as _, unique};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// A role, and whether it is bound in the whole cluster.
const ROLES: [(&str, bool); 5] = [
    ("stoa:viewer", false),
    ("stoa:developer", false),
    ("stoa:approver", false),
    ("stoa:owner", false),
    ("stoa:platform-engineer", true),
];

/// A resource or subresource, with the roles that have rights on it.
struct ExpectedRights {
    /// `group/resource` or `group/resource/subresource`; a group of Stoa is without `.stoa.dev`.
    what: String,
    namespaced: bool,
    /// Verbs by role.
    rights: BTreeMap<String, Vec<String>>,
}

/// All resources and subresources of all kinds.
fn asked() -> Vec<ExpectedRights> {
    let of_kind = |kind: Kind| {
        let group = kind.group.trim_end_matches(".stoa.dev").to_owned();
        let names: Vec<String> = ["".to_owned()].into_iter().chain(kind.subresources.into_keys()).collect();
        let asked = move |subresource: String| {
            let rights =
                kind.rights.iter().filter_map(|(role, verbs)| Some((role.clone(), verbs.get(&subresource)?.clone())));
            let rights = rights.collect();
            let what = format!("{group}/{}/{subresource}", kind.plural).trim_end_matches('/').to_owned();
            ExpectedRights { what, namespaced: kind.namespaced, rights }
        };
        names.into_iter().map(asked)
    };
    kinds().into_iter().flat_map(of_kind).collect()
}

impl ExpectedRights {
    fn may(&self, role: &str, verb: &str) -> bool {
        self.rights.get(role).is_some_and(|verbs| verbs.iter().any(|allowed| allowed == verb))
    }
}

/// Somebody, as the headers that make an admin act as them.
type Who<'a> = [(&'static str, &'a str); 2];

fn user(name: &str) -> Who<'_> {
    // The group that everybody is in who was authenticated.
    [("Impersonate-User", name), ("Impersonate-Group", "system:authenticated")]
}

/// One question: a verb, an object, and where; nowhere is the cluster.
#[derive(Clone, Copy, Debug)]
struct Question<'a> {
    who: Who<'a>,
    verb: &'a str,
    what: &'a str,
    namespace: &'a str,
}

impl Question<'_> {
    fn parts(&self) -> (String, &str, &str) {
        let mut parts = self.what.splitn(3, '/');
        let group = parts.next().unwrap_or_default();
        // The groups of Porch are written in full.
        let group = if group.contains('.') { group.to_owned() } else { format!("{group}.stoa.dev") };
        (group, parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    async fn as_reviewed(&self, caller: &Caller) -> bool {
        let (group, resource, subresource) = self.parts();
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
            "resourceAttributes": {"verb": self.verb, "group": group, "version": "v1alpha1", "resource": resource,
                "subresource": subresource, "namespace": self.namespace, "name": ""},
        }});
        let headers = [&[("Content-Type", "application/json")], &self.who[..]].concat();
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = caller.ask("POST", path, &headers, &review).await;
        assert_eq!(answer.code, 201, "{answer:?}");
        answer.body["status"]["allowed"] == true
    }

    /// Whether a request that can change nothing, as its object is not there or none at all, is let through; nothing
    /// when no request has this verb.
    async fn as_answered(&self, caller: &Caller) -> Option<bool> {
        let (group, resource, subresource) = self.parts();
        let of_collection = matches!(self.verb, "list" | "watch" | "deletecollection");
        if (of_collection && !subresource.is_empty()) || matches!(self.verb, "use" | "edit") {
            return None;
        }
        let mut path = format!("/apis/{group}/v1alpha1");
        if !self.namespace.is_empty() {
            path += &format!("/namespaces/{}", self.namespace);
        }
        path += &format!("/{resource}");
        if !subresource.is_empty() {
            path += &format!("/nothing/{subresource}");
        } else if !of_collection && self.verb != "create" {
            path += "/nothing";
        }
        let (method, query, body) = match self.verb {
            "get" => ("GET", "", Value::Null),
            "list" => ("GET", "?limit=1", Value::Null),
            "watch" => ("GET", "?watch=true&timeoutSeconds=1", Value::Null),
            "create" => ("POST", "?dryRun=All", json!({})),
            "update" => ("PUT", "?dryRun=All", json!({})),
            "patch" => ("PATCH", "?dryRun=All", json!({})),
            "delete" => ("DELETE", "?dryRun=All", Value::Null),
            "deletecollection" => ("DELETE", "?dryRun=All", Value::Null),
            other => panic!("no request has the verb {other}"),
        };
        let content = if self.verb == "patch" { "application/merge-patch+json" } else { "application/json" };
        let headers = [&[("Content-Type", content)], &self.who[..]].concat();
        Some(caller.code(method, &(path + query), &headers, &body).await != 403)
    }
}

#[tokio::test]
async fn roles_may_do_what_they_say_and_no_more() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let (here, elsewhere) = (unique("roles"), unique("roles"));
    for namespace in [&here, &elsewhere] {
        admin.run(&["create", "namespace", namespace]);
    }
    let caller = cluster.front_door();
    let mut users = Vec::new();
    for (role, everywhere) in ROLES {
        let name = unique(&role.replace("stoa:", ""));
        let (binding, place) = if everywhere {
            ("clusterrolebinding", None)
        } else {
            ("rolebinding", Some(format!("--namespace={here}")))
        };
        let mut args = vec!["create", binding, &name];
        let (bound, subject) = (format!("--clusterrole={role}"), format!("--user={name}"));
        args.extend([bound.as_str(), subject.as_str()]);
        args.extend(place.as_deref());
        admin.run(&args);
        users.push((name, everywhere, role));
    }

    let asked = asked();
    let mut questions = Vec::new();
    for (name, everywhere, role) in &users {
        let who = user(name);
        for asked in &asked {
            let namespaces = if asked.namespaced { &[here.as_str(), &elsewhere][..] } else { &[""][..] };
            for namespace in namespaces {
                // Elsewhere, nothing is new beyond what the first verbs show.
                let verbs = if *namespace == elsewhere { &VERBS[..4] } else { &VERBS[..] };
                let more: &[&str] = if namespace.is_empty() { &["use"] } else { &["edit"] };
                for verb in verbs.iter().chain(more) {
                    let bound = *everywhere || *namespace == here;
                    let wanted = bound && asked.may(role, verb);
                    questions.push((Question { who, verb, what: &asked.what, namespace }, wanted));
                }
            }
        }
    }
    // Bindings of both kinds have arrived everywhere when they have arrived at kube-apiserver.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut arrived = BTreeSet::new();
    for (question, _) in questions.iter().filter(|(_, wanted)| *wanted) {
        if !arrived.insert(question.who) {
            continue;
        }
        while !question.as_reviewed(&caller).await {
            assert!(tokio::time::Instant::now() < deadline, "{question:?}: the role is not bound");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(arrived.len(), users.len(), "each role has a right");

    let count = questions.len();
    let wrong: Vec<String> = stream::iter(questions)
        .map(|(question, wanted)| {
            let caller = &caller;
            async move {
                let (reviewed, answered) = (question.as_reviewed(caller).await, question.as_answered(caller).await);
                let right = reviewed == wanted && answered.is_none_or(|answered| answered == wanted);
                (!right).then(|| {
                    format!("{question:?} should be {wanted}, is {reviewed} by review and {answered:?} by request")
                })
            }
        })
        .buffer_unordered(8)
        .filter_map(|wrong| async { wrong })
        .collect()
        .await;
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));

    for (name, everywhere, _) in &users {
        if *everywhere {
            admin.run(&["delete", "clusterrolebinding", name]);
        }
    }
    admin.run(&["delete", "namespace", &here, &elsewhere, "--wait=false"]);
}

/// Waits until each is as wanted, by review and by request.
async fn until(caller: &Caller, wanted: &[(Question<'_>, bool)]) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    for (question, wanted) in wanted {
        loop {
            let (reviewed, answered) = (question.as_reviewed(caller).await, question.as_answered(caller).await);
            if reviewed == *wanted && answered == Some(*wanted) {
                break;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{question:?} should be {wanted}, is {reviewed} by review and {answered:?} by request"
            );
            // A decision is remembered for ten seconds.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

#[tokio::test]
async fn organization_members_have_roles_until_removal() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let caller = cluster.front_door();
    let (here, elsewhere) = (unique("members"), unique("members"));
    for name in [&here, &elsewhere] {
        admin.apply(&format!(
            "{{apiVersion: config.stoa.dev/v1alpha1, kind: Organization, metadata: {{name: {name}}}, spec: {{}}}}"
        ));
        admin.run(&["wait", "--for=condition=Ready", "--timeout=120s", &format!("organization/{name}")]);
    }
    let (ann, team) = (unique("ann"), unique("team"));
    let robot = format!("system:serviceaccount:{here}:robot");
    let people = json!({"spec": {
        "owners": [{"kind": "User", "name": ann}],
        "members": [
            {"subject": {"kind": "Group", "name": team}, "role": "developer"},
            {"subject": {"kind": "ServiceAccount", "name": "robot", "namespace": here}, "role": "viewer"},
        ],
    }});
    let patch = |people: &Value| {
        admin.run(&["patch", "organization", &here, "--type=merge", &format!("--patch={people}")]);
    };
    let in_team: Who<'_> = [("Impersonate-User", "bob"), ("Impersonate-Group", &team)];
    let ask = |who, verb, what, namespace| Question { who, verb, what, namespace };
    let everything = |namespace| {
        [
            ask(user(&ann), "deletecollection", "config/stacks", namespace),
            ask(user(&ann), "create", "config/stacks/destroy", namespace),
            ask(in_team, "create", "config/stacks", namespace),
            ask(in_team, "create", "config/stacks/apply", namespace),
            ask(user(&robot), "list", "delivery/runs", namespace),
        ]
    };
    let beyond = [
        ask(in_team, "create", "config/stacks/destroy", here.as_str()),
        ask(in_team, "deletecollection", "config/stacks", &here),
        ask(user(&robot), "create", "delivery/runs", &here),
        ask(user(&robot), "get", "delivery/releases/spec", &here),
        // Not even an owner has a say in the organization itself.
        ask(user(&ann), "delete", "config/organizations", ""),
    ];
    patch(&people);
    until(&caller, &everything(here.as_str()).map(|question| (question, true))).await;
    until(&caller, &beyond.map(|question| (question, false))).await;
    until(&caller, &everything(elsewhere.as_str()).map(|question| (question, false))).await;

    patch(&json!({"spec": {"owners": [], "members": [people["spec"]["members"][1]]}}));
    let kept = ask(user(&robot), "list", "delivery/runs", here.as_str());
    let lost = everything(here.as_str());
    until(&caller, &[(lost[0], false), (lost[1], false), (lost[2], false), (lost[3], false), (kept, true)]).await;
    admin.run(&["delete", "organization", &here, &elsewhere, "--wait=false"]);
}
