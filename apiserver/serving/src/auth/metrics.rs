//! Metrics of delegated authentication and authorization, under upstream's names.
//!
//! Follows `k8s.io/apiserver/pkg/authentication/authenticatorfactory`, `…/authentication/token/cache`,
//! `…/authentication/request/x509` and `…/authorization/authorizerfactory`.

use std::time::{Duration, Instant};

use http::StatusCode;
use prometheus::{DEFAULT_BUCKETS, Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};
use stoa_registry::metrics::Families;

const CALL_BUCKETS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
/// How long certificates are good for still; a month has 30 days and a year 360.
const LIFETIMES: [f64; 14] = [
    0.0,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    4.0 * DAY,
    7.0 * DAY,
    30.0 * DAY,
    90.0 * DAY,
    180.0 * DAY,
    360.0 * DAY,
];

/// The metrics of a server's authentication and authorization.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) token_reviews: Calls,
    pub(super) access_reviews: Calls,
    pub(super) tokens: Tokens,
    /// How long client certificates are good for still, in seconds.
    pub(super) certificates: Histogram,
}

#[derive(Clone, Debug)]
pub(super) struct Calls {
    requests: IntCounterVec,
    durations: HistogramVec,
}

/// A call that is being made; counted when it is dropped, as an error if it has no answer then.
#[derive(Debug)]
pub(super) struct Call<'a> {
    calls: &'a Calls,
    began: Instant,
    pub(super) answer: Option<StatusCode>,
}

/// Answers about tokens that are kept for a while.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    requests: IntCounterVec,
    durations: HistogramVec,
    fetches: IntCounterVec,
    active: IntGaugeVec,
}

/// Something that goes on until this is dropped.
#[derive(Debug)]
pub(super) struct Active(IntGauge);

impl Metrics {
    /// Makes the metrics and registers them. Fails when there are metrics of the same names already.
    pub fn new(families: &Families) -> prometheus::Result<Self> {
        Ok(Self {
            token_reviews: Calls::new(families, "apiserver_delegated_authn_request")?,
            access_reviews: Calls::new(families, "apiserver_delegated_authz_request")?,
            tokens: Tokens::new(families)?,
            certificates: families.histogram(
                "apiserver_client_certificate_expiration_seconds",
                "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
                &LIFETIMES,
            )?,
        })
    }
}

impl Default for Metrics {
    /// Metrics that nobody reads.
    fn default() -> Self {
        Self::new(&Families::default()).expect("new families have no metrics yet")
    }
}

impl Calls {
    fn new(families: &Families, name: &str) -> prometheus::Result<Self> {
        Ok(Self {
            requests: families.counters(
                &format!("{name}_total"),
                "[ALPHA] Number of HTTP requests partitioned by status code.",
                &["code"],
            )?,
            durations: families.histograms(
                &format!("{name}_duration_seconds"),
                "[ALPHA] Request latency in seconds. Broken down by status code.",
                &CALL_BUCKETS,
                &["code"],
            )?,
        })
    }

    pub(super) fn begin(&self) -> Call<'_> {
        Call { calls: self, began: Instant::now(), answer: None }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let code = self.answer.as_ref().map_or("<error>", StatusCode::as_str);
        self.calls.requests.with_label_values(&[code]).inc();
        self.calls.durations.with_label_values(&[code]).observe(self.began.elapsed().as_secs_f64());
    }
}

/// Upstream gives these no help.
impl Tokens {
    fn new(families: &Families) -> prometheus::Result<Self> {
        Ok(Self {
            requests: families.counters("authentication_token_cache_request_total", "[ALPHA] ", &["status"])?,
            durations: families.histograms(
                "authentication_token_cache_request_duration_seconds",
                "[ALPHA] ",
                DEFAULT_BUCKETS,
                &["status"],
            )?,
            fetches: families.counters("authentication_token_cache_fetch_total", "[ALPHA] ", &["status"])?,
            active: families.gauges("authentication_token_cache_active_fetch_count", "[ALPHA] ", &["status"])?,
        })
    }

    /// It is known whose a token is, or not, and was before it was asked for or not.
    pub(super) fn asked(&self, was_known: bool, took: Duration) {
        let status = if was_known { "hit" } else { "miss" };
        self.requests.with_label_values(&[status]).inc();
        self.durations.with_label_values(&[status]).observe(took.as_millis() as f64 / 1000.0);
    }

    /// Somebody begins to wait for an answer.
    pub(super) fn blocked(&self) -> Active {
        self.begin("blocked")
    }

    pub(super) fn in_flight(&self) -> Active {
        self.begin("in_flight")
    }

    fn begin(&self, status: &str) -> Active {
        let active = self.active.with_label_values(&[status]);
        active.inc();
        Active(active)
    }

    /// An answer came, or did not.
    pub(super) fn fetched(&self, is_answer: bool) {
        self.fetches.with_label_values(&[if is_answer { "ok" } else { "error" }]).inc();
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}
