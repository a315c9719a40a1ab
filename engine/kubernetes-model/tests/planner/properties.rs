//! Tests of properties of all plans.

use proptest::prelude::*;

use super::*;

/// Resources by number: whether each is wanted, its value, and which smaller ones it depends on.
fn wanted() -> impl Strategy<Value = Vec<Option<(u8, Vec<usize>)>>> {
    prop::collection::vec(prop::option::weighted(0.7, (0..3_u8, prop::collection::vec(0..12_usize, 0..4))), 12)
}

fn spec_of(wanted: &[Option<(u8, Vec<usize>)>]) -> Spec {
    let resources = wanted.iter().enumerate().filter_map(|(n, it)| {
        let (value, before) = it.as_ref()?;
        let before: Vec<String> =
            before.iter().filter(|to| **to < n && wanted[**to].is_some()).map(|to| format!("m{to}")).collect();
        let mut data = json!({"v": value.to_string()});
        if let Some(first) = before.first() {
            data["of"] = json!(format!("$kusion_path.{}.data.v", id(first)));
        }
        Some(config_map(&format!("m{n}"), &before.iter().skip(1).map(String::as_str).collect::<Vec<_>>(), data))
    });
    spec(resources.collect())
}

proptest! {
    #[test]
    fn applied_plan_leaves_nothing_to_plan(steps in prop::collection::vec(wanted(), 1..4)) {
        let mut scenario = Scenario::default();
        for step in steps {
            let spec = spec_of(&step);
            let plan = scenario.plan(&spec);
            scenario.carry_out(&spec, &plan);
            let again = scenario.plan(&spec);
            prop_assert!(again.is_unchanged(), "{}", table(&again));
            prop_assert_eq!(again.actions.len(), spec.resources.len());
        }
    }

    #[test]
    fn order_respects_dependencies_and_delays_deletions(first in wanted(), second in wanted()) {
        let mut scenario = Scenario::default();
        let before = spec_of(&first);
        let plan = scenario.plan(&before);
        scenario.carry_out(&before, &plan);
        let records = scenario.state.resources.clone();
        let plan = scenario.plan(&spec_of(&second));
        let at = |id: &ResourceId| plan.actions.iter().position(|it| it.id == *id);
        for (position, action) in plan.actions.iter().enumerate() {
            for id in &action.after {
                prop_assert!(at(id).unwrap() < position);
            }
            if action.action.keeps() {
                for id in &action.depends_on {
                    prop_assert!(at(id).unwrap() < position);
                }
            } else {
                for user in records.iter().filter(|it| it.depends_on.contains(&action.id)) {
                    prop_assert!(at(&user.id).unwrap() < position);
                }
            }
        }
    }

    #[test]
    fn plan_and_state_survive_serialization(first in wanted(), second in wanted()) {
        let mut scenario = Scenario::default();
        let spec = spec_of(&first);
        let plan = scenario.plan(&spec);
        scenario.carry_out(&spec, &plan);
        let plan = scenario.plan(&spec_of(&second));
        let read: Plan = serde_json::from_slice(&stoa_engine::digest::canonical_json(&plan)).unwrap();
        prop_assert_eq!(read.digest(), plan.digest());
        prop_assert_eq!(read, plan);
        let read: State = serde_json::from_slice(&stoa_engine::digest::canonical_json(&scenario.state)).unwrap();
        prop_assert_eq!(read, scenario.state);
    }
}
