//! What happens is told to an endpoint, through a crash, and what it does not take is delivered again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server as _, eventually};

use crate::PATIENCE;

pub(crate) const KEY: &str = "signs what the tests are told";

/// An endpoint that answers with a code that can be set, and believes nobody else's signature.
pub(crate) struct Endpoint {
    pub(crate) port: u16,
    pub(crate) code: Arc<AtomicU16>,
    /// What came, with what was answered.
    pub(crate) came: Arc<Mutex<Vec<(u16, Value)>>>,
}

impl Endpoint {
    pub(crate) fn start(code: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = Self {
            port: listener.local_addr().unwrap().port(),
            code: Arc::new(AtomicU16::new(code)),
            came: Arc::default(),
        };
        let (code, came) = (endpoint.code.clone(), endpoint.came.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (code, came) = (code.clone(), came.clone());
                thread::spawn(move || answer(stream, &code, &came));
            }
        });
        endpoint
    }

    /// The id of an event that came and was answered with a code.
    fn id(&self, code: u16, event_type: &str) -> Option<String> {
        let came = self.came.lock().unwrap();
        let found = came.iter().find(|(answered, event)| *answered == code && event["type"] == event_type);
        found.map(|(_, event)| event["id"].as_str().unwrap().to_owned())
    }

    fn until(&self, code: u16, event_type: &str) -> String {
        eventually(&format!("{event_type} is answered with {code}"), PATIENCE, || self.id(code, event_type))
    }
}

/// Answers one request and closes the connection.
fn answer(mut stream: TcpStream, code: &AtomicU16, came: &Mutex<Vec<(u16, Value)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut id, mut timestamp, mut signature, mut length) = Default::default();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 {
            return;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            match line.trim_end() {
                "" => break,
                _ => continue,
            }
        };
        match name.to_ascii_lowercase().as_str() {
            "webhook-id" => id = value.to_owned(),
            "webhook-timestamp" => timestamp = value.to_owned(),
            "webhook-signature" => signature = value.to_owned(),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let signed = [format!("{id}.{timestamp}.").as_bytes(), &body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes());
    let signature = STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
    let code = if hmac::verify(&key, &signed, &signature).is_ok() { code.load(SeqCst) } else { 401 };
    let _ = write!(stream, "HTTP/1.1 {code} Answer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    came.lock().unwrap().push((code, serde_json::from_slice(&body).unwrap()));
}

#[test]
fn events_survive_a_crash_and_what_was_given_up_is_delivered_again() {
    let cluster = Cluster::start();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let endpoint = Endpoint::start(503);
    kubectl.apply(&format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: hooks, namespace: {name}}}
stringData: {{key: {KEY}}}
---
apiVersion: platform.stoa.dev/v1alpha1
kind: NotificationSink
metadata: {{name: {name}}}
spec:
  url: http://127.0.0.1:{port}/hook
  secretRef: {{namespace: {name}, name: hooks, key: key}}
  organizations: [{name}]
  events: [dev.stoa.run.*]
  retry: {{minBackoff: 100ms, maxBackoff: 1s}}
",
        port = endpoint.port
    ));
    organization.stack("web", &config_maps(&format!("{name}-web"), 1, "a"));
    organization.succeed("web", "Apply", "");
    let started = endpoint.until(503, "dev.stoa.run.started");
    let sink = format!("notificationsink/{name}");
    kubectl.run(&["wait", "--for=condition=Ready=False", "--timeout=60s", &sink]);

    cluster.kill("stoa");
    endpoint.code.store(200, SeqCst);
    cluster.restart();
    assert_eq!(endpoint.until(200, "dev.stoa.run.started"), started);
    endpoint.until(200, "dev.stoa.run.succeeded");
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=60s", &sink]);
    assert_eq!(endpoint.id(401, "dev.stoa.run.started"), None, "it was signed");

    endpoint.code.store(400, SeqCst);
    endpoint.came.lock().unwrap().clear();
    organization.succeed("web", "Preview", "");
    kubectl.run(&["wait", "--for=jsonpath={.status.deadLetters}=2", "--timeout=60s", &sink]);
    let row = kubectl.run(&["get", "nsink", name, "--no-headers"]);
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..5], [name, "127.0.0.1", "false", "False", "2"], "{row}");
    let path = format!("/apis/platform.stoa.dev/v1alpha1/notificationsinks/{name}");
    let letters: Value = serde_json::from_str(&kubectl.run(&["get", "--raw", &format!("{path}/deadletters")])).unwrap();
    let types: Vec<&str> =
        letters["items"].as_array().unwrap().iter().map(|item| item["event"]["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["dev.stoa.run.started", "dev.stoa.run.succeeded"]);
    endpoint.code.store(200, SeqCst);
    kubectl.run(&["create", "--raw", &format!("{path}/redelivery"), "--filename", "/dev/null"]);
    kubectl.run(&["wait", "--for=jsonpath={.status.deadLetters}=0", "--timeout=60s", &sink]);
    for item in letters["items"].as_array().unwrap() {
        let event_type = item["event"]["type"].as_str().unwrap();
        assert_eq!(endpoint.id(200, event_type).as_deref(), item["id"].as_str());
    }
}
