//! Chart repositories over HTTP: an index with the versions of each chart, and their archives.
//!
//! Start at [`ChartRepository`], which downloads both, and [`ChartIndex::parse`], which reads the former.

use std::path::Path;

use semver::Version;
use serde::Deserialize;
use stoa_yaml::Limits;

use super::http_client::{Asked, Http, download, succeeded};
use super::login::Login;
use super::{Digest, Endpoint, Expected, FetchError, Pick, Selector, newest};

/// The largest index, in bytes.
const INDEX: u64 = 32 << 20;

/// The limits of an index: several thousand charts with a hundred versions each have so many values.
const LIMITS: Limits = Limits { depth: 32, values: 3_000_000, documents: 1, copied: 8 << 20 };

/// A chart repository, with the credentials for it.
#[derive(Debug)]
pub struct ChartRepository {
    http: Http,
    base: Endpoint,
    login: Login,
}

impl ChartRepository {
    /// The repository at a URL, whose last part counts with and without a slash at its end.
    ///
    /// # Errors
    ///
    /// [`FetchError::Authorities`] and [`FetchError::Wrong`], before anything is requested.
    pub fn new(url: &str, login: Login) -> Result<Self, FetchError> {
        let base = Endpoint::new(&format!("{}/", url.trim_end_matches('/')));
        let base = base.map_err(|error| FetchError::wrong(&"the URL of the chart repository", error))?;
        let http = Http::new(login.authorities())?;
        Ok(Self { http, base, login })
    }

    /// Downloads the index into a new file.
    ///
    /// # Errors
    ///
    /// If it does not arrive whole.
    pub async fn index(&self, into: &Path) -> Result<(), FetchError> {
        self.fetch("index.yaml", Expected { digest: None, size: None, limit: INDEX }, into).await
    }

    /// Downloads the archive of a version into a new file, which exists only if its digest is that of the version.
    ///
    /// # Errors
    ///
    /// [`FetchError::Mismatch`] where the content is another one.
    pub async fn archive(&self, version: &ChartVersion, limit: u64, into: &Path) -> Result<(), FetchError> {
        let url = version.urls.first().map(String::as_str).unwrap_or_default();
        let expected = Expected { digest: Some(version.digest.clone()), size: None, limit };
        self.fetch(url, expected, into).await
    }

    async fn fetch(&self, reference: &str, expected: Expected, into: &Path) -> Result<(), FetchError> {
        let url = self.base.join(reference).map_err(|error| {
            FetchError::wrong(&self.base, format_args!("the URL {reference:?} of a chart is not permitted: {error}"))
        })?;
        // The URL of an archive may be at another server.
        let basic = self.login.basic().filter(|_| url.is_same_server(&self.base));
        let asked = Asked { url: &url, accept: "", authorization: basic.as_ref() };
        let (url, answer) = self.http.follow(asked).await?;
        let answer = succeeded(&url, answer).await?;
        download(&url, answer.into_body(), expected, into).await.map(drop)
    }
}

/// The versions of one chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartIndex {
    chart: String,
    versions: Vec<ChartVersion>,
    /// The versions without a digest.
    without_digest: Vec<Version>,
}

/// A version of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartVersion {
    /// The version.
    pub version: Version,
    /// The digest of its archive.
    pub digest: Digest,
    /// The URLs of its archive, relative to the repository.
    pub urls: Vec<String>,
}

/// An index without the wanted chart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIndex {
    /// It has another form.
    #[error("index.yaml is no index of a chart repository: {0}")]
    Form(String),
    /// It has no such chart.
    #[error("the repository has no chart {0:?}")]
    NoChart(String),
    /// It has no such version.
    #[error("the repository has no version of chart {chart:?} that meets {wanted:?}")]
    NoVersion {
        /// The name of the chart.
        chart: String,
        /// The wanted version.
        wanted: String,
    },
    /// The version has no digest.
    #[error("index.yaml has no digest of chart {chart:?} {version}; write it with helm repo index")]
    NoDigest {
        /// The name of the chart.
        chart: String,
        /// The version.
        version: Version,
    },
    /// The digest is not the pinned one.
    #[error("chart {chart:?} {version} has the digest {found} instead of {expected}")]
    Digest {
        /// The name of the chart.
        chart: String,
        /// The version.
        version: Version,
        /// The pinned digest.
        expected: Digest,
        /// The digest in the index.
        found: Digest,
    },
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    version: String,
    #[serde(default)]
    digest: String,
    #[serde(default)]
    urls: Vec<String>,
}

impl ChartIndex {
    /// The versions of a chart in the text of an index. Versions that are not semantic ones are left out, as Helm does.
    ///
    /// # Errors
    ///
    /// If it is no index, or has no such chart.
    pub fn parse(text: &str, chart: &str) -> Result<Self, InvalidIndex> {
        let document = stoa_yaml::first(text, &LIMITS).map_err(|error| InvalidIndex::Form(error.to_string()))?;
        let entries = document.as_ref().and_then(|it| it.value.get("entries")?.as_object());
        let entries = entries.ok_or_else(|| InvalidIndex::Form("it has no entries".to_owned()))?;
        let missing = || InvalidIndex::NoChart(chart.to_owned());
        let entries = entries.get(chart).and_then(|it| it.as_array()).ok_or_else(missing)?;
        let (mut versions, mut without_digest) = (Vec::new(), Vec::new());
        for entry in entries {
            let Ok(Entry { version, digest, urls }) = Entry::deserialize(entry) else { continue };
            let Ok(version) = version.strip_prefix('v').unwrap_or(&version).parse::<Version>() else { continue };
            let digest = if digest.contains(':') { digest } else { format!("sha256:{digest}") };
            match digest.parse() {
                Ok(digest) => versions.push(ChartVersion { version, digest, urls }),
                Err(_) => without_digest.push(version),
            }
        }
        Ok(Self { chart: chart.to_owned(), versions, without_digest })
    }

    /// The version that a selector means.
    ///
    /// # Errors
    ///
    /// If there is none, or it has no digest or another one than the selector's.
    pub fn select(&self, selector: &Selector) -> Result<&ChartVersion, InvalidIndex> {
        let chart = self.chart.clone();
        let none = || InvalidIndex::NoVersion { chart: chart.clone(), wanted: selector.to_string() };
        let exact = match &selector.pick {
            Pick::Name(name) => {
                Some(name.strip_prefix('v').unwrap_or(name).replace('_', "+").parse::<Version>().map_err(|_| none())?)
            }
            Pick::Range(_) | Pick::Newest => {
                let range = if let Pick::Range(range) = &selector.pick { Some(range) } else { None };
                let all = self.versions.iter().map(|it| &it.version).chain(&self.without_digest);
                Some(newest(all.map(|version| (version.clone(), ())), range).ok_or_else(none)?.0)
            }
            Pick::Digest => None,
        };
        let found = self.versions.iter().find(|it| match &exact {
            Some(version) => it.version == *version,
            None => Some(&it.digest) == selector.digest.as_ref(),
        });
        let Some(found) = found else {
            let version = exact.filter(|version| self.without_digest.contains(version)).ok_or_else(none)?;
            return Err(InvalidIndex::NoDigest { chart, version });
        };
        match &selector.digest {
            Some(expected) if *expected != found.digest => {
                let (version, expected, found) = (found.version.clone(), expected.clone(), found.digest.clone());
                Err(InvalidIndex::Digest { chart, version, expected, found })
            }
            _ => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_chart_are_selected() {
        let (first, second) = (Digest::of(b"1"), Digest::of(b"2"));
        let text = format!(
            "apiVersion: v1\nentries:\n  web:\n  - {{version: v1.10.0, digest: {}, urls: [web-1.10.0.tgz]}}\n  - \
             {{version: 1.2.0, digest: '{second}', urls: [a, b], created: 2026-01-01T00:00:00Z}}\n  - {{version: x}}\n  \
             - {{version: 3.0.0}}\n  - 7\n  none: []\n",
            first.hex()
        );
        let index = ChartIndex::parse(&text, "web").unwrap();
        let select = |selector: &str| {
            let found = index.select(&selector.parse().unwrap()).map(|it| it.version.to_string());
            found.map_err(|error| error.to_string())
        };
        let version = |text: &str| Ok(text.to_owned());
        assert_eq!(select("^1"), version("1.10.0"));
        assert_eq!(select("<1.10"), version("1.2.0"));
        assert_eq!(select("v1.2.0"), version("1.2.0"));
        assert_eq!(select(&format!("1.2.0@{second}")), version("1.2.0"));
        assert_eq!(select(&second.to_string()), version("1.2.0"));
        let other = format!("chart \"web\" 1.2.0 has the digest {second} instead of {first}");
        assert_eq!(select(&format!("1.2.0@{first}")), Err(other));
        let none = |wanted: &str| format!("the repository has no version of chart \"web\" that meets {wanted:?}");
        assert_eq!(select("2.0.0"), Err(none("2.0.0")));
        assert_eq!(select("main"), Err(none("main")));
        // The newest one counts, even if it cannot be verified.
        let unverified = "index.yaml has no digest of chart \"web\" 3.0.0; write it with helm repo index";
        assert_eq!((select(""), select("3.0.0")), (Err(unverified.to_owned()), Err(unverified.to_owned())));
        assert_eq!(ChartIndex::parse(&text, "api"), Err(InvalidIndex::NoChart("api".to_owned())));
        for text in ["", "entries: 1", "a: [", "entries: {a: &a [*a]}"] {
            assert!(matches!(ChartIndex::parse(text, "web"), Err(InvalidIndex::Form(_))), "{text}");
        }
    }
}
