//! Health checks: `/healthz`, `/livez` and `/readyz`.
//!
//! Follows `k8s.io/apiserver/pkg/server/healthz`: `ok`, or with `?verbose` one line for each check; `?exclude=` leaves
//! checks out; `/livez/<check>` is one check. Why a check failed stands in the log and in the answer to the single
//! check, which takes permission, not in the answer that everybody may have.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use http::{Response, StatusCode, header};
use parking_lot::RwLock;

use super::slis::Slis;
use crate::http::{Body, query::Query, response};

/// Something that can be well or not.
#[async_trait]
pub trait HealthCheck: Send + Sync + 'static {
    /// Looks; the error says what is wrong, for operators.
    async fn check(&self) -> Result<(), String>;
}

#[async_trait]
impl<F> HealthCheck for F
where
    F: Fn() -> Result<(), String> + Send + Sync + 'static,
{
    async fn check(&self) -> Result<(), String> {
        self()
    }
}

/// What a failing check means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The process should be restarted: part of all three paths.
    Live,
    /// The process should get no requests for now: part of `/readyz` alone.
    Ready,
}

/// The checks of a server. `ping` is always there, and `shutdown` in `/readyz`.
#[derive(Default)]
pub struct Health {
    checks: RwLock<Vec<Check>>,
    shutting_down: AtomicBool,
    slis: Slis,
}

#[derive(Clone)]
struct Check {
    name: String,
    probe: Probe,
    check: Arc<dyn HealthCheck>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.checks.read().iter().map(|check| check.name.clone()).collect();
        f.debug_struct("Health").field("checks", &names).finish_non_exhaustive()
    }
}

impl Health {
    /// Adds a check, also while the server runs. Its name stands in paths.
    pub fn add(&self, name: impl Into<String>, probe: Probe, check: impl HealthCheck) {
        self.checks.write().push(Check { name: name.into(), probe, check: Arc::new(check) });
    }

    /// From now on `/readyz` fails, so that no more requests are sent here.
    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Release);
    }

    pub(crate) async fn serve(&self, path: &str, query: Option<&str>) -> Option<Response<Body>> {
        let (probe, rest) = split(path)?;
        let checks = self.checks_of(probe);
        if let Some(name) = rest {
            let Some(check) = checks.iter().find(|check| check.name == name) else {
                return Some(response::page_not_found());
            };
            return Some(match check.check.check().await {
                Ok(()) => {
                    let mut response = response::text(StatusCode::OK, "ok");
                    response.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
                    response
                }
                Err(reason) => {
                    response::text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
                }
            });
        }
        Some(report(probe, &checks, Query::parse(query.unwrap_or("")), &self.slis).await)
    }

    fn checks_of(&self, probe: &str) -> Vec<Check> {
        let mut checks = vec![Check { name: "ping".to_owned(), probe: Probe::Live, check: Arc::new(|| Ok(())) }];
        let wanted = |check: &&Check| check.probe == Probe::Live || probe == "readyz";
        checks.extend(self.checks.read().iter().filter(wanted).cloned());
        if probe == "readyz" {
            let shutting_down = self.shutting_down.load(Ordering::Acquire);
            let check = move || if shutting_down { Err("process is shutting down".to_owned()) } else { Ok(()) };
            checks.push(Check { name: "shutdown".to_owned(), probe: Probe::Ready, check: Arc::new(check) });
        }
        checks
    }
}

impl Health {
    pub(super) fn slis(&self) -> &Slis {
        &self.slis
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        let probe = |name: &str| {
            let checks: Vec<String> =
                self.checks_of(name).iter().map(|check| format!("/{name}/{}", check.name)).collect();
            std::iter::once(format!("/{name}")).chain(checks).collect::<Vec<_>>()
        };
        ["healthz", "livez", "readyz"].into_iter().flat_map(probe).collect()
    }
}

pub(crate) fn is_health_path(path: &str) -> bool {
    split(path).is_some()
}

/// Whether a path is that of a probe with all its checks.
pub(crate) fn is_probe(path: &str) -> bool {
    matches!(split(path), Some((_, None)))
}

/// The probe's name, and the check's if the path names one.
fn split(path: &str) -> Option<(&str, Option<&str>)> {
    let path = path.strip_prefix('/')?;
    let (probe, rest) = match path.split_once('/') {
        Some((probe, rest)) => (probe, Some(rest)),
        None => (path, None),
    };
    matches!(probe, "healthz" | "livez" | "readyz").then_some((probe, rest))
}

async fn report(probe: &str, checks: &[Check], query: Query, slis: &Slis) -> Response<Body> {
    let mut verbose = false;
    let mut excluded = BTreeSet::new();
    for (name, value) in query.into_pairs() {
        match name.as_str() {
            "verbose" => verbose = true,
            "exclude" => {
                excluded.insert(value);
            }
            _ => {}
        }
    }
    let mut lines = String::new();
    let mut failed = false;
    for Check { name, check, .. } in checks {
        if excluded.remove(name) {
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        let found = check.check().await;
        slis.observe(name, probe, found.is_ok());
        match found {
            Ok(()) => lines.push_str(&format!("[+]{name} ok\n")),
            Err(reason) => {
                failed = true;
                tracing::warn!(probe, check = name, reason, "health check failed");
                lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
            }
        }
    }
    if !excluded.is_empty() {
        let names: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(", ");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    if failed {
        return response::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{probe} check failed\n"));
    }
    response::text(StatusCode::OK, if verbose { format!("{lines}{probe} check passed\n") } else { "ok".to_owned() })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn health() -> Health {
        let health = Health::default();
        health.add("log", Probe::Live, || Ok(()));
        health.add("caches", Probe::Ready, || Err("stacks are not there yet".to_owned()));
        health
    }

    async fn get(health: &Health, target: &str) -> Option<(u16, String)> {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let response = health.serve(path, query).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Some((code, String::from_utf8(bytes.to_vec()).unwrap()))
    }

    #[tokio::test]
    async fn answers_are_those_of_upstream() {
        let health = health();
        for (target, code, text) in [
            ("/healthz", 200, "ok"),
            ("/livez", 200, "ok"),
            ("/livez?verbose", 200, "[+]ping ok\n[+]log ok\nlivez check passed\n"),
            ("/livez?verbose&exclude=log", 200, "[+]ping ok\n[+]log excluded: ok\nlivez check passed\n"),
            (
                "/livez?verbose&exclude=nothing",
                200,
                "[+]ping ok\n[+]log ok\nwarn: some health checks cannot be excluded: no matches for \"nothing\"\n\
                 livez check passed\n",
            ),
            (
                "/readyz",
                500,
                "[+]ping ok\n[+]log ok\n[-]caches failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n",
            ),
            ("/readyz?exclude=caches", 200, "ok"),
            ("/livez/log", 200, "ok"),
            ("/readyz/caches", 500, "internal server error: stacks are not there yet\n"),
            ("/livez/caches", 404, "404 page not found\n"),
            ("/livez/", 404, "404 page not found\n"),
        ] {
            assert_eq!(get(&health, target).await, Some((code, text.to_owned())), "{target}");
        }
        assert_eq!(get(&health, "/livezz").await, None);
        assert_eq!(get(&health, "/apis").await, None);
    }

    #[tokio::test]
    async fn what_was_found_is_counted() {
        let health = health();
        for target in ["/readyz", "/readyz?exclude=caches", "/livez", "/livez/log"] {
            get(&health, target).await.unwrap();
        }
        health.slis().started(7.25);
        let families = health.slis().families();
        let text = || prometheus::TextEncoder::new().encode_to_string(&families.gather()).unwrap();
        let told = text();
        for line in [
            "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.",
            "# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.",
            "# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.",
            "process_start_time_seconds 7.25",
            "kubernetes_healthcheck{name=\"caches\",type=\"readyz\"} 0",
            "kubernetes_healthcheck{name=\"log\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"caches\",status=\"error\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"log\",status=\"success\",type=\"livez\"} 1",
            "kubernetes_healthchecks_total{name=\"log\",status=\"success\",type=\"readyz\"} 2",
        ] {
            assert!(told.lines().any(|found| found == line), "{line} is not in\n{told}");
        }
        families.reset();
        assert_eq!(text(), "");
    }

    #[tokio::test]
    async fn shutdown_fails_readiness_and_not_liveness() {
        let health = Health::default();
        assert_eq!(get(&health, "/readyz").await.unwrap().0, 200);
        health.shut_down();
        let (code, text) = get(&health, "/readyz").await.unwrap();
        assert_eq!(
            (code, text.as_str()),
            (500, "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n")
        );
        assert_eq!(get(&health, "/livez").await.unwrap().0, 200);
    }
}
