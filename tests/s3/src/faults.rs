//! A proxy before an HTTP server, which does to each request what the test says.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use hyper::{Request, Response, http::request::Parts};

use crate::proxy::{Answer, Proxy, error, forward};

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is answered with this status and error code, and goes no further.
    Answer(u16, &'static str),
    /// Its connection ends before it goes any further.
    Reset,
    /// It is carried out, and answered with this status and error code.
    AnswerAfter(u16, &'static str),
    /// It is carried out, and its connection ends without an answer.
    Lost,
    /// It is carried out, and its answer ends in the middle of the body.
    Cut,
    /// It is carried out after this time.
    Slow(Duration),
}

type Rule = dyn FnMut(&Parts) -> Option<Fault> + Send;

struct Shared {
    to: u16,
    rule: Mutex<Box<Rule>>,
    requests: AtomicU64,
    faults: AtomicU64,
}

/// A proxy on loopback; ends with the value.
pub struct Faults {
    proxy: Proxy,
    shared: Arc<Shared>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl Faults {
    /// Starts one before a port of loopback. At first it does no harm.
    pub fn before(port: u16) -> Self {
        let shared = Arc::new(Shared {
            to: port,
            rule: Mutex::new(Box::new(|_| None)),
            requests: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        });
        let passing = shared.clone();
        Self { proxy: Proxy::start(move |request| pass(passing.clone(), request)), shared }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.proxy.address)
    }

    /// Where it listens on loopback.
    pub fn port(&self) -> u16 {
        self.proxy.address.port()
    }

    /// Decides from now on what becomes of each request.
    pub fn rule(&self, rule: impl FnMut(&Parts) -> Option<Fault> + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Box::new(rule);
    }

    /// Does no harm from now on.
    pub fn heal(&self) {
        self.rule(|_| None);
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(SeqCst)
    }

    /// How many of them something became of.
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(SeqCst)
    }
}

/// An error ends the connection without an answer.
async fn pass(shared: Arc<Shared>, request: Request<Bytes>) -> io::Result<Response<Answer>> {
    let (parts, body) = request.into_parts();
    shared.requests.fetch_add(1, SeqCst);
    let fault = (shared.rule.lock().unwrap())(&parts);
    if fault.is_some() {
        shared.faults.fetch_add(1, SeqCst);
    }
    match fault {
        Some(Fault::Answer(status, code)) => return Ok(error(status, code, "")),
        Some(Fault::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
        _ => {}
    }
    let answered = forward(shared.to, Request::from_parts(parts, body)).await?;
    match fault {
        Some(Fault::AnswerAfter(status, code)) => Ok(error(status, code, "")),
        Some(Fault::Lost) => Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Cut) => Ok(answered.map(Answer::cut)),
        _ => Ok(answered.map(Answer::whole)),
    }
}
