//! Waves of a promotion: the cluster types whose folders stay as they are.
//!
//! The newest Promotion that has begun in an environment decides. Its status has the number of the wave before the environment has
//! the commit, so that no proposal has the files of a later wave. A canceled Promotion still decides.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

    fn of(promotions: &[Promotion], environment: &str, cluster_types: &BTreeMap<String, Arc<ClusterType>>) -> Self {
        let Some((promotion, of)) = governing(promotions, environment) else { return Self::default() };
        let is_over = of.phase == PromotionStepPhase::RolledBack
            || promotion.status.as_ref().is_some_and(|status| status.phase == PromotionPhase::RolledBack);
        let step = promotion.spec.environments.iter().find(|step| step.environment == environment);
        let (Some(step), Some(number), false) = (step, of.wave, is_over) else { return Self::default() };
        let cluster_types = later(step, number, cluster_types);
        let wave = FleetWave {
            promotion: name_of(promotion),
            number,
            frozen_cluster_types: i64::try_from(cluster_types.len()).unwrap_or(i64::MAX),
        };
        Self { wave: Some(wave), cluster_types }
    }
}

/// A Promotion as the status of a GitOpsRepo names it.
pub(crate) fn name_of(promotion: &Promotion) -> String {
    format!("{}/{}", promotion.namespace().unwrap_or_default(), promotion.name_any())
}

/// The state of an environment in a Promotion that has begun there.
fn begun<'p>(promotion: &'p Promotion, environment: &str) -> Option<&'p PromotedEnvironment> {
    let of = promotion.status.as_ref()?.environments.iter().find(|it| it.environment == environment)?;
    let is_ahead = matches!(of.phase, PromotionStepPhase::Pending | PromotionStepPhase::Waiting) && of.wave.is_none();
    (!is_ahead).then_some(of)
}

/// The newest Promotion that has begun in an environment.
fn governing<'p>(promotions: &'p [Promotion], environment: &str) -> Option<(&'p Promotion, &'p PromotedEnvironment)> {
    let all = promotions.iter().filter_map(|promotion| Some((promotion, begun(promotion, environment)?)));
    all.max_by_key(|(promotion, _)| (promotion.metadata.creation_timestamp.clone(), promotion.name_any()))
}

/// The cluster types of the waves after a wave. Those that no wave selects are the last one.
fn later(step: &PromotionStep, number: i64, cluster_types: &BTreeMap<String, Arc<ClusterType>>) -> BTreeSet<String> {
    let count = usize::try_from(number).unwrap_or_default();
    if count > step.waves.len() {
        return BTreeSet::new();
    }
    let begun = step.waves.iter().take(count);
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
