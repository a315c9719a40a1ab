//! Impersonation, for requests that reach this server directly.
//!
//! Behind the aggregation layer the kube-apiserver has done it already and sends no such headers on.
//!
//! Start at [`Impersonation`]. Whom a request wants to be is read in `headers`; the ways in which that can be allowed
//! are in `modes`: the constrained ones, which also look at what is done, and the one verb `impersonate` for
//! everything. `metrics` is what is counted of it.

pub(super) mod headers;
mod metrics;
mod modes;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Instant};

use http::HeaderMap;
use parking_lot::Mutex;
use stoa_meta::{
    authorizer::{Attributes, Authorizer},
    request::UserInfo,
    status::ApiError,
};
use stoa_registry::metrics::Families;

use self::{
    metrics::Metrics,
    modes::{Mode, Wanted},
};

/// How many users are remembered with the mode that last was allowed to them; as many as upstream remembers.
const REMEMBERED: usize = 10_000;

/// Decides on impersonation, and remembers how each user may do it, so that this is asked for first.
///
/// Follows `WithConstrainedImpersonation` in `k8s.io/apiserver/pkg/endpoints/filters/impersonation`.
#[derive(Debug)]
pub struct Impersonation {
    last: Mutex<HashMap<String, Mode>>,
    metrics: Metrics,
}

impl Default for Impersonation {
    /// Counts where nobody reads it.
    fn default() -> Self {
        Self::counted(&Families::default()).expect("new families have no metrics yet")
    }
}

/// Whom a request is made as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    /// The user.
    pub user: UserInfo,
    /// The verb that allowed it when that was a constrained one, such as `impersonate:user-info`; otherwise empty.
    pub constraint: String,
}

impl Impersonation {
    /// Counts what it decides. Fails when there are metrics of the same names already.
    pub fn counted(families: &Families) -> prometheus::Result<Self> {
        Ok(Self { last: Mutex::default(), metrics: Metrics::new(families)? })
    }

    /// Whom the request wants to act as, as far as one of the modes allows it to `user`; `None` when it wants to be
    /// nobody else. `attributes` is what it wants to do. The headers are removed.
    ///
    /// # Errors
    ///
    /// 400 when there is no user to impersonate or a value is not UTF-8; 403 in the words of the first mode that
    /// applies when none allows it; what the authorizer fails with.
    pub async fn decide(
        &self,
        headers: &mut HeaderMap,
        user: &UserInfo,
        attributes: &Attributes,
        authorizer: &dyn Authorizer,
    ) -> Result<Option<Impersonated>, ApiError> {
        let Some(requested) = headers::take_requested(headers)? else { return Ok(None) };
        let began = Instant::now();
        let found =
            self.allowed(&Wanted { requested: &requested, user, attributes, authorizer, metrics: &self.metrics }).await;
        let mode = found.as_ref().ok().map(|(mode, _)| mode.label());
        self.metrics.attempted(mode, began.elapsed());
        found.map(|(mode, user)| Some(Impersonated { user, constraint: mode.constraint() }))
    }

    /// The user that results, and the first mode that allows it.
    async fn allowed(&self, wanted: &Wanted<'_>) -> Result<(Mode, UserInfo), ApiError> {
        let user = &wanted.user.name;
        let last = self.last.lock().get(user).copied();
        let mut refusal = None;
        for mode in last.into_iter().chain(Mode::ALL.into_iter().filter(|mode| Some(*mode) != last)) {
            if !mode.applies(wanted) {
                continue;
            }
            match mode.check(wanted).await {
                Ok(allowed) => {
                    self.remember(user, mode);
                    return Ok((mode, allowed));
                }
                Err(error) => drop(refusal.get_or_insert(error)),
            }
        }
        Err(refusal.expect("the last mode applies to everybody"))
    }

    fn remember(&self, user: &str, mode: Mode) {
        let mut last = self.last.lock();
        if last.len() >= REMEMBERED && !last.contains_key(user) {
            // What is forgotten costs a question more, once.
            last.clear();
        }
        last.insert(user.to_owned(), mode);
    }
}
