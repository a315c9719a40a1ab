//! What becomes of the plan of a pull request once that is merged.

use stoa_types::delivery::MergedPlan;

use super::*;
use crate::controllers::triggers::tests::look_at_web;

impl Bed {
    /// The number of a pull request whose plan was told.
    async fn planned(&self) -> u64 {
        self.push("better", "2");
        let number = self.forge.open("shop/config", "better", "main", None);
        Box::pin(self.look()).await;
        Box::pin(self.make(&self.plan().await, &["a"])).await;
        Box::pin(self.look()).await;
        number
    }

    /// A pull request whose plan was told, and which is merged; its number, its plan, and the commit of the merge.
    async fn merged(&self) -> (u64, Run, Oid) {
        let number = self.planned().await;
        let at = self.forge.merge(number, Merge::Squash);
        self.commits.0.lock().insert(at.to_string(), "2".to_owned());
        (number, self.plan().await, at)
    }

    /// The runs that the trigger started.
    async fn applies(&self) -> Vec<Run> {
        let mut runs = self.runs.registry.api::<Run>().list(Some("shop"), "").await.unwrap();
        runs.retain(|run| run.spec.operation == Operation::Apply);
        runs
    }

    /// The run compares its plan with that of a merged pull request.
    async fn compare(&self, run: &Run, plan: &Run, why: &'static str, message: &'static str) {
        let merged = MergedPlan {
            source: "config".to_owned(),
            number: 1,
            run_uid: plan.uid().unwrap(),
            ..MergedPlan::default()
        };
        let compare = |run: &mut Run| {
            let status = run.status.get_or_insert_default();
            status.merged_plans = vec![merged.clone()];
            let is_held = why == reason::MERGED_PLAN_HOLDS;
            set_condition(&mut status.conditions, reason::MERGED_PLAN_HOLDS, is_held, why, message, None);
        };
        self.write(run, compare).await;
    }

    async fn end(&self, run: &Run, phase: RunPhase) {
        self.write(run, |run| run.status.get_or_insert_default().phase = phase).await;
    }
}

#[tokio::test]
async fn merged_plan_stays_until_its_run_ends() {
    let bed = Bed::new().await;
    bed.change_source(|source| source.spec.poll_interval = "1h".into()).await;
    let (number, plan, at) = bed.merged().await;
    assert!(!status(&plan).merged);
    // The list is good for an hour, but for a branch that moved.
    bed.observe(at).await;
    bed.look_again().await;
    let held = bed.plan().await;
    assert!(status(&held).merged && held.metadata.deletion_timestamp.is_none());
    assert_eq!(bed.source().await.status.unwrap().merges_known_at, Some(at.to_string()));

    let comments = bed.forge.comments(number);
    look_at_web(&bed.runs.services).await;
    let run = bed.applies().await.remove(0);
    let message = "the plan no longer holds: x: Update was planned, now Delete";
    bed.compare(&run, &held, reason::PLAN_STALE, message).await;
    bed.end(&run, RunPhase::AwaitingApproval).await;
    for _ in 0..2 {
        bed.look_again().await;
        assert_eq!(
            bed.plan().await.metadata.deletion_timestamp,
            None,
            "whatever takes its place follows the merge, too"
        );
        let told = bed.forge.comments(number);
        assert_eq!((told.len(), &told[0]), (2, &comments[0]), "it is told once, and what was shown stays");
        let said = [message, "plan waits for approval", &run.name_any()].map(|part| told[1].contains(part));
        assert_eq!(said, [true; 3], "{}", told[1]);
    }
    bed.end(&run, RunPhase::Succeeded).await;
    bed.look_again().await;
    assert!(bed.plan().await.metadata.deletion_timestamp.is_some());
    assert_eq!(bed.forge.comments(number).len(), 2);
}

#[tokio::test]
async fn merge_into_other_branch_releases_plan() {
    let bed = Bed::new().await;
    let number = bed.planned().await;
    bed.push("other", "1");
    bed.forge.retarget(number, "other");
    bed.forge.merge(number, Merge::Squash);
    bed.look().await;
    let plan = bed.plan().await;
    assert_eq!((status(&plan).merged, plan.metadata.deletion_timestamp.is_some()), (false, true));
}

#[tokio::test]
async fn unchanged_merged_plan_adds_no_comment() {
    let bed = Bed::new().await;
    let (number, plan, at) = bed.merged().await;
    bed.observe(at).await;
    look_at_web(&bed.runs.services).await;
    let run = bed.applies().await.remove(0);
    bed.compare(&run, &plan, reason::MERGED_PLAN_HOLDS, "it is the same").await;
    bed.end(&run, RunPhase::Succeeded).await;
    bed.look().await;
    assert_eq!(bed.forge.comments(number).len(), 1);
    assert!(bed.plan().await.metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn unknown_pull_request_outcome_retains_plan() {
    let bed = Bed::new().await;
    let (number, _, at) = bed.merged().await;
    bed.observe(at).await;
    bed.refuse_what_the_list_leads_to().await;
    bed.look_again().await;
    assert_eq!(bed.plan().await.metadata.deletion_timestamp, None);
    assert_ne!(bed.source().await.status.unwrap().merges_known_at, Some(at.to_string()), "runs wait for it");
    bed.look().await;
    assert!(status(&bed.plan().await).merged, "{number}");
}

#[tokio::test]
async fn failover_deploys_merge_once_with_its_plan() {
    let bed = Bed::new().await;
    // What is deployed before the pull request.
    look_at_web(&bed.runs.services).await;
    bed.end(&bed.applies().await[0], RunPhase::Succeeded).await;
    let (_, plan, at) = bed.merged().await;
    bed.observe(at).await;
    // It ends once the merge is seen, by either controller, and before there is a run: each look is another leader's.
    bed.look().await;
    bed.look().await;
    assert_eq!(bed.applies().await.len(), 1);
    let stack = || async { bed.runs.registry.api::<Stack>().get("shop", "web").await.unwrap() };
    let before = stack().await.status.unwrap().trigger;
    look_at_web(&bed.runs.services).await;
    let names = |runs: Vec<Run>| runs.iter().map(Run::name_any).collect::<Vec<_>>();
    let runs = names(bed.applies().await);
    assert_eq!(runs.len(), 2);
    // It ends once there is one, and before the stack says so.
    let forget = |stack: &mut Stack| stack.status.get_or_insert_default().trigger.clone_from(&before);
    bed.runs.registry.api::<Stack>().update_status_with("shop", "web", forget).await.unwrap();
    bed.look().await;
    look_at_web(&bed.runs.services).await;
    bed.look().await;
    assert_eq!(names(bed.applies().await), runs);
    let held = bed.plan().await;
    assert_eq!((held.uid(), held.metadata.deletion_timestamp.is_some()), (plan.uid(), false));
}
