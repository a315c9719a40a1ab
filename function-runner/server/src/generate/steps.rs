//! The order of a chart's hooks: objects of a step depend on all objects of the step before.
//!
//! Namespaces and definitions wait for no step, since the objects of earlier steps may need them.

use stoa_engine::ResourceId;

use super::manifests::Manifest;

/// Adds the ids of the step before to what each manifest depends on.
pub(super) fn add(manifests: &[Manifest], depends_on: &mut [Vec<ResourceId>]) {
    let mut steps: Vec<i32> = manifests.iter().map(|manifest| manifest.step).collect();
    steps.sort_unstable();
    steps.dedup();
    for (earlier, later) in steps.iter().zip(steps.iter().skip(1)) {
        let of_earlier: Vec<ResourceId> =
            manifests.iter().filter(|it| it.step == *earlier && !is_needed_first(it)).map(Manifest::id).collect();
        let of_later =
            manifests.iter().zip(&mut *depends_on).filter(|(it, _)| it.step == *later && !is_needed_first(it));
        for (_, before) in of_later {
            let missing: Vec<ResourceId> = of_earlier.iter().filter(|id| !before.contains(id)).cloned().collect();
            before.extend(missing);
        }
    }
}

fn is_needed_first(manifest: &Manifest) -> bool {
    matches!(manifest.kind.as_str(), "Namespace" | "CustomResourceDefinition")
}
