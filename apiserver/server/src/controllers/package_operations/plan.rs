//! The plan of an operation: its packages, and the change of each.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use kube::ResourceExt as _;
use stoa_controller::queue;
use stoa_machinery::{ApiError, registry::ListOptions, selector::LabelSelector};
use stoa_packages::{
    KPTFILE, Tree,
    diff::{Difference, diff},
    kptfile::{self, Kptfile},
};
use stoa_types::{
    delivery::{AddedFunction, PackageChange, PackageOperation, PackageOperationType, PackagePhase, PackageSelector},
    porch::PackageRevision,
};

use crate::packages::{PackageService, Upstreams, function, upstream_lock};

/// How many packages are planned at once.
const AT_ONCE: usize = 8;
/// The most packages of an operation.
const MOST: usize = 2_000;

/// The change of a package.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// The files now.
    pub(crate) before: Tree,
    /// The files afterwards, before their functions run.
    pub(crate) after: Tree,
    /// The conflicts of an upgrade, as sentences.
    pub(crate) conflicts: Vec<String>,
}

impl Planned {
    /// The differences for people and programs.
    pub(crate) fn difference(&self) -> Difference {
        diff(&self.before, &self.after)
    }
}

/// The newest published revisions of packages that a selector fits, by repository and path.
fn selected<'r>(
    all: &'r [PackageRevision],
    upstreams: &Upstreams,
    selector: &PackageSelector,
) -> Result<Vec<&'r PackageRevision>, ApiError> {
    let mut newest: BTreeMap<(&str, &str), &PackageRevision> = BTreeMap::new();
    for revision in all.iter().filter(|revision| revision.spec.lifecycle.is_published() && revision.spec.revision > 0) {
        let entry = newest.entry((&revision.spec.repository_name, &revision.spec.package_name)).or_insert(revision);
        if entry.spec.revision < revision.spec.revision {
            *entry = revision;
        }
    }
    let parsed = |selector: &Option<v1::LabelSelector>| selector.as_ref().map(LabelSelector::structured).transpose();
    let labels = parsed(&selector.label_selector).map_err(ApiError::bad_request)?;
    let package_labels = parsed(&selector.package_labels).map_err(ApiError::bad_request)?;
    let is_in = |names: &[String], name: &String| names.is_empty() || names.contains(name);
    let has_upstream = |revision: &PackageRevision| {
        let Some(wanted) = &selector.upstream else { return true };
        let Some(lock) = upstream_lock(revision) else { return false };
        let is_of_package =
            upstreams.of(lock).first().is_some_and(|of| of.repository == wanted.repo && of.package == wanted.package);
        let named = upstreams.named(lock);
        let is_wanted = match (wanted.workspace_name.as_str(), wanted.revision) {
            ("", number) if number > 0 => named.is_some_and(|named| named.number == number),
            ("", _) => true,
            (workspace, _) => named.is_some_and(|named| {
                all.iter().any(|other| other.name_any() == named.name && other.spec.workspace_name == workspace)
            }),
        };
        is_of_package && is_wanted
    };
    let is_selected = |revision: &&PackageRevision| {
        let of_package = revision.spec.package_metadata.as_ref().map(|metadata| &metadata.labels);
        is_in(&selector.repositories, &revision.spec.repository_name)
            && is_in(&selector.packages, &revision.spec.package_name)
            && labels.as_ref().is_none_or(|it| it.matches(|key| revision.labels().get(key).map(String::as_str)))
            && package_labels
                .as_ref()
                .is_none_or(|it| it.matches(|key| of_package.and_then(|labels| labels.get(key)).map(String::as_str)))
            && has_upstream(revision)
    };
    Ok(newest.into_values().filter(is_selected).collect())
}

/// The packages of an operation, with their changes.
pub(super) async fn packages(
    service: &PackageService,
    operation: &PackageOperation,
) -> Result<Vec<PackageChange>, ApiError> {
    let namespace = operation.namespace().unwrap_or_default();
    let revisions = service.services().lookup.api::<PackageRevision>()?;
    let all = revisions.list_with(Some(&namespace), &ListOptions::default()).await?;
    let upstreams: Upstreams = all.iter().cloned().collect();
    let changes: Vec<PackageChange> = selected(&all, &upstreams, &operation.spec.selector)?
        .into_iter()
        .map(|revision| aimed(operation, revision, &all, &upstreams))
        .collect();
    let planned = limited(changes)?.into_iter().map(|change| described(service, operation, change));
    stream::iter(planned).buffered(AT_ONCE).try_collect().await
}

/// The packages, if they are not too many. A plan reads the files of each.
fn limited(changes: Vec<PackageChange>) -> Result<Vec<PackageChange>, ApiError> {
    if changes.len() > MOST {
        let why = format!("spec.selector fits {} packages, more than {MOST}; narrow it", changes.len());
        return Err(ApiError::new(422, "Invalid", why));
    }
    Ok(changes)
}

/// The revisions that a package changes from and to.
fn aimed(
    operation: &PackageOperation,
    revision: &PackageRevision,
    all: &[PackageRevision],
    upstreams: &Upstreams,
) -> PackageChange {
    let change = PackageChange {
        repository: revision.spec.repository_name.clone(),
        package: revision.spec.package_name.clone(),
        from: revision.name_any(),
        ..PackageChange::default()
    };
    let skipped =
        |message: &str| PackageChange { phase: PackagePhase::Skipped, message: message.to_owned(), ..change.clone() };
    match operation.spec.operation {
        PackageOperationType::Upgrade => {
            let Some(lock) = upstream_lock(revision) else { return skipped("the package has no upstream") };
            let wanted = operation.spec.upgrade.as_ref().map_or(0, |upgrade| upgrade.revision);
            let target = match wanted {
                0 => upstreams.newest(lock),
                number => upstreams.of(lock).iter().find(|published| published.number == number),
            };
            let old = upstreams.named(lock);
            match target {
                None if wanted == 0 => skipped("its upstream is no published package of a registered repository"),
                None => skipped(&format!("its upstream has no published revision {wanted}")),
                Some(target) if old == Some(target) => {
                    skipped(&format!("it has revision {} of its upstream", target.number))
                }
                Some(target) => PackageChange {
                    old_upstream: old.map_or_else(String::new, |old| old.name.clone()),
                    to: target.name.clone(),
                    ..change
                },
            }
        }
        PackageOperationType::Rollback => {
            let wanted = operation.spec.rollback.as_ref().map_or(0, |rollback| rollback.revision);
            let mut of_package = all.iter().filter(|other| {
                other.spec.repository_name == change.repository
                    && other.spec.package_name == change.package
                    && other.spec.lifecycle.is_published()
                    && (1..revision.spec.revision).contains(&other.spec.revision)
            });
            let target = match wanted {
                0 => of_package.max_by_key(|other| other.spec.revision),
                number => of_package.find(|other| other.spec.revision == number),
            };
            match target {
                Some(target) => PackageChange { to: target.name_any(), ..change },
                None if wanted == 0 => skipped("it has no earlier published revision"),
                None => skipped(&format!("it has no earlier published revision {wanted}")),
            }
        }
        PackageOperationType::Validate | PackageOperationType::AddFunction => change,
    }
}

/// The change of a package in words. One that cannot be computed has failed.
async fn described(
    service: &PackageService,
    operation: &PackageOperation,
    mut change: PackageChange,
) -> Result<PackageChange, ApiError> {
    if change.phase.is_terminal() {
        return Ok(change);
    }
    if operation.spec.operation == PackageOperationType::Validate {
        "runs its functions".clone_into(&mut change.change);
        return Ok(change);
    }
    let planned = match planned(service, operation, &change).await {
        Ok(planned) => planned,
        Err(error) if queue::is_refusal(&error) => {
            change.phase = PackagePhase::Failed;
            error.message().clone_into(&mut change.message);
            return Ok(change);
        }
        Err(error) => return Err(error),
    };
    if planned.before == planned.after {
        change.phase = PackagePhase::Skipped;
        "nothing changes".clone_into(&mut change.message);
        return Ok(change);
    }
    change.change = in_words(&planned);
    if operation.spec.operation == PackageOperationType::AddFunction {
        let namespace = operation.namespace().unwrap_or_default();
        let from = service.services().lookup.api::<PackageRevision>()?.get(&namespace, &change.from).await?;
        if let Some(error) = service.render_error(&from, &planned.after).await? {
            change.change = format!("{}; its functions fail: {error}", change.change);
        }
    }
    Ok(change)
}

fn in_words(planned: &Planned) -> String {
    let difference = planned.difference();
    let is_kptfile = |path: &str| path.rsplit('/').next() == Some(KPTFILE);
    let objects = difference.objects.iter().filter(|object| !is_kptfile(&object.path)).count();
    let files = difference.files.len();
    let count = |number: usize, noun: &str| match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    };
    let mut parts = Vec::new();
    if difference.objects.len() > objects {
        parts.push("its Kptfile".to_owned());
    }
    parts.extend((objects > 0).then(|| count(objects, "object")));
    parts.extend((files > 0).then(|| count(files, "other file")));
    let mut text = format!("changes {}", parts.join(", "));
    if let Some(first) = planned.conflicts.first() {
        text += &format!("; {}, such as: {first}", count(planned.conflicts.len(), "conflict"));
    }
    text
}

/// The files of a package before and after its change.
///
/// # Errors
///
/// 404 for a revision that was deleted since, 422 where the files cannot be merged.
pub(crate) async fn planned(
    service: &PackageService,
    operation: &PackageOperation,
    change: &PackageChange,
) -> Result<Planned, ApiError> {
    let namespace = operation.namespace().unwrap_or_default();
    let revisions = service.services().lookup.api::<PackageRevision>()?;
    let from = revisions.get(&namespace, &change.from).await?;
    let before = service.tree(&from).await?;
    let (after, conflicts) = match operation.spec.operation {
        PackageOperationType::Upgrade => {
            let upstream = revisions.get(&namespace, &change.to).await?;
            let origin = match change.old_upstream.as_str() {
                "" => service.origin(&from).await?,
                old => service.tree(&revisions.get(&namespace, old).await?).await?,
            };
            let files = service.tree(&upstream).await?;
            let strategy = operation.spec.upgrade.as_ref().map_or("", |upgrade| upgrade.strategy.as_str());
            let updated = PackageService::merged(&before, (&origin, &files), (&upstream, strategy))?;
            (updated.tree, updated.conflicts.iter().map(ToString::to_string).collect())
        }
        PackageOperationType::Rollback => {
            (service.tree(&revisions.get(&namespace, &change.to).await?).await?, Vec::new())
        }
        PackageOperationType::AddFunction => {
            let added = operation.spec.add_function.clone().unwrap_or_default();
            (with_function(&before, &added)?, Vec::new())
        }
        PackageOperationType::Validate => (before.clone(), Vec::new()),
    };
    Ok(Planned { before, after, conflicts })
}

/// Adds a function to a list. One of its name is replaced, and so is an unnamed one of its image.
fn add(functions: &mut Vec<kptfile::Function>, function: kptfile::Function) {
    let image = |function: &kptfile::Function| {
        let command = function.command();
        let name = command.rsplit('/').next().unwrap_or(command);
        command[..command.len() - name.len()].to_owned() + name.split([':', '@']).next().unwrap_or(name)
    };
    let is_it = |other: &kptfile::Function| match (other.name.as_str(), function.name.as_str()) {
        ("", "") => image(other) == image(&function),
        (one, other) => one == other,
    };
    match functions.iter_mut().find(|other| is_it(other)) {
        Some(found) => *found = function,
        None => functions.push(function),
    }
}

/// The package with a function more.
///
/// # Errors
///
/// 422 where the Kptfile cannot be read.
pub(super) fn with_function(files: &Tree, added: &AddedFunction) -> Result<Tree, ApiError> {
    let invalid = |error: &dyn std::error::Error| ApiError::new(422, "Invalid", error.to_string());
    let text = files.text(KPTFILE).ok_or_else(|| invalid(&kptfile::KptfileError::Missing))?;
    let old = Kptfile::parse(text).map_err(|error| invalid(&error))?;
    let mut new = old.clone();
    let pipeline = new.pipeline.get_or_insert_default();
    if let Some(mutator) = &added.mutator {
        add(&mut pipeline.mutators, function(mutator));
    }
    if let Some(validator) = &added.validator {
        add(&mut pipeline.validators, function(validator));
    }
    let mut tree = files.clone();
    if new != old {
        tree.write(KPTFILE, old.edit(text, &new)).map_err(|error| invalid(&error))?;
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use stoa_types::porchconfig::Function;

    use super::*;

    fn revision(package: &str, number: i64, more: Value) -> PackageRevision {
        let name = format!("deployments.{package}.v{number}");
        let mut object = json!({
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"packageName": package, "repository": "deployments", "revision": number, "lifecycle": "Published",
                "workspaceName": format!("v{number}")},
        });
        merge_into(&mut object, more);
        serde_json::from_value(object).unwrap()
    }

    fn merge_into(object: &mut Value, more: Value) {
        match (object, more) {
            (Value::Object(object), Value::Object(more)) => {
                for (key, value) in more {
                    merge_into(object.entry(key).or_insert(Value::Null), value);
                }
            }
            (object, more) => *object = more,
        }
    }

    fn downstream(package: &str, number: i64, of: i64) -> PackageRevision {
        let git =
            json!({"repo": "https://git.example.com/b.git", "directory": "/basens", "ref": format!("basens/v{of}")});
        revision(package, number, json!({"status": {"upstreamLock": {"type": "git", "git": git}}}))
    }

    fn upstream(number: i64) -> PackageRevision {
        let git =
            json!({"repo": "https://git.example.com/b.git", "directory": "basens", "ref": format!("basens/v{number}")});
        revision(
            "basens",
            number,
            json!({
                "metadata": {"name": format!("blueprints.basens.v{number}")},
                "spec": {"repository": "blueprints"},
                "status": {"selfLock": {"type": "git", "git": git}},
            }),
        )
    }

    fn operation(spec: Value) -> PackageOperation {
        serde_json::from_value(json!({"metadata": {"name": "op", "namespace": "shop"}, "spec": spec})).unwrap()
    }

    fn aims(spec: Value, all: &[PackageRevision]) -> Vec<(String, String, String)> {
        let (operation, upstreams) = (operation(spec), all.iter().cloned().collect::<Upstreams>());
        let selected = selected(all, &upstreams, &operation.spec.selector).unwrap();
        let aimed = selected.into_iter().map(|revision| aimed(&operation, revision, all, &upstreams));
        aimed.map(|change| (change.from, change.to, change.message)).collect()
    }

    #[test]
    fn upgrade_selects_downstreams_of_a_package() {
        let all = [
            upstream(1),
            upstream(2),
            downstream("a", 1, 1),
            downstream("a", 2, 1),
            downstream("b", 1, 2),
            revision("own", 1, json!({})),
        ];
        let of_basens = json!({"upstream": {"repo": "blueprints", "package": "basens"}});
        let found = aims(json!({"operation": "Upgrade", "selector": of_basens}), &all);
        let newest = ("deployments.a.v2".to_owned(), "blueprints.basens.v2".to_owned(), String::new());
        assert_eq!(found[0], newest, "the newest revision of each package");
        assert_eq!(found[1].2, "it has revision 2 of its upstream");
        assert_eq!(found.len(), 2, "packages without this upstream are not selected");
        let outdated = json!({"upstream": {"repo": "blueprints", "package": "basens", "revision": 1}});
        assert_eq!(aims(json!({"operation": "Upgrade", "selector": outdated}), &all).len(), 1);
        let missing = json!({"operation": "Upgrade", "selector": of_basens, "upgrade": {"revision": 7}});
        assert!(aims(missing, &all).iter().all(|(_, _, message)| message.contains("no published revision 7")));
    }

    #[test]
    fn too_many_packages_are_rejected_before_their_files_are_read() {
        let changes = |count: usize| vec![PackageChange::default(); count];
        assert_eq!(limited(changes(MOST)).unwrap().len(), MOST);
        let error = limited(changes(MOST + 1)).unwrap_err();
        assert!(error.code() == 422 && error.message().starts_with("spec.selector fits 2001 packages"), "{error}");
    }

    #[test]
    fn rollback_goes_to_an_earlier_revision() {
        let all = [revision("a", 1, json!({})), revision("a", 2, json!({})), revision("a", 3, json!({})), upstream(1)];
        let to = |spec: Value| aims(spec, &all).into_iter().map(|(_, to, _)| to).collect::<Vec<_>>();
        let selector = json!({"packages": ["a"]});
        assert_eq!(to(json!({"operation": "Rollback", "selector": selector})), ["deployments.a.v2"]);
        let first = json!({"operation": "Rollback", "selector": selector, "rollback": {"revision": 1}});
        assert_eq!(to(first), ["deployments.a.v1"]);
        let itself = json!({"operation": "Rollback", "selector": selector, "rollback": {"revision": 3}});
        assert_eq!(to(itself), [""]);
    }

    #[test]
    fn labels_select_packages() {
        let gold =
            json!({"spec": {"packageMetadata": {"labels": {"tier": "gold"}}}, "metadata": {"labels": {"team": "web"}}});
        let all = [revision("a", 1, gold), revision("b", 1, json!({}))];
        for selector in [
            json!({"packageLabels": {"matchLabels": {"tier": "gold"}}}),
            json!({"labelSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}),
        ] {
            let found = aims(json!({"operation": "Validate", "selector": selector}), &all);
            assert_eq!(found.len(), 1, "{selector}");
        }
    }

    #[test]
    fn function_is_added_once() {
        let mut tree = Tree::default();
        let kptfile = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: a # ours\npipeline:\n  validators:\n  - image: kubeval:v0.3\n";
        tree.write(KPTFILE, kptfile).unwrap();
        let validator = |name: &str, image: &str| AddedFunction {
            validator: Some(Function { name: name.to_owned(), image: image.to_owned(), ..Function::default() }),
            mutator: None,
        };
        let images = |tree: &Tree| {
            let pipeline = Kptfile::parse(tree.text(KPTFILE).unwrap()).unwrap().pipeline.unwrap();
            pipeline.validators.into_iter().map(|function| function.image).collect::<Vec<_>>()
        };
        let once = with_function(&tree, &validator("", "starlark:v0.4.3")).unwrap();
        assert_eq!(images(&once), ["kubeval:v0.3", "starlark:v0.4.3"]);
        assert!(once.text(KPTFILE).unwrap().contains("# ours"));
        assert_eq!(with_function(&once, &validator("", "starlark:v0.4.3")).unwrap(), once);
        let newer = with_function(&once, &validator("", "kubeval:v0.4")).unwrap();
        assert_eq!(images(&newer), ["kubeval:v0.4", "starlark:v0.4.3"], "another tag replaces it");
        let named = with_function(&once, &validator("guard", "starlark:v0.4.3")).unwrap();
        assert_eq!(images(&named).len(), 3, "a name tells functions apart");
    }
}
