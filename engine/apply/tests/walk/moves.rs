//! Tests of moves to another id that stop between the record of the new id and the end of the old one.

use std::sync::Arc;

use serde_json::json;
use stoa_apply::{Execution, Planning};
use stoa_engine::import::{Selected, Selection};
use stoa_engine::moved::MOVED_FROM;
use stoa_engine::{Action, Spec, problem::reason};
use stoa_runtime::fake::Operation;
use stoa_runtime::fake_provider::ChangeFault;
use tokio_util::sync::CancellationToken;

use crate::fixtures::{options, spec};
use crate::providers::{Mixed, actions, object, of};

/// The resource under its new id, with a change.
fn new() -> Spec {
    let mut moved = object("new", json!({"note": "b"}));
    moved["extensions"][MOVED_FROM] = of("old").into();
    spec(vec![moved])
}

fn old() -> Spec {
    spec(vec![object("old", json!({"note": "a"}))])
}

/// A move whose change fails halfway, and the id of the object.
async fn half_moved() -> (Mixed, String) {
    let mixed = Mixed::default();
    mixed.bring(&old()).await;
    let id = mixed.object_id("OLD");
    mixed.provider.fail_change(&of("new"), ChangeFault::Halfway);
    assert!(!mixed.apply(&new()).await.succeeded);
    assert_eq!(mixed.stack.observer.state().resources.len(), 2, "both ids are recorded");
    assert_eq!(mixed.stack.observer.record(&of("new")).extensions[MOVED_FROM], of("old"));
    mixed.provider.clear_calls();
    (mixed, id)
}

impl Mixed {
    /// Brings the resource under its new id, without another object.
    async fn assert_moves(&self, spec: &Spec, id: &str) {
        self.bring(spec).await;
        assert_eq!(self.object_id("NEW"), id);
        let state = self.stack.observer.state();
        assert_eq!(state.resources.iter().map(|it| &it.id.0).collect::<Vec<_>>(), [&of("new")]);
    }
}

#[tokio::test]
async fn half_made_move_keeps_object() {
    let (mixed, id) = half_moved().await;
    mixed.provider.fail_change(&of("new"), ChangeFault::Halfway);
    let planned = mixed.plan(&new()).await.unwrap();
    assert_eq!(actions(&planned), [Action::Update, Action::Forget], "{}", planned.table);
    assert!(!mixed.execute(&new(), &planned, &[]).await.succeeded, "it stays marked");
    // Without the extension, the record alone knows of the move.
    let mut unmarked = new();
    unmarked.resources[0].extensions.remove(MOVED_FROM);
    mixed.assert_moves(&unmarked, &id).await;
    mixed.bring(&unmarked).await;
    assert!(!mixed.stack.observer.record(&of("new")).extensions.contains_key(MOVED_FROM));
}

#[tokio::test]
async fn half_made_move_rolls_back() {
    let (mixed, id) = half_moved().await;
    mixed.bring(&old()).await;
    assert_eq!((mixed.object_id("OLD"), mixed.provider.objects().len()), (id, 1));
    assert_eq!(mixed.stack.observer.state().resources.len(), 1);
}

#[tokio::test]
async fn half_moved_object_is_deleted_once() {
    for destroy in [false, true] {
        let (mixed, _) = half_moved().await;
        let planned = mixed.stack.planned(mixed.runtime(), &Spec::default(), destroy).await.unwrap();
        let outcome = mixed.execute(&Spec::default(), &planned, &[]).await;
        assert!(outcome.succeeded && mixed.provider.objects().is_empty(), "{outcome:?}");
        assert_eq!(mixed.provider.called(Operation::Delete).len(), 1);
        assert_eq!(mixed.stack.observer.state().resources, []);
    }
}

#[tokio::test]
async fn canceled_move_keeps_object() {
    let mut mixed = Mixed::default();
    mixed.bring(&old()).await;
    let (id, gate) = (mixed.object_id("OLD"), mixed.provider.gate(&of("new")));
    let planned = mixed.plan(&new()).await.unwrap();
    let canceled = async {
        mixed.stack.observer.until(|it| !it.intents().is_empty()).await;
        mixed.stack.cancel.cancel();
        gate.add_permits(100);
    };
    let wanted = new();
    let (outcome, ()) = tokio::join!(mixed.execute(&wanted, &planned, &[]), canceled);
    assert!(!outcome.succeeded, "{outcome:?}");
    mixed.stack.cancel = CancellationToken::new();
    assert_eq!(mixed.stack.observer.state().resources.len(), 2, "both ids are recorded");
    mixed.assert_moves(&wanted, &id).await;
}

#[tokio::test(start_paused = true)]
async fn import_after_lost_move_keeps_object() {
    let mixed = Mixed::default();
    mixed.bring(&old()).await;
    let id = mixed.object_id("OLD");
    mixed.provider.fail_change(&of("new"), ChangeFault::LostAfter);
    assert!(!mixed.apply(&new()).await.succeeded);
    assert_eq!(mixed.refusal(&new()).await[0].reason, reason::UNKNOWN_STATE);
    mixed.import(&new(), &of("new"), &id).await;
    let mut unmarked = new();
    unmarked.resources[0].extensions.remove(MOVED_FROM);
    mixed.assert_moves(&unmarked, &id).await;
}

/// The resource under its new id, with a note, and another one under its former id.
fn new_and_old(note: &str) -> Spec {
    spec(vec![object("new", json!({ "note": note })), object("old", json!({"note": "other"}))])
}

#[tokio::test]
async fn complete_move_leaves_no_mark() {
    let mixed = Mixed::default();
    mixed.bring(&old()).await;
    let id = mixed.object_id("OLD");
    mixed.bring(&new()).await;
    assert!(!mixed.stack.observer.record(&of("new")).extensions.contains_key(MOVED_FROM));
    // Another object under the former id is another one, however the Run ends.
    mixed.provider.fail_change(&of("new"), ChangeFault::LostBefore);
    assert!(!mixed.apply(&new_and_old("c")).await.succeeded);
    mixed.bring(&new_and_old("c")).await;
    assert_eq!((mixed.object_id("NEW"), mixed.provider.objects().len()), (id, 2));
    let planned = mixed.stack.planned(mixed.runtime(), &Spec::default(), true).await.unwrap();
    assert_eq!(actions(&planned), [Action::Delete; 2]);
}

#[tokio::test]
async fn rolled_back_move_deletes_moved_object() {
    let mixed = Mixed::default();
    mixed.bring(&old()).await;
    mixed.bring(&new()).await;
    mixed.provider.fail_change(&of("new"), ChangeFault::Halfway);
    let outcome = mixed.apply(&old()).await;
    assert!(!outcome.succeeded && mixed.provider.objects().len() == 2, "{outcome:?}");
    assert_eq!(actions(&mixed.plan(&old()).await.unwrap()), [Action::Delete, Action::Unchanged]);
    mixed.bring(&old()).await;
    assert_eq!(mixed.provider.objects().len(), 1);
}

#[tokio::test]
async fn freed_id_waits_for_rewritten_record() {
    let mixed = Mixed::default();
    mixed.bring(&old()).await;
    // The Run ends between the end of the old record and that of the mark.
    mixed.stack.observer.leave_after(2);
    let planned = mixed.plan(&new()).await.unwrap();
    let (runtime, options) = (mixed.runtime(), options());
    assert!(mixed.stack.execute_with(runtime, &new(), &planned, &[], &options).await.is_err());
    mixed.stack.observer.stay();
    assert_eq!(mixed.stack.observer.record(&of("new")).extensions[MOVED_FROM], of("old"));
    assert_eq!(mixed.stack.observer.state().resources.len(), 1);
    mixed.provider.fail_change(&of("new"), ChangeFault::LostBefore);
    assert!(!mixed.apply(&new_and_old("c")).await.succeeded);
    assert!(mixed.provider.named("OLD").is_none(), "nobody could say which object the mark means");
    mixed.bring(&new_and_old("c")).await;
    assert_eq!(mixed.provider.objects().len(), 2);
}

impl Mixed {
    /// A Run Import of one resource.
    async fn import(&self, spec: &Spec, id: &str, infrastructure_id: &str) {
        let selected = Selected { id: id.into(), infrastructure_id: Some(infrastructure_id.to_owned()) };
        let selection = Selection { resources: vec![selected], ..Selection::default() };
        let (state, spec_digest, keys) = (self.stack.observer.state(), spec.digest(), &self.stack.keys.0);
        let planning = Planning {
            spec,
            spec_digest: &spec_digest,
            state: &state,
            destroy: false,
            refresh: false,
            keys,
            forget_clusters: &[],
            hooks: None,
        };
        let planned = stoa_apply::import(self.runtime(), &planning, &selection).await.unwrap();
        let execution = Execution {
            spec,
            spec_digest: &spec_digest,
            plan: &planned.plan,
            state: &state,
            done: &[],
            failed_hooks: &[],
            owed: &[],
            keys,
            import: Some(&selection),
            run: "run",
        };
        let (observer, options) = (Arc::clone(&self.stack.observer), options());
        let cancel = self.stack.cancel.clone();
        let outcome = stoa_apply::execute(execution, self.runtime(), observer, &options, cancel).await;
        assert!(outcome.unwrap().succeeded);
    }
}
