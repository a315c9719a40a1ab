//! Tests of providers that give no answer before the first call of a walk, or at its end.

use std::time::Duration;

use serde_json::json;
use stoa_apply::{Grant, Options};
use stoa_engine::Spec;
use stoa_runtime::fake_provider::{ChangeFault, Stalled};
use tokio::time::Instant;

use crate::fixtures::{options, secret, spec};
use crate::providers::{Mixed, object, of, reference};

/// A database, and a Secret that refers to it.
fn database(note: &str, user: &str) -> Spec {
    spec(vec![
        object("db", json!({ "note": note })),
        secret("login", json!({"user": user, "id": reference("db", "id")})),
    ])
}

#[tokio::test(start_paused = true)]
async fn stop_ends_reads_before_the_walk() {
    for (stalled, is_lost) in [(Stalled::Prepare, false), (Stalled::Read, false), (Stalled::Inspect, true)] {
        for is_canceled in [true, false] {
            let mixed = Mixed::default();
            mixed.bring(&database("a", "x")).await;
            if is_lost {
                mixed.provider.fail_change(&of("db"), ChangeFault::LostAfter);
                assert!(!mixed.apply(&database("b", "x")).await.succeeded);
                mixed.stack.observer.clear();
            }
            let wanted = database(if is_lost { "b" } else { "a" }, "y");
            let planned = mixed.plan(&wanted).await.unwrap();
            mixed.provider.stall(stalled);
            let grant = if is_canceled { Grant::unlimited() } else { Grant::until(Instant::now() + MINUTE) };
            let (options, start) = (Options { grant, ..options() }, Instant::now());
            let canceled = async {
                tokio::time::sleep(MINUTE).await;
                if is_canceled {
                    mixed.stack.cancel.cancel();
                }
            };
            let execution = mixed.stack.execute_with(mixed.runtime(), &wanted, &planned, &[], &options);
            let (outcome, ()) = tokio::join!(execution, canceled);
            let outcome = outcome.unwrap();
            assert!(outcome.canceled && !outcome.succeeded, "{stalled:?} {outcome:?}");
            assert_eq!(start.elapsed().as_secs(), 60, "{stalled:?}");
            assert!(mixed.stack.observer.results().is_empty(), "{stalled:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn end_of_runtime_has_a_limit() {
    let mixed = Mixed::default();
    let wanted = database("a", "x");
    let planned = mixed.plan(&wanted).await.unwrap();
    mixed.provider.stall(Stalled::Close);
    let start = Instant::now();
    assert!(mixed.execute(&wanted, &planned, &[]).await.succeeded);
    assert_eq!(start.elapsed(), options().grace);
}

const MINUTE: Duration = Duration::from_secs(60);
