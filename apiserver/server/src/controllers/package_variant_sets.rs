//! PackageVariantSet: keeps one PackageVariant for each target.
//!
//! A PackageVariant that is there changes its spec alone. Names, labels and conditions are those of Porch. `template` makes the
//! specs, with expressions of CEL.

mod template;

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stoa_controller::{
    conditions::set_condition,
    finalizers::{update_same, update_status_of_same},
    index::Member,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_engine::digest::hex;
use stoa_kinds::{
    lookup::Lookup,
    package_variant::{FINALIZER, READY, STALLED},
    package_variant_set::{OWNER_LABEL, problems},
};
use stoa_machinery::{ApiError, selector::LabelSelector};
use stoa_runs::Services;
use stoa_types::{
    porch::PackageRevision,
    porchconfig::{
        ObjectSelector, PackageVariant, PackageVariantSet, PackageVariantSpec, Repository, RepositorySpec, Target,
        Upstream,
    },
};
use tokio_util::sync::CancellationToken;

use self::template::{Context, described};
use super::{
    package_latest::Numbered,
    package_variants::{no_upstream, revisions_of, upstream_of},
};
use crate::packages::{objects, owner_reference};

/// How many sets are reconciled at once.
const AT_ONCE: usize = 4;
/// How long changes of other objects are gathered.
const GATHER: Duration = Duration::from_millis(500);
/// The time between two looks at objects of other kinds.
const LOOK: Duration = Duration::from_secs(60);
/// The most characters of a PackageVariant's name.
const NAME: usize = 63;
/// The digits of the digest in a shortened name.
const DIGITS: usize = 8;

/// The reasons of the conditions, which are those of Porch.
mod reasons {
    pub(super) const VALIDATION_ERROR: &str = "ValidationError";
    pub(super) const UPSTREAM_NOT_FOUND: &str = "UpstreamNotFound";
    pub(super) const NO_MATCHING_TARGETS: &str = "NoMatchingTargets";
    pub(super) const UNEXPECTED_ERROR: &str = "UnexpectedError";
    pub(super) const VALID: &str = "Valid";
    pub(super) const RECONCILED: &str = "Reconciled";
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let (of_revisions, of_repositories) = (services.lookup.clone(), services.lookup.clone());
    let triggers = vec![
        Trigger::on(&registry.api::<PackageVariantSet>(), |set| vec![queue::key_of(set)]),
        Trigger::on(&registry.api::<PackageVariant>(), |variant: &PackageVariant| owners(variant)),
        Trigger::on_change(
            &registry.api::<PackageRevision>(),
            move |revision: &Member<Numbered, serde::de::IgnoredAny>| {
                let Numbered { repository, package_name, .. } = &revision.spec;
                let names = |upstream: &Upstream| upstream.repo == *repository && upstream.package == *package_name;
                sets(&of_revisions, revision.namespace(), |set| set.spec.upstream.as_ref().is_some_and(names))
            },
        )
        .within(GATHER),
        // Labels of repositories select them, so that every change counts.
        Trigger::on_part(
            &registry.api::<Repository>(),
            move |repository: &Member<RepositorySpec, serde::de::IgnoredAny>| {
                sets(&of_repositories, repository.namespace(), |_| true)
            },
        )
        .within(GATHER),
    ];
    let reconcile = |key| reconcile(services.clone(), key);
    queue::drive_some(services.queues.of("package-variant-sets"), AT_ONCE, triggers, end, reconcile).await;
}

fn owners(variant: &PackageVariant) -> Vec<ObjectKey> {
    let namespace = variant.namespace().unwrap_or_default();
    let of_set = variant.owner_references().iter().filter(|owner| owner.kind == "PackageVariantSet");
    of_set.map(|owner| (namespace.clone(), owner.name.clone())).collect()
}

/// The sets of a namespace, as the watch cache has them.
fn sets(lookup: &Lookup, namespace: &str, is_wanted: impl Fn(&PackageVariantSet) -> bool) -> Vec<ObjectKey> {
    let keys = lookup.cached_keys::<PackageVariantSet>(namespace, "metadata.namespace", namespace);
    let is_wanted = |(namespace, name): &ObjectKey| {
        lookup.cached::<PackageVariantSet>(namespace, name).is_some_and(|set| is_wanted(&set))
    };
    keys.into_iter().filter(is_wanted).collect()
}

/// Why a set makes no progress: a reason and a message.
type Stalled = (&'static str, String);

async fn reconcile(services: Services, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let sets = services.lookup.api::<PackageVariantSet>()?;
    let found = sets.get_opt(&key.0, &key.1).await?;
    // The garbage collector deletes the variants of a set that is deleted.
    let Some(set) = found.filter(|set| set.metadata.deletion_timestamp.is_none()) else { return Ok(None) };
    let problems = problems(&set.spec);
    let ensured = match problems.is_empty() {
        true => ensure(&services, &set).await?,
        false => Err((reasons::VALIDATION_ERROR, problems.join("; "))),
    };
    let generation = set.metadata.generation;
    let write = |set: &mut PackageVariantSet| {
        let conditions = &mut set.status.get_or_insert_default().conditions;
        match &ensured {
            Ok(()) => {
                let valid = "all validation checks passed";
                set_condition(conditions, STALLED, false, reasons::VALID, valid, generation);
                let reconciled = "package variants successfully reconciled";
                set_condition(conditions, READY, true, reasons::RECONCILED, reconciled, generation);
            }
            Err((reason, message)) => {
                set_condition(conditions, STALLED, true, reason, message.clone(), generation);
                set_condition(conditions, READY, false, reason, message.clone(), generation);
            }
        }
    };
    queue::unless_gone(update_status_of_same(&sets, &set, write).await)?;
    // The server watches no objects of other kinds.
    let reads_others = set.spec.targets.iter().any(|target| target.object_selector.is_some());
    Ok((reads_others || ensured.is_err()).then_some(LOOK))
}

/// A target, with the defaults that follow from it.
struct Downstream<'s> {
    target: &'s Target,
    repository: String,
    package: String,
    /// The selected object.
    object: Option<Value>,
}

async fn ensure(services: &Services, set: &PackageVariantSet) -> Result<Result<(), Stalled>, ApiError> {
    let upstream = set.spec.upstream.clone().unwrap_or_default();
    let namespace = set.namespace().unwrap_or_default();
    let revisions = revisions_of(&services.lookup, &namespace, (&upstream.repo, &upstream.package)).await?;
    let Some(revision) = upstream_of(&upstream, &revisions) else {
        return Ok(Err((reasons::UPSTREAM_NOT_FOUND, no_upstream(&upstream))));
    };
    let mut downstreams = Vec::new();
    for target in &set.spec.targets {
        match unroll(services, &namespace, &upstream, target).await {
            Ok(found) => downstreams.extend(found),
            Err(error) if error.code() == 404 => {
                return Ok(Err((reasons::NO_MATCHING_TARGETS, error.message().to_owned())));
            }
            Err(error) if queue::is_refusal(&error) => {
                return Ok(Err((reasons::UNEXPECTED_ERROR, error.message().to_owned())));
            }
            Err(error) => return Err(error),
        }
    }
    let all = services.lookup.api::<Repository>()?.list(Some(&namespace), "").await?;
    let repositories: BTreeMap<String, Value> =
        all.iter().map(|repository| (repository.name_any(), described(&json!(repository)))).collect();
    let described_upstream = described(&json!(revision));
    let mut wanted = BTreeMap::new();
    for Downstream { target, repository, package, object } in downstreams {
        let default_target = json!({"repo": repository, "package": package});
        let context = Context {
            repo_default: repository,
            package_default: package,
            upstream: described_upstream.clone(),
            target: object.as_ref().map_or(default_target, described),
        };
        match template::spec(&upstream, target.template.as_ref(), context, &repositories).await {
            Ok(spec) => wanted.insert(identifier(set, &spec), spec),
            Err(message) => return Ok(Err((reasons::UNEXPECTED_ERROR, message))),
        };
    }
    write(services, set, wanted).await
}

/// The downstream packages of a target.
async fn unroll<'s>(
    services: &Services,
    namespace: &str,
    upstream: &Upstream,
    target: &'s Target,
) -> Result<Vec<Downstream<'s>>, ApiError> {
    if let Some(repositories) = &target.repositories {
        let mut found = Vec::new();
        for repository in repositories {
            let names = match repository.package_names.is_empty() {
                true => std::slice::from_ref(&upstream.package),
                false => &repository.package_names[..],
            };
            found.extend(names.iter().map(|package| Downstream {
                target,
                repository: repository.name.clone(),
                package: package.clone(),
                object: None,
            }));
        }
        return Ok(found);
    }
    let (selected, name) = match (&target.repository_selector, &target.object_selector) {
        (Some(selector), _) => {
            let selector = LabelSelector::structured(selector).map_err(ApiError::bad_request)?;
            let all = services.lookup.api::<Repository>()?.list(Some(namespace), "").await?;
            let is_selected =
                |repository: &Repository| selector.matches(|key| repository.labels().get(key).map(String::as_str));
            let selected = all.iter().filter(|repository| is_selected(repository)).map(|found| json!(found));
            (selected.collect::<Vec<_>>(), None)
        }
        (None, Some(selector)) => (selected(services, namespace, selector).await?, selector.name.clone()),
        (None, None) => (Vec::new(), None),
    };
    let name_of = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let named = selected.into_iter().filter(|object| name.as_ref().is_none_or(|name| *name == name_of(object)));
    Ok(named
        .map(|object| Downstream {
            target,
            repository: name_of(&object),
            package: upstream.package.clone(),
            object: Some(object),
        })
        .collect())
}

/// The objects of any kind that a selector fits.
async fn selected(services: &Services, namespace: &str, of: &ObjectSelector) -> Result<Vec<Value>, ApiError> {
    let labels = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
        match_labels: Some(of.match_labels.clone()),
        match_expressions: Some(of.match_expressions.clone()),
    };
    let selector = LabelSelector::structured(&labels).map_err(ApiError::bad_request)?;
    let all = objects(services, namespace, (&of.api_version, &of.kind), "").await?;
    let is_selected = |object: &Value| selector.matches(|key| object["metadata"]["labels"][key].as_str());
    Ok(all.into_iter().filter(is_selected).collect())
}

/// What tells the variants of a set apart.
fn identifier(set: &PackageVariantSet, spec: &PackageVariantSpec) -> String {
    let downstream = spec.downstream.clone().unwrap_or_default();
    format!("{}-{}-{}", set.name_any(), downstream.repo, downstream.package)
}

/// The name of a variant: its identifier, or the beginning of it with a digest.
fn name_of(identifier: &str) -> String {
    let plain = identifier.replace('/', "-");
    // A folder and a hyphen would make the same name.
    if plain.len() <= NAME && plain == identifier {
        return plain;
    }
    let digest = hex(&Sha256::digest(identifier));
    let beginning: String = plain.chars().take(NAME - DIGITS - 1).collect();
    format!("{}-{}", beginning.trim_end_matches(['-', '.']), &digest[..DIGITS])
}

/// Creates, changes and deletes the variants of a set.
async fn write(
    services: &Services,
    set: &PackageVariantSet,
    wanted: BTreeMap<String, PackageVariantSpec>,
) -> Result<Result<(), Stalled>, ApiError> {
    let variants = services.lookup.api::<PackageVariant>()?;
    let namespace = set.namespace().unwrap_or_default();
    let selector = format!("{OWNER_LABEL}={}", set.uid().unwrap_or_default());
    let mut existing: BTreeMap<String, PackageVariant> = BTreeMap::new();
    for variant in variants.list(Some(&namespace), &selector).await? {
        existing.insert(identifier(set, &variant.spec), variant);
    }
    for (id, variant) in existing.iter().filter(|(id, _)| !wanted.contains_key(*id)) {
        tracing::debug!(set = set.name_any(), id, "a package variant is not wanted any more");
        queue::delete(&variants, variant).await?;
    }
    for (id, spec) in wanted {
        let written = match existing.get(&id) {
            Some(variant) if variant.spec == spec => continue,
            Some(variant) => {
                let change = |variant: &mut PackageVariant| variant.spec.clone_from(&spec);
                queue::unless_gone(update_same(&variants, variant, change).await).map(drop)
            }
            None => {
                let mut variant = PackageVariant { spec, ..PackageVariant::default() };
                variant.metadata.name = Some(name_of(&id));
                variant.metadata.namespace = Some(namespace.clone());
                variant.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
                variant.metadata.owner_references = Some(vec![owner_reference(set)]);
                variant.labels_mut().insert(OWNER_LABEL.to_owned(), set.uid().unwrap_or_default());
                variants.create(&variant).await.map(drop)
            }
        };
        match written {
            Ok(()) => {}
            Err(error) if queue::is_refusal(&error) => {
                return Ok(Err((reasons::UNEXPECTED_ERROR, error.message().to_owned())));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers_or_have_a_digest() {
        assert_eq!(name_of("set-deployments-basens"), "set-deployments-basens");
        let (nested, flat) = (name_of("set-deployments-network/basens"), name_of("set-deployments-network-basens"));
        assert!(nested.starts_with("set-deployments-network-basens-") && nested != flat, "{nested}");
        let long = name_of(&format!("set-{}", "a".repeat(80)));
        assert_eq!(long.len(), NAME);
        assert_ne!(long, name_of(&format!("set-{}b", "a".repeat(79))));
    }
}
