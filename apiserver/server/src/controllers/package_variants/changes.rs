//! The content of a downstream package: upgrades to another revision of upstream, and the changes of the variant.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use serde_json::Value;
use stoa_controller::queue;
use stoa_kinds::{errors, package_objects::kind_of_injector, package_revision::refers_to};
use stoa_machinery::ApiError;
use stoa_packages::{
    kptfile::{self, Kptfile},
    variant::{self, Injector, Point, Variant, VariantError},
};
use stoa_types::{
    porch::{Lifecycle, PackageRevision},
    porchconfig::{DownstreamTarget, Function, InjectionPoint, InjectionSelector, PackageVariant, Pipeline},
};

use super::downstream;
use crate::packages::{Agent, PackageService, UpstreamState, function, objects, upstream_state};

/// Brings a revision to the wanted upstream. A draft is merged in place, and a published revision gets a draft.
pub(super) async fn upgrade(
    service: &PackageService,
    agent: &Agent,
    variant: &PackageVariant,
    (target, upstream, revisions): (&PackageRevision, &PackageRevision, &[PackageRevision]),
) -> Result<PackageRevision, ApiError> {
    if upstream_state(target, upstream) != UpstreamState::Other {
        return Ok(target.clone());
    }
    let draft = match target.spec.lifecycle {
        Lifecycle::Draft => target.clone(),
        Lifecycle::Proposed => return Err(is_proposed(target, "another revision of its upstream is wanted")),
        Lifecycle::Published | Lifecycle::DeletionProposed => {
            // A draft as upstream may have changed since.
            let is_old = |other: &&PackageRevision| other.spec.lifecycle.is_published() && refers_to(target, other);
            let task = revisions.iter().find(is_old).map(|old| (old, upstream));
            let draft = downstream::next(service, agent, variant, (target, task)).await?;
            if task.is_some() {
                return Ok(draft);
            }
            draft
        }
    };
    let (origin, files) = (service.origin(&draft).await?, service.tree(upstream).await?);
    let merge = |local: &stoa_packages::Tree| {
        PackageService::merged(local, (&origin, &files), (upstream, "")).map(|updated| updated.tree)
    };
    let key = queue::key_of(&draft);
    agent.save((&key.0, &key.1), merge).await?;
    service.services().lookup.api::<PackageRevision>()?.get(&key.0, &key.1).await
}

fn is_proposed(target: &PackageRevision, why: &str) -> ApiError {
    let why = format!("it is Proposed, and {why}; approve or reject it first");
    errors::conflict::<PackageRevision>(&target.name_any(), why)
}

fn rejected(error: &VariantError) -> ApiError {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let message = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    ApiError::new(422, "Invalid", message)
}

/// Makes the changes of a variant in a revision. A published one gets a draft if something changes.
pub(super) async fn customize(
    service: &PackageService,
    agent: &Agent,
    variant: &PackageVariant,
    target: &PackageRevision,
) -> Result<DownstreamTarget, ApiError> {
    let files = service.tree(target).await?;
    let injected = injected(service, variant, &files).await?;
    let pipeline = variant.spec.pipeline.as_ref().map(functions).unwrap_or_default();
    let injectors: Vec<Injector> = variant.spec.injectors.iter().cloned().map(injector).collect();
    let context = variant.spec.package_context.clone().unwrap_or_default();
    let name = variant.name_any();
    let changes = Variant {
        name: &name,
        context: &context.data,
        removed_keys: &context.remove_keys,
        pipeline: &pipeline,
        injectors: &injectors,
        objects: &injected,
    };
    let apply = |files: &stoa_packages::Tree| variant::apply(files, &changes).map_err(|error| rejected(&error));
    let is_changed = !is_same(&files, &apply(&files)?);
    let draft = match target.spec.lifecycle {
        _ if !is_changed => {
            let render_status = known_status(variant, &target.name_any());
            return Ok(DownstreamTarget { name: target.name_any(), render_status });
        }
        Lifecycle::Draft => target.clone(),
        Lifecycle::Proposed => return Err(is_proposed(target, "the spec of the PackageVariant changes its files")),
        Lifecycle::Published | Lifecycle::DeletionProposed => {
            downstream::next(service, agent, variant, (target, None)).await?
        }
    };
    let key = queue::key_of(&draft);
    let saved = agent.save((&key.0, &key.1), apply).await?;
    let render_status = saved.status.map(|status| status.render_status).unwrap_or_default();
    Ok(DownstreamTarget { name: key.1, render_status })
}

/// Whether two packages are the same. Kptfiles are compared by what they say.
fn is_same(one: &stoa_packages::Tree, other: &stoa_packages::Tree) -> bool {
    if one == other {
        return true;
    }
    let kptfile =
        |tree: &stoa_packages::Tree| tree.text(stoa_packages::KPTFILE).and_then(|text| Kptfile::parse(text).ok());
    let others = |tree: &stoa_packages::Tree| {
        let mut tree = tree.clone();
        tree.remove(stoa_packages::KPTFILE);
        tree
    };
    kptfile(one) == kptfile(other) && others(one) == others(other)
}

/// The results of the last save of a target.
fn known_status(variant: &PackageVariant, name: &str) -> Value {
    let targets = variant.status.iter().flat_map(|status| &status.downstream_targets);
    targets
        .into_iter()
        .find(|target| target.name == name)
        .map(|target| target.render_status.clone())
        .unwrap_or_default()
}

/// The objects of the cluster for the injection points of a package.
async fn injected(
    service: &PackageService,
    variant: &PackageVariant,
    files: &stoa_packages::Tree,
) -> Result<Vec<Value>, ApiError> {
    if variant.spec.injectors.is_empty() {
        return Ok(Vec::new());
    }
    let points = variant::points(files).map_err(|error| rejected(&error))?;
    let kinds = readable(&variant.spec.injectors, &points);
    let namespace = variant.namespace().unwrap_or_default();
    let mut found = Vec::new();
    for kind in kinds {
        match objects(service.services(), &namespace, (&kind.0, &kind.1), "").await {
            Ok(objects) => found.extend(objects),
            // An optional injection point may be of a kind that the cluster does not have.
            Err(error) if error.code() == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The kinds of injection points that injectors name: those that the author of the variant may read. The author of the package
/// may be another user.
fn readable(injectors: &[InjectionSelector], points: &[Point]) -> BTreeSet<(String, String)> {
    let named = injectors.iter().filter_map(|injector| kind_of_injector(&injector.point));
    let is_wanted = |(api_version, kind): &(String, String)| {
        points.iter().any(|point| point.api_version == *api_version && point.kind == *kind)
    };
    named.filter(is_wanted).collect()
}

fn injector(selector: InjectionSelector) -> Injector {
    let InjectionSelector { point: InjectionPoint { group, version, kind }, name } = selector;
    Injector { group, version, kind, name }
}

/// The functions as a Kptfile has them.
fn functions(pipeline: &Pipeline) -> kptfile::Pipeline {
    let all = |functions: &[Function]| functions.iter().map(function).collect();
    kptfile::Pipeline { mutators: all(&pipeline.mutators), validators: all(&pipeline.validators) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kinds_that_injectors_name_are_read() {
        let object = |api_version: &str, kind: &str| {
            format!(
                "apiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: a\n  annotations:\n    \
                 kpt.dev/config-injection: optional\n"
            )
        };
        let mut files = stoa_packages::Tree::default();
        for (file, api_version, kind) in
            [("a.yaml", "v1", "ConfigMap"), ("b.yaml", "v1", "Secret"), ("c.yaml", "example.com/v1", "Network")]
        {
            files.write(file, object(api_version, kind)).unwrap();
        }
        let points = variant::points(&files).unwrap();
        assert_eq!(points.len(), 3);
        let named = |name: &str| InjectionSelector { name: name.to_owned(), ..InjectionSelector::default() };
        let point = InjectionPoint {
            group: Some("example.com".to_owned()),
            version: Some("v1".to_owned()),
            kind: Some("Network".to_owned()),
        };
        let network = InjectionSelector { point, ..named("prod") };
        let kind = |api_version: &str, kind: &str| (api_version.to_owned(), kind.to_owned());
        let config_maps = kind("v1", "ConfigMap");
        assert_eq!(readable(&[named("prod")], &points), BTreeSet::from([config_maps.clone()]));
        let both = BTreeSet::from([config_maps, kind("example.com/v1", "Network")]);
        assert_eq!(readable(&[named("prod"), network], &points), both);
    }
}
