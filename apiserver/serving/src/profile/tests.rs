//! Profiles of work that is known.

use std::{
    collections::BTreeSet,
    hint::black_box,
    io::Read as _,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;
use prost::Message as _;
use tokio::sync::{Mutex, MutexGuard};

use super::*;

/// There is one profile at a time, in tests too.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let guard = ALONE.lock().await;
    // The last one may still be at its end.
    while in_use() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    guard
}

/// Whether a profile is being taken.
pub(crate) fn in_use() -> bool {
    TURN.available_permits() == 0
}

/// A stack, the innermost function first, with file and line, and how often it was sampled.
pub(crate) struct Stack {
    pub(crate) functions: Vec<(String, String, i64)>,
    pub(crate) samples: i64,
}

impl Stack {
    /// The position of a function, with or without its path: tables of lines name some functions without one.
    pub(crate) fn position(&self, function: &str) -> Option<usize> {
        self.functions.iter().position(|(name, ..)| name.rsplit("::").next() == Some(function))
    }
}

/// Reads a profile as `go tool pprof` does, and checks what it checks.
pub(crate) fn read(profile: &[u8]) -> Vec<Stack> {
    let mut bytes = Vec::new();
    GzDecoder::new(profile).read_to_end(&mut bytes).unwrap();
    let profile = encode::Profile::decode(&*bytes).unwrap();
    let text = |number: i64| profile.string_table[usize::try_from(number).unwrap()].clone();
    assert_eq!(profile.string_table[0], "");
    let types: Vec<_> = profile.sample_type.iter().map(|value| (text(value.r#type), text(value.unit))).collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    assert_eq!(profile.period, 10_000_000);
    assert!(profile.time_nanos > 0 && profile.duration_nanos > 0);
    let ids: BTreeSet<u64> = profile.location.iter().map(|location| location.id).collect();
    assert!(ids.len() == profile.location.len() && !ids.contains(&0));
    let stack = |sample: &encode::Sample| {
        let mut functions = Vec::new();
        for id in &sample.location_id {
            let location = profile.location.iter().find(|location| location.id == *id).unwrap();
            for line in &location.line {
                let function = profile.function.iter().find(|function| function.id == line.function_id).unwrap();
                functions.push((text(function.name), text(function.filename), line.line));
            }
        }
        let [samples, nanoseconds] = *sample.value else { panic!("{sample:?}") };
        assert_eq!(nanoseconds, samples * profile.period);
        Stack { functions, samples }
    };
    profile.sample.iter().map(stack).collect()
}

/// Takes a profile of so long a time.
async fn profile(time: Duration) -> Vec<Stack> {
    read(&Profiling::start().unwrap().until(tokio::time::sleep(time)).await.unwrap())
}

/// Takes profiles of this length until the stacks are enough: a busy machine may have little time for the work.
async fn profiles(time: Duration, is_enough: impl Fn(&[Stack]) -> bool) -> Vec<Stack> {
    let (mut stacks, start) = (Vec::new(), Instant::now());
    loop {
        stacks.extend(profile(time).await);
        if is_enough(&stacks) || start.elapsed() > Duration::from_secs(60) {
            return stacks;
        }
    }
}

/// Keeps a thread at work until this is dropped.
struct Work {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Work {
    fn start(mut work: impl FnMut() + Send + 'static) -> Self {
        let over = Arc::<AtomicBool>::default();
        let ends = over.clone();
        let thread = thread::spawn(move || {
            while !ends.load(Relaxed) {
                work();
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

#[inline(never)]
fn spin() -> u64 {
    (0..20_000u64).fold(0, |sum, number| black_box(sum ^ number.wrapping_mul(31)))
}

#[inline(never)]
fn asks_for_spin() -> u64 {
    black_box(spin()) + 1
}

#[tokio::test]
async fn stack_names_the_working_function_and_its_caller() {
    let _alone = alone().await;
    let before = Work::start(|| _ = black_box(asks_for_spin()));
    let are_enough = |stacks: &[Stack]| {
        let spinning = stacks.iter().filter(|stack| stack.position("spin").is_some());
        spinning.map(|stack| stack.samples).sum::<i64>() >= 5
    };
    let taken = tokio::spawn(profiles(Duration::from_millis(800), are_enough));
    tokio::time::sleep(Duration::from_millis(200)).await;
    // A thread that starts while the profile is taken is sampled as well.
    let later = Work::start(|| _ = black_box(asks_for_spin()));
    let stacks = taken.await.unwrap();
    drop((before, later));
    let mut samples = 0;
    for stack in &stacks {
        let Some(at) = stack.position("spin") else { continue };
        let (_, file, line) = &stack.functions[at];
        assert!(file.ends_with("profile/tests.rs") && *line > 0, "{file}:{line}");
        let caller = stack.position("asks_for_spin");
        assert!(caller.is_some_and(|caller| caller > at), "{:?}", stack.functions);
        samples += stack.samples;
    }
    assert!(samples >= 5, "{samples} of {}", stacks.iter().map(|stack| stack.samples).sum::<i64>());
}

extern "C" fn compare(left: *const libc::c_void, right: *const libc::c_void) -> libc::c_int {
    black_box(spin());
    i32::from(left > right)
}

#[expect(unsafe_code, reason = "a function of C that calls back")]
fn sorts_in_c() {
    let mut numbers = [3u32, 1, 2, 0];
    // SAFETY: there are four elements of that size, and the function to compare looks at none.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 4, 4, Some(compare)) };
    black_box(numbers);
}

#[tokio::test]
async fn stack_crosses_c_without_frame_pointers() {
    let _alone = alone().await;
    let _work = Work::start(sorts_in_c);
    let is_through = |stack: &Stack| {
        let callee = stack.position("compare");
        callee.is_some_and(|callee| stack.position("sorts_in_c").is_some_and(|caller| caller > callee))
    };
    let stacks = profiles(Duration::from_millis(400), |stacks| stacks.iter().any(is_through)).await;
    let functions = stacks.iter().map(|stack| &stack.functions).collect::<Vec<_>>();
    assert!(stacks.iter().any(is_through), "{functions:?}");
}

#[inline(never)]
fn undisturbed() -> u64 {
    spin()
}

#[tokio::test]
async fn uninterrupted_code_is_not_sampled() {
    let _alone = alone().await;
    let _work = Work::start(|| {
        let uninterrupted = uninterrupted();
        for _ in 0..100 {
            black_box(undisturbed());
        }
        drop(uninterrupted);
    });
    let _sampled = Work::start(|| _ = black_box(asks_for_spin()));
    let is_sampled = |stack: &Stack| stack.position("asks_for_spin").is_some();
    let stacks = profiles(Duration::from_millis(400), |stacks| stacks.iter().any(is_sampled)).await;
    assert!(stacks.iter().any(is_sampled));
    assert!(stacks.iter().all(|stack| stack.position("undisturbed").is_none()));
}

#[tokio::test]
async fn second_profile_is_rejected_until_the_first_ends() {
    let _alone = alone().await;
    let first = Profiling::start().unwrap();
    assert!(matches!(Profiling::start(), Err(ProfileError::InUse)));
    drop(first);
    let patience = Instant::now();
    while in_use() {
        assert!(patience.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(Profiling::start().unwrap().until(std::future::ready(())).await.is_ok());
}

#[tokio::test]
async fn children_of_a_sampled_thread_have_no_timer() {
    let _alone = alone().await;
    let _work = Work::start(|| {
        for _ in 0..50 {
            black_box(spin());
        }
        // A signal without a handler would end it.
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", busy]).status().unwrap().success());
    });
    assert!(!profiles(Duration::from_secs(1), |stacks| !stacks.is_empty()).await.is_empty());
}
