//! Diagnosis of an object that is not ready: its Warning Events, and those of the Pods of a workload with the states of
//! their containers.
//!
//! Start at [`Diagnosis::read`]. It changes nothing, and a failed read does not fail the Run. One diagnosis of a
//! cluster is read at a time, so that many waiting objects cost the API server little. Text that a container can
//! write is left out. The rest comes from live objects and may hold secrets: the caller redacts it.
//!
//! Elsewhere: `pods` describes the state of a Pod, and `health` decides when to read.

mod pods;

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::cluster::{Cluster, JSON, decode};
use crate::error::CallError;
use crate::target::{Api, Gvk, Target};
use pods::Pod;

/// The time before the first diagnosis of an object.
pub(crate) const FIRST: Duration = Duration::from_secs(5);
/// The pause before the same object is explained again.
pub(crate) const AGAIN: Duration = Duration::from_secs(10);
/// The most sentences of one explanation.
const SENTENCES: usize = 4;
/// The maximum number of objects whose Events are read: the object and some of its Pods.
const WITH_EVENTS: usize = 3;
/// The most Events of one object that are shown.
const EVENTS: usize = 2;
/// The most Pods, and the most Events of an object, that are read.
const READ: u32 = 250;
/// Longer texts than kubelets and the API server write are left out as a whole: half of a secret cannot be redacted.
const LONGEST: usize = 4096;

/// The namespace with the Events of cluster-scoped objects, as Kubernetes' recorders write them
/// (`k8s.io/client-go/tools/record/event.go`).
const OF_CLUSTER: &str = "default";

/// Reads why one object is not ready.
#[derive(Debug)]
pub(crate) struct Diagnosis<'a> {
    cluster: &'a Cluster,
    /// The namespace with its Events.
    namespace: String,
    pods: Pods,
}

/// The Pods of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pods {
    /// It has none.
    None,
    /// It is one.
    Itself,
    /// Those that it selects.
    Selected,
}

impl<'a> Diagnosis<'a> {
    /// The diagnosis of an object.
    pub(crate) fn of(cluster: &'a Cluster, target: &Target, api: &Api) -> Self {
        let Gvk { group, kind, .. } = &target.gvk;
        let pods = match (group.as_str(), kind.as_str()) {
            ("", "Pod") => Pods::Itself,
            ("apps", "Deployment" | "StatefulSet" | "DaemonSet") | ("batch", "Job") => Pods::Selected,
            _ => Pods::None,
        };
        let own = || target.namespace.clone().unwrap_or_else(|| cluster.default_namespace().to_owned());
        let namespace = if api.namespaced { own() } else { OF_CLUSTER.to_owned() };
        Self { cluster, namespace, pods }
    }

    /// Why the object, as it is live, is not ready: some sentences, the states of containers first, or an empty text.
    /// Nothing when the cluster cannot be read.
    pub(crate) async fn read(&self, object: &Map<String, Value>) -> Option<String> {
        let _turn = self.cluster.diagnoses.acquire().await.ok()?;
        let mut refused = Vec::new();
        let pods = match self.pods(object).await {
            Ok(pods) => pods,
            Err(error) if error.is_refusal() => {
                refused.push("pods");
                Vec::new()
            }
            Err(_) => return None,
        };
        let pods: Vec<Pod> = pods::unready_newest_first(pods);
        let mut sentences = pods::sentences(&pods);
        sentences.extend(condition(object).filter(|_| self.pods == Pods::Selected));
        let known = sentences.join("\n");
        let is_pod = self.pods == Pods::Itself;
        let subjects = uid(object).into_iter().map(|uid| (uid, None));
        let of_pods = pods.iter().map(|pod| (pod.uid(), Some(pod)));
        let subjects = subjects.chain(of_pods.filter(|_| !is_pod)).take(WITH_EVENTS);
        for (uid, pod) in subjects {
            match self.events(uid).await {
                Ok(events) => {
                    let newest = newest(events, &known, is_pod || pod.is_some());
                    let of = pod.map(|pod| format!(" of Pod {}", pod.name())).unwrap_or_default();
                    sentences.extend(newest.map(|(reason, message)| format!("Warning {reason}{of}: {message}")));
                }
                Err(error) if error.is_refusal() => {
                    refused.push("events");
                    break;
                }
                Err(_) => break,
            }
        }
        let mut all: Vec<String> = Vec::new();
        for sentence in sentences {
            if !all.contains(&sentence) && sentence.len() <= LONGEST {
                all.push(sentence);
            }
        }
        all.truncate(SENTENCES);
        if !refused.is_empty() {
            let (kinds, namespace) = (refused.join(" and "), &self.namespace);
            all.push(format!(
                "the cause is unknown: the workspace's credentials may not list {kinds} in namespace {namespace}"
            ));
        }
        Some(all.join("; "))
    }

    async fn pods(&self, object: &Map<String, Value>) -> Result<Vec<Pod>, CallError> {
        let selector = match self.pods {
            Pods::None => None,
            Pods::Itself => {
                return Ok(serde_json::from_value(Value::Object(object.clone())).ok().into_iter().collect());
            }
            Pods::Selected => object.get("spec").and_then(|spec| spec.get("selector")).and_then(selector),
        };
        match selector {
            Some(selector) => {
                list(self.cluster, &self.namespace, "pods", &format!("labelSelector={}", escaped(&selector))).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// The Warning Events of the object with a uid.
    async fn events(&self, uid: &str) -> Result<Vec<Event>, CallError> {
        let selector = escaped(&format!("involvedObject.uid={uid},type=Warning"));
        list(self.cluster, &self.namespace, "events", &format!("fieldSelector={selector}")).await
    }
}

/// Some objects of a core kind in a namespace.
pub(crate) async fn list<T: DeserializeOwned>(
    cluster: &Cluster,
    namespace: &str,
    plural: &str,
    query: &str,
) -> Result<Vec<T>, CallError> {
    let body = cluster.get_as(JSON, &format!("/api/v1/namespaces/{namespace}/{plural}?limit={READ}&{query}")).await?;
    Ok(decode::<List<T>>(&body)?.items.unwrap_or_default())
}

#[derive(Deserialize)]
struct List<T> {
    items: Option<Vec<T>>,
}

/// One Event, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Event {
    reason: Option<String>,
    message: Option<String>,
    last_timestamp: Option<String>,
    event_time: Option<String>,
    series: Option<Series>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Series {
    last_observed_time: Option<String>,
}

impl Event {
    /// The time of its last occurrence, as RFC 3339 in UTC, which sorts as text.
    fn time(&self) -> &str {
        let series = self.series.as_ref().and_then(|series| series.last_observed_time.as_deref());
        series.or(self.last_timestamp.as_deref()).or(self.event_time.as_deref()).unwrap_or_default()
    }
}

/// Reasons and messages of the newest Events. Of a Pod, those that repeat the states of its containers are left out where
/// `known` has these.
fn newest(mut events: Vec<Event>, known: &str, is_of_pod: bool) -> impl Iterator<Item = (String, String)> {
    const REPEATS: [&str; 2] = ["BackOff", "FailedScheduling"];
    events.sort_by(|a, b| b.time().cmp(a.time()));
    let texts = events.into_iter().filter_map(|event| {
        let (reason, message) = (event.reason?, event.message?);
        let message = without_output(&reason, message.trim()).to_owned();
        Some((reason, message))
    });
    let is_news = |(reason, message): &(String, String)| {
        let is_repeated = REPEATS.contains(&reason.as_str()) || message.starts_with("Error: ");
        !(known.contains(message.as_str()) || (is_of_pod && is_repeated && !known.is_empty()))
    };
    let mut newest: Vec<(String, String)> = Vec::new();
    for text in texts.filter(is_news) {
        if newest.len() < EVENTS && !newest.contains(&text) {
            newest.push(text);
        }
    }
    newest.into_iter()
}

/// The message of an Event without output of the container: a probe or hook may be a command in it, and an HTTP probe
/// quotes the answer. The status code of an HTTP probe stays.
///
/// Follows k8s.io/kubernetes/pkg/kubelet/prober/prober.go and pkg/probe/http/http.go.
fn without_output<'m>(reason: &str, message: &'m str) -> &'m str {
    const STATUS: &str = "HTTP probe failed with statuscode: ";
    match reason {
        "Unhealthy" | "ProbeWarning" => match message.split_once(": ") {
            Some((_, rest)) if rest.strip_prefix(STATUS).is_some_and(|code| code.parse::<u16>().is_ok()) => message,
            Some((probe, _)) => probe,
            None => message,
        },
        "FailedPostStartHook" | "FailedPreStopHook" => "a lifecycle hook failed",
        _ => message,
    }
}

/// The condition of a Deployment about Pods that cannot be created: the Events about that are of its ReplicaSet.
fn condition(object: &Map<String, Value>) -> Option<String> {
    let conditions = object.get("status")?.get("conditions")?.as_array()?;
    let failure = conditions.iter().find(|it| it["type"] == "ReplicaFailure" && it["status"] == "True")?;
    Some(format!("{}: {}", failure["reason"].as_str()?, failure["message"].as_str()?))
}

/// A selector of labels as a query has it.
///
/// Follows `LabelSelectorAsSelector` of k8s.io/apimachinery/pkg/apis/meta/v1.
fn selector(selector: &Value) -> Option<String> {
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let expressions = expressions.filter_map(|expression| {
        let key = expression.get("key")?.as_str()?;
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        match expression.get("operator")?.as_str()? {
            "In" => Some(format!("{key} in ({values})")),
            "NotIn" => Some(format!("{key} notin ({values})")),
            "Exists" => Some(key.to_owned()),
            "DoesNotExist" => Some(format!("!{key}")),
            _ => None,
        }
    });
    let all: Vec<String> = labels.chain(expressions).collect();
    // Without a requirement it would select all Pods of the namespace.
    (!all.is_empty()).then(|| all.join(","))
}

pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn uid(object: &Map<String, Value>) -> Option<&str> {
    crate::write::uid(object)
}

#[cfg(test)]
mod tests;
