//! Tests of walks with a provider and a deferred runtime, such as a Git repository.

use serde_json::json;
use stoa_apply::{Outcome, PlanError, Planned};
use stoa_engine::problem::reason;
use stoa_engine::{Action, Problem, ResourceId, Spec};
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::{FINISH, Operation};
use stoa_runtime::fake_provider::ChangeFault;

use crate::fixtures::{config_map, id, names, options, spec};
use crate::providers::{Mixed, object, of, reference};

impl Mixed {
    async fn plan_in_git(&self, spec: &Spec) -> Result<Planned, PlanError> {
        self.stack.planned(self.with(self.stack.runtime().deferred().in_the_open()), spec, false).await
    }

    async fn refusal_in_git(&self, spec: &Spec) -> Vec<Problem> {
        match self.plan_in_git(spec).await {
            Err(PlanError::Problems(problems)) => problems,
            other => panic!("{other:?} instead of problems"),
        }
    }

    async fn execute_in_git(&self, spec: &Spec, planned: &Planned, done: &[ResourceId]) -> Outcome {
        let runtime = self.with(self.stack.runtime().deferred().in_the_open());
        self.stack.execute_with(runtime, spec, planned, done, &options()).await.unwrap()
    }

    async fn apply_in_git(&self, spec: &Spec) -> Outcome {
        let planned = self.plan_in_git(spec).await.unwrap();
        self.execute_in_git(spec, &planned, &[]).await
    }

    async fn bring_in_git(&self, spec: &Spec) {
        let outcome = self.apply_in_git(spec).await;
        assert!(outcome.succeeded, "{outcome:?}");
        let planned = self.plan_in_git(spec).await.unwrap();
        assert!(planned.plan.is_unchanged(), "{}", planned.table);
        self.stack.cloud.clear_calls();
        self.provider.clear_calls();
        self.stack.observer.clear();
    }
}

/// An object, and a file with its id.
fn with_file(note: &str) -> Spec {
    spec(vec![
        object("db", json!({ "note": note })),
        config_map("user", &[], json!({"id": reference("db", "id"), "note": note})),
    ])
}

fn rejected() -> RuntimeError {
    RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false }
}

#[tokio::test]
async fn only_files_wait_for_commit() {
    let mixed = Mixed::default();
    let wanted = with_file("x");
    let planned = mixed.plan_in_git(&wanted).await.unwrap();
    mixed.stack.cloud.fail(Operation::Finish, FINISH, rejected());
    let outcome = mixed.execute_in_git(&wanted, &planned, &[]).await;
    assert!(!outcome.succeeded && outcome.commit.is_none(), "{outcome:?}");
    assert_eq!(mixed.stack.observer.results(), [format!("Done {}", of("db")), format!("Skipped {}", id("user"))]);
    assert!(mixed.stack.observer.record(&of("db")).provider_state.is_some() && mixed.stack.cloud.ids().is_empty());

    // The next try repeats the file alone, with the value of the object.
    let done = mixed.stack.observer.done();
    let outcome = mixed.execute_in_git(&wanted, &planned, &done).await;
    assert!(outcome.succeeded && outcome.commit.is_some(), "{outcome:?}");
    assert_eq!(mixed.provider.called(Operation::Apply).len(), 1);
    assert_eq!(mixed.stack.cloud.live(&id("user")).unwrap()["data"]["id"], mixed.object_id("DB"));
    assert!(mixed.plan_in_git(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn failed_provider_call_writes_no_file() {
    let mixed = Mixed::default();
    mixed.provider.fail_change(&of("db"), ChangeFault::Halfway);
    let wanted = spec(vec![object("db", json!({})), config_map("apart", &[], json!({}))]);
    let outcome = mixed.apply_in_git(&wanted).await;
    assert!(!outcome.succeeded && outcome.commit.is_none(), "{outcome:?}");
    assert_eq!(mixed.stack.observer.results(), [format!("Failed {}", of("db")), format!("Skipped {}", id("apart"))]);
    assert!(mixed.stack.cloud.ids().is_empty() && mixed.provider.objects().len() == 1);
    mixed.bring_in_git(&wanted).await;
}

#[tokio::test]
async fn failed_file_keeps_results_of_providers() {
    let mixed = Mixed::default();
    mixed.stack.cloud.fail(Operation::Apply, &id("user"), rejected());
    let outcome = mixed.apply_in_git(&with_file("x")).await;
    assert!(!outcome.succeeded, "{outcome:?}");
    assert_eq!(mixed.stack.observer.results(), [format!("Done {}", of("db")), format!("Failed {}", id("user"))]);
    mixed.bring_in_git(&with_file("x")).await;
    assert_eq!(mixed.provider.objects().len(), 1);
}

#[tokio::test]
async fn sensitive_values_are_not_written_to_git() {
    let mixed = Mixed::default();
    let exposed =
        spec(vec![object("db", json!({})), config_map("user", &[], json!({"password": reference("db", "password")}))]);
    let unknown = format!("{}.password is sensitive, and would be stored in plain text", of("db"));
    for known in [None, Some("a reference puts a sensitive value here, which would be stored in plain text")] {
        let problems = mixed.refusal_in_git(&exposed).await;
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(problem.reason, reason::INVALID_RESOURCE);
        assert!(problem.message.contains(known.unwrap_or(&unknown)), "{problem:?}");
        assert!(mixed.provider.called(Operation::Apply).is_empty());
        mixed.bring_in_git(&spec(vec![object("db", json!({}))])).await;
    }
    // At the latest, the value is found before it is written.
    let planned = mixed.stack.planned(mixed.with(mixed.stack.runtime()), &exposed, false).await.unwrap();
    let outcome = mixed.execute_in_git(&exposed, &planned, &[]).await;
    assert_eq!((outcome.problems[0].reason.as_ref(), outcome.commit), (reason::INVALID_RESOURCE, None));
    assert!(mixed.stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn object_is_deleted_after_commit() {
    let mixed = Mixed::default();
    mixed.bring_in_git(&with_file("x")).await;
    let planned = mixed.plan_in_git(&Spec::default()).await.unwrap();
    assert_eq!(names(&planned.plan.actions.iter().map(|it| it.id.clone()).collect::<Vec<_>>()), ["user", "db"]);
    // A commit that fails leaves the object.
    mixed.stack.cloud.fail(Operation::Finish, FINISH, rejected());
    let outcome = mixed.execute_in_git(&Spec::default(), &planned, &[]).await;
    assert!(!outcome.succeeded && outcome.problems.iter().any(|it| it.reason == reason::DELETIONS_LEFT), "{outcome:?}");
    assert_eq!(mixed.stack.observer.results(), [of("db"), id("user")].map(|id| format!("Skipped {id}")));
    assert_eq!(mixed.stack.observer.result(&of("db")).message, "it comes after the commit, which was not made");
    assert!(mixed.provider.called(Operation::Delete).is_empty());

    mixed.stack.observer.clear();
    let outcome = mixed.execute_in_git(&Spec::default(), &planned, &[]).await;
    assert!(outcome.succeeded && outcome.commit.is_some(), "{outcome:?}");
    assert!(mixed.provider.objects().is_empty() && mixed.stack.cloud.ids().is_empty());
    assert_eq!(names(&mixed.stack.observer.done()), ["user", "db"], "the file is recorded first");
    assert_eq!(mixed.stack.observer.state().resources, []);
}

#[tokio::test]
async fn open_proposal_leaves_later_changes() {
    let mixed = Mixed::default();
    mixed.bring_in_git(&with_file("x")).await;
    mixed.stack.cloud.propose(true);
    let planned = mixed.plan_in_git(&Spec::default()).await.unwrap();
    let outcome = mixed.execute_in_git(&Spec::default(), &planned, &[]).await;
    assert!(outcome.proposal.is_some() && !outcome.succeeded && outcome.problems.is_empty(), "{outcome:?}");
    assert_eq!(mixed.stack.observer.results(), [of("db"), id("user")].map(|id| format!("Skipped {id}")));
    assert_eq!(mixed.provider.objects().len(), 1);

    // The same run continues after the merge.
    mixed.stack.cloud.propose(false);
    let outcome = mixed.execute_in_git(&Spec::default(), &planned, &[]).await;
    assert!(outcome.succeeded && mixed.provider.objects().is_empty(), "{outcome:?}");
}

#[tokio::test]
async fn waiting_change_follows_commit() {
    let mixed = Mixed::default();
    let wanted = |size: &str| {
        spec(vec![
            config_map("settings", &[], json!({ "size": size })),
            object("db", json!({"note": format!("$kusion_path.{}.data.size", id("settings"))})),
        ])
    };
    mixed.bring_in_git(&wanted("large")).await;
    assert_eq!(mixed.provider.named("DB").unwrap()["note"], "large");
    // An interrupted run continues after its commit.
    let planned = mixed.plan_in_git(&wanted("huge")).await.unwrap();
    mixed.provider.fail(Operation::Apply, &of("db"), rejected());
    let outcome = mixed.execute_in_git(&wanted("huge"), &planned, &[]).await;
    assert!(!outcome.succeeded && outcome.commit.is_some(), "{outcome:?}");
    assert_eq!(mixed.stack.observer.results(), [format!("Done {}", id("settings")), format!("Failed {}", of("db"))]);
    let done = mixed.stack.observer.done();
    let outcome = mixed.execute_in_git(&wanted("huge"), &planned, &done).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(mixed.provider.named("DB").unwrap()["note"], "huge");
}

#[tokio::test]
async fn second_commit_is_rejected_by_plan() {
    let mixed = Mixed::default();
    let wanted = spec(vec![
        config_map("settings", &[], json!({"size": "large"})),
        object("db", json!({"note": format!("$kusion_path.{}.data.size", id("settings"))})),
        config_map("user", &[], json!({"id": reference("db", "id")})),
    ]);
    let problems = mixed.refusal_in_git(&wanted).await;
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let why = format!(
        "its change comes after that of {}, which waits for the commit with the change of {}; a run makes one commit, \
         so make these changes in two runs",
        of("db"),
        id("settings")
    );
    assert_eq!(told, [format!("{}: {why}", id("user"))]);
    // In two runs, each makes one.
    let mut first = wanted.clone();
    first.resources.pop();
    mixed.bring_in_git(&first).await;
    let planned = mixed.plan_in_git(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions.last().unwrap().action, Action::Create);
    mixed.bring_in_git(&wanted).await;
}
