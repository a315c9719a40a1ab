//! Jobs that wait for a worker.
//!
//! Tenants take turns, however many jobs each has. They share the slots for jobs and the memory for their bytes by the rule of
//! [`stoa_fairness`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prometheus::IntGauge;
use stoa_fairness::{FairQueue, FairSemaphore, MaxShare, Permit};
use tokio::sync::{Semaphore, oneshot};

use crate::process::Failed;

/// A job, and the caller that waits for its answer.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) job: Bytes,
    pub(crate) reply: oneshot::Sender<Result<Bytes, Failed>>,
}

/// The jobs that wait.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<FairQueue<QueuedJob>>,
    jobs: FairSemaphore,
    bytes: FairSemaphore,
    /// One permit for each job that was put here and that no worker came for.
    ready: Semaphore,
    gauge: IntGauge,
}

#[derive(Debug)]
struct QueuedJob {
    ticket: Ticket,
    _admitted: [Permit; 2],
}

impl QueuedJob {
    fn is_wanted(&self) -> bool {
        !self.ticket.reply.is_closed()
    }
}

impl Queue {
    /// A queue for so many jobs, and so many bytes of them; one job may have more.
    pub(crate) fn new(jobs: usize, bytes: usize, gauge: IntGauge) -> Self {
        let [jobs, bytes] = [jobs, bytes].map(|permits| FairSemaphore::new(permits, MaxShare::ThreeQuarters));
        Self { waiting: Mutex::default(), jobs, bytes, ready: Semaphore::new(0), gauge }
    }

    /// Puts a job at the end of its tenant's queue. Returns the job if the queue is full for its tenant.
    pub(crate) fn put(&self, tenant: &str, ticket: Ticket) -> Result<(), Ticket> {
        let mut waiting = self.waiting();
        let admitted = self.admit(tenant, ticket.job.len()).or_else(|| {
            waiting.retain(QueuedJob::is_wanted);
            self.admit(tenant, ticket.job.len())
        });
        let put = match admitted {
            Some(_admitted) => {
                waiting.push(&tenant.into(), &"".into(), QueuedJob { ticket, _admitted });
                self.ready.add_permits(1);
                Ok(())
            }
            None => Err(ticket),
        };
        self.count();
        put
    }

    fn admit(&self, tenant: &str, bytes: usize) -> Option<[Permit; 2]> {
        Some([self.jobs.try_acquire(tenant, 1)?, self.bytes.try_acquire(tenant, bytes)?])
    }

    /// The job whose turn it is, and which its caller still waits for. Dropping the future loses no job.
    pub(crate) async fn next(&self) -> Ticket {
        loop {
            self.ready.acquire().await.expect("nobody closes the semaphore").forget();
            let next = self.waiting().pop();
            let wanted = next.map(|(_, waiting)| waiting).filter(QueuedJob::is_wanted).map(|waiting| waiting.ticket);
            self.count();
            if let Some(ticket) = wanted {
                return ticket;
            }
        }
    }

    /// Answers all jobs that wait with an error.
    pub(crate) fn fail(&self, why: &Failed) {
        let all = std::mem::take(&mut *self.waiting());
        for QueuedJob { ticket, .. } in all.into_items() {
            // The caller may have left meanwhile.
            let _ = ticket.reply.send(Err(why.clone()));
        }
        self.count();
    }

    fn count(&self) {
        self.gauge.set(i64::try_from(self.jobs.permits() - self.jobs.available()).unwrap_or(i64::MAX));
    }

    fn waiting(&self) -> MutexGuard<'_, FairQueue<QueuedJob>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn tenants_take_turns_however_many_jobs_each_has() {
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
    async fn full_queue_rejects_jobs_and_forgets_unwanted_ones() {
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
    fn tenant_with_many_jobs_leaves_slots_to_others() {
        let queue = queue(8, 100);
        let put_all = |tenant: &str, job| std::iter::from_fn(|| put(&queue, tenant, job).ok()).collect::<Vec<_>>();
        let many = put_all("many", "1");
        let few = put_all("few", "2");
        assert_eq!((many.len(), few.len(), put_all("", "3").len()), (6, 1, 1));
        drop(many);
        assert_eq!(put_all("few", "2").len(), 5, "a job without a caller leaves its slot");
    }

    #[test]
    fn tenant_with_large_jobs_leaves_memory_to_others() {
        let queue = queue(100, 10);
        let _large = put(&queue, "large", "123456").unwrap();
        assert!(put(&queue, "large", "12").is_err(), "it would have more than three quarters");
        let _again = put(&queue, "large", "1").unwrap();
        let _other = put(&queue, "other", "123").unwrap();
    }

    #[tokio::test]
    async fn job_without_a_caller_has_no_turn() {
        let queue = queue(3, 8);
        drop(put(&queue, "a", "1").unwrap());
        let _wanted = put(&queue, "a", "2").unwrap();
        assert_eq!(queue.next().await.job, "2");
    }
}
