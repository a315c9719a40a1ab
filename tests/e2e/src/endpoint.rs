//! An HTTP endpoint that is told of events and called by hooks, as somebody else's would be.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;
use serde_json::Value;

use crate::command::eventually;

/// Longer than anything takes to be told on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is posted is signed with this.
pub const KEY: &str = "signs what the tests are told";

/// An endpoint that answers with a code that can be set, and believes nobody else's signature.
#[derive(Debug)]
pub struct Endpoint {
    /// Where it listens on loopback.
    pub port: u16,
    /// What it answers from now on.
    pub code: Arc<AtomicU16>,
    /// What came, with what was answered.
    pub came: Arc<Mutex<Vec<(u16, Value)>>>,
}

impl Endpoint {
    /// Starts one that answers with this code. It listens until the test's program ends.
    pub fn start(code: u16) -> Self {
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
    pub fn id(&self, code: u16, event_type: &str) -> Option<String> {
        let came = self.came.lock().unwrap();
        let found = came.iter().find(|(answered, event)| *answered == code && event["type"] == event_type);
        found.map(|(_, event)| event["id"].as_str().unwrap().to_owned())
    }

    /// The same, once there is one.
    pub fn until(&self, code: u16, event_type: &str) -> String {
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
    // Before whoever called knows of it.
    came.lock().unwrap().push((code, serde_json::from_slice(&body).unwrap()));
    let _ = write!(stream, "HTTP/1.1 {code} Answer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}
