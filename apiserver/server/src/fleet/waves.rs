//! Waves of a promotion: the cluster types whose folders stay as they are.
//!
//! The newest Promotion that has begun in an environment, and is not rolled back, decides. Its status has the number of the wave
//! before the environment has the commit, so that no proposal has the files of a later wave. A canceled Promotion still decides. An
//! older one begins no more, since its waves would not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_fleet::objects::ClusterType;
use stoa_machinery::{ApiError, selector::LabelSelector};
use stoa_types::{
    delivery::{PromotedEnvironment, Promotion, PromotionPhase, PromotionStep, PromotionStepPhase},
    scheduler::FleetWave,
};

use super::{At, FleetService, Known};

/// The cluster types of later waves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frozen {
    /// The wave in progress, or the last one.
    pub(crate) wave: Option<FleetWave>,
    cluster_types: BTreeSet<String>,
    /// The cluster types of the waves so far; `None` where no wave follows.
    begun: Option<BTreeSet<String>>,
}

impl Frozen {
    /// Whether a file stays as it is.
    pub(crate) fn has(&self, path: &str) -> bool {
        path.split_once('/').is_some_and(|(folder, _)| self.cluster_types.contains(folder))
    }

    /// The folders, which have the names of their cluster types.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &String> {
        self.cluster_types.iter()
    }

    /// The folders in which files may be deleted; `None` for all. A cluster type that the commit removes has no labels any more,
    /// and so its folder belongs to the last wave.
    pub(crate) fn deletable(&self) -> Option<&BTreeSet<String>> {
        self.begun.as_ref()
    }

    fn of(promotions: &[Promotion], environment: &str, cluster_types: &BTreeMap<String, Arc<ClusterType>>) -> Self {
        let Some((promotion, of)) = governing(promotions, environment) else { return Self::default() };
        let step = promotion.spec.environments.iter().find(|step| step.environment == environment);
        let (Some(step), Some(number)) = (step, of.wave) else { return Self::default() };
        let all = cluster_types;
        let cluster_types = later(step, number, all);
        let begun = || all.keys().filter(|name| !cluster_types.contains(*name)).cloned().collect();
        let begun = (!is_last(step, number)).then(begun);
        let wave = FleetWave {
            promotion: name_of(promotion),
            number,
            frozen_cluster_types: i64::try_from(cluster_types.len()).unwrap_or(i64::MAX),
        };
        Self { wave: Some(wave), cluster_types, begun }
    }
}

/// A Promotion as the status of a GitOpsRepo names it.
pub(crate) fn name_of(promotion: &Promotion) -> String {
    format!("{}/{}", promotion.namespace().unwrap_or_default(), promotion.name_any())
}

/// The state of an environment in a Promotion that has begun there, and is not rolled back.
fn begun<'p>(promotion: &'p Promotion, environment: &str) -> Option<&'p PromotedEnvironment> {
    let status = promotion.status.as_ref()?;
    let of = status.environments.iter().find(|it| it.environment == environment)?;
    let is_ahead = matches!(of.phase, PromotionStepPhase::Pending | PromotionStepPhase::Waiting) && of.wave.is_none();
    let is_over = of.phase == PromotionStepPhase::RolledBack || status.phase == PromotionPhase::RolledBack;
    (!is_ahead && !is_over).then_some(of)
}

/// The order of Promotions: by creation, and then by name.
fn age(promotion: &Promotion) -> (Option<Time>, String) {
    (promotion.metadata.creation_timestamp.clone(), promotion.name_any())
}

/// The newest Promotion that has begun in an environment.
fn governing<'p>(promotions: &'p [Promotion], environment: &str) -> Option<(&'p Promotion, &'p PromotedEnvironment)> {
    let all = promotions.iter().filter_map(|promotion| Some((promotion, begun(promotion, environment)?)));
    all.max_by_key(|(promotion, _)| age(promotion))
}

/// The newest Promotion that has begun in an environment, if it is newer than another one.
fn newer<'p>(promotions: &'p [Promotion], than: &Promotion, environment: &str) -> Option<&'p Promotion> {
    let (promotion, _) = governing(promotions, environment)?;
    (age(promotion) > age(than)).then_some(promotion)
}

/// Whether no wave follows. The wave after those of the spec is the last one.
fn is_last(step: &PromotionStep, number: i64) -> bool {
    usize::try_from(number).unwrap_or_default() > step.waves.len()
}

/// The cluster types of the waves after a wave. Those that no wave selects are the last one.
fn later(step: &PromotionStep, number: i64, cluster_types: &BTreeMap<String, Arc<ClusterType>>) -> BTreeSet<String> {
    if is_last(step, number) {
        return BTreeSet::new();
    }
    let begun = step.waves.iter().take(usize::try_from(number).unwrap_or_default());
    // The strategy of the kind rejects invalid selectors.
    let begun: Vec<LabelSelector> =
        begun.filter_map(|wave| LabelSelector::structured(&wave.cluster_type_selector).ok()).collect();
    let has_begun = |cluster_type: &ClusterType| {
        begun.iter().any(|selector| selector.matches(|key| cluster_type.labels.get(key).map(String::as_str)))
    };
    cluster_types.iter().filter(|(_, of)| !has_begun(of)).map(|(name, _)| name.clone()).collect()
}

impl FleetService {
    /// The cluster types of an environment whose folders stay as they are.
    ///
    /// # Errors
    ///
    /// Those of the stored Promotions.
    pub(crate) async fn frozen(&self, namespace: &str, known: &Known) -> Result<Frozen, ApiError> {
        let Some(environment) = &known.reading.environment else { return Ok(Frozen::default()) };
        let of = environment.namespace().unwrap_or_default();
        let promotions = self.services.lookup.api::<Promotion>()?.list(Some(&of), "").await?;
        Ok(Frozen::of(&promotions, namespace, &known.fleet.inputs().cluster_types))
    }

    /// The name of a newer Promotion that has begun in an environment, if there is one.
    ///
    /// # Errors
    ///
    /// Those of the stored Promotions.
    pub(crate) async fn newer_promotion(
        &self,
        than: &Promotion,
        environment: &str,
    ) -> Result<Option<String>, ApiError> {
        let namespace = than.namespace().unwrap_or_default();
        let promotions = self.services.lookup.api::<Promotion>()?.list(Some(&namespace), "").await?;
        Ok(newer(&promotions, than, environment).map(name_of))
    }

    /// The cluster types of an environment that are in later waves than this one.
    ///
    /// # Errors
    ///
    /// 503 where a repository is out of reach.
    pub(crate) async fn later_waves(&self, step: &PromotionStep, number: i64) -> Result<BTreeSet<String>, ApiError> {
        let known = self.of(&step.environment, At::default()).await?;
        Ok(later(step, number, &known.fleet.inputs().cluster_types))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster_types() -> BTreeMap<String, Arc<ClusterType>> {
        let all = [("canary", "1"), ("east", "2"), ("west", "2"), ("south", "")];
        let made = all.map(|(name, ring)| {
            let cluster_type = ClusterType {
                name: name.to_owned(),
                labels: [("ring".to_owned(), ring.to_owned())].into(),
                spec: serde_json::from_value(json!({"reconciler": "flux", "namespaceService": "flux"})).unwrap(),
                origin: stoa_fleet::Origin::default(),
            };
            (name.to_owned(), Arc::new(cluster_type))
        });
        made.into()
    }

    fn promotion(name: &str, created: i64, environment: &Value) -> Promotion {
        let wave = |ring: &str| json!({"clusterTypeSelector": {"matchLabels": {"ring": ring}}});
        let time = jiff::Timestamp::from_second(created).unwrap().to_string();
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "acme", "creationTimestamp": time},
            "spec": {"commit": "a", "environments": [{"environment": "prod", "waves": [wave("1"), wave("2")]}]},
            "status": {"environments": [environment]},
        }))
        .unwrap()
    }

    fn frozen(promotions: &[Promotion]) -> Vec<String> {
        Frozen::of(promotions, "prod", &cluster_types()).folders().cloned().collect()
    }

    #[test]
    fn later_waves_are_frozen_until_they_begin() {
        let at = |phase: &str, wave: i64| {
            frozen(&[promotion("release", 1, &json!({"environment": "prod", "phase": phase, "wave": wave}))])
        };
        // The number is recorded before the environment has the commit.
        assert_eq!(at("Pending", 1), ["east", "south", "west"]);
        assert_eq!(at("Failed", 1), ["east", "south", "west"]);
        assert_eq!(at("Proposed", 2), ["south"], "it is in no wave");
        assert_eq!(at("Proposed", 3), [] as [&str; 0]);
        assert_eq!(at("RollingBack", 1), ["east", "south", "west"]);
        assert_eq!(at("RolledBack", 1), [] as [&str; 0]);
    }

    #[test]
    fn newest_promotion_that_has_begun_decides() {
        let old = promotion("old", 1, &json!({"environment": "prod", "phase": "Verifying", "wave": 1}));
        let ahead = promotion("ahead", 2, &json!({"environment": "prod", "phase": "Waiting"}));
        assert_eq!(frozen(&[ahead, old.clone()]), ["east", "south", "west"]);
        let new = promotion("new", 2, &json!({"environment": "prod", "phase": "Proposed"}));
        assert_eq!(frozen(&[new, old.clone()]), [] as [&str; 0], "it has no waves");
        assert!(
            frozen(&[old, promotion("other", 3, &json!({"environment": "dev", "phase": "Proposed"}))])
                .contains(&"west".to_owned())
        );
    }

    #[test]
    fn older_promotion_decides_again_after_a_rollback_of_the_newer_one() {
        let old = promotion("old", 1, &json!({"environment": "prod", "phase": "Verifying", "wave": 1}));
        let new = |phase: &str| promotion("new", 2, &json!({"environment": "prod", "phase": phase, "wave": 3}));
        assert_eq!(frozen(&[old.clone(), new("RollingBack")]), [] as [&str; 0]);
        assert_eq!(frozen(&[old.clone(), new("RolledBack")]), ["east", "south", "west"]);
        let name = |promotions: &[Promotion], than: &Promotion| newer(promotions, than, "prod").map(name_of);
        // The waves of an older promotion would not count.
        assert_eq!(name(&[old.clone(), new("Promoted")], &old).as_deref(), Some("acme/new"));
        assert_eq!(name(&[old.clone(), new("Promoted")], &new("Promoted")), None);
        assert_eq!(name(&[old.clone(), new("RolledBack")], &old), None);
        let ahead = promotion("ahead", 3, &json!({"environment": "prod", "phase": "Waiting"}));
        assert_eq!(name(&[old.clone(), ahead], &old), None, "it has not begun");
    }

    #[test]
    fn waves_delete_nothing_outside_their_cluster_types() {
        let deletable = |wave: i64| -> Option<Vec<String>> {
            let release = promotion("release", 1, &json!({"environment": "prod", "phase": "Proposed", "wave": wave}));
            Frozen::of(&[release], "prod", &cluster_types()).deletable().map(|names| names.iter().cloned().collect())
        };
        // A cluster type that the commit removes belongs to no wave. The last wave deletes its folder.
        assert_eq!(deletable(1), Some(vec!["canary".to_owned()]));
        assert_eq!(deletable(2), Some(["canary", "east", "west"].map(str::to_owned).to_vec()));
        assert_eq!(deletable(3), None, "the last wave deletes everything that is stale");
        assert_eq!(Frozen::default().deletable(), None);
    }

    #[test]
    fn folder_of_a_frozen_cluster_type_is_frozen() {
        let release = promotion("release", 1, &json!({"environment": "prod", "phase": "Proposed", "wave": 2}));
        let frozen = Frozen::of(&[release], "prod", &cluster_types());
        let has = |path: &str| frozen.has(path);
        assert!(has("south/web/reconciler.yaml") && has("south/README.md"));
        assert!(!has("southern/web/reconciler.yaml") && !has("east/web/reconciler.yaml") && !has("south"));
        let wave = frozen.wave.unwrap();
        assert_eq!((wave.promotion.as_str(), wave.number, wave.frozen_cluster_types), ("acme/release", 2, 1));
    }
}
