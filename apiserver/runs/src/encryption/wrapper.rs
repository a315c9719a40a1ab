//! The services that wrap the keys in a file, so that the file alone opens nothing.
//!
//! Start at [`Wrapper`]. The file has the texts that a service made of the keys, and the keys are in memory alone.
//!
//! Elsewhere: `transit` calls Vault's transit engine, `kms` calls AWS KMS, and `keys` reads the file.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use stoa_outbound::causes;

use super::{
    keys::LENGTH,
    kms::{self, Kms},
    transit::{self, Transit},
};

/// How long a service may take for one key.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const LARGEST: usize = 64 << 10;

/// The texts that a service makes of keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// How they begin.
    pub(super) prefix: &'static str,
    /// The name of the service, for people.
    pub(super) service: &'static str,
    /// The flag that chooses the service.
    pub(super) flag: &'static str,
}

static FORMS: [&Form; 2] = [&transit::FORM, &kms::FORM];

impl Form {
    /// The form of a line of the file; `None` for a key in clear.
    pub(super) fn of(line: &str) -> Option<&'static Form> {
        FORMS.iter().copied().find(|form| line.starts_with(form.prefix))
    }
}

/// Why a service did not wrap or unwrap a key. No message contains a key, a token or a credential.
#[derive(Debug, thiserror::Error)]
pub(super) enum WrapError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The settings are of no use.
    #[error("{0}")]
    Settings(String),
    /// There is no answer, or one that says nothing about the key.
    #[error("{service} {why}; try again")]
    Unavailable {
        /// The service with its address.
        service: String,
        /// The problem.
        why: String,
    },
    /// The service does not permit the call.
    #[error("{service} does not permit `{verb}` with the key {key}: {remedy}")]
    Refused {
        /// The service with its address.
        service: String,
        /// The call.
        verb: &'static str,
        /// The name of the key.
        key: String,
        /// The action of a person.
        remedy: String,
    },
    /// The key of the service does not exist, is not usable, or did not make the text.
    #[error("{service} cannot {verb} a sealing key with the key {key}: {why}")]
    Rejected {
        /// The service with its address.
        service: String,
        /// `encrypt` or `decrypt`.
        verb: &'static str,
        /// The name of the key.
        key: String,
        /// The problem.
        why: &'static str,
    },
    /// The answer has another form.
    #[error("the answer of {service} has no key of 32 bytes")]
    Answer {
        /// The service with its address.
        service: String,
    },
}

/// A key of a service, which wraps the sealing keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrapper {
    /// A key of Vault's transit engine.
    Transit(Transit),
    /// A key of AWS KMS.
    Kms(Kms),
}

impl Wrapper {
    pub(super) fn form(&self) -> &'static Form {
        match self {
            Self::Transit(_) => &transit::FORM,
            Self::Kms(_) => &kms::FORM,
        }
    }

    /// The text that the service makes of a key: one line that begins as [`Wrapper::form`] says.
    pub(super) fn wrap(&self, secret: &[u8; LENGTH]) -> Result<String, WrapError> {
        match self {
            Self::Transit(transit) => transit.wrap(secret),
            Self::Kms(kms) => kms.wrap(secret),
        }
    }

    /// The key in a text of the service.
    pub(super) fn unwrap(&self, text: &str) -> Result<[u8; LENGTH], WrapError> {
        match self {
            Self::Transit(transit) => transit.unwrap(text),
            Self::Kms(kms) => kms.unwrap(text),
        }
    }
}

/// The key in base64; `None` for another length.
pub(super) fn key_of(text: &str) -> Option<[u8; LENGTH]> {
    STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok())
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, WrapError> {
    fs::read(path).map_err(|source| WrapError::Read { path: path.to_owned(), source })
}

/// Sends a request to a service, and returns the status and the body of its answer. `ca_file` has the authorities of its
/// certificate; absent, those of the system.
///
/// The call has a thread of its own, since keys are read where nothing else waits for them.
pub(super) fn call(
    service: &str,
    ca_file: Option<&Path>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), WrapError> {
    let authorities = ca_file.map(read).transpose()?.unwrap_or_default();
    let tls = stoa_outbound::tls(&authorities)
        .map_err(|error| WrapError::Settings(format!("the authorities of {service}: {error}")))?;
    let asked = thread::scope(|scope| scope.spawn(|| send(tls, request)).join());
    let answer = asked.unwrap_or_else(|_| Err("was not asked, because of a defect in the server".to_owned()));
    answer.map_err(|why| WrapError::Unavailable { service: service.to_owned(), why })
}

fn send(tls: rustls::ClientConfig, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot be asked: {error}"))?;
    runtime.block_on(async {
        let asked = async {
            let answer = stoa_outbound::client(tls).request(request).await;
            let answer = answer.map_err(|error| format!("cannot be reached: {}", causes(&error)))?;
            let status = answer.status();
            let body = stoa_outbound::read(answer.into_body(), LARGEST).await;
            body.map(|body| (status, body)).ok_or_else(|| "sent an incomplete answer".to_owned())
        };
        let late = || Err(format!("gave no answer within {} s", TIMEOUT.as_secs()));
        tokio::time::timeout(TIMEOUT, asked).await.unwrap_or_else(|_| late())
    })
}

#[cfg(test)]
pub(super) mod tests {
    //! A service on loopback, for the tests of each.

    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use serde_json::Value;

    use super::*;

    /// A request to a service: the path, the header lines with names in lower case, and the JSON of the body.
    #[derive(Debug)]
    pub(in super::super) struct Seen {
        pub(in super::super) path: String,
        pub(in super::super) headers: Vec<(String, String)>,
        pub(in super::super) text: String,
        pub(in super::super) body: Value,
    }

    impl Seen {
        pub(in super::super) fn header(&self, name: &str) -> &str {
            self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
        }

        /// A field of the body, which is a text.
        pub(in super::super) fn field(&self, name: &str) -> &str {
            self.body[name].as_str().unwrap_or_default()
        }
    }

    /// Starts a service that answers POSTs with a status and JSON; its URL.
    pub(in super::super) fn service(answers: impl Fn(&Seen) -> (u16, Value) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &answers).unwrap_or_default();
            }
        });
        format!("http://{address}")
    }

    fn answer(mut stream: TcpStream, answers: &impl Fn(&Seen) -> (u16, Value)) -> Option<()> {
        let (mut seen, mut part) = (Vec::new(), [0; 4096]);
        let seen = loop {
            let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
            seen.extend_from_slice(&part[..read]);
            let text = String::from_utf8_lossy(&seen).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let (first, lines) = head.split_once("\r\n")?;
            let headers = lines.lines().filter_map(|line| line.split_once(": "));
            let headers: Vec<_> = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
            let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse::<usize>().ok()?;
            if body.len() == length {
                let path = first.strip_prefix("POST ")?.split(' ').next()?.to_owned();
                break Seen { path, headers, text: body.to_owned(), body: serde_json::from_str(body).ok()? };
            }
        };
        let (status, body) = answers(&seen);
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).ok()
    }

    /// A text from its end to its start.
    pub(in super::super) fn backwards(text: &str) -> String {
        text.chars().rev().collect()
    }

    #[test]
    fn form_follows_from_the_start_of_a_line() {
        let service = |line: &str| Form::of(line).map(|form| form.service);
        assert_eq!(service("vault:v1:abc"), Some("Vault"));
        assert_eq!(service("aws-kms:abc"), Some("AWS KMS"));
        assert_eq!(service("aGVsbG8="), None);
    }
}
