//! Prometheus metrics, and the listener that serves them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Encoder as _, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};
use stoa_process::ProcessCollector;
use stoa_workers::PoolMetrics;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::terraform::ProviderMetrics;

/// The connections at once: anybody who reaches the address can connect.
const CONNECTIONS: usize = 64;
/// The timeout of the next request on a connection.
const REQUEST: Duration = Duration::from_secs(90);
/// How long to wait when no connection can be accepted, such as without file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The metrics of this process. Clones share their values.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    calls: IntCounterVec,
    duration: HistogramVec,
    applied: IntCounterVec,
    /// Apply calls in flight.
    pub(crate) active: IntGauge,
    pub(crate) workers: PoolMetrics,
    pub(crate) providers: ProviderMetrics,
}

impl Metrics {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let calls =
            IntCounterVec::new(Opts::new("runner_calls_total", "Calls by method and gRPC code."), &["method", "code"])?;
        let duration = HistogramVec::new(
            HistogramOpts::new("runner_call_duration_seconds", "How long calls took, by method.")
                .buckets(prometheus::exponential_buckets(0.005, 3.0, 12)?),
            &["method"],
        )?;
        let applied = IntCounterVec::new(
            Opts::new("engine_apply_resources_total", "Resources that runs finished, by action and outcome."),
            &["action", "outcome"],
        )?;
        let active = IntGauge::new("runner_apply_active", "Apply calls in flight.")?;
        let registry = Registry::new();
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(applied.clone()))?;
        registry.register(Box::new(active.clone()))?;
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let workers = PoolMetrics::new(&registry)?;
        let providers = ProviderMetrics::new(&registry)?;
        Ok(Self { registry, calls, duration, applied, active, workers, providers })
    }

    /// Counts a call that began at `start`.
    pub(crate) fn called<T>(&self, method: &str, start: Instant, result: &Result<T, Status>) {
        let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        self.calls.with_label_values(&[method, &format!("{code:?}")]).inc();
        self.duration.with_label_values(&[method]).observe(start.elapsed().as_secs_f64());
    }

    /// Counts a resource that a run finished.
    pub(crate) fn finished(&self, action: &str, outcome: &str) {
        self.applied.with_label_values(&[action, outcome]).inc();
    }

    /// The registry with all of them.
    pub(crate) fn registry(&self) -> Registry {
        self.registry.clone()
    }
}

fn render(registry: &Registry) -> Vec<u8> {
    let mut text = Vec::new();
    if let Err(err) = TextEncoder::new().encode(&registry.gather(), &mut text) {
        tracing::warn!(%err, "metrics cannot be written");
    }
    text
}

/// Serves the metrics of a registry at `/metrics` until `shutdown`.
pub(crate) async fn listen(address: SocketAddr, registry: Registry, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "serving metrics");
    tokio::spawn(serve(listener, registry, shutdown));
    Ok(())
}

async fn serve(listener: TcpListener, registry: Registry, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes the semaphore");
            (place, listener.accept().await)
        };
        let Some((place, accepted)) = shutdown.run_until_cancelled(next).await else { return };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let registry = registry.clone();
        let service = service_fn(move |request| {
            let answer = answer(&registry, &request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(REQUEST);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            let _place = place;
            shutdown.run_until_cancelled(connection).await
        });
    }
}

fn answer<B>(registry: &Registry, request: &Request<B>) -> Response<Full<Bytes>> {
    if request.uri().path() == "/metrics" {
        Response::new(Full::from(render(registry)))
    } else {
        let mut response = Response::new(Full::from("404 page not found\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn calls_are_counted_by_method_and_code() {
        let metrics = Metrics::new().unwrap();
        metrics.called::<()>("Plan", Instant::now(), &Err(Status::not_found("x")));
        metrics.called("Plan", Instant::now(), &Ok(()));
        let text = String::from_utf8(render(&metrics.registry())).unwrap();
        assert!(text.contains(r#"runner_calls_total{code="NotFound",method="Plan"} 1"#), "{text}");
        assert!(text.contains(r#"runner_calls_total{code="Ok",method="Plan"} 1"#), "{text}");
        assert!(text.contains("process_resident_memory_bytes "), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_client_loses_its_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Metrics::new().unwrap().registry(), CancellationToken::new()));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        let read = tokio::time::timeout(3 * REQUEST, client.read_to_string(&mut text)).await;
        read.expect("a place becomes free").unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        for mut stream in silent {
            let mut rest = Vec::new();
            let read = tokio::time::timeout(3 * REQUEST, stream.read_to_end(&mut rest)).await;
            read.expect("the connection is closed").unwrap();
        }
    }
}
