//! `/statusz`: the version and start of the process, and its paths besides the API.
//!
//! Follows `k8s.io/apiserver/pkg/server/statusz`: text for people, and an object for those who ask for one by its kind.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::json;
use stoa_meta::status::ApiError;

use super::VersionInfo;
use crate::{
    document,
    http::{
        Body, body,
        negotiate::{self, MediaType},
        response,
    },
};

const GROUP: &str = "config.k8s.io";
const KIND: &str = "Statusz";
const DEPRECATED: &str = "v1alpha1";
const VERSIONS: [&str; 2] = [DEPRECATED, "v1beta1"];
const COMPONENT: &str = "apiserver";
/// The beginnings of paths that are the API's.
const NOT_LISTED: [&str; 5] = ["api", "apis", "openid", "openapi", ".well-known"];

pub(super) struct Statusz<'a> {
    pub(super) version: &'a VersionInfo,
    pub(super) started: Timestamp,
    pub(super) paths: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Form {
    Text,
    Object(MediaType, &'static str),
}

impl Statusz<'_> {
    /// Fails with 406 `NotAcceptable`.
    pub(super) fn respond(&self, request: &HeaderMap) -> Result<Response<Body>, ApiError> {
        match form(document::accept(request)) {
            Some(Form::Text) => {
                let mut response = Response::new(body::full(self.text(Timestamp::now())));
                let plain = HeaderValue::from_static("text/plain; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, plain);
                Ok(response)
            }
            Some(Form::Object(media, version)) => self.object(request, media, version),
            None => Err(negotiate::not_acceptable(
                "only the following media types are accepted: application/json, application/yaml, text/plain",
            )),
        }
    }

    /// Upstream puts one of several signs between names and values, by chance, so that nobody reads it by program.
    fn text(&self, now: Timestamp) -> String {
        let up = self.seconds_up(now);
        let mut text = format!(
            "\n{COMPONENT} statusz\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
             compatibility guarantees and is for debugging purposes only.\n\nStarted: {}\nUp: {} hr {:02} min {:02} \
             sec\nGo version: {}\nBinary version: {}\nEmulation version: {}\n",
            self.started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            up / 3600,
            up / 60 % 60,
            up % 60,
            self.version.go_version,
            self.binary_version(),
            self.emulation_version(),
        );
        let paths = self.folders().into_iter().collect::<Vec<_>>().join(" ");
        if !paths.is_empty() {
            text += &format!("Paths: {paths}");
        }
        text + "\n"
    }

    fn object(&self, request: &HeaderMap, media: MediaType, version: &'static str) -> Result<Response<Body>, ApiError> {
        let object = json!({
            "kind": KIND,
            "apiVersion": format!("{GROUP}/{version}"),
            "metadata": { "name": COMPONENT },
            "startTime": self.started,
            "uptimeSeconds": self.seconds_up(Timestamp::now()),
            "goVersion": self.version.go_version,
            "binaryVersion": self.binary_version(),
            "emulationVersion": self.emulation_version(),
            "paths": self.folders(),
        });
        let mut response = response::json(StatusCode::OK, media, request, body::once(object.to_string().into_bytes()))?;
        let content_type = format!("{};g={GROUP};v={version};as={KIND}", media.as_str());
        let content_type = HeaderValue::from_str(&content_type).expect("its parts are ASCII");
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        if version == DEPRECATED {
            let warning = r#"299 - "This version of the statusz endpoint is deprecated. Please use a newer version.""#;
            response.headers_mut().insert(header::WARNING, HeaderValue::from_static(warning));
        }
        Ok(response)
    }

    fn seconds_up(&self, now: Timestamp) -> i64 {
        now.duration_since(self.started).as_secs().max(0)
    }

    /// The numbers alone.
    fn binary_version(&self) -> &str {
        let version = self.version.git_version.trim_start_matches('v');
        version.split(['-', '+']).next().unwrap_or(version)
    }

    fn emulation_version(&self) -> String {
        format!("{}.{}", self.version.emulation_major, self.version.emulation_minor)
    }

    /// The first parts of the paths.
    fn folders(&self) -> BTreeSet<String> {
        let first = self.paths.iter().filter_map(|path| path.strip_prefix('/')?.split('/').next());
        first.filter(|name| !name.is_empty() && !NOT_LISTED.contains(name)).map(|name| format!("/{name}")).collect()
    }
}

fn form(accept: &str) -> Option<Form> {
    negotiate::clauses(accept).iter().find_map(|clause| {
        let says = |name: &str| clause.param(name).is_some_and(|value| !value.is_empty());
        if says("stream") || says("sv") {
            return None;
        }
        match (clause.param("g"), clause.param("v"), clause.param("as")) {
            (None, None, None) => clause.takes("text/plain").then_some(Form::Text),
            (Some(GROUP), Some(version), Some(KIND)) => {
                let version = VERSIONS.into_iter().find(|known| *known == version)?;
                let media = [MediaType::Json, MediaType::Yaml].into_iter().find(|media| clause.covers(*media))?;
                Some(Form::Object(media, version))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_text_and_programs_say_what_they_read() {
        for accept in ["*/*", "text/*", "text/plain;charset=utf-8", "application/json, text/plain"] {
            assert_eq!(form(accept), Some(Form::Text), "{accept}");
        }
        let of = |media: &str, version: &str| form(&format!("{media};as=Statusz;v={version};g=config.k8s.io"));
        assert_eq!(of("application/json", "v1beta1"), Some(Form::Object(MediaType::Json, "v1beta1")));
        assert_eq!(of("application/yaml", "v1alpha1"), Some(Form::Object(MediaType::Yaml, "v1alpha1")));
        assert_eq!(of("*/*", "v1beta1"), Some(Form::Object(MediaType::Json, "v1beta1")));
        assert_eq!(of("text/plain", "v1beta1"), None);
        assert_eq!(of("application/json", "v1"), None);
        for accept in
            ["application/json", "text/html", "text/plain;sv=v1", "application/json;as=Table;v=v1;g=meta.k8s.io"]
        {
            assert_eq!(form(accept), None, "{accept}");
        }
    }

    #[test]
    fn it_tells_of_the_process() {
        let version = VersionInfo {
            git_version: "v1.36.0+stoa-0.1.0".to_owned(),
            emulation_major: "1".to_owned(),
            emulation_minor: "36".to_owned(),
            go_version: "rust".to_owned(),
            ..VersionInfo::default()
        };
        let paths = ["/apis", "/apis/a.b", "/livez", "/livez/ping", "/metrics", "/healthz", "/openapi/v2"];
        let started: Timestamp = "2026-11-04T02:06:16Z".parse().unwrap();
        let status = Statusz { version: &version, started, paths: paths.map(str::to_owned).to_vec() };
        let text = status.text("2026-11-05T03:48:38Z".parse().unwrap());
        let (_, told) = text.split_once("only.\n\n").unwrap();
        assert_eq!(
            told,
            "Started: Wed Nov  4 02:06:16 UTC 2026\nUp: 25 hr 42 min 22 sec\nGo version: rust\nBinary version: 1.36.0\n\
             Emulation version: 1.36\nPaths: /healthz /livez /metrics\n"
        );
    }
}
