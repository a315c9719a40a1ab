//! One delivery: sign an event, post it, and classify the answer. Hooks of Workflows use it too, and classify
//! otherwise.
//!
//! The signature is that of Standard Webhooks: for each key `webhook-signature` has `v1,` and the base64 of the
//! HMAC-SHA256 of `<webhook-id>.<webhook-timestamp>.<body>`. The body is the whole event in the structured mode
//! of CloudEvents' HTTP binding. In the binary mode its attributes would be headers, which are not signed.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header, response::Parts};
use http_body_util::Full;
use jiff::Timestamp;
use ring::hmac;
use stoa_machinery::outbound;

use super::events::Event;

/// The length of keys, in bytes: Standard Webhooks asks for 24 to 64, and others may be longer.
const SHORTEST_KEY: usize = 24;
/// How many keys there may be.
const MOST_KEYS: usize = 8;
/// How much of an answer is read; beyond that its connection is not used again.
const ANSWER: usize = 64 << 10;
/// The longest wait that an answer may ask for.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What events are signed with.
#[derive(Debug)]
pub struct Keys(Vec<hmac::Key>);

/// Why a text has no keys. It does not say what the text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeys {
    /// No line has a key.
    #[error("it contains no key")]
    None,
    /// Too many lines have a key.
    #[error("it contains more than {MOST_KEYS} keys")]
    Many,
    /// A line has `whsec_` without base64 behind it.
    #[error("line {0} has no base64 after whsec_")]
    Base64(usize),
    /// A key is too short.
    #[error("the key in line {0} is shorter than {SHORTEST_KEY} bytes")]
    Short(usize),
}

impl Keys {
    /// Reads keys, one on each line: `whsec_` and base64, or any other text.
    ///
    /// # Errors
    ///
    /// [`InvalidKeys`].
    pub fn parse(text: &[u8]) -> Result<Self, InvalidKeys> {
        let mut keys = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            let key = match line.strip_prefix(b"whsec_") {
                _ if line.is_empty() => continue,
                None => line.to_vec(),
                Some(encoded) => STANDARD.decode(encoded).map_err(|_| InvalidKeys::Base64(number))?,
            };
            if key.len() < SHORTEST_KEY {
                return Err(InvalidKeys::Short(number));
            }
            keys.push(hmac::Key::new(hmac::HMAC_SHA256, &key));
        }
        match keys.len() {
            0 => Err(InvalidKeys::None),
            count if count > MOST_KEYS => Err(InvalidKeys::Many),
            _ => Ok(Self(keys)),
        }
    }

    /// The signatures of a body, with spaces in between.
    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let sign = |key: &hmac::Key| {
            let mut signature = hmac::Context::with_key(key);
            signature.update(format!("{id}.{timestamp}.").as_bytes());
            signature.update(body);
            format!("v1,{}", STANDARD.encode(signature.sign()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

/// What came of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    /// It may be taken another time.
    Failed {
        why: String,
        retry_after: Option<Duration>,
    },
    /// This event may never be taken, or not at this time: as long as a clock is set wrong, whatever is signed looks too old
    /// or too new, for which many receivers answer the same.
    Doubted {
        why: String,
    },
    /// This event will never be taken.
    Refused {
        why: String,
    },
}

/// Where events are posted.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The client, with the authorities that it trusts.
    pub client: outbound::Client<Full<Bytes>>,
    /// The URL.
    pub uri: Uri,
    /// The time for one request.
    pub timeout: Duration,
}

impl Endpoint {
    /// Posts an event. `now` is the time of this try, which is signed, too.
    pub(crate) async fn post(&self, event: &Event, keys: &Keys, now: Timestamp) -> Outcome {
        match self.ask(event, keys, now).await {
            Ok((answer, _)) => decide(answer.status, &answer.headers, now),
            Err(why) => Outcome::Failed { why, retry_after: None },
        }
    }

    /// The same; what is answered, with the body, if there is a whole one that is not too long.
    ///
    /// # Errors
    ///
    /// Why there is no answer, in words that tell neither the URL nor anything that was sent.
    pub async fn ask(&self, event: &Event, keys: &Keys, now: Timestamp) -> Result<(Parts, Option<Bytes>), String> {
        let body = serde_json::to_vec(event).expect("events serialize");
        let seconds = now.as_second();
        let request = Request::post(self.uri.clone())
            .header(header::CONTENT_TYPE, "application/cloudevents+json; charset=utf-8")
            .header(header::USER_AGENT, "stoa")
            .header("webhook-id", &event.id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", keys.sign(&event.id, seconds, &body))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| format!("the endpoint cannot be called: {error}"))?;
        let answered = async {
            let response = self.client.request(request).await.map_err(|error| outbound::causes(&error))?;
            let (parts, body) = response.into_parts();
            Ok((parts, outbound::read(body, ANSWER).await))
        };
        let answered = tokio::time::timeout(self.timeout, answered).await;
        answered.unwrap_or_else(|_| Err(format!("the endpoint did not answer within {:?}", self.timeout)))
    }
}

/// What an answer means.
fn decide(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Outcome {
    if status.is_success() {
        return Outcome::Delivered;
    }
    let why = told(status);
    match status {
        StatusCode::BAD_REQUEST => Outcome::Doubted { why },
        // The endpoint is there and has read it, and the next time it will be the same.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => Outcome::Refused { why },
        _ => Outcome::Failed { why, retry_after: outbound::retry_after(headers, now, LONGEST_WAIT) },
    }
}

/// What was answered otherwise than with 2xx.
pub fn told(status: StatusCode) -> String {
    if status.is_redirection() {
        format!("the endpoint answered {status}, and redirects are not followed")
    } else {
        format!("the endpoint answered {status}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    #[test]
    fn signature_is_that_of_standard_webhooks() {
        let keys = Keys::parse(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signed = keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn every_key_signs() {
        let one = Keys::parse(b"one one one one one one one").unwrap();
        let two = Keys::parse(b"two two two two two two two").unwrap();
        let both = Keys::parse(b"\ntwo two two two two two two\r\n\n  one one one one one one one\n").unwrap();
        let sign = |keys: &Keys| keys.sign("id", 1, b"{}");
        assert_eq!(sign(&both), format!("{} {}", sign(&two), sign(&one)));
        assert_ne!(sign(&one), sign(&two));
    }

    #[test]
    fn what_is_no_key_is_told_without_it() {
        for (text, error) in [
            ("", InvalidKeys::None),
            ("\n \n", InvalidKeys::None),
            ("hunter2", InvalidKeys::Short(1)),
            ("\nwhsec_aHVudGVyMg==", InvalidKeys::Short(2)),
            ("whsec_hunter2-hunter2-hunter2-hunter2", InvalidKeys::Base64(1)),
            ("one one one one one one one\n".repeat(9).as_str(), InvalidKeys::Many),
        ] {
            let found = Keys::parse(text.as_bytes()).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn answers_say_whether_to_try_again_and_when() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let answer = |status: u16, retry: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(text) = retry {
                headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            }
            decide(StatusCode::from_u16(status).unwrap(), &headers, now)
        };
        for status in [200, 201, 202, 204] {
            assert_eq!(answer(status, None), Outcome::Delivered);
        }
        for status in [413, 422] {
            assert!(matches!(answer(status, Some("1")), Outcome::Refused { .. }), "{status}");
        }
        assert_eq!(answer(400, None), Outcome::Doubted { why: "the endpoint answered 400 Bad Request".to_owned() });
        let wait = |status, text| match answer(status, text) {
            Outcome::Failed { retry_after, .. } => retry_after.map(|wait| wait.as_secs()),
            other => panic!("{status}: {other:?}"),
        };
        for status in [301, 307, 401, 403, 404, 408, 410, 429, 500, 502, 503] {
            assert_eq!(wait(status, None), None);
        }
        assert_eq!(wait(429, Some("7")), Some(7));
        assert_eq!(wait(503, Some("Thu, 01 Jan 2026 00:01:30 GMT")), Some(90));
        assert_eq!(wait(503, Some("Wed, 31 Dec 2025 00:00:00 GMT")), Some(0));
        assert_eq!(wait(503, Some("9999999")), Some(3600));
        assert_eq!(wait(503, Some("soon")), None);
        let Outcome::Failed { why, .. } = answer(302, None) else { panic!("a redirect is no delivery") };
        assert_eq!(why, "the endpoint answered 302 Found, and redirects are not followed");
    }
}
