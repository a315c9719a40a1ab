//! What others are told while replicas are killed: a sink hears of all that happens at least once, and a hook that has
//! passed is not called again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;

use serde_json::{Value, json};
use stoa_e2e::endpoint::Endpoint;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server as _, eventually};

use super::PATIENCE;

/// A sink of an organization's events, and a workflow with a hook before its run, which passes, and one after it, which has
/// no answer yet.
pub(crate) struct NotifiedOrganization<'a> {
    cluster: &'a Cluster,
    organization: &'a Organization,
    sink: Endpoint,
    before: Endpoint,
    after: Endpoint,
}

/// What came of one hook, with what was answered.
fn calls(endpoint: &Endpoint) -> Vec<(u16, Value)> {
    endpoint.came.lock().unwrap().clone()
}

impl<'a> NotifiedOrganization<'a> {
    /// Makes both, and returns once the second hook was called.
    pub(crate) fn start(cluster: &'a Cluster, organization: &'a Organization) -> Self {
        let told = Self {
            cluster,
            organization,
            sink: Endpoint::start(200),
            before: Endpoint::start(200),
            after: Endpoint::start(503),
        };
        let name = organization.name.as_str();
        organization.stack("hooked", &config_maps(&format!("{name}-hooked"), 1, "a"));
        let hook = |hook: &str, endpoint: &Endpoint| {
            format!(
                "{{name: {hook}, url: \"http://127.0.0.1:{}/{hook}\", secretRef: {{name: hooks, key: key}}, \
                 retry: {{minBackoff: 100ms, maxBackoff: 1s}}}}",
                endpoint.port
            )
        };
        organization.tell(&told.sink, "dev.stoa.run.*, dev.stoa.release.*");
        cluster.kubectl().apply(&format!(
            "apiVersion: delivery.stoa.dev/v1alpha1
kind: Workflow
metadata: {{name: hooked, namespace: {name}}}
spec:
  version: main
  steps:
  - name: only
    run: {{stack: hooked, operation: Apply}}
    hooks:
      pre: [{before}]
      post: [{after}]
",
            before = hook("before", &told.before),
            after = hook("after", &told.after),
        ));
        eventually("the second hook is called", PATIENCE, || (!calls(&told.after).is_empty()).then_some(()));
        told
    }

    /// Whoever led was killed: the second hook may pass, and the sink is away for as long as nobody says otherwise.
    pub(crate) fn turn(&self) {
        self.after.code.store(200, SeqCst);
        self.sink.code.store(503, SeqCst);
    }

    /// Lets the sink be told again.
    pub(crate) fn come_back(&self) {
        self.sink.code.store(200, SeqCst);
    }

    /// Waits until all of these runs, and the workflow's own, were told of, and checks how often the hooks were called.
    pub(crate) fn end(self, runs: impl Iterator<Item = String>) {
        let (kubectl, name) = (self.cluster.kubectl(), self.organization.name.as_str());
        let complete = ["wait", "workflow/hooked", "--for=condition=Complete", "--timeout=120s", "--namespace", name];
        kubectl.run(&complete);
        let before = calls(&self.before);
        assert_eq!(before.len(), 1, "the hook had passed: {before:#?}");
        let after = calls(&self.after);
        let (passed, refused): (Vec<_>, Vec<_>) = after.iter().partition(|(code, _)| *code == 200);
        assert!(passed.len() == 1 && !refused.is_empty(), "{after:#?}");
        assert!(after.iter().all(|(_, event)| event["id"] == after[0].1["id"]), "{after:#?}");
        let of_workflow = self.organization.of_stack("runs", "hooked");
        assert_eq!(of_workflow.len(), 1, "{of_workflow:#?}");

        let own = of_workflow[0]["metadata"]["name"].as_str().unwrap().to_owned();
        for run in runs.chain([own]) {
            let subject = format!("runs/{run}");
            let (started, succeeded) = eventually(&format!("{run} is told of"), PATIENCE, || {
                Some((self.delivered(&subject, "started")?, self.delivered(&subject, "succeeded")?))
            });
            assert!(started < succeeded, "the events of {run} came in another order");
        }
        // However often one comes, it is the same one.
        let came = self.sink.came.lock().unwrap();
        let mut ids: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for (_, event) in came.iter() {
            let [subject, kind, id] = ["subject", "type", "id"].map(|field| event[field].as_str().unwrap());
            ids.entry((subject, kind)).or_default().insert(id);
        }
        let others: Vec<_> = ids.iter().filter(|(_, ids)| ids.len() > 1).collect();
        assert!(others.is_empty(), "one event with several ids: {others:#?}");
        let releases = ids.keys().filter(|(_, kind)| *kind == "dev.stoa.release.created").count();
        assert_eq!(json!(releases), self.releases(), "releases that were told of");
        eprintln!("{} events came {} times, the hooks were called {} times", ids.len(), came.len(), 1 + after.len());
    }

    /// Which of what came was the first delivery of an event about a run.
    fn delivered(&self, subject: &str, kind: &str) -> Option<usize> {
        let kind = format!("dev.stoa.run.{kind}");
        let came = self.sink.came.lock().unwrap();
        came.iter().position(|(code, event)| *code == 200 && event["subject"] == subject && event["type"] == *kind)
    }

    /// How many releases there are.
    fn releases(&self) -> Value {
        let list = self.cluster.kubectl().get(&["releases", "--namespace", &self.organization.name]);
        json!(list["items"].as_array().unwrap().len())
    }
}
