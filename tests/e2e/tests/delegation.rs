//! Who gets in when kube-apiserver is not in between: whoever it would let in, as whoever it says, and nobody else.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use stoa_e2e::{Answer, Caller, Cluster, Kubectl, Server as _, unique};

const BACKENDS: &str = "/apis/platform.stoa.dev/v1alpha1/backends?limit=1";
/// Longer than a decision or a review is remembered, by Stoa and by kube-apiserver after another.
const PATIENCE: Duration = Duration::from_secs(90);

/// Which user was refused, by the sentence that says so.
fn refused_user(answer: &Answer) -> &str {
    let message = answer.message();
    message.split_once("User \"").and_then(|(_, rest)| rest.split_once("\" cannot")).map_or("", |(user, _)| user)
}

/// Asks until the code is as wanted.
async fn until(caller: &Caller, headers: &[(&str, &str)], code: u16) -> Answer {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = caller.get(BACKENDS, headers).await;
        if answer.code == code {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "not {code} within {PATIENCE:?}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn server_trusts_proxy_headers_only_with_certificate() {
    let cluster = Cluster::shared();
    let admin = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    // The certificate, and whom its bearer is taken for: by the headers, and without them. An empty name is nobody who
    // is let in at all.
    for (certificate, with_headers, without) in [
        (None, "system:anonymous", "system:anonymous"),
        (Some("nobody"), "nobody", "nobody"),
        (Some("namesake"), "front-proxy-client", "front-proxy-client"),
        (Some("stranger"), "", ""),
        (Some("other-proxy"), "", ""),
        (Some("proxied-admin"), "", ""),
        (Some("expired-proxy"), "", ""),
        (Some("expired-admin"), "", ""),
    ] {
        let caller = cluster.directly(certificate);
        for (headers, user) in [(&admin[..], with_headers), (&[], without)] {
            let answer = caller.get(BACKENDS, headers).await;
            let code = if user.is_empty() { 401 } else { 403 };
            assert_eq!((answer.code, refused_user(&answer)), (code, user), "{certificate:?} {headers:?}: {answer:?}");
            let reason = if code == 401 { "Unauthorized" } else { "Forbidden" };
            assert_eq!(answer.body["reason"], reason, "{answer:?}");
        }
    }

    let proxy = cluster.directly(Some("front-proxy-client"));
    assert_eq!(proxy.get(BACKENDS, &admin).await.code, 200, "the front proxy itself");
    for (headers, user) in [
        (&[("X-Remote-User", "ann")][..], "ann"),
        (&[("X-Remote-User", "ann"), ("X-Remote-Group", "dev")], "ann"),
        // Without a user the rest says nothing, and the certificate is no user's.
        (&[("X-Remote-Group", "system:masters")], ""),
        (&[("X-Remote-User", ""), ("X-Remote-Group", "system:masters")], ""),
        // Other names than those that the cluster has agreed on.
        (&[("X-Remote-User", "ann"), ("X-Remote-Groups", "system:masters")], "ann"),
        (&[("X-Remote-User", "ann"), ("X_Remote_Group", "system:masters")], "ann"),
        (&[("X-Forwarded-User", "admin")], ""),
    ] {
        let answer = proxy.get(BACKENDS, headers).await;
        let code = if user.is_empty() { 401 } else { 403 };
        assert_eq!((answer.code, refused_user(&answer)), (code, user), "{headers:?}: {answer:?}");
    }
    // Who acts for somebody needs that one's permission to act for another.
    let answer = proxy.get(BACKENDS, &[("X-Remote-User", "ann"), ("Impersonate-User", "admin")]).await;
    assert_eq!((answer.code, refused_user(&answer)), (403, "ann"), "{answer:?}");
    assert_eq!(cluster.directly(Some("admin")).get(BACKENDS, &[]).await.code, 200, "an admin's certificate");
}

#[tokio::test]
async fn anonymous_reads_health_and_nothing_else() {
    let cluster = Cluster::shared();
    let anybody = cluster.directly(None);
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(anybody.get(path, &[]).await.code, 200, "{path}");
    }
    for path in [
        BACKENDS,
        "/apis/config.stoa.dev/v1alpha1/namespaces/default/stacks/web",
        "/apis/delivery.stoa.dev/v1alpha1/namespaces/default/runs?watch=true",
        "/metrics",
        "/debug/pprof/",
        "/livez/../apis/platform.stoa.dev/v1alpha1/backends",
        "/healthz%2f..%2fmetrics",
    ] {
        let answer = anybody.get(path, &[]).await;
        assert_eq!((answer.code, refused_user(&answer)), (403, "system:anonymous"), "{path}: {answer:?}");
    }
    for (method, path) in
        [("POST", BACKENDS), ("DELETE", BACKENDS), ("PATCH", "/apis/platform.stoa.dev/v1alpha1/backends/x")]
    {
        let answer = anybody.ask(method, path, &[("Content-Type", "application/json")], &json!({})).await;
        assert_eq!(answer.code, 403, "{method} {path}: {answer:?}");
    }
    // Who shows something false is not let in as anonymous.
    for wrong in ["Bearer wrong", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.", "Bearer  x"] {
        let answer = anybody.get(BACKENDS, &[("Authorization", wrong)]).await;
        assert!(answer.code == 401 || refused_user(&answer) == "system:anonymous", "{wrong}: {answer:?}");
        assert_ne!(answer.code, 200);
    }
}

/// Grants a user one rule everywhere; returns the name of the role and its binding.
fn grant(admin: &Kubectl, user: &str, rule: &str) -> String {
    let name = unique("delegation");
    admin.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules: [{rule}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: \"{user}\"}}]
"
    ));
    name
}

fn revoke(admin: &Kubectl, name: &str) {
    admin.run(&["delete", "clusterrolebinding,clusterrole", name]);
}

#[tokio::test]
async fn nobody_acts_as_somebody_else_without_permission() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let ann = unique("ann");
    let as_ann = ("Impersonate-User", ann.as_str());
    for (certificate, user) in [(None, "system:anonymous"), (Some("namesake"), "front-proxy-client")] {
        let caller = cluster.directly(certificate);
        for headers in [
            &[as_ann][..],
            &[("Impersonate-User", "admin"), ("Impersonate-Group", "system:masters")],
            &[("Impersonate-User", user), ("Impersonate-Group", "system:masters")],
            &[("Impersonate-User", "system:serviceaccount:kube-system:namespace-controller")],
            &[("Impersonate-User", "system:kube-controller-manager")],
        ] {
            let answer = caller.get(BACKENDS, headers).await;
            assert_eq!((answer.code, refused_user(&answer)), (403, user), "{headers:?}: {answer:?}");
            assert!(answer.message().contains("cannot impersonate"), "{answer:?}");
        }
        // A group, a uid or an extra of nobody in particular.
        for header in ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes"] {
            let answer = caller.get(BACKENDS, &[(header, "system:masters")]).await;
            assert!(matches!(answer.code, 400 | 403 | 500), "{header}: {answer:?}");
        }
    }

    // Who may act as one user may act as that user alone, with that user's permissions.
    let rule = format!("{{apiGroups: [\"\"], resources: [users], verbs: [impersonate], resourceNames: [{ann}]}}");
    let granted = grant(&admin, "nobody", &rule);
    let nobody = cluster.directly(Some("nobody"));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = nobody.get(BACKENDS, &[as_ann]).await;
        assert_eq!(answer.code, 403, "{answer:?}");
        if refused_user(&answer) == ann {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "never acting as {ann}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for more in [("Impersonate-Group", "system:masters"), ("Impersonate-Uid", "5"), ("Impersonate-Extra-Scopes", "x")] {
        let answer = nobody.get(BACKENDS, &[as_ann, more]).await;
        assert_eq!((answer.code, refused_user(&answer)), (403, "nobody"), "{more:?}: {answer:?}");
    }
    let answer = nobody.get(BACKENDS, &[("Impersonate-User", "admin")]).await;
    assert_eq!((answer.code, refused_user(&answer)), (403, "nobody"), "{answer:?}");
    let read = grant(&admin, &ann, "{apiGroups: [platform.stoa.dev], resources: [backends], verbs: [list]}");
    until(&nobody, &[as_ann], 200).await;
    assert_eq!(nobody.get(BACKENDS, &[]).await.code, 403, "nobody gained by it");
    // The admin may, and is then no more than that user.
    let master = cluster.directly(Some("admin"));
    assert_eq!(master.get(BACKENDS, &[as_ann]).await.code, 200);
    let metrics = master.get("/metrics", &[as_ann]).await;
    assert_eq!((metrics.code, refused_user(&metrics)), (403, ann.as_str()), "{metrics:?}");
    revoke(&admin, &granted);
    revoke(&admin, &read);
}

#[tokio::test]
async fn profiles_are_for_who_may_get_their_path() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let path = "/debug/pprof/profile?seconds=1";
    let nobody = cluster.directly(Some("nobody"));
    let answer = nobody.get(path, &[]).await;
    assert_eq!((answer.code, refused_user(&answer)), (403, "nobody"), "{answer:?}");
    assert_eq!(cluster.directly(Some("admin")).get("/debug/pprof/heap", &[]).await.code, 404, "no such profile");

    let granted = grant(&admin, "nobody", "{nonResourceURLs: [/debug/pprof/profile], verbs: [get]}");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while nobody.get(path, &[]).await.code != 200 {
        assert!(tokio::time::Instant::now() < deadline, "no profile within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let answer = nobody.get("/debug/pprof/heap", &[]).await;
    assert_eq!((answer.code, refused_user(&answer)), (403, "nobody"), "{answer:?}");
    revoke(&admin, &granted);
}

#[tokio::test]
async fn revoked_token_fails_after_cache_expiry() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let account = unique("robot");
    admin.run(&["create", "serviceaccount", &account, "--namespace=default"]);
    let user = format!("system:serviceaccount:default:{account}");
    let token = admin.run(&["create", "token", &account, "--namespace=default", "--duration=1h"]);
    let bearer = format!("Bearer {}", token.trim());
    let anybody = cluster.directly(None);
    let headers = [("Authorization", bearer.as_str())];
    let answer = anybody.get(BACKENDS, &headers).await;
    assert_eq!((answer.code, refused_user(&answer)), (403, user.as_str()), "{answer:?}");
    let granted = grant(&admin, &user, "{apiGroups: [platform.stoa.dev], resources: [backends], verbs: [list]}");
    until(&anybody, &headers, 200).await;
    // Not with a character changed, and not for another audience.
    let (head, tail) = bearer.split_at(bearer.len() - 8);
    let forged = format!("{head}{}", tail.chars().rev().collect::<String>());
    assert_eq!(anybody.get(BACKENDS, &[("Authorization", &forged)]).await.code, 401);
    let elsewhere = admin.run(&["create", "token", &account, "--namespace=default", "--audience=elsewhere"]);
    let elsewhere = format!("Bearer {}", elsewhere.trim());
    assert_eq!(anybody.get(BACKENDS, &[("Authorization", &elsewhere)]).await.code, 401);

    admin.run(&["delete", "serviceaccount", &account, "--namespace=default"]);
    until(&anybody, &headers, 401).await;
    // For good, whoever comes back under the name.
    admin.run(&["create", "serviceaccount", &account, "--namespace=default"]);
    for _ in 0..3 {
        assert_eq!(anybody.get(BACKENDS, &headers).await.code, 401);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    // A permission that was withdrawn ends, too.
    let renewed = admin.run(&["create", "token", &account, "--namespace=default"]);
    let renewed = format!("Bearer {}", renewed.trim());
    let headers = [("Authorization", renewed.as_str())];
    until(&anybody, &headers, 200).await;
    revoke(&admin, &granted);
    until(&anybody, &headers, 403).await;
    admin.run(&["delete", "serviceaccount", &account, "--namespace=default"]);
}

/// Whom the cluster trusts, as kube-apiserver says it to the servers behind it.
struct Trust<'a> {
    /// Authorities of users and of front proxies, as PEM.
    clients: &'a str,
    proxies: &'a str,
    /// The names of front proxies.
    names: &'a [&'a str],
}

impl Trust<'_> {
    async fn write(&self, cluster: &Cluster) {
        let api: Api<ConfigMap> = Api::namespaced(cluster.front_door().client(), "kube-system");
        let patch = json!({"data": {
            "client-ca-file": self.clients,
            "requestheader-client-ca-file": self.proxies,
            "requestheader-allowed-names": json!(self.names).to_string(),
        }});
        let written =
            api.patch("extension-apiserver-authentication", &PatchParams::default(), &Patch::Merge(patch)).await;
        written.expect("the ConfigMap can be written");
    }
}

#[tokio::test]
async fn whom_the_cluster_trusts_counts_at_once() {
    let cluster = Cluster::shared();
    let file = |name: &str| cluster.certificate(name);
    let (clients, proxies) = (file("ca"), file("front-proxy-ca"));
    let before = Trust { clients: &clients, proxies: &proxies, names: &["front-proxy-client"] };
    let (late, late_proxy) = (cluster.directly(Some("late")), cluster.directly(Some("late-proxy")));
    let admin = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    assert_eq!(late.get(BACKENDS, &[]).await.code, 401);
    assert_eq!(late_proxy.get(BACKENDS, &admin).await.code, 401);

    // Another authority of users, and another front proxy. kube-apiserver keeps what others added to its own.
    let more_clients = format!("{clients}{}", file("late-ca"));
    Trust { clients: &more_clients, names: &["front-proxy-client", "late-proxy"], ..before }.write(&cluster).await;
    let answer = until(&late, &admin, 403).await;
    assert_eq!(refused_user(&answer), "late", "{answer:?}");
    until(&late_proxy, &admin, 200).await;
    assert_eq!(cluster.directly(Some("other-proxy")).get(BACKENDS, &admin).await.code, 401);

    // The same authority as one of front proxies, as which it vouches for no users.
    let more_proxies = format!("{proxies}{}", file("late-ca"));
    Trust { proxies: &more_proxies, names: &["front-proxy-client", "late"], ..before }.write(&cluster).await;
    until(&late, &admin, 200).await;
    until(&late, &[], 401).await;
    until(&late_proxy, &admin, 401).await;

    before.write(&cluster).await;
    // On connections, too, that were let in before.
    until(&late, &admin, 401).await;
    assert_eq!(late_proxy.get(BACKENDS, &admin).await.code, 401);
    assert_eq!(cluster.directly(Some("front-proxy-client")).get(BACKENDS, &admin).await.code, 200);
    assert_eq!(cluster.directly(Some("admin")).get(BACKENDS, &[]).await.code, 200);
}
