//! The writer thread: it collects requests, decides each in turn, and makes all of them durable with a single write and sync.
//!
//! A request is decided against the state after the requests before it. No caller gets an answer, and no reader sees the state,
//! before the batch is durable.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use stoa_machinery::log::{Change, Lease, LogError, Record, Version, Write};
use tokio::sync::{mpsc, oneshot};

use super::{
    Shared,
    codec::{BatchWriter, Frame},
    disk::DiskFile,
    files::{self, Segment, unavailable},
    state::{Holding, State, Step, deadline},
};

/// A batch is closed when its payload gets this long, in bytes.
const BATCH_BYTES: usize = 8 << 20;

/// Something to write, and where to answer.
#[derive(Debug)]
pub(super) enum Request {
    Append(Box<Write>, Reply<Version>),
    Acquire { name: String, holder: String, ttl: Duration, reply: Reply<Lease> },
    Renew(Lease, Reply<()>),
    Release(Lease, Reply<()>),
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, LogError>>;

/// An answer that waits for the batch to be durable.
type Answer = Box<dyn FnOnce(Result<(), LogError>)>;

fn answer<T: 'static>(reply: Reply<T>, outcome: Result<T, LogError>) -> Answer {
    Box::new(move |durable| {
        // The caller may have left; the outcome stands all the same.
        let _ = reply.send(durable.and(outcome));
    })
}

/// The writing end of the log.
#[derive(Debug)]
pub(super) struct Writer {
    pub shared: Arc<Shared>,
    pub file: Box<dyn DiskFile>,
    /// The length of the open segment, in bytes.
    pub length: u64,
}

/// The effect of one batch, before it is durable.
struct Draft {
    state: State,
    steps: Vec<Step>,
    bytes: BatchWriter,
    /// The time for people, in records.
    now_ms: i64,
    /// The time that leases are measured by.
    steady_ms: i64,
}

impl Draft {
    fn decide(&mut self, request: Request) -> Answer {
        match request {
            Request::Append(write, reply) => {
                let outcome = self.append(*write);
                answer(reply, outcome)
            }
            Request::Acquire { name, holder, ttl, reply } => {
                let outcome = self.acquire(name, holder, ttl);
                answer(reply, outcome)
            }
            Request::Renew(lease, reply) => {
                let outcome = self.renew(&lease);
                answer(reply, outcome)
            }
            Request::Release(lease, reply) => {
                self.release(lease);
                answer(reply, Ok(()))
            }
        }
    }

    fn append(&mut self, write: Write) -> Result<Version, LogError> {
        let deletes = write.change == Change::Delete;
        self.state.check(&write.key, write.expect, deletes, write.fence.as_ref(), self.steady_ms)?;
        let version = Version(self.state.head.0 + 1);
        let record =
            Record { version, key: write.key, change: write.change, origin: write.origin, time_ms: self.now_ms };
        let frame = Frame::Record(record);
        self.bytes.push(&frame);
        if let Frame::Record(record) = frame {
            self.steps.push(self.state.apply(record));
        }
        Ok(version)
    }

    fn acquire(&mut self, name: String, holder: String, ttl: Duration) -> Result<Lease, LogError> {
        let held = self.state.leases.get(&name).filter(|held| self.steady_ms < held.deadline_ms);
        if let Some(held) = held.filter(|held| held.holder != holder) {
            return Err(LogError::Held { lease: name, holder: held.holder.clone() });
        }
        let token = self.state.token + 1;
        self.hold(Holding { name: name.clone(), holder: holder.clone(), token, ttl, deadline_ms: self.deadline(ttl) });
        Ok(Lease { name, holder, token, ttl })
    }

    fn renew(&mut self, lease: &Lease) -> Result<(), LogError> {
        let held = self.state.held(&lease.name, lease.token, self.steady_ms)?.clone();
        self.hold(Holding { deadline_ms: self.deadline(held.ttl), ..held });
        Ok(())
    }

    fn release(&mut self, lease: Lease) {
        if self.state.leases.get(&lease.name).is_some_and(|held| held.token == lease.token) {
            self.state.release(&lease.name, lease.token);
            self.bytes.push(&Frame::Released { name: lease.name, token: lease.token });
        }
    }

    fn hold(&mut self, held: Holding) {
        self.bytes.push(&Frame::Held(held.clone()));
        self.state.hold(held);
    }

    fn deadline(&self, ttl: Duration) -> i64 {
        deadline(self.steady_ms, ttl)
    }
}

impl Writer {
    /// Writes until no caller is left.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(request) = requests.blocking_recv() {
            self.batch(request, &mut requests);
        }
    }

    /// Writes one batch: this request and those that wait behind it.
    pub(super) fn batch(&mut self, request: Request, requests: &mut mpsc::Receiver<Request>) {
        if self.shared.failed.load(Relaxed) {
            return refuse(request);
        }
        let state = self.shared.published.read().state.clone();
        let mut draft = Draft {
            bytes: BatchWriter::new(state.batch + 1),
            state,
            steps: Vec::new(),
            now_ms: self.shared.clock.now_ms(),
            steady_ms: self.shared.clock.steady_ms(),
        };
        let mut answers = vec![draft.decide(request)];
        while draft.bytes.payload_len() < BATCH_BYTES
            && let Ok(request) = requests.try_recv()
        {
            // It may have come after the batch began.
            draft.steady_ms = self.shared.clock.steady_ms();
            answers.push(draft.decide(request));
        }
        let outcome = self.write(draft);
        for answer in answers {
            answer(match &outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(unavailable(Arc::clone(error))),
            });
        }
        self.roll();
    }

    /// Makes a batch durable and shows it to readers.
    fn write(&mut self, draft: Draft) -> Result<(), Arc<std::io::Error>> {
        if draft.bytes.payload_len() == 0 {
            return Ok(());
        }
        let Draft { mut state, steps, bytes, .. } = draft;
        let bytes = bytes.finish();
        if let Err(error) = self.file.append(&bytes) {
            // The kernel rejected these bytes, most likely because the disk is full. The written part is cut off, and then
            // the log is as before.
            tracing::error!(%error, "the log cannot be written");
            if let Err(error) = self.file.truncate(self.length) {
                self.fail(&error);
            }
            return Err(Arc::new(error));
        }
        if let Err(error) = self.file.sync() {
            // The kernel may have dropped the pages and would call the next sync a success, so
            // only reading the file again shows what is in it.
            self.fail(&error);
            return Err(Arc::new(error));
        }
        self.length += bytes.len() as u64;
        state.batch += 1;
        let head = state.head;
        let mut published = self.shared.published.write();
        for step in steps {
            published.history.push(step);
        }
        published.state = state;
        drop(published);
        self.shared.tip.send_if_modified(|tip| std::mem::replace(&mut tip.head, head) != head);
        Ok(())
    }

    /// Starts the next segment when this one is long enough.
    fn roll(&mut self) {
        if self.length < self.shared.options.segment_bytes || self.shared.failed.load(Relaxed) {
            return;
        }
        let mut state = self.shared.published.read().state.clone();
        let name = Segment { first: state.batch + 1, after: state.head }.name();
        match files::create_segment(self.shared.disk.as_ref(), &mut state) {
            Ok((segment, file, length)) => {
                self.file = file;
                self.length = length;
                self.shared.segments.lock().push(segment);
                self.shared.published.write().state.batch = state.batch;
            }
            // Before it has its name the new file means nothing, and the old one can go on.
            Err(error) => match self.shared.disk.list() {
                Ok(names) if !names.contains(&name) => {
                    tracing::warn!(%error, "no new segment can be started; the last one goes on");
                }
                _ => self.fail(&error),
            },
        }
    }

    fn fail(&self, error: &std::io::Error) {
        tracing::error!(%error, "the log takes no more writes until it is opened again");
        self.shared.failed.store(true, Relaxed);
    }
}

fn refuse(request: Request) {
    fn refused<T>(reply: Reply<T>) {
        let _ =
            reply.send(Err(unavailable("an earlier write failed in a way that only opening the log again can mend")));
    }
    match request {
        Request::Append(_, reply) => refused(reply),
        Request::Acquire { reply, .. } => refused(reply),
        Request::Renew(_, reply) | Request::Release(_, reply) => refused(reply),
    }
}
