//! Tests of failed, lost and stale calls of a provider.

use std::time::Duration;

use serde_json::{Value, json};
use stoa_apply::Options;
use stoa_engine::problem::reason;
use stoa_engine::{Action, ResourceType, Spec};
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::Operation;
use stoa_runtime::fake_provider::ChangeFault;
use tokio_util::sync::CancellationToken;

use crate::fixtures::{config_map, id, names, options, secret, spec};
use crate::providers::{Mixed, actions, database, fixed, imported, object, of, reference};

#[tokio::test]
async fn half_made_object_is_recorded_and_replaced() {
    let mixed = Mixed::default();
    mixed.provider.fail_change(&of("db"), ChangeFault::Halfway);
    let outcome = mixed.apply(&fixed("1")).await;
    let told: Vec<_> = outcome.problems.iter().map(ToString::to_string).collect();
    assert_eq!(told, [format!("{}: the quota is exceeded", of("db"))]);
    assert_eq!(mixed.stack.observer.results(), [format!("Failed {}", of("db")), format!("Skipped {}", id("user"))]);
    let half = mixed.object_id("DB");
    let planned = mixed.plan(&fixed("1")).await.unwrap();
    assert_eq!(actions(&planned), [Action::Replace, Action::Create]);
    let warning = format!("warning: {}: its creation failed halfway, so it is replaced", of("db"));
    assert!(planned.table.contains(&warning), "{}", planned.table);
    mixed.bring(&fixed("1")).await;
    assert!(mixed.object_id("DB") != half && mixed.provider.objects().len() == 1);
    // A half-made change is recorded as far as it came.
    mixed.provider.fail_change(&of("db"), ChangeFault::Halfway);
    let mut changed = fixed("1");
    changed.resources[0].attributes.extend(json!({"name": "db2", "note": "x"}).as_object().cloned().unwrap());
    assert!(!mixed.apply(&changed).await.succeeded);
    let planned = mixed.plan(&changed).await.unwrap();
    let paths: Vec<_> = planned.plan.actions[0].changes.iter().map(|it| it.path.as_str()).collect();
    assert_eq!((planned.plan.actions[0].action, paths), (Action::Update, vec!["note"]), "{}", planned.table);
    mixed.bring(&changed).await;
}

#[tokio::test]
async fn replacement_continues_after_failed_creation() {
    let mixed = Mixed::default();
    mixed.bring(&fixed("1")).await;
    let rejected = RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false };
    mixed.provider.fail(Operation::Apply, &of("db"), rejected);
    assert!(!mixed.apply(&fixed("2")).await.succeeded);
    assert!(mixed.provider.objects().is_empty());
    assert_eq!(actions(&mixed.plan(&fixed("2")).await.unwrap()), [Action::Create, Action::Update]);
    mixed.bring(&fixed("2")).await;
    assert_eq!(mixed.provider.objects().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lost_creation_is_unknown_until_user_decides() {
    for fault in [ChangeFault::LostBefore, ChangeFault::LostAfter] {
        let mixed = Mixed::default();
        mixed.provider.fail_change(&of("db"), fault);
        let outcome = mixed.apply(&fixed("1")).await;
        assert!(!outcome.succeeded && outcome.problems[0].message == "the provider has ended", "{outcome:?}");
        assert_eq!(
            mixed.stack.observer.results(),
            [format!("Skipped {}", id("user")), format!("Unknown {}", of("db"))]
        );
        assert_eq!(mixed.provider.called(Operation::Apply).len(), 1, "it is not repeated");
        let problems = mixed.refusal(&fixed("1")).await;
        assert!(problems.iter().all(|it| it.reason == reason::UNKNOWN_STATE) && problems.len() == 1, "{problems:?}");
        if fault == ChangeFault::LostBefore {
            mixed.stack.observer.retry(&[&of("db")]);
            mixed.bring(&fixed("1")).await;
        } else {
            let created = mixed.object_id("DB");
            let wanted = spec(vec![
                imported("db", json!({"fixed": "1"}), &created),
                config_map("user", &[], json!({"id": reference("db", "id")})),
            ]);
            assert_eq!(actions(&mixed.plan(&wanted).await.unwrap()), [Action::Adopt, Action::Create]);
            mixed.bring(&wanted).await;
            assert_eq!(mixed.data("user")["id"], created);
        }
        assert_eq!(mixed.provider.objects().len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_adoption_is_repeated() {
    for fault in [ChangeFault::LostBefore, ChangeFault::LostAfter] {
        let mixed = Mixed::default();
        let existing = mixed.provider.put(json!({"name": "DB", "note": "x"}));
        let wanted = spec(vec![imported("db", json!({"note": "y"}), &existing)]);
        mixed.provider.fail_change(&of("db"), fault);
        assert!(!mixed.apply(&wanted).await.succeeded);
        assert_eq!(actions(&mixed.plan(&wanted).await.unwrap()), [Action::Adopt]);
        mixed.bring(&wanted).await;
        assert_eq!((mixed.object_id("DB"), mixed.provider.objects().len()), (existing, 1));
        assert!(mixed.stack.observer.record(&of("db")).provider_state.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn lost_call_of_dropped_resource_is_forgotten() {
    let mixed = Mixed::default();
    mixed.provider.fail_change(&of("db"), ChangeFault::LostBefore);
    mixed.apply(&fixed("1")).await;
    assert_eq!(mixed.refusal(&Spec::default()).await[0].reason, reason::UNKNOWN_STATE);
    mixed.stack.observer.retry(&[&of("db")]);
    let planned = mixed.plan(&Spec::default()).await.unwrap();
    let forgotten = &planned.plan.actions[0];
    assert_eq!((forgotten.action, forgotten.kind), (Action::Forget, ResourceType::Terraform));
    mixed.bring(&Spec::default()).await;
}

#[tokio::test(start_paused = true)]
async fn lost_changes_and_deletions_heal() {
    for fault in [ChangeFault::LostBefore, ChangeFault::LostAfter] {
        let mixed = Mixed::default();
        mixed.bring(&database("large")).await;
        let before = mixed.object_id("DB");
        // The name is another value at the provider than in the Spec.
        let mut changed = database("huge");
        changed.resources[1].attributes["name"] = json!("db2");
        mixed.provider.fail_change(&of("db"), fault);
        assert!(!mixed.apply(&changed).await.succeeded);
        let planned = mixed.plan(&changed).await.unwrap();
        let action = if fault == ChangeFault::LostAfter { Action::Unchanged } else { Action::Update };
        assert_eq!(planned.plan.actions[1].action, action, "{}", planned.table);
        mixed.bring(&changed).await;
        assert_eq!(mixed.object_id("DB2"), before);
        assert_eq!(mixed.stack.observer.record(&of("db")).live["name"], "DB2");

        mixed.provider.fail_change(&of("db"), fault);
        let planned = mixed.stack.planned(mixed.runtime(), &Spec::default(), true).await.unwrap();
        assert!(!mixed.execute(&Spec::default(), &planned, &[]).await.succeeded);
        let planned = mixed.stack.planned(mixed.runtime(), &Spec::default(), true).await.unwrap();
        let outcome = mixed.execute(&Spec::default(), &planned, &[]).await;
        assert!(outcome.succeeded && mixed.provider.objects().is_empty(), "{outcome:?}");
        assert_eq!(mixed.stack.observer.state().resources, []);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_replacement_is_unknown() {
    for fault in [ChangeFault::LostBefore, ChangeFault::LostAfter] {
        let mixed = Mixed::default();
        mixed.bring(&fixed("1")).await;
        let before = mixed.object_id("DB");
        // The deletion is lost: the former object says that no other was created, or is missing.
        mixed.provider.fail_change(&of("db"), fault);
        assert!(!mixed.apply(&fixed("2")).await.succeeded);
        if fault == ChangeFault::LostBefore {
            mixed.bring(&fixed("2")).await;
            assert_ne!(mixed.object_id("DB"), before);
            continue;
        }
        let problems = mixed.refusal(&fixed("2")).await;
        assert_eq!(problems[0].reason, reason::UNKNOWN_STATE);
        mixed.stack.observer.retry(&[&of("db")]);
        mixed.bring(&fixed("2")).await;
        assert_eq!(mixed.provider.objects().len(), 1);
    }
}

#[tokio::test]
async fn import_id_names_created_replacement() {
    let mixed = Mixed::default();
    mixed.bring(&fixed("1")).await;
    let planned = mixed.plan(&fixed("2")).await.unwrap();
    // Nobody hears that the new object was created.
    mixed.stack.observer.leave_after(0);
    mixed.stack.execute_with(mixed.runtime(), &fixed("2"), &planned, &[], &options()).await.unwrap_err();
    mixed.stack.observer.stay();
    assert_eq!(mixed.refusal(&fixed("2")).await[0].reason, reason::UNKNOWN_STATE);
    let created = mixed.object_id("DB");
    let wanted = spec(vec![
        imported("db", json!({"fixed": "2"}), &created),
        config_map("user", &[], json!({"id": reference("db", "id")})),
    ]);
    mixed.bring(&wanted).await;
    assert_eq!((mixed.provider.objects().len(), mixed.object_id("DB")), (1, created));
}

#[tokio::test]
async fn stale_plan_fails_its_resource_alone() {
    let mixed = Mixed::default();
    let wanted = spec(vec![object("a", json!({})), object("b", json!({"color": "green"}))]);
    let planned = mixed.plan(&wanted).await.unwrap();
    // The provider would choose another color than people saw.
    mixed.provider.set_color("red");
    let outcome = mixed.execute(&wanted, &planned, &[]).await;
    let [problem] = &outcome.problems[..] else { panic!("{outcome:?}") };
    assert_eq!(
        (problem.reason.as_ref(), problem.resource_id.as_ref()),
        (reason::STALE_PLAN, Some(&of("a").as_str().into()))
    );
    assert_eq!(problem.message, "the provider now plans other values than were approved: color; plan again");
    assert_eq!(mixed.stack.observer.results(), [format!("Done {}", of("b")), format!("Failed {}", of("a"))]);
    mixed.bring(&wanted).await;
    assert_eq!(mixed.provider.named("A").unwrap()["color"], "red");

    // Others changed what the plan shows, or deleted the object.
    let changed = spec(vec![object("a", json!({"note": "x"})), object("b", json!({"color": "green", "note": "x"}))]);
    let planned = mixed.plan(&changed).await.unwrap();
    mixed.provider.edit(&mixed.object_id("A"), "label", json!("theirs"));
    mixed.provider.remove(&mixed.object_id("B"));
    let outcome = mixed.execute(&changed, &planned, &[]).await;
    let mut told: Vec<_> = outcome.problems.iter().map(|it| it.message.as_str()).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "the object no longer exists; plan again",
            "the provider now plans other values than were approved: label; plan again",
        ]
    );
    mixed.bring(&changed).await;
}

#[tokio::test]
async fn stale_replacement_deletes_nothing() {
    let mixed = Mixed::default();
    mixed.bring(&fixed("1")).await;
    let before = mixed.object_id("DB");
    let planned = mixed.plan(&fixed("2")).await.unwrap();
    mixed.provider.set_color("red");
    let outcome = mixed.execute(&fixed("2"), &planned, &[]).await;
    assert_eq!(
        outcome.problems[0].message,
        "the provider now plans other values than were approved: color; plan again"
    );
    mixed.provider.set_color("blue");
    mixed.provider.edit(&before, "fixed", json!("2"));
    let outcome = mixed.execute(&fixed("2"), &planned, &[]).await;
    assert_eq!(outcome.problems[0].message, "the change no longer needs another object; plan again");
    assert!(mixed.provider.called(Operation::Delete).is_empty() && mixed.object_id("DB") == before);
    mixed.bring(&fixed("2")).await;
    assert_eq!(mixed.object_id("DB"), before);
}

#[tokio::test]
async fn changed_reference_fails_approved_plan() {
    let mixed = Mixed::default();
    let wanted = |note: Value| spec(vec![object("a", json!({})), object("b", json!({ "note": note }))]);
    mixed.bring(&wanted(json!("x"))).await;
    let planned = mixed.plan(&wanted(reference("a", "color").into())).await.unwrap();
    assert!(planned.table.contains("note: \"x\" → \"blue\""), "{}", planned.table);
    mixed.provider.edit(&mixed.object_id("A"), "color", json!("red"));
    let outcome = mixed.execute(&wanted(reference("a", "color").into()), &planned, &[]).await;
    assert_eq!(outcome.problems[0].message, "the provider now plans other values than were approved: note; plan again");
    assert_eq!(mixed.provider.named("B").unwrap()["note"], "x");
}

#[tokio::test]
async fn resumed_walk_reads_converted_and_sensitive_values() {
    let mixed = Mixed::default();
    let wanted = spec(vec![
        object("db", json!({"secret": "given-pass"})),
        secret("login", json!({"s": reference("db", "secret"), "n": reference("db", "name")})),
    ]);
    let planned = mixed.plan(&wanted).await.unwrap();
    mixed.stack.observer.leave_after(1);
    mixed.stack.execute_with(mixed.runtime(), &wanted, &planned, &[], &options()).await.unwrap_err();
    mixed.stack.observer.stay();
    let done = mixed.stack.observer.done();
    assert_eq!(names(&done), ["db"]);
    let outcome = mixed.execute(&wanted, &planned, &done).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(mixed.provider.called(Operation::Apply).len(), 1);
    let login = mixed.stack.cloud.live("v1:Secret:shop:login").unwrap();
    assert_eq!(login["stringData"], json!({"s": "given-pass", "n": "DB"}));
}

#[tokio::test]
async fn intents_precede_only_calls_that_begin() {
    let mixed = Mixed::default();
    let all: Vec<String> = (0..20).map(|n| format!("o{n}")).collect();
    let wanted = spec(all.iter().map(|name| object(name, json!({}))).collect());
    let gates: Vec<_> = all.iter().map(|name| mixed.provider.gate(&of(name))).collect();
    let planned = mixed.plan(&wanted).await.unwrap();
    let parallelism = options().parallelism;
    let check = async {
        while mixed.provider.most_in_flight() < parallelism {
            tokio::task::yield_now().await;
        }
        // An intent without a call would leave an unknown object after a crash.
        assert_eq!(mixed.stack.observer.state().open.len(), parallelism);
        gates.iter().for_each(|gate| gate.add_permits(1));
    };
    let (outcome, ()) = tokio::join!(mixed.execute(&wanted, &planned, &[]), check);
    assert!(outcome.succeeded && mixed.provider.objects().len() == 20, "{outcome:?}");
    assert_eq!(mixed.provider.most_in_flight(), parallelism);
}

#[tokio::test(start_paused = true)]
async fn provider_has_hours_and_long_grace() {
    let stops: [fn(&Mixed, &Options); 3] = [
        |_, _| {},
        |mixed, _| mixed.stack.cancel.cancel(),
        |mixed, options| {
            mixed.stack.cancel.cancel();
            options.shutdown.cancel();
        },
    ];
    // Seconds of the call until the stop and after it.
    let cases = [([6000, 0], "Done"), ([60, 290], "Done"), ([60, 20], "Unknown")];
    for (stop, ([before, after], outcome)) in stops.into_iter().zip(cases) {
        let (mixed, options) = (Mixed::default(), Options { shutdown: CancellationToken::new(), ..options() });
        let wanted = spec(vec![object("db", json!({}))]);
        let gate = mixed.provider.gate(&of("db"));
        let planned = mixed.plan(&wanted).await.unwrap();
        let slowly = async {
            tokio::time::sleep(Duration::from_secs(before)).await;
            stop(&mixed, &options);
            tokio::time::sleep(Duration::from_secs(after)).await;
            gate.add_permits(1);
        };
        let execution = mixed.stack.execute_with(mixed.runtime(), &wanted, &planned, &[], &options);
        let _ = tokio::join!(execution, slowly);
        assert_eq!(mixed.stack.observer.results(), [format!("{outcome} {}", of("db"))], "{before} {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_creation_is_unknown() {
    let mixed = Mixed::default();
    let wanted = spec(vec![object("db", json!({}))]);
    mixed.provider.gate(&of("db"));
    let outcome = mixed.apply(&wanted).await;
    assert_eq!(outcome.problems[0].reason, reason::TIMED_OUT);
    assert_eq!(mixed.stack.observer.results(), [format!("Unknown {}", of("db"))]);
    assert_eq!(mixed.refusal(&wanted).await[0].reason, reason::UNKNOWN_STATE);
}
