//! Indented JSON, for people who read it.

use http::{HeaderMap, Response, header};
use http_body_util::BodyExt as _;
use stoa_meta::json;

use crate::http::{Body, body, negotiate, query::Query, response};

/// A client's wish to have JSON in lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    gzip: bool,
}

impl Lines {
    /// Whether JSON is to be read by a person: the query or the media type says so, or the client is one that people use by
    /// hand.
    ///
    /// Follows `isPrettyPrint` and `NegotiateOutputMediaType` in `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`.
    pub(super) fn wanted(query: &Query, headers: &HeaderMap) -> Option<Self> {
        let by_hand = || {
            let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("");
            ["curl", "Wget", "Mozilla/5.0"].into_iter().any(|beginning| agent.starts_with(beginning))
        };
        let said = query.first("pretty").filter(|value| !value.is_empty());
        let wanted = said.map_or_else(by_hand, |value| matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True"))
            || negotiate::wants_pretty(headers);
        wanted.then(|| Self { gzip: response::accepts_gzip(headers) })
    }

    /// The same answer with its JSON in lines; what is no JSON stays as it is. It must not be compressed yet.
    pub(super) async fn set(self, answer: Response<Body>) -> Response<Body> {
        let is_json = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/json");
        if !answer.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
            return answer;
        }
        let (parts, body) = answer.into_parts();
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            // An answer that broke off breaks off here too.
            Err(error) => return Response::from_parts(parts, body::failed(error)),
        };
        response::whole(parts, json::in_lines(&bytes).into(), self.gzip)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use serde_json::json;

    use super::*;

    fn wanted(query: &str, headers: &[(header::HeaderName, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        Lines::wanted(&Query::parse(query), &headers).is_some()
    }

    #[test]
    fn query_media_type_or_client_select_indentation() {
        use header::{ACCEPT, USER_AGENT};
        assert!(!wanted("", &[]) && !wanted("", &[(USER_AGENT, "kubectl/v1.36.3")]));
        assert!(wanted("", &[(USER_AGENT, "curl/8")]) && !wanted("pretty=0", &[(USER_AGENT, "curl/8")]));
        assert!(wanted("pretty=true", &[]) && !wanted("pretty=yes", &[]));
        assert!(wanted("", &[(ACCEPT, "application/json;pretty=1")]));
        assert!(wanted("pretty=0", &[(ACCEPT, "text/html, application/json;pretty=1")]));
        assert!(!wanted("", &[(ACCEPT, "application/json;pretty=true")]));
        assert!(!wanted("", &[(ACCEPT, "application/json, application/json;pretty=1")]));
    }

    #[tokio::test]
    async fn much_is_compressed_when_it_is_in_lines() {
        for (items, gzip, is_compressed) in [(1, true, false), (30_000, true, true), (30_000, false, false)] {
            let value = json!(vec![1; items]);
            let answer = response::stream(negotiate::MediaType::Json, body::full(value.to_string()));
            let answer = Lines { gzip }.set(answer).await;
            assert_eq!(answer.headers().contains_key(header::CONTENT_ENCODING), is_compressed);
            assert_eq!(answer.headers().contains_key(header::VARY), is_compressed);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let mut text = String::new();
            if is_compressed {
                flate2::read::GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
            } else {
                text.push_str(std::str::from_utf8(&body).unwrap());
            }
            assert_eq!(text, serde_json::to_string_pretty(&value).unwrap());
        }
    }
}
