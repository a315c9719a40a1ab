//! Fields of built-in kinds that are quantities (`resource.Quantity` in the Kubernetes API).
//!
//! A field counts by its kind and path, never by its name: `spec.values.default.tag` of a custom resource may be
//! `"1.1"` or `"1.10"`, which differ. A server stores quantities of custom resources as they are written, so none of
//! their fields is listed here.

use super::equality::Kind;
use crate::path::{FieldPath, Segment};
use crate::schema::pod_spec;

/// Quantities by kind. `*` is any key or item, `|` separates alternative keys.
const QUANTITIES: [(&str, &[&str], &[&str]); 8] = [
    ("", &["ResourceQuota"], &["spec.hard.*"]),
    ("", &["LimitRange"], &["spec.limits.*.default|defaultRequest|max|min|maxLimitRequestRatio.*"]),
    ("", &["PersistentVolume"], &["spec.capacity.*"]),
    ("", &["PersistentVolumeClaim"], &["spec.resources.limits|requests.*"]),
    ("apps", &["StatefulSet"], &["spec.volumeClaimTemplates.*.spec.resources.limits|requests.*"]),
    (
        "autoscaling",
        &["HorizontalPodAutoscaler"],
        &[
            "spec.metrics.*.resource|containerResource|pods|object|external.target.averageValue|value",
            "spec.metrics.*.resource|pods|object|external.targetAverageValue|targetValue|averageValue",
            "spec.behavior.scaleUp|scaleDown.tolerance",
        ],
    ),
    ("node.k8s.io", &["RuntimeClass"], &["overhead.podFixed.*"]),
    ("storage.k8s.io", &["CSIStorageCapacity"], &["capacity", "maximumVolumeSize"]),
];

/// Fields of a pod's `spec`.
const POD: [&str; 8] = [
    "containers|initContainers|ephemeralContainers.*.resources.limits|requests.*",
    "containers|initContainers|ephemeralContainers.*.env.*.valueFrom.resourceFieldRef.divisor",
    "volumes.*.emptyDir.sizeLimit",
    "volumes.*.ephemeral.volumeClaimTemplate.spec.resources.limits|requests.*",
    "volumes.*.downwardAPI.items.*.resourceFieldRef.divisor",
    "volumes.*.projected.sources.*.downwardAPI.items.*.resourceFieldRef.divisor",
    "resources.limits|requests.*",
    "overhead.*",
];

pub(super) fn is_quantity(kind: Kind<'_>, path: &FieldPath) -> bool {
    let is_of = |group: &str, kinds: &[&str]| group == kind.group && kinds.contains(&kind.kind);
    let mut own = QUANTITIES.iter().filter(|(group, kinds, _)| is_of(group, kinds)).flat_map(|(_, _, fields)| *fields);
    own.any(|field| fits(field, &path.0))
        || pod_spec(kind.group, kind.kind).is_some_and(|spec| {
            path.0
                .split_at_checked(spec.split('.').count())
                .is_some_and(|(above, below)| fits(spec, above) && POD.iter().any(|field| fits(field, below)))
        })
}

fn fits(field: &str, path: &[Segment]) -> bool {
    let mut steps = field.split('.');
    let each = path.iter().all(|segment| {
        steps.next().is_some_and(|step| match segment {
            Segment::Key(key) => step == "*" || step.split('|').any(|name| name == key),
            Segment::Index(_) | Segment::Item { .. } => step == "*",
        })
    });
    each && steps.next().is_none()
}
