//! Jobs that wait for a worker. Tenants have their turns one after the other, however many jobs each has, and share the room for
//! jobs and that for their bytes. One alone has half of each: with more that wait no worker would have more to do.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prometheus::IntGauge;
use stoa_shares::{Most, Shares};
use tokio::sync::{Semaphore, oneshot};

use crate::process::Failed;

/// A job, and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) job: Bytes,
    pub(crate) reply: oneshot::Sender<Result<Bytes, Failed>>,
}

/// What waits.
#[derive(Debug)]
pub(crate) struct Queue {
    /// How many jobs may wait, and how many bytes of them.
    most: (usize, usize),
    jobs: Mutex<Jobs>,
    /// One for each job that was put here and nobody came for.
    there: Semaphore,
    gauge: IntGauge,
}

#[derive(Debug)]
struct Jobs {
    /// The tenants whose jobs wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// By tenant; never empty.
    waiting: HashMap<Arc<str>, VecDeque<Ticket>>,
    count: Shares,
    bytes: Shares,
}

impl Queue {
    /// For so many jobs, and so many bytes of them; one may have more.
    pub(crate) fn new(jobs: usize, bytes: usize, gauge: IntGauge) -> Self {
        let most = (jobs, bytes);
        Self { most, jobs: Mutex::new(Jobs::new(most)), there: Semaphore::new(0), gauge }
    }

    /// Puts a job at the end of its tenant's; gives it back when too much waits already. Who names no tenant may have all that
    /// is left.
    pub(crate) fn put(&self, tenant: &str, ticket: Ticket) -> Result<(), Ticket> {
        let mut jobs = self.jobs();
        if !jobs.take_room(tenant, ticket.job.len()) {
            jobs.forget_unwanted();
            if !jobs.take_room(tenant, ticket.job.len()) {
                self.gauge.set(jobs.counted());
                return Err(ticket);
            }
        }
        match jobs.waiting.get_mut(tenant) {
            Some(waiting) => waiting.push_back(ticket),
            None => {
                let tenant: Arc<str> = tenant.into();
                jobs.turns.push_back(Arc::clone(&tenant));
                jobs.waiting.insert(tenant, VecDeque::from([ticket]));
            }
        }
        self.gauge.set(jobs.counted());
        drop(jobs);
        self.there.add_permits(1);
        Ok(())
    }

    /// The job whose turn it is, and which somebody still waits for. Nothing is lost when this is dropped.
    pub(crate) async fn next(&self) -> Ticket {
        loop {
            self.there.acquire().await.expect("nobody closes the semaphore").forget();
            let ticket = {
                let mut jobs = self.jobs();
                let ticket = jobs.take();
                self.gauge.set(jobs.counted());
                ticket
            };
            if let Some(ticket) = ticket.filter(|ticket| !ticket.reply.is_closed()) {
                return ticket;
            }
        }
    }

    /// Tells all who wait that nothing comes of it.
    pub(crate) fn fail(&self, why: &Failed) {
        let all = std::mem::replace(&mut *self.jobs(), Jobs::new(self.most));
        self.gauge.set(0);
        for ticket in all.waiting.into_values().flatten() {
            // Whoever went away needs no answer.
            let _ = ticket.reply.send(Err(why.clone()));
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    fn new((jobs, bytes): (usize, usize)) -> Self {
        let (count, bytes) = (Shares::new(jobs, Most::Half), Shares::new(bytes, Most::Half));
        Self { turns: VecDeque::new(), waiting: HashMap::new(), count, bytes }
    }

    /// Takes room for a job of so many bytes, if there is some for its tenant; says whether. One that is larger than all of it
    /// has all of it.
    fn take_room(&mut self, tenant: &str, bytes: usize) -> bool {
        let bytes = bytes.min(self.bytes.all());
        let has_room = self.count.is_free(tenant, 1) && self.bytes.is_free(tenant, bytes);
        if has_room {
            self.count.take(tenant, 1);
            self.bytes.take(tenant, bytes);
        }
        has_room
    }

    fn counted(&self) -> i64 {
        i64::try_from(self.count.taken()).unwrap_or(i64::MAX)
    }

    fn take(&mut self) -> Option<Ticket> {
        let tenant = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&tenant)?;
        let ticket = waiting.pop_front()?;
        self.count.give_back(&tenant, 1);
        self.bytes.give_back(&tenant, ticket.job.len().min(self.bytes.all()));
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        Some(ticket)
    }

    /// Drops what nobody waits for any more.
    fn forget_unwanted(&mut self) {
        let Self { turns, waiting, count, bytes } = self;
        waiting.retain(|tenant, tickets| {
            tickets.retain(|ticket| {
                let is_wanted = !ticket.reply.is_closed();
                if !is_wanted {
                    count.give_back(tenant, 1);
                    bytes.give_back(tenant, ticket.job.len().min(bytes.all()));
                }
                is_wanted
            });
            !tickets.is_empty()
        });
        turns.retain(|tenant| waiting.contains_key(tenant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = oneshot::Receiver<Result<Bytes, Failed>>;

    fn put(queue: &Queue, tenant: &str, job: &'static str) -> Result<Answer, Ticket> {
        let (reply, answer) = oneshot::channel();
        queue.put(tenant, Ticket { job: Bytes::from_static(job.as_bytes()), reply })?;
        Ok(answer)
    }

    fn queue(jobs: usize, bytes: usize) -> Queue {
        Queue::new(jobs, bytes, IntGauge::new("waiting", "waiting").unwrap())
    }

    #[tokio::test]
    async fn tenants_have_their_turns_however_many_jobs_each_has() {
        let queue = queue(10, 100);
        let jobs = [("many", "1"), ("many", "2"), ("many", "3"), ("few", "4"), ("one", "5"), ("few", "6")];
        let _answers = jobs.map(|(tenant, job)| put(&queue, tenant, job).unwrap());
        let mut order = String::new();
        for _ in jobs {
            order.push_str(std::str::from_utf8(&queue.next().await.job).unwrap());
        }
        assert_eq!((order.as_str(), queue.gauge.get()), ("145263", 0));
    }

    #[tokio::test]
    async fn no_more_waits_than_may_and_what_nobody_wants_does_not_count() {
        let queue = queue(3, 8);
        let large = put(&queue, "a", "123456789").unwrap();
        assert!(put(&queue, "b", "1").is_err(), "so many bytes wait");
        drop(large);
        let first = put(&queue, "b", "1").unwrap();
        let _second = put(&queue, "b", "2").unwrap();
        let _third = put(&queue, "c", "3").unwrap();
        assert!(put(&queue, "d", "4").is_err(), "so many jobs wait");
        drop(first);
        let _fourth = put(&queue, "d", "4").unwrap();
        assert_eq!(queue.gauge.get(), 3);
        for job in ["2", "3", "4"] {
            assert_eq!(queue.next().await.job, job);
        }
        let next = tokio::time::timeout(std::time::Duration::from_millis(20), queue.next()).await;
        assert!(next.is_err(), "{next:?}");
    }

    #[test]
    fn tenant_with_many_jobs_leaves_room_to_others() {
        let queue = queue(8, 100);
        let put_all = |tenant: &str, job| std::iter::from_fn(|| put(&queue, tenant, job).ok()).collect::<Vec<_>>();
        let many = put_all("many", "1");
        let few = put_all("few", "2");
        assert_eq!((many.len(), few.len(), put_all("", "3").len()), (4, 2, 2));
        drop(many);
        assert_eq!(put_all("few", "2").len(), 2, "what nobody waits for leaves its room");
    }

    #[test]
    fn tenant_with_large_jobs_leaves_room_to_others() {
        let queue = queue(100, 10);
        let _large = put(&queue, "large", "1234").unwrap();
        assert!(put(&queue, "large", "123").is_err(), "it would have more than half");
        let _again = put(&queue, "large", "1").unwrap();
        let _other = put(&queue, "other", "12345").unwrap();
    }

    #[tokio::test]
    async fn a_job_that_nobody_waits_for_has_no_turn() {
        let queue = queue(3, 8);
        drop(put(&queue, "a", "1").unwrap());
        let _wanted = put(&queue, "a", "2").unwrap();
        assert_eq!(queue.next().await.job, "2");
    }
}
