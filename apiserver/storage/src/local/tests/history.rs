//! Linearizability: many clients write and read at once on a disk that fails, in an order that a seed decides.
//!
//! Each client's call is a future that is polled when its turn comes; the writer works when its turn comes; and
//! then the machine goes down. What every call was told is compared with the log as it is read back afterwards:
//! there must be a moment between each call's begin and end at which its answer was true, in one order of all
//! moments, and what anybody was shown must have survived.

use std::collections::BTreeMap;

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture};
use stoa_machinery::log::{Change, Expect, Record};

use super::{
    super::{writer::Writer, *},
    ManualClock,
    crash::open,
    disk::{Faults, Random, SimulatedDisk},
    put, seeds,
};

const KEYS: [&str; 3] = ["/a", "/b", "/c"];
const CLIENTS: usize = 6;

/// What a call was told.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Written(Version),
    /// Refused, because this was there.
    Found(Option<Version>),
    /// A read: the version and the value there.
    Read(Option<(Version, bytes::Bytes)>),
    Head(Version),
    /// Nobody can say.
    Unknown,
}

/// One call, from its begin to its end; both are counted in steps.
#[derive(Clone, Debug)]
struct Call {
    key: &'static str,
    /// What was to be written, if anything was.
    write: Option<Write>,
    begun: u64,
    /// Set when there was an answer.
    ended: Option<u64>,
    answer: Answer,
}

type Pending = (Call, BoxFuture<'static, Answer>);

struct World {
    random: Random,
    disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    step: u64,
    written: u64,
    history: Vec<Call>,
    clients: Vec<Option<Pending>>,
}

fn answer(result: Result<Version, LogError>) -> Answer {
    match result {
        Ok(version) => Answer::Written(version),
        Err(LogError::Conflict { found, .. }) => Answer::Found(found),
        Err(LogError::Unavailable(_)) => Answer::Unknown,
        Err(error) => panic!("{error}"),
    }
}

impl World {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len())]
    }

    fn begin(&mut self, log: &Arc<LocalLog>) -> Pending {
        let key = self.pick(&KEYS);
        let log = Arc::clone(log);
        let mut call = Call { key, write: None, begun: self.step, ended: None, answer: Answer::Unknown };
        let future = match self.random.below(8) {
            0 => async move { Answer::Head(log.head().await.unwrap()) }.boxed(),
            1 | 2 => async move {
                let read = log.read(&Key::new(key)).await.unwrap();
                Answer::Read(read.map(|entry| (entry.version, entry.value)))
            }
            .boxed(),
            _ => {
                let write = self.some_write(&log, key);
                call.write = Some(write.clone());
                async move { answer(log.append(write).await) }.boxed()
            }
        };
        (call, future)
    }

    fn some_write(&mut self, log: &LocalLog, key: &'static str) -> Write {
        self.written += 1;
        // As it is now, which others may change before this write is decided.
        let there = log.read(&Key::new(key)).now_or_never().unwrap().unwrap();
        let expect = match (self.random.below(4), there) {
            (0, _) => Expect::Any,
            (1, _) => Expect::Absent,
            (_, Some(entry)) => Expect::At(entry.version),
            (_, None) => Expect::Absent,
        };
        let padding = self.random.below(60);
        let mut write = put(key, expect, format!("{} {}", self.written, "x".repeat(padding)));
        write.origin.message = self.written.to_string();
        if self.random.one_in(5) {
            write.change = Change::Delete;
        }
        write
    }

    fn poll(&mut self, client: usize) {
        let Some((mut call, mut future)) = self.clients[client].take() else { return };
        match (&mut future).now_or_never() {
            None => self.clients[client] = Some((call, future)),
            Some(answer) => {
                (call.ended, call.answer) = (Some(self.step), answer);
                self.history.push(call);
            }
        }
    }

    /// Lets clients and the writer work in any order for a while, or until the machine is down.
    fn live(&mut self, log: &Arc<LocalLog>, writer: &mut Writer, requests: &mut mpsc::Receiver<Request>) {
        for _ in 0..20 + self.random.below(100) {
            self.step += 1;
            if self.random.one_in(4) {
                if let Ok(request) = requests.try_recv() {
                    writer.batch(request, requests);
                }
                continue;
            }
            let client = self.random.below(CLIENTS);
            if self.clients[client].is_none() {
                self.clients[client] = Some(self.begin(log));
            }
            self.poll(client);
        }
    }

    /// Everything ends where it is; no call gets an answer any more.
    fn crash(&mut self, opened: (Arc<LocalLog>, Writer, mpsc::Receiver<Request>)) {
        let pending = self.clients.iter_mut().filter_map(Option::take).map(|(call, _)| call);
        self.history.extend(pending);
        drop(opened);
        if self.random.one_in(2) {
            self.disk.after_power_cut();
        } else {
            self.disk.stay_up();
        }
        self.disk.set_faults(Faults::default());
        self.step += 1;
    }
}

/// The values of a key: from which version on it had which.
fn states(records: &[Record], key: &str) -> Vec<(Version, Option<(Version, bytes::Bytes)>)> {
    let mut states = vec![(Version(0), None)];
    for record in records.iter().filter(|record| record.key.as_str() == key) {
        let value = match &record.change {
            Change::Put(value) => Some((record.version, value.clone())),
            Change::Delete => None,
        };
        states.push((record.version, value));
    }
    states
}

/// Finds a moment for every call, or panics.
fn check(history: &mut [Call], records: &[Record]) {
    assert!(records.iter().zip(1..).all(|(record, n)| record.version == Version(n)), "versions follow each other");
    let mut found: BTreeMap<&str, Version> = BTreeMap::new();
    for record in records {
        let twice = found.insert(record.origin.message.as_str(), record.version);
        assert_eq!(twice, None, "{record:?} is there twice");
    }
    history.sort_by_key(|call| call.begun);
    let states: BTreeMap<&str, _> = KEYS.iter().map(|key| (*key, states(records, key))).collect();
    let before = |key: &str, version: Version| {
        let at = states[key].partition_point(|(since, _)| *since < version);
        states[key][at - 1].1.as_ref().map(|(version, _)| *version)
    };
    let last = Version(records.len() as u64);
    // When each call that has ended did, and the version that had been written at its moment.
    let mut moments: Vec<(u64, Version)> = Vec::new();
    for call in history.iter() {
        let earliest = moments.iter().filter(|(ended, _)| *ended < call.begun).map(|(_, at)| *at).max();
        let earliest = earliest.unwrap_or_default();
        let version = call.write.as_ref().and_then(|write| found.remove(write.origin.message.as_str()));
        if let (Some(write), Some(version)) = (&call.write, version) {
            let record = &records[usize::try_from(version.0 - 1).unwrap()];
            assert_eq!((&record.key, &record.change), (&write.key, &write.change), "a write is there whole");
            let there = before(call.key, version);
            let holds = match write.expect {
                Expect::Any => true,
                Expect::Absent => there.is_none() && write.change != Change::Delete,
                Expect::At(expected) => there == Some(expected),
            };
            assert!(holds, "{call:?} was written at {version} over {there:?}");
            assert!(version > earliest, "{call:?} is at {version}, before {earliest}, which it began after");
        }
        let at = match &call.answer {
            // It may come about long after it was given up, when the log is read back.
            Answer::Unknown => None,
            Answer::Written(told) => {
                assert_eq!(version, Some(*told), "{call:?} was acknowledged");
                version
            }
            Answer::Head(head) => {
                assert!(*head >= earliest && *head <= last, "{call:?} after {earliest}, and there is {last}");
                Some(*head)
            }
            Answer::Found(_) | Answer::Read(_) => {
                assert_eq!(version, None, "{call:?} was refused");
                let is_told = |state: &Option<(Version, bytes::Bytes)>| match &call.answer {
                    Answer::Found(told) => state.as_ref().map(|(version, _)| *version) == *told,
                    Answer::Read(told) => state == told,
                    Answer::Written(_) | Answer::Head(_) | Answer::Unknown => false,
                };
                // The first stretch in which it was true that had not ended when the call began.
                let of_key = &states[call.key];
                let ends = of_key.iter().skip(1).map(|(since, _)| *since).chain([Version(u64::MAX)]);
                let moment = of_key.iter().zip(ends).find(|((_, state), end)| *end > earliest && is_told(state));
                let ((since, _), _) = moment.unwrap_or_else(|| panic!("{call:?} was true at no time after {earliest}"));
                Some(earliest.max(*since))
            }
        };
        if let (Some(ended), Some(at)) = (call.ended, at) {
            moments.push((ended, at));
        }
    }
    assert!(found.is_empty(), "these came from nowhere: {found:?}");
    // Nobody was told of anything before it was asked for.
    for call in history.iter() {
        let shown = match &call.answer {
            Answer::Written(_) | Answer::Unknown => None,
            Answer::Found(version) => *version,
            Answer::Read(told) => told.as_ref().map(|(version, _)| *version),
            Answer::Head(version) => Some(*version),
        };
        if let (Some(shown), Some(ended)) = (shown.filter(|shown| shown.0 > 0), call.ended) {
            let id = &records[usize::try_from(shown.0 - 1).unwrap()].origin.message;
            let writer = history.iter().find(|other| other.write.as_ref().is_some_and(|w| w.origin.message == *id));
            assert!(writer.is_some_and(|writer| writer.begun <= ended), "{call:?} was told of the future");
        }
    }
}

fn live(seed: u64) {
    let mut random = Random::new(seed);
    let disk = SimulatedDisk::new(Random::new(random.next()));
    let clock = Arc::new(ManualClock::default());
    let clients = (0..CLIENTS).map(|_| None).collect();
    let mut world =
        World { random, disk, clock: Arc::clone(&clock), step: 0, written: 0, history: Vec::new(), clients };
    for _ in 0..3 {
        let mut opened = open(&world.disk, &world.clock).expect("a disk that works");
        let faults = world.pick(&[
            Faults::default(),
            Faults { sync: 10, write: 8, ..Faults::default() },
            Faults { write: 4, directory: 8, ..Faults::default() },
        ]);
        world.disk.set_faults(faults);
        if world.random.one_in(2) {
            let operations = 1 + world.random.below(30) as u64;
            world.disk.go_down_in(operations);
        }
        let (log, writer, requests) = &mut opened;
        world.live(log, writer, requests);
        world.crash(opened);
    }
    let (log, _writer, _requests) = open(&world.disk, &world.clock).expect("a disk that works");
    let head = log.head().now_or_never().unwrap().unwrap();
    let follow = log.follow(Version(0)).now_or_never().unwrap().unwrap();
    let records = follow.take(head.0 as usize).map(Result::unwrap).collect::<Vec<_>>();
    check(&mut world.history, &records.now_or_never().expect("all are there"));
}

#[test]
fn what_many_clients_are_told_is_one_history() {
    seeds(2_000, live);
}

#[test]
fn a_history_that_is_not_one_is_recognised() {
    let record = |version: u64, value: &str| {
        let write = put("/a", Expect::Any, value.to_owned());
        let origin = stoa_machinery::log::Origin { message: value.to_owned(), ..write.origin };
        Record { version: Version(version), key: write.key, change: write.change, origin, time_ms: 0 }
    };
    let write = |value: &str, begun, ended, answer| {
        let mut write = put("/a", Expect::Any, value.to_owned());
        write.origin.message = value.to_owned();
        Call { key: "/a", write: Some(write), begun, ended, answer }
    };
    let read = |begun, ended, told: Option<(u64, &str)>| {
        let told = told.map(|(version, value)| (Version(version), bytes::Bytes::copy_from_slice(value.as_bytes())));
        Call { key: "/a", write: None, begun, ended: Some(ended), answer: Answer::Read(told) }
    };
    let one = || write("1", 1, Some(4), Answer::Written(Version(1)));
    let is_refused = |mut history: Vec<Call>, records: Vec<Record>| {
        std::panic::catch_unwind(move || check(&mut history, &records)).is_err()
    };
    assert!(!is_refused(vec![one(), read(2, 3, None), read(5, 6, Some((1, "1")))], vec![record(1, "1")]));
    assert!(is_refused(vec![one()], vec![]), "an acknowledged write is lost");
    assert!(is_refused(vec![one(), read(5, 6, None)], vec![record(1, "1")]), "a read is older than a write before it");
    let back = vec![one(), read(2, 3, Some((1, "1"))), read(4, 5, None)];
    assert!(is_refused(back, vec![record(1, "1")]), "reads go back");
    assert!(is_refused(vec![read(1, 2, Some((1, "1")))], vec![]), "what was shown is lost");
    let two = || write("2", 5, Some(6), Answer::Written(Version(1)));
    let swapped = vec![write("1", 1, Some(4), Answer::Written(Version(2))), two()];
    assert!(is_refused(swapped, vec![record(1, "2"), record(2, "1")]), "writes are in another order than they came");
    assert!(is_refused(vec![], vec![record(1, "1")]), "a write came from nowhere");
}
