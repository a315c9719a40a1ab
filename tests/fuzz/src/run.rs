//! Runs targets without a fuzzer: the inputs that are kept, and random changes to them.

use std::{
    cell::Cell,
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Target,
    mutate::{Mutator, Random},
};

/// How long one input may take on a slow and busy machine, in a build that nothing was optimized in.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many bytes of memory one input may take; no input is larger than a few kilobytes.
const MOST_MEMORY: u64 = 2 << 30;

/// How a target is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What random changes follow from.
    pub seed: u64,
    /// How many inputs are made.
    pub inputs: usize,
    /// How long inputs are made, if there is no end to them before.
    pub time: Duration,
    /// The folder in which an input that something does not hold for is left, under the name of its target.
    pub found: PathBuf,
}

/// How many inputs are made for each target, if nothing else is said.
const INPUTS: usize = 500;
/// How many that are for `hack/test --all`.
const ALL_INPUTS: usize = 2_000;
/// How many seconds they are made for even then, so that a slow machine comes to an end.
const SECONDS: u64 = 5;

impl Options {
    /// As the environment says: `STOA_TEST_SEED` is the seed, and `STOA_FUZZ_SECONDS` the time, instead of a bounded
    /// number of inputs from the same seed every time. With `STOA_TEST_ALL` that number is larger.
    ///
    /// # Panics
    ///
    /// When one of them is no number.
    pub fn of_environment() -> Self {
        let number = |name: &str| {
            let text = env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} has to be a number, not {text:?}")))
        };
        let seconds = number("STOA_FUZZ_SECONDS");
        let inputs = if env::var_os("STOA_TEST_ALL").is_some() { ALL_INPUTS } else { INPUTS };
        Self {
            seed: number("STOA_TEST_SEED").unwrap_or(1),
            inputs: if seconds.is_some() { usize::MAX } else { inputs },
            time: Duration::from_secs(seconds.unwrap_or(SECONDS)),
            found: Path::new(env!("CARGO_MANIFEST_DIR")).join("found"),
        }
    }
}

/// How many inputs there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those in the corpus.
    pub kept: usize,
    /// Those that were made of them.
    pub made: usize,
}

/// Runs a target as the environment says, as a test.
///
/// # Panics
///
/// As [`run`], and when there was no input to run it on.
pub fn test(name: &'static str, check: fn(&[u8])) {
    let counts = run(Target { name, check }, Options::of_environment()).expect("the corpus is there");
    let Counts { kept, made } = counts;
    // Not for the test's own output, which nobody sees when all is well.
    let _ = writeln!(io::stderr(), "{name}: {kept} inputs kept and {made} made");
    assert!(kept > 0 && made > 0, "{name}: {counts:?}");
}

/// Runs a target on every input that is kept, then on changed ones. The same seed makes the same inputs.
///
/// # Errors
///
/// When the kept inputs cannot be read, or the folder for others not be written.
///
/// # Panics
///
/// When something does not hold for an input, or it takes too long or too much memory. The input is left in the folder
/// for what is found, which is also so when it ends the process.
pub fn run(target: Target, options: Options) -> io::Result<Counts> {
    let found = options.found.join(target.name);
    fs::create_dir_all(&options.found)?;
    let (progress, steps) = mpsc::channel();
    let place = found.clone();
    // A thread of its own can be left alone when it does not come back, and has the stack of those that serve requests.
    let thread = thread::Builder::new().name(target.name.to_owned());
    // Nobody listens any more once it took too long.
    let worker = thread.spawn(move || work(target, &options, &place, &|| progress.send(()).unwrap_or_default()))?;
    loop {
        match steps.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => panic!("{} takes too long for {}", target.name, found.display()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let counts = worker.join().unwrap_or_else(|_| panic!("{} does not hold for {}", target.name, found.display()))?;
    fs::remove_file(found)?;
    Ok(counts)
}

fn work(target: Target, options: &Options, place: &Path, done: &dyn Fn()) -> io::Result<Counts> {
    let peak = Cell::new(memory("VmHWM:"));
    let check = |input: &[u8]| {
        fs::write(place, input)?;
        let before = memory("VmRSS:");
        (target.check)(input);
        // Other tests of the same program have memory, too: only the growth is the input's.
        let growth = memory("VmHWM:").zip(before).map(|(peak, before)| peak.saturating_sub(before));
        let earlier = peak.replace(memory("VmHWM:"));
        assert!(
            earlier == peak.get() || growth.is_none_or(|bytes| bytes <= MOST_MEMORY),
            "an input took {growth:?} bytes of memory"
        );
        done();
        io::Result::Ok(())
    };
    let inputs = kept(target)?;
    inputs.iter().try_for_each(|input| check(input))?;
    let mut counts = Counts { kept: inputs.len(), made: 0 };
    let mutator = Mutator::new(inputs);
    let mut random = Random::new(options.seed);
    let started = Instant::now();
    while counts.made < options.inputs && started.elapsed() < options.time {
        check(&mutator.make(&mut random))?;
        counts.made += 1;
    }
    Ok(counts)
}

/// The inputs of the corpus, by name.
fn kept(target: Target) -> io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<_> = fs::read_dir(target.corpus())?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    files.iter().map(|file| fs::read(file.path())).collect()
}

/// A size in bytes of the status that the system keeps of the process, where it tells: `VmRSS:` is the memory in use, and
/// `VmHWM:` the most that ever was.
fn memory(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(kilobytes.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}
