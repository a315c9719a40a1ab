//! The Pods in objects of built-in kinds, whose fields are compared alike in each of them.

/// The path of the Pod's `spec` in kinds that create Pods.
const PODS: [(&str, &[&str], &str); 6] = [
    ("", &["Pod"], "spec"),
    ("", &["PodTemplate"], "template.spec"),
    ("", &["ReplicationController"], "spec.template.spec"),
    ("apps", &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"], "spec.template.spec"),
    ("batch", &["Job"], "spec.template.spec"),
    ("batch", &["CronJob"], "spec.jobTemplate.spec.template.spec"),
];

/// The path of the Pod's `spec` in a kind: keys with dots in between.
pub fn pod_spec(group: &str, kind: &str) -> Option<&'static str> {
    PODS.iter().find(|(of, kinds, _)| *of == group && kinds.contains(&kind)).map(|(_, _, spec)| *spec)
}
