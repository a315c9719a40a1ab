//! Permits, and a queue of requests for them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::queue::FairQueue;
use crate::share::{Holdings, MaxShare};

/// A semaphore whose permits tenants share by the [rule](MaxShare). Clones share the permits.
///
/// Permits go to the tenant that holds least, and among equals to the tenant whose turn it is. The requests of a tenant keep
/// their order within a lane, and its lanes take turns. A request for many permits is not passed by smaller requests: while it is
/// the first of a tenant that holds nothing, nobody with a later turn is served. A request that exceeds the share of its tenant delays only
/// that tenant.
#[derive(Clone, Debug)]
pub struct FairSemaphore(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    holdings: Holdings,
    requests: FairQueue<Request>,
}

#[derive(Debug)]
struct Request {
    weight: usize,
    grant: oneshot::Sender<Permit>,
}

/// Permits of one tenant, which return when this is dropped.
#[derive(Debug)]
#[must_use = "permits return when this is dropped"]
pub struct Permit {
    semaphore: FairSemaphore,
    tenant: Arc<str>,
    weight: usize,
}

/// A request in the queue, which resolves to its [`Permit`]. Dropping it leaves nothing behind.
#[derive(Debug)]
#[must_use = "a request that nobody awaits gets no permit"]
pub struct Acquire {
    semaphore: FairSemaphore,
    tenant: Arc<str>,
    lane: Arc<str>,
    /// Until there is a permit.
    granted: Option<oneshot::Receiver<Permit>>,
}

/// Bounds one tenant to a quarter of the permits, until it is dropped.
#[derive(Debug)]
pub struct Throttle {
    semaphore: FairSemaphore,
    tenant: Arc<str>,
}

impl State {
    /// Whether nobody with a later turn is served before this request of a tenant.
    fn blocks(&self, tenant: &str, request: &Request) -> bool {
        self.holdings.rank(tenant) == 0 && !self.holdings.is_throttled(tenant, request.weight)
    }

    fn may_take(&self, tenant: &str, weight: usize) -> bool {
        let is_passed = |(other, request): (&Arc<str>, &Request)| **other == *tenant || self.blocks(other, request);
        self.holdings.allows(tenant, weight) && !self.requests.heads().any(is_passed)
    }

    /// Takes the next request out of the queue, and counts its permits, if it can be served.
    fn next(&mut self) -> Option<(Arc<str>, Request)> {
        let mut turns: Vec<(usize, usize)> =
            self.requests.heads().enumerate().map(|(at, (tenant, _))| (self.holdings.rank(tenant), at)).collect();
        turns.sort_unstable();
        for (_, at) in turns {
            let (tenant, request) = self.requests.heads().nth(at)?;
            if self.holdings.allows(tenant, request.weight) {
                let (tenant, request) = self.requests.pop_at(at)?;
                self.holdings.add(&tenant, request.weight);
                return Some((tenant, request));
            }
            if self.blocks(tenant, request) {
                return None;
            }
        }
        None
    }
}

impl FairSemaphore {
    /// A semaphore of which all permits are free.
    pub fn new(permits: usize, max_share: MaxShare) -> Self {
        let (holdings, requests) = (Holdings::new(permits, max_share), FairQueue::default());
        Self(Arc::new(Mutex::new(State { holdings, requests })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many permits exist, held or free.
    pub fn permits(&self) -> usize {
        self.state().holdings.permits()
    }

    /// How many permits are free.
    pub fn available(&self) -> usize {
        self.state().holdings.available()
    }

    /// How many permits a tenant holds.
    pub fn held_by(&self, tenant: &str) -> usize {
        self.state().holdings.held_by(tenant)
    }

    /// How many requests of a tenant wait.
    pub fn queued_by(&self, tenant: &str) -> usize {
        self.state().requests.len_of(tenant)
    }

    /// Whether nobody holds a permit, waits for one, or is throttled.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.holdings.is_empty() && state.requests.is_empty()
    }

    /// Whether another clone of it exists, such as that of a permit.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Takes permits without waiting, if they are free for the tenant and no request waits whose turn comes first.
    ///
    /// A weight above [`permits`](Self::permits) counts as all of them.
    pub fn try_acquire(&self, tenant: &str, weight: usize) -> Option<Permit> {
        let mut state = self.state();
        let weight = weight.min(state.holdings.permits());
        if !state.may_take(tenant, weight) {
            return None;
        }
        let tenant: Arc<str> = tenant.into();
        state.holdings.add(&tenant, weight);
        Some(Permit { semaphore: self.clone(), tenant, weight })
    }

    /// Takes one permit for the next of some tenants, which are in the order of their turns: the first of those that hold least
    /// and may hold one more.
    ///
    /// Callers use it that keep a queue of their own. Returns what stands beside the tenant, and the permit.
    pub fn try_acquire_for_next<'t, K>(&self, turns: impl IntoIterator<Item = (K, &'t str)>) -> Option<(K, Permit)> {
        let mut state = self.state();
        let eligible = turns.into_iter().filter(|(_, tenant)| state.may_take(tenant, 1));
        let (key, tenant) = eligible.min_by_key(|(_, tenant)| state.holdings.rank(tenant))?;
        let tenant: Arc<str> = tenant.into();
        state.holdings.add(&tenant, 1);
        Some((key, Permit { semaphore: self.clone(), tenant, weight: 1 }))
    }

    /// Requests permits for a tenant. The request is in the queue from here on, before anyone awaits it.
    ///
    /// A weight above [`permits`](Self::permits) counts as all of them.
    pub fn acquire(&self, tenant: &str, weight: usize) -> Acquire {
        self.acquire_in_lane(&tenant.into(), &"".into(), weight)
    }

    /// Requests permits in one of the lanes of a tenant, which take turns.
    pub fn acquire_in_lane(&self, tenant: &Arc<str>, lane: &Arc<str>, weight: usize) -> Acquire {
        let (grant, granted) = oneshot::channel();
        {
            let mut state = self.state();
            let weight = weight.min(state.holdings.permits());
            state.requests.push(tenant, lane, Request { weight, grant });
        }
        self.serve();
        let (tenant, lane) = (Arc::clone(tenant), Arc::clone(lane));
        Acquire { semaphore: self.clone(), tenant, lane, granted: Some(granted) }
    }

    /// Bounds a tenant to a quarter of the permits. Others are unaffected.
    pub fn throttle(&self, tenant: &Arc<str>) -> Throttle {
        self.state().holdings.throttle(tenant);
        Throttle { semaphore: self.clone(), tenant: Arc::clone(tenant) }
    }

    /// Grants what is free to requests that wait.
    fn serve(&self) {
        loop {
            let next = self.state().next();
            let Some((tenant, Request { weight, grant })) = next else { return };
            // A permit whose request was dropped meanwhile returns, and serves the next one.
            let _ = grant.send(Permit { semaphore: self.clone(), tenant, weight });
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.state().holdings.remove(&self.tenant, self.weight);
        self.semaphore.serve();
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.semaphore.state().holdings.unthrottle(&self.tenant);
        self.semaphore.serve();
    }
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let granted = self.granted.as_mut().expect("nobody polls a future that is done");
        let permit = std::task::ready!(Pin::new(granted).poll(context)).expect("requests are granted or dropped");
        self.granted = None;
        Poll::Ready(permit)
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else { return };
        granted.close();
        self.semaphore.state().requests.retain_in(&self.tenant, &self.lane, |request| !request.grant.is_closed());
        // A permit that was granted and not awaited returns.
        drop(granted);
        self.semaphore.serve();
    }
}

#[cfg(test)]
mod tests;
