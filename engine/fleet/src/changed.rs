//! The files that differ between two fleets, without a rendering of both.
//!
//! Start at [`changed`]. It finds the assignments that a changed object can reach, compares what their files are made of, and
//! renders the files for which that differs.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Fleet,
    config::{changed_keys, conditions, has_rest, left_to_target},
    fleet::different,
    objects::{ClusterType, Labels},
    render::{Broken, File, Job, Outcome, Part, Plan, execute, shared},
    schedule::Assignment,
    templates::{Renderer, RendererError},
};

/// The number of assignments that are compared at once.
const CHUNK: usize = 500;

/// The differences between the files of two fleets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The files that are new or have another content.
    pub written: BTreeMap<String, File>,
    /// The files that are there no more.
    pub deleted: BTreeSet<String>,
    /// The files that would be deleted, if nothing could be missing ([`Inputs::keeps_files`](crate::Inputs::keeps_files)).
    pub withheld: BTreeSet<String>,
    /// The assignments of the new fleet without files, by folder. Their folders stay as they are.
    pub broken: BTreeMap<String, Broken>,
    /// The folders of assignments that are no more. Other files in them are stale too.
    pub removed_folders: BTreeSet<String>,
}

impl Changes {
    /// Whether no file differs.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty() && self.deleted.is_empty() && self.removed_folders.is_empty()
    }
}

/// The files that differ between `old` and `new`.
///
/// `broken` are the assignments of the old fleet without files, as [`render`](crate::render::render) or the last comparison
/// reported them. The files of one that is whole now are all written.
///
/// # Errors
///
/// [`RendererError`] when the renderer gave no answer.
pub fn changed(
    old: &Fleet,
    broken: &BTreeMap<String, Broken>,
    new: &Fleet,
    renderer: &dyn Renderer,
) -> Result<Changes, RendererError> {
    let mut changes = Changes { broken: broken.clone(), ..Changes::default() };
    let candidates: Vec<(&str, &str)> = Candidates::find(old, new).into_iter().collect();
    let mut deleted = BTreeSet::new();
    for chunk in candidates.chunks(CHUNK) {
        let pairs: Vec<Pair> = chunk.iter().map(|pair| Pair::new(old, broken, new, *pair)).collect();
        compare(&pairs, &mut changes, &mut deleted, renderer)?;
    }
    let (before, after) = (shared(old), shared(new));
    deleted.extend(before.keys().filter(|path| !after.contains_key(*path)).cloned());
    changes.written.extend(after.into_iter().filter(|file| is_changed(&before, file)));
    if new.inputs().keeps_files() {
        changes.withheld = deleted;
        changes.removed_folders.clear();
    } else {
        changes.deleted = deleted;
    }
    Ok(changes)
}

/// An assignment in both fleets.
struct Pair {
    folder: String,
    old: Option<Plan>,
    new: Option<Plan>,
    was_broken: bool,
}

/// The files of an assignment that are rendered: those of before, to compare with, and those of now.
struct Step<'p> {
    old: Option<Job<'p>>,
    new: Option<Job<'p>>,
}

impl Pair {
    fn new(old: &Fleet, broken: &BTreeMap<String, Broken>, new: &Fleet, (cluster_type, target): (&str, &str)) -> Self {
        let plan = |fleet: &Fleet| Some(Plan::new(fleet, &fleet.schedule().assignment(cluster_type, target)?));
        let folder = format!("{cluster_type}/{target}");
        Self { was_broken: broken.contains_key(&folder), old: plan(old), new: plan(new), folder }
    }

    fn step(&self) -> Step<'_> {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) if !self.was_broken && !new.is_broken() => {
                Step { old: differing(old, new), new: differing(new, old) }
            }
            // The files of before are unknown, or stay as they are.
            (_, Some(new)) => Step { old: None, new: Some(Job::whole(new)) },
            (Some(old), None) if !self.was_broken => Step { old: Some(Job::whole(old)), new: None },
            (_, None) => Step { old: None, new: None },
        }
    }
}

/// The parts of a plan that are made of other things than those of another one.
fn differing<'p>(plan: &'p Plan, other: &Plan) -> Option<Job<'p>> {
    let parts: Vec<&Part> = plan.parts.iter().filter(|part| !plan.has_same(part, other)).collect();
    (!parts.is_empty()).then(|| Job::of(plan, parts))
}

fn compare(
    pairs: &[Pair],
    changes: &mut Changes,
    deleted: &mut BTreeSet<String>,
    renderer: &dyn Renderer,
) -> Result<(), RendererError> {
    let steps: Vec<Step<'_>> = pairs.iter().map(Pair::step).collect();
    let jobs: Vec<&Job<'_>> = steps.iter().flat_map(|step| [&step.old, &step.new]).flatten().collect();
    let mut outcomes = execute(&jobs, renderer)?.into_iter();
    for (pair, step) in pairs.iter().zip(&steps) {
        let old = step.old.as_ref().and_then(|_| outcomes.next()).and_then(Result::ok).unwrap_or_default();
        let new = match step.new.as_ref().and_then(|_| outcomes.next()) {
            Some(Err(broken)) => {
                changes.broken.insert(pair.folder.clone(), broken);
                continue;
            }
            Some(Ok(outcome)) => outcome,
            None => Outcome::default(),
        };
        changes.broken.remove(&pair.folder);
        if pair.new.is_none() && pair.old.is_some() {
            changes.removed_folders.insert(pair.folder.clone());
        }
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (old.files.into_iter().collect(), new.files.into_iter().collect());
        deleted.extend(old.keys().filter(|path| !new.contains_key(*path)).cloned());
        changes.written.extend(new.into_iter().filter(|file| is_changed(&old, file)));
    }
    Ok(())
}

fn is_changed(old: &BTreeMap<String, File>, (path, file): &(String, File)) -> bool {
    old.get(path).is_none_or(|it| it.content != file.content)
}

/// The assignments of either fleet that a changed object reaches, by cluster type and target.
struct Candidates<'f> {
    old: &'f Fleet,
    new: &'f Fleet,
    found: BTreeSet<(&'f str, &'f str)>,
}

impl<'f> Candidates<'f> {
    fn find(old: &'f Fleet, new: &'f Fleet) -> BTreeSet<(&'f str, &'f str)> {
        let mut candidates = Self { old, new, found: BTreeSet::new() };
        if old.inputs().environment != new.inputs().environment {
            candidates.add_all();
            return candidates.found;
        }
        candidates.of_cluster_types_and_targets();
        candidates.of_policies();
        candidates.of_templates();
        candidates.of_schemas();
        candidates.of_config_maps();
        candidates.found
    }

    fn add(&mut self, assignments: impl Iterator<Item = Assignment<'f>>) {
        self.found.extend(assignments.map(|it| (it.cluster_type.name.as_str(), it.target.name.as_str())));
    }

    fn add_all(&mut self) {
        self.add(self.old.schedule().assignments());
        self.add(self.new.schedule().assignments());
    }

    fn of_cluster_types_and_targets(&mut self) {
        let (old, new) = (self.old, self.new);
        for name in different(&old.inputs().cluster_types, &new.inputs().cluster_types) {
            self.add(old.schedule().on_cluster_type(name));
            self.add(new.schedule().on_cluster_type(name));
        }
        for name in different(&old.inputs().targets, &new.inputs().targets) {
            self.add(old.schedule().of_target(name));
            self.add(new.schedule().of_target(name));
        }
    }

    fn of_policies(&mut self) {
        let (old, new) = (self.old, self.new);
        let mut names: BTreeSet<&str> = different(&old.inputs().policies, &new.inputs().policies).into_iter().collect();
        names.extend(different(&old.inputs().decisions, &new.inputs().decisions));
        for name in names {
            for fleet in [old, new] {
                let Some(policy) = fleet.inputs().policies.get(name) else { continue };
                let targets = fleet.inputs().targets.values().filter(|target| policy.selects_target(target));
                let targets: Vec<&str> = targets.map(|target| target.name.as_str()).collect();
                let cluster_types = fleet.inputs().cluster_types.values();
                for cluster_type in cluster_types.filter(|it| policy.selects_cluster_type(it)) {
                    self.found.extend(targets.iter().map(|target| (cluster_type.name.as_str(), *target)));
                }
            }
        }
    }

    fn of_templates(&mut self) {
        let (old, new) = (self.old, self.new);
        let names: BTreeSet<&str> = different(&old.inputs().templates, &new.inputs().templates).into_iter().collect();
        if names.is_empty() {
            return;
        }
        let uses = |cluster_type: &ClusterType| {
            let spec = &cluster_type.spec;
            [&spec.reconciler, &spec.namespace_service, &spec.config_type]
                .iter()
                .any(|name| names.contains(name.as_str()))
        };
        for fleet in [old, new] {
            for cluster_type in fleet.inputs().cluster_types.values().filter(|it| uses(it)) {
                self.add(fleet.schedule().on_cluster_type(&cluster_type.name));
            }
        }
    }

    fn of_schemas(&mut self) {
        let (old, new) = (self.old, self.new);
        for name in different(&old.inputs().config_schemas, &new.inputs().config_schemas) {
            for fleet in [old, new] {
                if let Some(schema) = fleet.inputs().config_schemas.get(name) {
                    self.add_matching(&conditions(&schema.labels), &|_| true);
                }
            }
        }
    }

    fn of_config_maps(&mut self) {
        let (old, new) = (self.old, self.new);
        for name in different(&old.inputs().config_maps, &new.inputs().config_maps) {
            let maps = [old, new].map(|fleet| fleet.inputs().config_maps.get(name));
            for (labels, keys) in changed_keys(maps[0], maps[1]) {
                // A value that another ConfigMap replaces makes no difference.
                let differs = |assignment: &Assignment<'_>| {
                    let value = |fleet: &Fleet, key: &str| {
                        fleet.configuration().value(assignment.cluster_type, assignment.target, key)
                    };
                    keys.iter().any(|key| value(old, key) != value(new, key))
                };
                self.add_matching(&labels, &differs);
            }
        }
    }

    /// Adds the assignments that both fleets have and that values with these labels are for. Others are candidates anyway.
    fn add_matching(&mut self, labels: &Labels, differs: &dyn Fn(&Assignment<'_>) -> bool) {
        let new = self.new;
        for cluster_type in new.inputs().cluster_types.values() {
            let Some(left) = left_to_target(labels, cluster_type) else { continue };
            let assignments = new.schedule().on_cluster_type(&cluster_type.name);
            for assignment in assignments.filter(|it| has_rest(it.target, &left)) {
                let pair = (assignment.cluster_type.name.as_str(), assignment.target.name.as_str());
                if !self.found.contains(&pair) && differs(&assignment) {
                    self.found.insert(pair);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
