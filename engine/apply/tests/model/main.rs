//! Runs against a model of what they may do: at random, what is wanted changes, others edit, calls fail and hang, runs
//! are stopped, processes end. What has to hold is checked at every call and after every run.
//!
//! The operations are in `script`, the rules of each call in `world`, what outlives a process in `store`, the rules of
//! whole runs here.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod script;
mod store;
mod world;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};
use serde_json::{Map, Value, json};
use stoa_apply::{Execution, Grant, Options, Outcome, PlanError, Planned, Planning};
use stoa_engine::import::Selection;
use stoa_engine::owner::MARK;
use stoa_engine::problem::reason;
use stoa_engine::{Action, DigestKeys, Problem, ResourceId, Spec};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use script::{
    Edit, FIXED, Fault, Goal, Interrupt, Look, NAMESPACE, OTHERS_MARK, Operation, Run, SLOTS, Try, Want, reference_key,
    value_of,
};
use world::{Driven, Keeper, Walk, World, is_theirs, uid};

/// How long a case that breaks a rule is made smaller, in milliseconds: nothing is told before.
const SHRINK: u32 = 120_000;

/// Others that have fields, and whether they apply them.
const APPLIER: (&str, bool) = ("flux", true);
const EDITOR: (&str, bool) = ("kubectl-edit", false);

/// How many random cases are tried, if nothing else is said.
const CASES: u32 = 200;
/// How many that are for `hack/test --all`.
const ALL_CASES: u32 = 700;

/// More than one replacement has.
const STEPS: usize = 16;

/// Longer than all runs of a case, by the clock of the test, which stands while anything is done: each may be suspended as
/// often as it is tried.
const LONGEST: Duration = Duration::from_secs(1_000 * world::SUSPENDED.as_secs());

struct Model {
    world: Arc<World>,
    keys: DigestKeys,
    /// The last one that was to be applied.
    goal: Goal,
    runs: usize,
    foreign: usize,
}

/// How a run ended.
enum End {
    /// No plan could be made, for these reasons.
    Refused(Vec<Problem>),
    Ended(Box<Planned>, Box<Outcome>),
    /// The last of its tries crashed or was suspended.
    Interrupted,
}

impl Model {
    fn new() -> Self {
        let keys = DigestKeys::new(&[7; 32], &[]);
        Self { world: World::new(), keys, goal: Goal::Apply(Vec::new()), runs: 0, foreign: 0 }
    }

    async fn all(&mut self, operations: &[Operation]) -> Result<(), String> {
        for operation in operations {
            self.world.note(format!("{operation:?}"));
            match operation {
                Operation::Edit(slot, edit) => self.edit(*slot, *edit),
                Operation::Preview(goal) => self.preview(goal).await,
                Operation::Run(run) => {
                    self.run(run).await;
                }
            }
            self.world.verdict()?;
        }
        for goal in [self.goal.clone(), Goal::Destroy] {
            self.settle(&goal).await;
            self.world.verdict()?;
        }
        Ok(())
    }

    fn edit(&mut self, slot: usize, edit: Edit) {
        let world = &self.world;
        match edit {
            Edit::Sicken | Edit::Heal => return world.sicken(slot, matches!(edit, Edit::Sicken)),
            Edit::LetGo => return world.let_go(slot),
            _ => {}
        }
        let Slotted { id, object } = Slotted::of(world, slot);
        let values = SLOTS[slot].values;
        let changed = match (edit, object) {
            (Edit::Change | Edit::Claim, Some(mut object)) => {
                let (manager, applies) = if matches!(edit, Edit::Claim) { APPLIER } else { EDITOR };
                object[values]["v"] = json!("edited");
                world.cloud.put(&id, object);
                return world.cloud.claim(&id, [values, "v"], manager, applies);
            }
            (Edit::Extend, Some(mut object)) => {
                object[values]["theirs"] = json!("edited");
                object
            }
            (Edit::Delete, Some(_)) => return world.cloud.remove(&id),
            (Edit::DeleteSlowly, Some(mut object)) => {
                world.hold(slot, true);
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                object
            }
            (Edit::Take, Some(mut object)) => {
                object["metadata"]["annotations"] = json!({ MARK: OTHERS_MARK });
                world.is_theirs(object["metadata"]["uid"].as_str().unwrap());
                object
            }
            (Edit::Make | Edit::MakeMarked, None) => {
                self.foreign += 1;
                let mut object = Value::from(SLOTS[slot].object(false, json!({"theirs": "x"})));
                object["metadata"]["uid"] = json!(format!("their-uid-{}", self.foreign));
                if matches!(edit, Edit::MakeMarked) {
                    object["metadata"]["annotations"] = json!({ MARK: OTHERS_MARK });
                }
                object
            }
            (Edit::Change | Edit::Claim | Edit::Extend | Edit::Delete | Edit::DeleteSlowly | Edit::Take, None)
            | (Edit::Make | Edit::MakeMarked, Some(_))
            | (Edit::Sicken | Edit::Heal | Edit::LetGo, _) => return,
        };
        world.cloud.put(&id, changed);
    }

    async fn plan(&self, goal: &Goal) -> Result<Planned, Vec<Problem>> {
        self.world.walk(None);
        let (spec, state) = (goal.spec(), self.world.store().state());
        let spec_digest = spec.digest();
        let destroy = matches!(goal, Goal::Destroy);
        let planning = Planning {
            spec: &spec,
            spec_digest: &spec_digest,
            state: &state,
            destroy,
            refresh: false,
            keys: &self.keys,
            forget_clusters: &[],
        };
        let runtime = Arc::new(Driven(self.world.clone()));
        let planned = if matches!(goal, Goal::Import(_)) {
            stoa_apply::import(runtime, &planning, &Selection { all: true, ..Selection::default() }).await
        } else {
            stoa_apply::plan(runtime, &planning).await
        };
        planned.map_err(|err| match err {
            PlanError::Problems(problems) => problems,
            PlanError::Runtime(err) => panic!("everything can be read: {err}"),
        })
    }

    /// A plan changes nothing, and is the same the next time.
    async fn preview(&self, goal: &Goal) {
        let before = (self.world.objects(), self.world.store().state());
        let (first, second) = (self.plan(goal).await, self.plan(goal).await);
        if first.map(|it| it.digest) != second.map(|it| it.digest) {
            self.world.broken("two plans of the same situation differ");
        }
        if (self.world.objects(), self.world.store().state()) != before {
            self.world.broken("a preview changed something");
        }
    }

    async fn run(&mut self, run: &Run) -> End {
        if matches!(run.goal, Goal::Apply(_)) {
            self.goal = run.goal.clone();
        }
        let planned = match self.plan(&run.goal).await {
            Ok(planned) => planned,
            Err(problems) => {
                self.check_refusal(&run.goal, &problems);
                return End::Refused(problems);
            }
        };
        self.runs += 1;
        let name = format!("run-{}", self.runs);
        self.world.note(planned.plan.actions.iter().map(|it| format!("{} {}; ", it.action, it.id)).collect());
        for (slot, edit) in &run.meanwhile {
            self.edit(*slot, *edit);
        }
        let spec = run.goal.spec();
        for now in &run.tries {
            let walk = Walk {
                run: name.clone(),
                goal: run.goal.clone(),
                plan: planned.plan.clone(),
                is_alone: run.meanwhile.is_empty(),
                cancel: CancellationToken::new(),
                crashed: CancellationToken::new(),
                now: now.clone(),
                steps: 0,
            };
            let Some(outcome) = self.one_try(&spec, &planned, walk).await else { continue };
            if outcome.succeeded && run.meanwhile.is_empty() {
                match &run.goal {
                    Goal::Import(wants) => self.check_import(wants),
                    Goal::Apply(_) | Goal::Destroy => self.check_success(&run.goal).await,
                }
            }
            return End::Ended(Box::new(planned), Box::new(outcome));
        }
        End::Interrupted
    }

    /// One try in a process of its own; what came of it, unless the process was interrupted.
    async fn one_try(&self, spec: &Spec, planned: &Planned, walk: Walk) -> Option<Outcome> {
        let (cancel, crashed, run) = (walk.cancel.clone(), walk.crashed.clone(), walk.run.clone());
        self.world.walk(Some(walk));
        let store = self.world.store();
        let (state, done, owed) = (store.state(), store.done_by(&run), store.owed());
        let grant = Grant::until(Instant::now() + world::SUSPENDED / 2);
        let options = Options {
            parallelism: 3,
            resource_timeout: Duration::from_secs(1_000),
            health_timeout: Duration::from_secs(1_000),
            // Never at the same moment as anything else ends.
            grace: Duration::from_millis(300_500),
            grant: grant.clone(),
        };
        let execution = Execution {
            spec,
            spec_digest: &planned.plan.spec_digest,
            plan: &planned.plan,
            state: &state,
            done: &done,
            owed: &owed,
            keys: &self.keys,
        };
        let (runtime, keeper) = (Arc::new(Driven(self.world.clone())), Arc::new(Keeper(self.world.clone())));
        let outcome = tokio::select! {
            biased;
            () = crashed.cancelled() => return None,
            outcome = stoa_apply::execute(execution, runtime, keeper, &options, cancel) => outcome.unwrap(),
        };
        self.world.note(format!("{outcome:?}"));
        if outcome.succeeded {
            self.check_health(planned, &owed);
        }
        // Whoever is suspended for so long is presumed dead; the run goes on in another process.
        (!grant.is_over() || outcome.succeeded).then_some(outcome)
    }

    /// Plans are refused only for what others have, and all of it, and for what would go with its namespace.
    fn check_refusal(&self, goal: &Goal, problems: &[Problem]) {
        let objects = self.world.objects();
        let owned: Vec<_> =
            goal.wants().iter().filter(|want| self.is_owned(want)).filter_map(|want| goal.id(want.slot)).collect();
        for problem in problems {
            let id = problem.resource_id.as_ref();
            let is_fixed = |want: &Want| objects.get(&want.slot).is_some_and(|object| self.is_stuck(want.slot, object));
            let is_right = match problem.reason.as_ref() {
                reason::OWNED_BY_ANOTHER => id.is_some_and(|id| owned.contains(id)),
                reason::REJECTED => goal.wants().iter().any(|want| goal.id(want.slot).as_ref() == id && is_fixed(want)),
                reason::CONFLICT => {
                    goal.wants().iter().any(|want| goal.id(want.slot).as_ref() == id && self.is_claimed(want))
                }
                reason::STILL_NEEDED => id == Some(&SLOTS[NAMESPACE].id(false)) && self.goes_with_what_is_wanted(goal),
                reason::HOLDS_OTHERS => self.is_of_namespace(problem) && self.is_deleted(goal) && self.holds_others(),
                _ => false,
            };
            if !is_right {
                self.world.broken(format!("there is no plan: {problem:?}"));
            }
        }
    }

    /// Whether somebody else has a field that is wanted, and that is not to be taken: one that others apply, or any at
    /// all of what is not recorded or is taken over.
    fn is_claimed(&self, want: &Want) -> bool {
        let claims = self.world.claims(want.slot);
        let object = self.world.objects().remove(&want.slot);
        let is_ours = object.is_some_and(|object| !is_theirs(&object) && self.is_known(want.slot, &object));
        !want.force && claims.iter().any(|claim| claim.applies || !is_ours)
    }

    fn is_of_namespace(&self, problem: &Problem) -> bool {
        [false, true].iter().any(|earlier| problem.resource_id.as_ref() == Some(&SLOTS[NAMESPACE].id(*earlier)))
    }

    /// Whether something in the namespace is another deployment's, or, where the namespace was taken over, nobody's that
    /// we know of.
    fn holds_others(&self) -> bool {
        let objects = self.world.objects();
        let namespace = objects.get(&NAMESPACE).and_then(uid);
        let was_there = namespace.is_some_and(|uid| self.world.is_taken_over(uid));
        let is_others = |(slot, object): (&usize, &Map<String, Value>)| {
            SLOTS[*slot].is_in_namespace() && (is_theirs(object) || was_there && !self.is_known(*slot, object))
        };
        objects.iter().any(is_others)
    }

    /// Whether the namespace would be deleted, for good or to be made anew, or is being deleted by somebody, and something in it
    /// is wanted.
    fn goes_with_what_is_wanted(&self, goal: &Goal) -> bool {
        let goes = self.is_deleted(goal) || self.world.is_namespace_going();
        goes && goal.wants().iter().any(|want| SLOTS[want.slot].is_in_namespace())
    }

    /// Whether the namespace would be deleted, for good or to be made anew.
    fn is_deleted(&self, goal: &Goal) -> bool {
        let objects = self.world.objects();
        let Some(object) = objects.get(&NAMESPACE) else { return false };
        let is_known = self.is_known(NAMESPACE, object);
        let is_deleted = goal.want(NAMESPACE).is_none_or(|want| {
            let fixed = object.get(FIXED);
            fixed.is_some() && fixed != want.fixed.map(|it| json!(it.to_string())).as_ref()
        });
        is_known && is_deleted
    }

    /// Whether another deployment has what is wanted.
    fn is_owned(&self, want: &Want) -> bool {
        let object = self.world.objects().get(&want.slot).cloned();
        !want.take_over && object.is_some_and(|object| is_theirs(&object))
    }

    /// A run that succeeded has seen healthy what it called for, and what earlier ones did.
    fn check_health(&self, planned: &Planned, owed: &[ResourceId]) {
        let kept = planned.plan.actions.iter().filter(|it| it.action.keeps() && it.action != Action::Import);
        let brought = kept.filter(|it| it.action.is_call() || owed.contains(it.recorded_as.as_ref().unwrap_or(&it.id)));
        for id in brought.map(|it| &it.id).filter(|id| self.world.is_sick(script::slot_of(id))) {
            self.world.broken(format!("a run succeeded, and {id} was not healthy"));
        }
    }

    /// After an import everything that was there and nobody else's is recorded. What a lost call left behind is ours
    /// already, and is found by the next apply.
    fn check_import(&self, wants: &[Want]) {
        let (objects, store) = (self.world.objects(), self.world.store());
        for want in wants {
            let is_there = objects.get(&want.slot).is_some_and(|object| !is_theirs(object));
            let is_open = store.open().any(|call| script::slot_of(&call.id) == want.slot);
            if is_there && !is_open && !self.is_recorded(want.slot) {
                self.world.broken(format!("{} was there and was not imported", SLOTS[want.slot].name));
            }
        }
    }

    /// After a run that succeeded nothing is left to do, and everything is as it is wanted.
    async fn check_success(&self, goal: &Goal) {
        let (objects, store) = (self.world.objects(), self.world.store());
        let mut broken = Vec::new();
        match self.plan(goal).await {
            Ok(planned) if planned.plan.is_unchanged() => {}
            Ok(planned) => {
                let left = planned.plan.actions.iter().filter(|it| it.action != Action::Unchanged);
                let left: Vec<_> = left.map(|it| format!("{} {} {:?}", it.action, it.id, it.changes)).collect();
                broken.push(format!("a plan was carried out, and there is left: {left:?}"));
            }
            Err(problems) => broken.push(format!("a plan was carried out, and now there is none: {problems:?}")),
        }
        broken.extend(store.open().map(|call| format!("{} is still open", call.id)));
        for want in goal.wants() {
            let (id, object) = (goal.id(want.slot).unwrap(), objects.get(&want.slot));
            let Some(object) = object else {
                broken.push(format!("{id} is not there"));
                continue;
            };
            match store.record(&id) {
                Some(record) if record.uid() == uid(object) => {}
                Some(_) => broken.push(format!("another object is recorded as {id}")),
                None => broken.push(format!("{id} is not recorded")),
            }
            let mut values = object[SLOTS[want.slot].values].as_object().cloned().unwrap();
            values.remove("theirs");
            let wanted = self.values(goal, want);
            if Value::from(values.clone()) != wanted {
                broken.push(format!("{id} is {values:?} and was to be {wanted}"));
            }
            if want.fixed.is_some() && object.get(FIXED) != want.fixed.map(|it| json!(it.to_string())).as_ref() {
                broken.push(format!("{id} has the {FIXED} {:?}", object.get(FIXED)));
            }
        }
        for record in store
            .records()
            .filter(|record| !goal.wants().iter().any(|want| goal.id(want.slot).as_ref() == Some(&record.id)))
        {
            broken.push(format!("{} is recorded and not wanted", record.id));
        }
        for object in objects.values().filter(|object| self.world.is_ours(object)) {
            let uid = uid(object).unwrap();
            // What was taken over in a call without an answer, and is not wanted any more, was there before.
            if self.world.is_made(uid) && !store.records().any(|record| record.uid() == Some(uid)) {
                broken.push(format!("{} bears our mark and nobody knows it", object["metadata"]));
            }
        }
        broken.into_iter().for_each(|broken| self.world.broken(broken));
    }

    fn values(&self, goal: &Goal, want: &Want) -> Value {
        let objects = self.world.objects();
        let mut values = json!({"v": value_of(want)});
        for (to, look) in &want.refers {
            let value = goal.want(*to).map(value_of).unwrap();
            let uid = objects.get(to).and_then(|object| uid(object));
            values[reference_key(*to)] = match look {
                Look::Value => json!(value),
                Look::Text => json!(format!("x-{value}")),
                Look::Uid => json!(uid),
                Look::UidText => json!(uid.map(|uid| format!("x-{uid}"))),
                Look::Passed => {
                    let other = goal.want(*to).unwrap();
                    let key = other.refers.first().map_or("v".to_owned(), |(to, _)| reference_key(*to));
                    self.values(goal, other)[key].clone()
                }
            };
        }
        values
    }

    /// Others clear away what only they can, and then runs converge in which nothing goes wrong.
    async fn settle(&mut self, goal: &Goal) {
        self.world.note(format!("settle {goal:?}"));
        for slot in 0..SLOTS.len() {
            self.world.sicken(slot, false);
            self.world.let_go(slot);
            let Slotted { id, object } = Slotted::of(&self.world, slot);
            self.world.cloud.release(&id);
            let Some(object) = object.as_ref().and_then(Value::as_object) else { continue };
            let is_in_the_way = |want: &Want| self.is_owned(want) || self.is_stuck(slot, object);
            if goal.want(slot).is_some_and(is_in_the_way) {
                self.world.cloud.remove(&id);
            }
        }
        let quiet = Run { goal: goal.clone(), meanwhile: Vec::new(), tries: vec![Try::default()] };
        for _ in 0..=SLOTS.len() {
            match self.run(&quiet).await {
                End::Ended(_, outcome) if outcome.succeeded => return,
                // What waits for a value could not be asked whether it can be changed in place.
                End::Ended(planned, outcome) if self.was_not_asked(&planned, &outcome) => {}
                End::Ended(_, outcome) => return self.world.broken(format!("a quiet run ended so: {outcome:?}")),
                // What is in it stays, and others see to it that it goes.
                End::Refused(problems)
                    if problems
                        .iter()
                        .all(|it| [reason::STILL_NEEDED, reason::HOLDS_OTHERS].contains(&&*it.reason)) =>
                {
                    self.world.cloud.remove(&SLOTS[NAMESPACE].id(false).0);
                }
                End::Refused(problems) => return self.world.broken(format!("there is no quiet run: {problems:?}")),
                End::Interrupted => return self.world.broken("a quiet run was interrupted"),
            }
        }
        self.world.broken("quiet runs do not converge");
    }

    /// What nobody knows to be ours, or is another deployment's, is not deleted for the sake of a field that cannot be
    /// changed in place, though it is to be taken over.
    fn is_stuck(&self, slot: usize, object: &Map<String, Value>) -> bool {
        object.contains_key(FIXED) && (is_theirs(object) || !self.is_recorded(slot) || !self.is_known(slot, object))
    }

    /// Whether an object is on record, or a lost call made it.
    fn is_known(&self, slot: usize, object: &Map<String, Value>) -> bool {
        self.world.is_ours(object) || self.is_recorded_as(slot, uid(object))
    }

    fn is_recorded(&self, slot: usize) -> bool {
        [false, true].iter().any(|earlier| self.world.store().record(&SLOTS[slot].id(*earlier)).is_some())
    }

    fn is_recorded_as(&self, slot: usize, uid: Option<&str>) -> bool {
        let store = self.world.store();
        [false, true].iter().filter_map(|earlier| store.record(&SLOTS[slot].id(*earlier))).any(|it| it.uid() == uid)
    }

    fn was_not_asked(&self, planned: &Planned, outcome: &Outcome) -> bool {
        // What was deleted only after that is left, too.
        let mut others = outcome.problems.iter().filter(|problem| problem.reason != reason::DELETIONS_LEFT).peekable();
        others.peek().is_some()
            && others.all(|problem| {
                let action =
                    planned.plan.actions.iter().find(|action| Some(&action.id) == problem.resource_id.as_ref());
                problem.reason == reason::REJECTED && action.is_some_and(|action| action.unverified.is_some())
            })
    }
}

/// An object, and under what id it was last written.
struct Slotted {
    id: String,
    object: Option<Value>,
}

impl Slotted {
    fn of(world: &World, slot: usize) -> Self {
        let there = world.cloud.ids().into_iter().find(|id| script::slot_of(id) == slot);
        let id = there.unwrap_or_else(|| SLOTS[slot].id(false)).0;
        Self { object: world.cloud.live(&id).map(Value::from), id }
    }
}

fn check(operations: &[Operation]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut model = Model::new();
    let world = model.world.clone();
    runtime.block_on(async {
        match tokio::time::timeout(LONGEST, model.all(operations)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                world.broken("a run neither ends nor gets on");
                world.verdict()
            }
        }
    })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        max_shrink_iters: 20_000,
        max_shrink_time: SHRINK,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The same cases every time, as many as take some seconds, and more with `STOA_TEST_ALL`. With `PROPTEST_CASES` so many others, of a seed that is told,
/// or of `STOA_TEST_SEED`.
fn cases() -> ProptestConfig {
    if std::env::var_os("PROPTEST_CASES").is_none() {
        let cases = if std::env::var_os("STOA_TEST_ALL").is_some() { ALL_CASES } else { CASES };
        return ProptestConfig { cases, rng_seed: RngSeed::Fixed(5), ..config() };
    }
    let told = std::env::var("STOA_TEST_SEED").ok();
    let seed =
        told.map_or_else(|| RandomState::new().hash_one(0), |it| it.parse().expect("STOA_TEST_SEED is a number"));
    eprintln!("STOA_TEST_SEED={seed}");
    ProptestConfig { rng_seed: RngSeed::Fixed(seed), ..config() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn runs_do_what_was_planned_and_converge_whatever_happens(operations in script::operations()) {
        check(&operations).map_err(TestCaseError::fail)?;
    }
}

/// One that nothing is said of but where it is.
fn plain(slot: usize) -> Want {
    Want {
        slot,
        value: 0,
        fixed: None,
        after: Vec::new(),
        refers: Vec::new(),
        take_over: false,
        force: false,
        earlier: false,
    }
}

fn run(goal: Goal, tries: Vec<Try>) -> Operation {
    Operation::Run(Run { goal, meanwhile: Vec::new(), tries })
}

/// Random cases seldom end a replacement between its calls and its record.
#[test]
fn replacements_are_made_once_wherever_they_are_interrupted() {
    let run = |fixed: u8, tries: Vec<Try>| run(Goal::Apply(vec![Want { fixed: Some(fixed), ..plain(0) }]), tries);
    for at in 0..STEPS {
        for how in [Interrupt::Crash, Interrupt::Suspend] {
            let interrupted = Try { faults: Vec::new(), interrupt: Some((at, how)) };
            let operations = [run(0, vec![Try::default()]), run(1, vec![interrupted, Try::default()])];
            check(&operations).unwrap_or_else(|broken| panic!("{how:?} at {at}: {broken}"));
        }
    }
}

/// Nor do they have more deletions linger than may be called for at once, and be interrupted.
#[test]
fn deletions_that_linger_end_once_nothing_holds_them_wherever_they_are_interrupted() {
    const HELD: std::ops::Range<usize> = 0..4;
    // The first goes before the second, the others as they like.
    let all = HELD.map(|slot| Want { after: Vec::from_iter((slot == 0).then_some(1)), ..plain(slot) });
    let brought = run(Goal::Apply(all.collect()), vec![Try::default()]);
    for at in 0..STEPS * 2 {
        for (held, how) in [
            (Fault::Lingers, Interrupt::Crash),
            (Fault::Lingers, Interrupt::Suspend),
            (Fault::Stuck, Interrupt::Crash),
            (Fault::Stuck, Interrupt::Cancel),
        ] {
            let faults = HELD.map(|slot| (slot, 0, held)).collect();
            let interrupted = Try { faults, interrupt: Some((at, how)) };
            let destroyed = run(Goal::Destroy, vec![interrupted, Try::default()]);
            check(&[brought.clone(), destroyed]).unwrap_or_else(|broken| panic!("{held:?}, {how:?} at {at}: {broken}"));
        }
    }
}

/// Nor do others delete the namespace by and by, with all that is in it, and somebody interrupts who makes that anew.
#[test]
fn what_goes_with_its_namespace_is_made_anew_wherever_that_is_interrupted() {
    let outside = Want { refers: vec![(0, Look::Uid)], ..plain(2) };
    let brought = |tries: Vec<Try>| run(Goal::Apply(vec![plain(NAMESPACE), plain(0), outside.clone()]), tries);
    for at in 0..STEPS * 2 {
        for how in [Interrupt::Crash, Interrupt::Suspend, Interrupt::Cancel] {
            let interrupted = Try { faults: Vec::new(), interrupt: Some((at, how)) };
            let deleted = Operation::Edit(NAMESPACE, Edit::DeleteSlowly);
            let operations = [brought(vec![Try::default()]), deleted, brought(vec![interrupted, Try::default()])];
            check(&operations).unwrap_or_else(|broken| panic!("{how:?} at {at}: {broken}"));
        }
    }
}
