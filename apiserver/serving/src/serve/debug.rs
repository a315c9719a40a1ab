//! `/debug/pprof/`: profiles of the server itself.
//!
//! Follows `pkg/server/routes/profiling.go` in `k8s.io/apiserver` and Go's `net/http/pprof`. Of Go's profiles there is that of CPU time, with its
//! names looked up already. All others, what to look up names with (`symbol`) and `trace` are 404, as is `cmdline` upstream.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use tokio_util::sync::CancellationToken;

use crate::{
    http::{Body, body, query::Query, response},
    profile::{ProfileError, Profiling},
};

pub(super) const PROFILES: &str = "/debug/pprof/";

/// How long a profile takes that does not say, in seconds; Go's.
const SECONDS: u64 = 30;

/// How long a profile may take, in seconds: there is one at a time, so that nobody has it for hours.
const LONGEST: u64 = 600;

const INDEX: &str = "<html>
<head>
<title>/debug/pprof/</title>
</head>
<body>
/debug/pprof/
<br>
<p>
Types of profiles available:
<table>
<thead><td>Profile</td><td>Description</td></thead>
<tr><td><a href='profile'>profile</a></td><td>CPU profile. You can specify the duration in the seconds GET parameter. \
    After you get the profile file, use the go tool pprof command to investigate the profile.</td></tr>
</table>
</p>
</body>
</html>
";

/// Answers at a path of profiles; nothing at any other. A profile that `stop` cuts short is of the time until then.
pub(super) async fn serve(path: &str, query: Option<&str>, stop: &CancellationToken) -> Option<Response<Body>> {
    if path == PROFILES.trim_end_matches('/') {
        return Some(redirect());
    }
    Some(match path.strip_prefix(PROFILES)? {
        "" => text(StatusCode::OK, "text/html; charset=utf-8", INDEX.to_owned()),
        "profile" => {
            let seconds = seconds(&Query::parse(query.unwrap_or_default()));
            if seconds > LONGEST {
                // As Go's says it of what exceeds its server's WriteTimeout.
                let why = format!("profile duration exceeds the {LONGEST} seconds that one may take");
                return Some(refusal(StatusCode::BAD_REQUEST, &why));
            }
            match profile(Duration::from_secs(seconds), stop).await {
                Ok(profile) => download(profile),
                Err(error) => {
                    refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("Could not enable CPU profiling: {error}"))
                }
            }
        }
        _ => refusal(StatusCode::NOT_FOUND, "Unknown profile"),
    })
}

/// How long a profile is to take, in seconds. What is no positive number is taken for none.
fn seconds(query: &Query) -> u64 {
    let asked = query.first("seconds").and_then(|text| text.parse::<i64>().ok());
    asked.and_then(|seconds| u64::try_from(seconds).ok()).filter(|&s| s > 0).unwrap_or(SECONDS)
}

async fn profile(time: Duration, stop: &CancellationToken) -> Result<Vec<u8>, ProfileError> {
    Profiling::start()?
        .until(async {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = stop.cancelled() => {}
            }
        })
        .await
}

fn redirect() -> Response<Body> {
    let mut response =
        text(StatusCode::FOUND, "text/html; charset=utf-8", format!("<a href=\"{PROFILES}\">Found</a>.\n\n"));
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(PROFILES));
    response.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
    response
}

fn download(profile: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(body::full(profile));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"profile\""));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn refusal(code: StatusCode, message: &str) -> Response<Body> {
    let mut response = response::text(code, format!("{message}\n"));
    // So that pprof shows the text.
    response.headers_mut().insert("X-Go-Pprof", HeaderValue::from_static("1"));
    response
}

fn text(code: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(body::full(text));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
