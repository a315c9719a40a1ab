//! Formats of names, ports, labels and sizes, which schemas leave open and an API server checks.
//!
//! Source: `k8s.io/kubernetes/pkg/apis/*/validation` and `k8s.io/apimachinery/pkg/api/validation`, 1.36.

use serde_json::{Map, Value};
use stoa_cel::names;

/// The largest object, in bytes of JSON: what etcd takes in one request (`--max-request-bytes`).
const LARGEST_OBJECT: usize = 3 << 19;
/// The most data of a ConfigMap or Secret, in bytes (`MaxSecretSize`).
const LARGEST_DATA: usize = 1 << 20;
/// The most annotations of an object, in bytes (`TotalAnnotationSizeLimitB`).
const LARGEST_ANNOTATIONS: usize = 256 << 10;

/// The format of a text or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A DNS label (RFC 1123).
    Label,
    /// A DNS label that begins with a letter (RFC 1035).
    Label1035,
    /// A DNS subdomain (RFC 1123).
    Subdomain,
    /// Part of a URL's path.
    PathSegment,
    /// A port.
    Port,
    /// A port, or 0 where the cluster chooses.
    PortOrZero,
    /// A port by number or by name.
    PortOrName,
    /// The name of a port.
    PortName,
}

impl Format {
    /// Why a value does not have the format.
    pub(crate) fn complaint(self, value: &Value) -> Option<String> {
        let port = |least: i64, number: f64| {
            let fits = (least as f64..=65535.0).contains(&number);
            (!fits).then(|| format!("must be a port from {least} to 65535"))
        };
        match (self, value) {
            (Self::Port, Value::Number(number)) => port(1, number.as_f64()?),
            (Self::PortOrZero, Value::Number(number)) => port(0, number.as_f64()?),
            (Self::PortOrName, Value::Number(number)) => port(1, number.as_f64()?),
            (Self::PortOrName | Self::PortName, Value::String(name)) => port_name(name),
            (Self::Label, Value::String(name)) => first(names::dns_label(name)),
            (Self::Label1035, Value::String(name)) => first(names::dns_1035_label(name)),
            (Self::Subdomain, Value::String(name)) => first(names::dns_subdomain(name)),
            (Self::PathSegment, Value::String(name)) => {
                let fits = !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']);
                (!fits).then(|| "must not be '.' or '..' and must not contain '/' or '%'".to_owned())
            }
            // Its type is wrong, which is reported already.
            _ => None,
        }
    }
}

fn first(complaints: Vec<String>) -> Option<String> {
    complaints.into_iter().next()
}

/// Why a text is no name of a port (`IsValidPortName`).
fn port_name(name: &str) -> Option<String> {
    let is_of = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let fits = is_of
        && (1..=15).contains(&name.len())
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.contains("--")
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!fits).then(|| {
        "must be a port's name: at most 15 of a-z, 0-9 and '-', with a letter, and no '-' at an end or beside another"
            .to_owned()
    })
}

/// The format of `metadata.name` of a kind. `minor` is that of Kubernetes 1.
pub(crate) fn of_name(group: &str, kind: &str, minor: u32) -> Option<Format> {
    match (group, kind) {
        // Since 1.36 a Service may have any label (RelaxedServiceNameValidation).
        ("", "Service") if minor < 36 => Some(Format::Label1035),
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => Some(Format::Label),
        ("rbac.authorization.k8s.io", _) => Some(Format::PathSegment),
        // An address, and a name with the colons of its signer.
        ("networking.k8s.io", "IPAddress") | ("certificates.k8s.io", "ClusterTrustBundle") => None,
        _ => Some(Format::Subdomain),
    }
}

/// The format of a field of a definition, both without their version.
pub(crate) fn of_field(definition: &str, field: &str) -> Option<Format> {
    Some(match (definition, field) {
        ("meta.ObjectMeta", "namespace") => Format::Label,
        ("core.Container" | "core.EphemeralContainer" | "core.Volume", "name") => Format::Label,
        ("core.ContainerPort", "name") => Format::PortName,
        ("core.ContainerPort", "containerPort") => Format::Port,
        ("core.ContainerPort", "hostPort") => Format::PortOrZero,
        ("core.PodSpec", "serviceAccountName") => Format::Subdomain,
        ("core.ServicePort", "name") => Format::Label,
        ("core.ServicePort", "port") => Format::Port,
        ("core.ServicePort", "nodePort") => Format::PortOrZero,
        ("core.ServicePort", "targetPort") => Format::PortOrName,
        ("core.HTTPGetAction" | "core.TCPSocketAction", "port") => Format::PortOrName,
        ("core.GRPCAction", "port") => Format::Port,
        ("core.EndpointPort" | "discovery.EndpointPort", "port") => Format::Port,
        ("networking.ServiceBackendPort", "number") => Format::PortOrZero,
        ("networking.NetworkPolicyPort", "port") => Format::PortOrName,
        ("networking.IngressServiceBackend", "name") => Format::Label,
        ("autoscaling.CrossVersionObjectReference", "name") => Format::PathSegment,
        _ => return None,
    })
}

/// Whether a field of a definition contains labels.
pub(crate) fn has_labels(definition: &str, field: &str) -> bool {
    matches!(
        (definition, field),
        ("meta.ObjectMeta", "labels")
            | ("meta.LabelSelector", "matchLabels")
            | ("core.ServiceSpec", "selector")
            | ("core.PodSpec", "nodeSelector")
    )
}

/// Why a key and its value are no label; the key is wrong where the first is true.
pub(crate) fn label_complaint(key: &str, value: &Value) -> Option<String> {
    let of_key = first(names::label_key(key));
    of_key.map(|why| format!("its key {why}")).or_else(|| first(names::label_value(value.as_str()?)))
}

/// Why a key is none of an annotation.
pub(crate) fn annotation_complaint(key: &str) -> Option<String> {
    first(names::label_key(&key.to_ascii_lowercase())).map(|why| format!("its key {why}"))
}

/// Why a key is none of a ConfigMap's or Secret's data (`IsConfigMapKey`).
pub(crate) fn data_key_complaint(key: &str) -> Option<String> {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = (1..=253).contains(&key.len()) && key.bytes().all(is_of) && key != "." && !key.starts_with("..");
    (!fits).then(|| "its key must be at most 253 letters, digits, '-', '_' and '.', and not begin with '..'".to_owned())
}

/// Fields that are too large for any cluster: the path, as keys with dots, and why.
pub(crate) fn sizes(object: &Map<String, Value>, has_data: bool) -> Vec<(&'static [&'static str], String)> {
    let mut found: Vec<(&'static [&'static str], String)> = Vec::new();
    let texts = |value: Option<&Value>, with_keys: bool| -> usize {
        let entries = value.and_then(Value::as_object).into_iter().flatten();
        entries.map(|(key, value)| value.as_str().map_or(0, str::len) + if with_keys { key.len() } else { 0 }).sum()
    };
    let annotations = texts(object.get("metadata").and_then(|metadata| metadata.get("annotations")), true);
    if annotations > LARGEST_ANNOTATIONS {
        let why = format!("{annotations} bytes of annotations; an object has at most {LARGEST_ANNOTATIONS} (256 KiB)");
        found.push((&["metadata", "annotations"], why));
    }
    if has_data {
        let encoded = texts(object.get("binaryData"), false) / 4 * 3;
        let data = texts(object.get("data"), false) + texts(object.get("stringData"), false) + encoded;
        if data > LARGEST_DATA {
            found.push((&["data"], format!("{data} bytes of data; a cluster takes at most {LARGEST_DATA} (1 MiB)")));
        }
    }
    let all = serde_json::to_vec(object).map_or(0, |json| json.len());
    if all > LARGEST_OBJECT {
        let why = format!("the object has {all} bytes; a cluster takes at most {LARGEST_OBJECT} (1.5 MiB)");
        found.push((&[], why));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn port_is_number_or_short_name() {
        for (value, fits) in [
            (json!(1), true),
            (json!(65535), true),
            (json!("http"), true),
            (json!("a-1"), true),
            (json!(0), false),
            (json!(65536), false),
            (json!(-1), false),
            (json!("80"), false),
            (json!("a--b"), false),
            (json!("Http"), false),
            (json!("a-name-of-16-chr"), false),
        ] {
            assert_eq!(Format::PortOrName.complaint(&value).is_none(), fits, "{value}");
        }
        assert_eq!(Format::PortOrZero.complaint(&json!(0)), None);
    }

    #[test]
    fn data_annotations_and_object_sizes_are_limited() {
        let of = |bytes: usize| "x".repeat(bytes);
        let sizes = |object: Value| -> Vec<String> {
            sizes(object.as_object().unwrap(), true).into_iter().map(|(field, _)| field.join(".")).collect()
        };
        assert_eq!(sizes(json!({"data": {"a": of(LARGEST_DATA)}})), [""; 0]);
        assert_eq!(sizes(json!({"data": {"a": of(LARGEST_DATA), "b": "x"}})), ["data"]);
        let annotated = |bytes: usize| json!({"metadata": {"annotations": {"a": of(bytes)}}});
        assert_eq!(sizes(annotated(LARGEST_ANNOTATIONS - 1)), [""; 0]);
        assert_eq!(sizes(annotated(LARGEST_ANNOTATIONS)), ["metadata.annotations"]);
        assert_eq!(sizes(json!({"spec": of(LARGEST_OBJECT)})), [""]);
    }
}
