//! Jobs that wait for a worker. Tenants have their turns one after the other, however many jobs each has, and none puts another
//! one here that has as many, or as much, as there is room left.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prometheus::IntGauge;
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

#[derive(Debug, Default)]
struct Jobs {
    /// The tenants whose jobs wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// By tenant; never empty.
    waiting: HashMap<Arc<str>, VecDeque<Ticket>>,
    count: usize,
    bytes: usize,
}

impl Queue {
    /// For so many jobs, and so many bytes of them; one may have more.
    pub(crate) fn new(jobs: usize, bytes: usize, gauge: IntGauge) -> Self {
        Self { most: (jobs, bytes), jobs: Mutex::default(), there: Semaphore::new(0), gauge }
    }

    /// Puts a job at the end of its tenant's; gives it back when too much waits already. Who names no tenant may have all that
    /// is left.
    pub(crate) fn put(&self, tenant: &str, ticket: Ticket) -> Result<(), Ticket> {
        let mut jobs = self.jobs();
        if !jobs.has_room(self.most, tenant, ticket.job.len()) {
            jobs.forget_unwanted();
            if !jobs.has_room(self.most, tenant, ticket.job.len()) {
                self.gauge.set(jobs.counted());
                return Err(ticket);
            }
        }
        jobs.count += 1;
        jobs.bytes += ticket.job.len();
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
        let all = std::mem::take(&mut *self.jobs());
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
    /// Whether a tenant may put a job of so many bytes here.
    fn has_room(&self, most: (usize, usize), tenant: &str, bytes: usize) -> bool {
        if self.count == 0 {
            return true;
        }
        let left = (most.0.saturating_sub(self.count), most.1.saturating_sub(self.bytes));
        let own = self.waiting.get(tenant).filter(|_| !tenant.is_empty());
        let own = own.map_or((0, 0), |own| (own.len(), own.iter().map(|ticket| ticket.job.len()).sum::<usize>()));
        own.0 < left.0 && own.1.saturating_add(bytes) <= left.1
    }

    fn counted(&self) -> i64 {
        i64::try_from(self.count).unwrap_or(i64::MAX)
    }

    fn take(&mut self) -> Option<Ticket> {
        let tenant = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&tenant)?;
        let ticket = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        if let Some(ticket) = &ticket {
            self.count -= 1;
            self.bytes -= ticket.job.len();
        }
        ticket
    }

    /// Drops what nobody waits for any more.
    fn forget_unwanted(&mut self) {
        for waiting in self.waiting.values_mut() {
            waiting.retain(|ticket| !ticket.reply.is_closed());
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        self.turns.retain(|tenant| self.waiting.contains_key(tenant));
        let wanted = || self.waiting.values().flatten();
        (self.count, self.bytes) = (wanted().count(), wanted().map(|ticket| ticket.job.len()).sum());
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
    }

    #[test]
    fn tenant_with_large_jobs_leaves_room_to_others() {
        let queue = queue(100, 10);
        let _large = put(&queue, "large", "1234").unwrap();
        assert!(put(&queue, "large", "123").is_err(), "less would be left to others than it has");
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
