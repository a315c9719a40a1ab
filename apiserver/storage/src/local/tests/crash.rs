//! Thousands of short lives of a log on a disk that fails, each from a seed.
//!
//! After every restart the log is read as a whole and compared with a model that knows what was
//! acknowledged, what was refused and what was left open.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
};
use stoa_machinery::log::{Change, Expect, Fence, Record};

use super::{
    super::{writer::Writer, *},
    ManualClock,
    disk::{Faults, Random, SimulatedDisk, Size},
    put, seeds,
};

const KEYS: [&str; 4] = ["/a", "/b", "/c/1", "/c/2"];
const LEASES: [&str; 2] = ["run/one", "run/two"];
const TTL: Duration = Duration::from_secs(10);
/// How long a lease lasts by a clock of whole milliseconds.
const HELD_MS: i64 = 10_001;

/// What must be true of the log.
#[derive(Default)]
struct Model {
    /// Every record that is known to be in the log, by version, without a gap.
    records: BTreeMap<Version, Write>,
    /// Writes whose fate is open: each may turn up once, after a restart.
    open: Vec<Write>,
    /// The greatest token that was granted.
    token: u64,
    /// Who is known to hold a lease, until when, and with which token.
    held: BTreeMap<&'static str, (&'static str, i64, u64)>,
    /// The version up to which a compaction was acknowledged, or left open.
    compacted: Version,
    maybe_compacted: Version,
}

impl Model {
    fn head(&self) -> Version {
        self.records.last_key_value().map_or(Version(0), |(version, _)| *version)
    }

    fn values(&self, at: Version) -> BTreeMap<Key, (Version, bytes::Bytes)> {
        let mut values = BTreeMap::new();
        for (version, write) in self.records.range(..=at) {
            match &write.change {
                Change::Put(value) => values.insert(write.key.clone(), (*version, value.clone())),
                Change::Delete => values.remove(&write.key),
            };
        }
        values
    }

    /// Checks that a write was allowed where it was appended.
    fn admit(&mut self, version: Version, write: Write) {
        assert_eq!(version, Version(self.head().0 + 1), "versions follow each other");
        let found = self.values(self.head()).get(&write.key).map(|(version, _)| *version);
        let holds = match write.expect {
            Expect::Any => true,
            Expect::Absent => found.is_none() && write.change != Change::Delete,
            Expect::At(expected) => found == Some(expected),
        };
        assert!(holds, "{write:?} was appended at {version} though {found:?} was there");
        self.records.insert(version, write);
    }
}

struct Life {
    random: Random,
    disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    model: Model,
    values: u64,
    log: Arc<LocalLog>,
    writer: Writer,
    requests: mpsc::Receiver<Request>,
}

pub(super) type Opened = (Arc<LocalLog>, Writer, mpsc::Receiver<Request>);

pub(super) fn open(disk: &SimulatedDisk, clock: &Arc<ManualClock>) -> Result<Opened, LogError> {
    let options = LocalOptions { segment_bytes: 400, clock: Arc::clone(clock) as _ };
    let (log, writer, requests) = LocalLog::without_thread(Arc::new(disk.clone()), options)?;
    Ok((Arc::new(log), writer, requests))
}

impl Life {
    fn begin(seed: u64) -> Self {
        Self::begin_with(seed, |_| {})
    }

    /// Begins on a disk that something is done to before it is used.
    fn begin_with(seed: u64, prepare: impl FnOnce(&SimulatedDisk)) -> Self {
        let mut random = Random::new(seed);
        let disk = SimulatedDisk::new(Random::new(random.next()));
        prepare(&disk);
        let clock = Arc::new(ManualClock::default());
        let (log, writer, requests) = open(&disk, &clock).unwrap_or_else(|_| {
            // It went down before it began.
            disk.after_power_cut();
            open(&disk, &clock).unwrap()
        });
        Self { random, disk, clock, model: Model::default(), values: 0, log, writer, requests }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len())]
    }

    /// Lets the writer work until nobody waits.
    fn work(writer: &mut Writer, requests: &mut mpsc::Receiver<Request>) {
        while let Ok(request) = requests.try_recv() {
            writer.batch(request, requests);
        }
    }

    /// Starts all calls, lets the writer work, and collects the answers.
    fn answers<T>(&mut self, calls: Vec<BoxFuture<'static, T>>) -> Vec<T> {
        let mut all = join_all(calls);
        assert!((&mut all).now_or_never().is_none(), "the writer has not run yet");
        Self::work(&mut self.writer, &mut self.requests);
        all.now_or_never().expect("the writer has answered")
    }

    fn answer<T, F: Future<Output = T> + Send + 'static>(&mut self, call: impl FnOnce(Arc<LocalLog>) -> F) -> T {
        let call = call(Arc::clone(&self.log)).boxed();
        self.answers(vec![call]).remove(0)
    }

    fn some_write(&mut self) -> Write {
        self.values += 1;
        let key = self.pick(&KEYS);
        let there = self.model.values(self.model.head()).get(&Key::new(key)).map(|(version, _)| *version);
        let expect = match (self.random.below(6), there) {
            (0, _) => Expect::Any,
            (1, _) => Expect::At(Version(self.random.below(self.model.head().0 as usize + 3) as u64)),
            (_, None) => Expect::Absent,
            (_, Some(version)) => Expect::At(version),
        };
        let length = self.random.below(60);
        let value = format!("{} {}", self.values, "x".repeat(length));
        let mut write = put(key, expect, value);
        // A delete is told from others by its message, as a value is by its number.
        write.origin.message = self.values.to_string();
        if self.random.one_in(5) {
            write.change = Change::Delete;
        }
        let name = self.pick(&LEASES);
        if self.random.one_in(5)
            && let Some((_, _, token)) = self.model.held.get(name)
        {
            let token = token - self.random.below(2) as u64;
            write.fence = Some(Fence { lease: name.to_owned(), token });
        }
        write
    }

    fn write_some(&mut self) {
        let count = 1 + self.random.below(5);
        let writes: Vec<Write> = (0..count).map(|_| self.some_write()).collect();
        let now = self.clock.steady_ms();
        let calls = writes.clone();
        let call = |write| {
            let log = Arc::clone(&self.log);
            async move { log.append(write).await }.boxed()
        };
        let answers = self.answers(calls.into_iter().map(call).collect());
        for (write, answer) in writes.into_iter().zip(answers) {
            match answer {
                Ok(version) => {
                    if let Some(fence) = &write.fence {
                        let held = self.model.held.get(fence.lease.as_str());
                        assert!(
                            held.is_some_and(|(_, until, token)| *token == fence.token && now < *until),
                            "{write:?} was appended under a lease that was {held:?} at {now}"
                        );
                    }
                    self.model.admit(version, write);
                }
                Err(LogError::Conflict { .. } | LogError::Fenced { .. }) => {}
                Err(LogError::Unavailable(_)) => self.model.open.push(write),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn lease_some(&mut self) {
        let (name, holder) = (self.pick(&LEASES), self.pick(&["x", "y"]));
        let now = self.clock.steady_ms();
        let known = self.model.held.get(name).copied();
        let lease = |token| Lease { name: name.to_owned(), holder: String::new(), token, ttl: TTL };
        match (self.random.below(4), known) {
            (0, Some((holder, until, token))) => {
                let lease = lease(token);
                match self.answer(|log| async move { log.renew(&lease).await }) {
                    Ok(()) => {
                        assert!(now < until, "renewed after it expired");
                        self.model.held.insert(name, (holder, now + HELD_MS, token));
                    }
                    Err(LogError::Fenced { .. }) => assert!(now >= until, "held, and yet fenced"),
                    Err(_) => drop(self.model.held.remove(name)),
                }
            }
            (1, Some((_, _, token))) => {
                let lease = lease(token);
                // Released or unknown: nobody is known to hold it either way.
                let _ = self.answer(|log| async move { log.release(&lease).await });
                self.model.held.remove(name);
            }
            _ => match self.answer(move |log| async move { log.acquire(name, holder, TTL).await }) {
                Ok(lease) => {
                    assert!(lease.token > self.model.token, "a token was used twice");
                    self.model.token = lease.token;
                    if let Some((before, until, _)) = known {
                        assert!(before == holder || now >= until, "taken from {before} before {until}");
                    }
                    self.model.held.insert(name, (holder, now + HELD_MS, lease.token));
                }
                Err(LogError::Held { .. }) => {}
                Err(_) => drop(self.model.held.remove(name)),
            },
        }
    }

    fn compact(&mut self) {
        let head = self.log.head().now_or_never().unwrap().unwrap();
        let before = if self.random.one_in(3) { head } else { Version(self.random.below(head.0 as usize + 1) as u64) };
        let compacted = self.log.shared.kept(before).and_then(|kept| {
            // The writer goes on meanwhile.
            for _ in 0..self.random.below(6) {
                if self.random.one_in(3) { self.write_some() } else { self.lease_some() }
            }
            kept.map_or(Ok(()), |kept| self.log.shared.compact_to(kept))
        });
        match compacted {
            Ok(()) => self.model.compacted = self.model.compacted.max(before),
            Err(LogError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
        self.model.maybe_compacted = self.model.maybe_compacted.max(before);
    }

    /// Ends the process, or the machine, and starts it again.
    fn restart(self) -> Self {
        let mut again = self.begin_again();
        // How much time had passed is not known: whoever held a lease has all of its time once more.
        let until = again.clock.steady_ms() + HELD_MS;
        again.model.held.values_mut().for_each(|held| held.1 = until);
        again
    }

    /// It may take several attempts.
    fn begin_again(mut self) -> Self {
        loop {
            let power_cut = self.random.one_in(2);
            drop((self.writer, self.requests, self.log));
            if power_cut {
                self.disk.after_power_cut();
            } else {
                self.disk.stay_up();
            }
            if self.random.one_in(4) {
                self.disk.go_down_in(1 + self.random.below(12) as u64);
            }
            let opened = open(&self.disk, &self.clock);
            match opened {
                Ok((log, writer, requests)) => {
                    self = Self { log, writer, requests, ..self };
                    if !self.disk.is_down() {
                        self.disk.stay_up();
                        return self;
                    }
                }
                Err(LogError::Unavailable(_)) => {
                    // The next attempt is from an empty hand, on a disk that is well.
                    self.disk.set_faults(Faults::default());
                    if self.random.one_in(2) {
                        self.disk.after_power_cut();
                    } else {
                        self.disk.stay_up();
                    }
                    let (log, writer, requests) = open(&self.disk, &self.clock).expect("a disk that works again");
                    return Self { log, writer, requests, ..self };
                }
                Err(error) => panic!("after a restart: {error}"),
            }
        }
    }

    /// Compares the log with the model.
    fn check(&mut self) {
        let oldest = self.log.oldest();
        assert!(
            self.model.compacted <= oldest && oldest <= self.model.maybe_compacted,
            "the oldest version is {oldest}, compacted to {} or {}",
            self.model.compacted,
            self.model.maybe_compacted
        );
        self.model.compacted = oldest;
        let head = self.log.head().now_or_never().unwrap().unwrap();
        let follow = self.log.follow(oldest).now_or_never().unwrap().unwrap();
        let count = (head.0 - oldest.0) as usize;
        let records: Vec<Record> =
            follow.take(count).map(|record| record.unwrap()).collect::<Vec<_>>().now_or_never().expect("all are there");
        assert!(head >= self.model.head(), "the head went from {} to {head}", self.model.head());
        for record in records {
            match self.model.records.get(&record.version) {
                Some(write) => {
                    assert_eq!(
                        (&write.key, &write.change, &write.origin),
                        (&record.key, &record.change, &record.origin)
                    );
                }
                None => {
                    let was_open = |write: &Write| {
                        (&write.key, &write.change, &write.origin) == (&record.key, &record.change, &record.origin)
                    };
                    let at = self.model.open.iter().position(was_open);
                    let write = self.model.open.remove(at.unwrap_or_else(|| panic!("{record:?} came from nowhere")));
                    self.model.admit(record.version, write);
                }
            }
        }
        assert_eq!(self.model.head(), head);
        let old = Version(oldest.0 + self.random.below(count + 1) as u64);
        for at in [None, Some(oldest), Some(old), Some(head)] {
            let found = self.log.scan("/", at).now_or_never().unwrap().unwrap();
            let found: BTreeMap<_, _> = found.entries.into_iter().map(|e| (e.key, (e.version, e.value))).collect();
            assert_eq!(found, self.model.values(at.unwrap_or(head)), "at {at:?}");
        }
        let prefix: BTreeSet<_> =
            self.model.values(head).into_keys().filter(|k| k.as_str().starts_with("/c/")).collect();
        let found = self.log.scan("/c/", None).now_or_never().unwrap().unwrap();
        assert_eq!(found.entries.into_iter().map(|entry| entry.key).collect::<BTreeSet<_>>(), prefix);
    }
}

fn live(seed: u64) {
    let mut life = Life::begin(seed);
    for _ in 0..3 {
        let rates = [
            Faults::default(),
            Faults { sync: 12, write: 6, directory: 8, read: 0 },
            Faults { write: 4, read: 8, ..Faults::default() },
        ];
        let faults = life.pick(&rates);
        life.disk.set_faults(faults);
        if life.random.one_in(2) {
            let operations = 1 + life.random.below(40) as u64;
            life.disk.go_down_in(operations);
        }
        if life.random.one_in(3) {
            let room = life.random.below(1_500) as u64;
            let is_told = life.random.one_in(2);
            life.disk.set_size(Some(Size { bytes: life.disk.used() + room, is_told }));
        }
        for _ in 0..2 + life.random.below(12) {
            match life.random.below(10) {
                0 => life.compact(),
                1 | 2 => life.lease_some(),
                3 => {
                    life.clock.0.fetch_add(life.random.below(12_000) as i64, Relaxed);
                    // Somebody sets the clock of the machine, which is for people alone.
                    life.clock.1.store(life.random.below(60_000) as i64 - 30_000, Relaxed);
                }
                _ => life.write_some(),
            }
        }
        life.disk.set_faults(Faults { sync: faults.sync, read: faults.read, ..Faults::default() });
        life.disk.set_size(None);
        life = life.restart();
        life.disk.set_faults(Faults::default());
        life.check();
    }
    // And it still works.
    life.write_some();
    assert!(!life.log.shared.failed.load(Relaxed));
    life.check();
}

#[test]
fn no_acknowledged_write_is_lost_and_none_appears() {
    seeds(2_000, live);
}

/// Does the same things every time, as far as the disk lets it.
fn script(life: &mut Life) {
    for step in 0..12 {
        match step % 6 {
            2 => life.lease_some(),
            5 => life.compact(),
            _ => life.write_some(),
        }
    }
}

/// A life whose machine goes down at the given operation, and at another one while it recovers from that. Says whether
/// it came to both.
fn live_down_at(seed: u64, operation: u64, of_recovery: u64, power_cut: bool) -> (bool, bool) {
    let mut life = Life::begin_with(seed, |disk| disk.go_down_in(operation));
    script(&mut life);
    let reached = life.disk.operations() >= operation;
    drop((life.writer, life.requests, life.log));
    let restart = |disk: &SimulatedDisk| if power_cut { disk.after_power_cut() } else { disk.stay_up() };
    restart(&life.disk);
    let before = life.disk.operations();
    life.disk.go_down_in(of_recovery);
    drop(open(&life.disk, &life.clock));
    let reached_again = life.disk.operations() >= before + of_recovery;
    restart(&life.disk);
    let (log, writer, requests) = open(&life.disk, &life.clock).expect("a disk that works again");
    let mut life = Life { log, writer, requests, ..life };
    life.check();
    life.write_some();
    life.check();
    (reached, reached_again)
}

#[test]
fn every_operation_may_be_the_last() {
    seeds(2, |seed| {
        for power_cut in [true, false] {
            let mut operation = 0;
            let mut reached = true;
            while reached {
                operation += 1;
                let mut of_recovery = 0;
                let mut again = true;
                while again {
                    of_recovery += 1;
                    (reached, again) = live_down_at(seed, operation, of_recovery, power_cut);
                }
            }
            assert!(operation > 40, "there are only {operation} operations");
        }
    });
}
