//! Tests of cascading deletes.

use stoa_engine::import::IMPORT_ID;
use stoa_engine::owner::MARK;

use super::*;

/// The action on each resource, by id.
fn actions(plan: &Plan) -> Vec<(&str, Action)> {
    let mut actions: Vec<_> = plan.actions.iter().map(|it| (it.id.0.as_str(), it.action)).collect();
    actions.sort_unstable_by_key(|(id, _)| *id);
    actions
}

fn id_of(resource: &Value) -> ResourceId {
    resource["id"].as_str().unwrap().into()
}

#[test]
fn namespace_of_wanted_object_is_not_deleted() {
    let (a, b) = (config_map("a", &[], json!({})), config_map("b", &[], json!({})));
    let scenario = Scenario::applied(json!([namespace(), a, b]));
    assert_snapshot!(scenario.problems(&spec(json!([a, b]))), @"StillNeeded v1:Namespace:shop: it is no longer in the Spec; deleting it deletes all objects in it, but the Spec keeps v1:ConfigMap:shop:a and 1 more; keep it in the Spec, or remove these too; to keep it outside of the Spec, apply it once more with the extension kusionstack.io/import-id, or annotate it with another stoa.dev/owner");
    // What is not there yet needs it, too.
    let new = scenario.problems(&spec(json!([config_map("new", &[], json!({}))])));
    assert!(
        new.starts_with("StillNeeded v1:Namespace:shop: ") && new.contains("keeps v1:ConfigMap:shop:new;"),
        "{new}"
    );
    let elsewhere = json!({"id": "v1:ConfigMap:other:c", "type": "Kubernetes", "attributes": {"apiVersion": "v1",
        "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "other"}}});
    let plan = scenario.plan(&spec(json!([elsewhere])));
    assert_eq!((plan.summary().delete, plan.summary().create), (3, 1));
}

#[test]
fn definition_of_wanted_object_is_not_deleted() {
    let scenario = Scenario::applied(json!([definition(), instance("a")]));
    assert_snapshot!(scenario.problems(&spec(json!([instance("a")]))), @"StillNeeded apiextensions.k8s.io/v1:CustomResourceDefinition:webs.x.dev: it is no longer in the Spec; deleting it deletes all objects of its kind, but the Spec keeps x.dev/v1:Web:shop:a; keep it in the Spec, or remove these too; to keep it outside of the Spec, apply it once more with the extension kusionstack.io/import-id, or annotate it with another stoa.dev/owner");
    // In whatever version.
    let mut later = instance("a");
    later["id"] = json!("x.dev/v2:Web:shop:a");
    later["attributes"]["apiVersion"] = json!("x.dev/v2");
    assert!(scenario.problems(&spec(json!([later]))).contains("keeps x.dev/v2:Web:shop:a;"));
    assert_eq!(scenario.plan(&Spec::default()).summary().delete, 2);

    // Of what was found after a lost call its record says nothing but its name.
    let mut found = Scenario::applied(json!([definition(), instance("a")]));
    for record in &mut found.state.resources {
        *record = record.clone().as_found();
    }
    assert_eq!(found.problems(&spec(json!([instance("a")]))), scenario.problems(&spec(json!([instance("a")]))));
}

#[test]
fn only_api_service_of_kind_is_not_deleted() {
    let scenario = Scenario::applied(json!([service(), instance("a")]));
    assert_snapshot!(scenario.problems(&spec(json!([instance("a")]))), @"StillNeeded apiregistration.k8s.io/v1:APIService:v1.x.dev: it is no longer in the Spec; nothing else serves its kinds, but the Spec keeps x.dev/v1:Web:shop:a; keep it in the Spec, or remove these too; to keep it outside of the Spec, apply it once more with the extension kusionstack.io/import-id, or annotate it with another stoa.dev/owner");
    let plan = scenario.plan(&spec(json!([definition(), instance("a")])));
    assert_eq!(
        actions(&plan),
        [
            (definition()["id"].as_str().unwrap(), Action::Create),
            (service()["id"].as_str().unwrap(), Action::Delete),
            ("x.dev/v1:Web:shop:a", Action::Unchanged),
        ]
    );
}

#[test]
fn recreated_holder_must_not_delete_protected_objects() {
    for holder in [namespace(), definition()] {
        let mut scenario = Scenario::applied(json!([holder, instance("a")]));
        scenario.previews.insert(id_of(&holder), Preview::Replaced(None));
        let wanted = spec(json!([holder, instance("a")]));
        let problems = scenario.problems(&wanted);
        assert!(
            problems.contains("it is to be recreated") && problems.contains("keeps x.dev/v1:Web:shop:a;"),
            "{problems}"
        );
        // What is made anew with it, or new, loses nothing.
        scenario.previews.insert(id_of(&instance("a")), Preview::Replaced(None));
        assert_eq!(scenario.plan(&wanted).summary().replace, 2);
        let wanted = spec(json!([holder, instance("b")]));
        let plan = scenario.plan(&wanted);
        assert_eq!((plan.summary().replace, plan.summary().create, plan.summary().delete), (1, 1, 1));
    }
    // It is served again at once.
    let mut scenario = Scenario::applied(json!([service(), instance("a")]));
    scenario.previews.insert(id_of(&service()), Preview::Replaced(None));
    assert_eq!(scenario.plan(&spec(json!([service(), instance("a")]))).summary().replace, 1);
}

#[test]
fn recreated_namespace_must_not_delete_its_dependency() {
    let mut holder = namespace();
    let mut scenario = Scenario::applied(json!([holder]));
    scenario.previews.insert(id_of(&holder), Preview::Replaced(None));
    // The new object would be created first, and deleted with the namespace.
    let new = config_map("new", &[], json!({}));
    holder["dependsOn"] = json!([new["id"]]);
    let problems = scenario.problems(&spec(json!([holder, new])));
    assert!(
        problems.contains("it is to be recreated") && problems.contains("keeps v1:ConfigMap:shop:new;"),
        "{problems}"
    );
}

#[test]
fn undeleted_holder_deletes_nothing() {
    let wanted = spec(json!([config_map("a", &[], json!({}))]));
    let applied = || Scenario::applied(json!([namespace(), config_map("a", &[], json!({}))]));
    let of_namespace =
        |scenario: &Scenario| actions(&scenario.plan(&wanted)).into_iter().map(|(_, action)| action).next_back();

    let mut gone = applied();
    gone.live.insert(id_of(&namespace()), Live::Absent);
    assert_eq!(of_namespace(&gone), Some(Action::Forget));

    let mut given_away = applied();
    let mut object = namespace()["attributes"].as_object().unwrap().clone();
    object["metadata"]["annotations"] = json!({MARK: "shop/platform/dev/u-2"});
    given_away.live.insert(id_of(&namespace()), Live::Present(object));
    assert_eq!(of_namespace(&given_away), Some(Action::Forget));

    let mut was_there = namespace();
    was_there["extensions"] = json!({IMPORT_ID: "shop"});
    let imported = Scenario::applied(json!([was_there, config_map("a", &[], json!({}))]));
    assert_eq!(of_namespace(&imported), Some(Action::Forget));

    // Everything is to go.
    let scenario = applied();
    let live = scenario.full(&wanted);
    let plan = plan(&PlanInput { destroy: true, ..scenario.input(&wanted, &live) }).unwrap();
    assert_eq!(plan.summary().delete, 2);
}

#[test]
fn moved_holder_must_not_delete_protected_objects() {
    let clusters = Clusters::new(vec!["main".to_owned(), "east".to_owned()]).with_scopes(scopes([]));
    let in_east = |mut resource: Value| {
        resource["extensions"] = json!({"cluster": "east"});
        resource
    };
    for (holder, held) in [(namespace(), config_map("a", &[], json!({}))), (definition(), instance("a"))] {
        let mut scenario = Scenario::applied(json!([holder, held]));
        scenario.state.resources.iter_mut().for_each(|record| record.cluster = "main".to_owned());
        let planned = |resources: Value| {
            let wanted = spec(resources);
            let mut live = scenario.full(&wanted);
            // Nothing is in the other one.
            let there = wanted.resources.iter().filter(|it| clusters.of_wanted(it) == "east");
            live.extend(there.map(|it| (it.id.clone(), Live::Absent)));
            plan(&PlanInput { clusters: &clusters, ..scenario.input(&wanted, &live) })
        };
        let problems = planned(json!([in_east(holder.clone()), held])).unwrap_err();
        assert_eq!((problems.len(), &*problems[0].reason), (1, reason::STILL_NEEDED));
        assert!(problems[0].message.starts_with("it moves to another cluster"), "{problems:?}");
        let together = planned(json!([in_east(held.clone()), in_east(holder.clone())])).unwrap();
        assert_eq!((together.summary().replace, &together.actions[0].id), (2, &id_of(&holder)));
        // One of the same name that is elsewhere is no part of it.
        assert_eq!(planned(json!([in_east(held.clone())])).unwrap().summary().delete, 1);
    }
}

#[test]
fn cluster_alias_keeps_holder() {
    let clusters = Clusters::new(vec!["main".to_owned(), "also".to_owned()]).with_scopes(scopes([]));
    let also = |mut resource: Value| {
        resource["extensions"] = json!({"cluster": "also"});
        resource
    };
    let applied = |resources: Value| {
        let mut scenario = Scenario::applied(resources);
        for record in &mut scenario.state.resources {
            *record = record.clone().in_cluster("main".to_owned()).with_uid(&format!("uid of {}", record.id));
            let Some(Live::Present(live)) = scenario.live.get_mut(&record.id) else { panic!("{} is there", record.id) };
            live["metadata"]["uid"] = json!(record.uid());
        }
        scenario
    };
    let planned = |scenario: &Scenario, resources: Value| {
        let wanted = spec(resources);
        let live = scenario.full(&wanted);
        plan(&PlanInput { clusters: &clusters, ..scenario.input(&wanted, &live) })
    };
    for (holder, held) in [(namespace(), config_map("a", &[], json!({}))), (definition(), instance("a"))] {
        let scenario = applied(json!([holder, held]));
        let problems = planned(&scenario, json!([also(held.clone())])).unwrap_err();
        assert_eq!((problems.len(), &*problems[0].reason), (1, reason::STILL_NEEDED));
        assert_eq!(planned(&scenario, json!([also(held), also(holder)])).unwrap().summary().delete, 0);
    }
    // Nor is what serves it missed there.
    let scenario = applied(json!([service(), instance("a")]));
    assert_eq!(planned(&scenario, json!([also(definition()), also(instance("a"))])).unwrap().summary().delete, 1);
}

impl Scenario {
    /// Somebody deletes what is live of a resource, and something holds it.
    fn begin_to_delete(&mut self, id: &ResourceId) {
        let Some(Live::Present(live)) = self.live.get_mut(id) else { panic!("{id} is there") };
        live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
}

#[test]
fn contents_of_terminating_holder_are_recreated() {
    for (holder, held) in [(namespace(), config_map("a", &[], json!({"a": "1"}))), (definition(), instance("a"))] {
        let wanted = spec(json!([holder, held]));
        let mut scenario = Scenario::applied(json!([holder, held]));
        let (holder, held) = (id_of(&holder), id_of(&held));
        scenario.begin_to_delete(&holder);
        let planned = scenario.plan(&wanted);
        let shown: Vec<_> = planned.actions.iter().map(|it| (&it.id, it.action, it.drift)).collect();
        assert_eq!(shown, [(&holder, Action::Create, true), (&held, Action::Create, true)]);
        assert_eq!(planned.actions[1].after, [holder]);
        // Who only looks sees that it is as good as gone.
        let live = scenario.full(&wanted);
        let seen = plan(&PlanInput { refresh: true, ..scenario.input(&wanted, &live) }).unwrap();
        assert!(seen.actions.iter().all(|it| it.action == Action::Create && it.drift), "{seen:?}");
        // What is not wanted goes all the same.
        assert_eq!(scenario.plan(&Spec::default()).summary().delete, 2);
    }
}

#[test]
fn terminating_holder_rejects_protected_contents() {
    let told = "StillNeeded v1:Namespace:shop: it is being deleted; deleting it deletes all objects in it, but the Spec \
                keeps v1:ConfigMap:shop:a; plan again after it is deleted\n";
    let a = config_map("a", &[], json!({}));
    // It comes before the namespace.
    let mut backwards = namespace();
    backwards["dependsOn"] = json!([id("a")]);
    let mut scenario = Scenario::applied(json!([backwards, a]));
    scenario.begin_to_delete(&id_of(&namespace()));
    assert_eq!(scenario.problems(&spec(json!([backwards, a]))), told);
    // The namespace is another's, and left alone.
    let mut scenario = Scenario::applied(json!([namespace(), a]));
    scenario.begin_to_delete(&id_of(&namespace()));
    let Some(Live::Present(live)) = scenario.live.get_mut(&id_of(&namespace())) else { unreachable!() };
    live["metadata"]["annotations"] = json!({MARK: "shop/platform/dev/u-2"});
    assert_eq!(scenario.problems(&spec(json!([a]))), told);
    // What is new cannot be there either.
    let new = config_map("new", &[], json!({}));
    assert_eq!(scenario.problems(&spec(json!([new]))), told.replace("shop:a", "shop:new"));
}

#[test]
fn terminating_holder_is_one_under_all_ids() {
    let mut scenario = Scenario::applied(json!([definition(), instance("a")]));
    scenario.begin_to_delete(&id_of(&definition()));
    let earlier: ResourceId = "apiextensions.k8s.io/v1beta1:CustomResourceDefinition:webs.x.dev".into();
    let record = scenario.state.resources.iter_mut().find(|it| it.id == id_of(&definition())).unwrap();
    record.id = earlier.clone();
    let Some(Live::Present(live)) = scenario.live.get_mut(&id_of(&definition())) else { unreachable!() };
    live["metadata"]["uid"] = json!("u-1");
    let live = live.clone();
    scenario.live.insert(earlier.clone(), Live::Present(live));
    let planned = scenario.plan(&spec(json!([definition(), instance("a")])));
    let expected = [
        (definition()["id"].as_str().unwrap().to_owned(), Action::Create),
        (earlier.0, Action::Forget),
        ("x.dev/v1:Web:shop:a".to_owned(), Action::Create),
    ];
    let shown: Vec<_> = actions(&planned).into_iter().map(|(id, action)| (id.to_owned(), action)).collect();
    assert_eq!(shown, expected);
}
