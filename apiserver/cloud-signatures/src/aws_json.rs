//! Calls in AWS's JSON protocol: <https://smithy.io/2.0/aws/protocols/aws-json-1_1-protocol.html>.

use jiff::Timestamp;
use serde::Deserialize;

use super::{Canonical, Scope, aws};

const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

/// The access keys of a user or a role; Debug prints their id alone.
#[derive(Clone, PartialEq, Eq, educe::Educe)]
#[educe(Debug)]
pub struct AwsKeys {
    /// The id, such as `AKIAIOSFODNN7EXAMPLE`.
    pub id: String,
    /// The secret.
    #[educe(Debug(ignore))]
    pub secret: String,
    /// The token of temporary keys.
    #[educe(Debug(ignore))]
    pub session_token: Option<String>,
}

/// A call: a POST to the path `/` of a service.
pub struct JsonCall<'r> {
    /// The service, such as `kms`.
    pub service: &'r str,
    /// The region, such as `eu-central-1`.
    pub region: &'r str,
    /// The host of the URL, with its port if it has one.
    pub host: &'r str,
    /// The operation, such as `TrentService.Encrypt`.
    pub target: &'r str,
    /// The JSON.
    pub body: &'r [u8],
}

impl JsonCall<'_> {
    /// All headers of the request, with its signature at `now`. Their names are in lower case.
    pub fn headers(&self, keys: &AwsKeys, now: Timestamp) -> Vec<(&'static str, String)> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = vec![
            ("content-type", CONTENT_TYPE.to_owned()),
            ("host", self.host.to_owned()),
            ("x-amz-date", time.clone()),
        ];
        if let Some(token) = &keys.session_token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        headers.push(("x-amz-target", self.target.to_owned()));
        let request = Canonical { method: "POST", path: "/", query: "", headers: &headers, body: self.body };
        let scope = Scope { region: self.region, service: self.service, time: &time };
        let authorization = aws(&request, &scope, (&keys.id, &keys.secret));
        headers.push(("authorization", authorization));
        headers
    }
}

/// The URL of a service in a region; `None` for a text that is no name of a region.
pub fn endpoint(service: &str, region: &str) -> Option<String> {
    let is_name = !region.is_empty() && region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    is_name.then(|| format!("https://{service}.{region}.{domain}"))
}

/// The name of the error in an answer, such as `AccessDeniedException`; empty where the answer has none.
pub fn fault(answer: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Fault {
        #[serde(rename = "__type")]
        kind: String,
    }
    let kind = serde_json::from_slice::<Fault>(answer).map(|fault| fault.kind).unwrap_or_default();
    // The name may begin with a namespace and `#`.
    let name = kind.rsplit('#').next().unwrap_or_default();
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) { name.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_signs_its_sorted_headers() {
        let keys = |token: Option<&str>| AwsKeys {
            id: "AKID".to_owned(),
            secret: "s.secret".to_owned(),
            session_token: token.map(str::to_owned),
        };
        let call = JsonCall {
            service: "kms",
            region: "eu-central-1",
            host: "kms.eu-central-1.amazonaws.com",
            target: "TrentService.Encrypt",
            body: b"{}",
        };
        let now: Timestamp = "2015-08-30T12:36:00Z".parse().unwrap();
        let headers = call.headers(&keys(Some("s.session")), now);
        let (name, authorization) = headers.last().unwrap();
        let expected = "AWS4-HMAC-SHA256 Credential=AKID/20150830/eu-central-1/kms/aws4_request, \
                        SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, Signature=";
        assert!(*name == "authorization" && authorization.starts_with(expected), "{authorization}");
        assert!(headers.contains(&("x-amz-date", "20150830T123600Z".to_owned())), "{headers:?}");
        let without = call.headers(&keys(None), now);
        assert!(without.iter().all(|(name, _)| *name != "x-amz-security-token"), "{without:?}");
        assert_eq!(format!("{:?}", keys(Some("s.session"))), "AwsKeys { id: \"AKID\" }");
    }

    #[test]
    fn endpoint_needs_the_name_of_a_region() {
        assert_eq!(endpoint("kms", "eu-central-1").unwrap(), "https://kms.eu-central-1.amazonaws.com");
        assert_eq!(endpoint("kms", "cn-north-1").unwrap(), "https://kms.cn-north-1.amazonaws.com.cn");
        for wrong in ["", "eu central", "x/y", "a@b"] {
            assert_eq!(endpoint("kms", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn fault_has_the_name_alone() {
        assert_eq!(fault(br#"{"__type": "com.amazonaws#DisabledException", "message": "x"}"#), "DisabledException");
        assert_eq!(fault(br#"{"__type": "NotFoundException"}"#), "NotFoundException");
        for other in [&br#"{"__type": "a b"}"#[..], b"{}", b"<html>", b""] {
            assert_eq!(fault(other), "");
        }
    }
}
