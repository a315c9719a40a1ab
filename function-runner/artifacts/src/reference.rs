//! Names of artifacts: `registry/name`, a tag, a digest, or a range of versions.
//!
//! No registry is a special case: a name has its registry, and nothing is added to it.

use std::fmt;
use std::str::FromStr;

use semver::{Version, VersionReq};

use super::Digest;

/// The longest name of a repository with its registry, in bytes.
const LONGEST: usize = 255;

/// A repository in a registry: `registry.example.com:5000/shop/config`, with or without `oci://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The host of the registry, with its port if it has one.
    pub registry: String,
    /// The name there: parts of lower-case letters, digits, and single separators, with `/` in between.
    pub name: String,
}

/// A text that names no repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a repository of a registry; the form is oci://HOST[:PORT]/NAME, with NAME in lower case and without \
     tag or digest"
)]
pub struct InvalidRepository(String);

impl FromStr for Repository {
    type Err = InvalidRepository;

    fn from_str(text: &str) -> Result<Self, InvalidRepository> {
        let plain = text.strip_prefix("oci://").unwrap_or(text);
        let parsed = plain
            .split_once('/')
            .filter(|(registry, name)| plain.len() <= LONGEST && is_host(registry) && name.split('/').all(is_part));
        let (registry, name) = parsed.ok_or_else(|| InvalidRepository(text.chars().take(LONGEST).collect()))?;
        Ok(Self { registry: registry.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.name)
    }
}

/// Whether a text is a host, with or without a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|it| it > 0) && port.bytes().all(|it| it.is_ascii_digit());
    let is_label = |label: &str| {
        let is_edge = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
        is_edge(label.chars().next())
            && is_edge(label.chars().last())
            && label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    let is_name = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    is_name && port.is_none_or(is_port)
}

/// Whether a text is a part of a name: letters and digits with `.`, `_`, `__` or any number of `-` in between.
fn is_part(part: &str) -> bool {
    let is_word = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends = bytes.first().is_some_and(|it| is_word(*it)) && bytes.last().is_some_and(|it| is_word(*it));
    let is_separator = |it: &str| matches!(it, "" | "." | "_" | "__") || it.bytes().all(|it| it == b'-');
    let mut separators = part.split(|it: char| it.is_ascii_lowercase() || it.is_ascii_digit());
    ends && separators.all(is_separator)
}

/// Whether a text is a tag: letters, digits, `.`, `_` and `-`, at most 128.
pub fn is_tag(text: &str) -> bool {
    let is_word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    let mut bytes = text.bytes();
    text.len() <= 128 && bytes.next().is_some_and(is_word) && bytes.all(|it| is_word(it) || matches!(it, b'.' | b'-'))
}

/// The tag of a version, in which `_` stands for `+`.
pub fn tag_of(version: &Version) -> String {
    version.to_string().replace('+', "_")
}

/// The version that a tag has, with or without `v` at its start.
pub fn version_of(tag: &str) -> Option<Version> {
    tag.strip_prefix('v').unwrap_or(tag).replace('_', "+").parse().ok()
}

/// The newest release, or the newest version that a range permits.
pub fn newest<T>(versions: impl IntoIterator<Item = (Version, T)>, range: Option<&VersionReq>) -> Option<(Version, T)> {
    let permits = |version: &Version| match range {
        Some(range) => range.matches(version),
        None => version.pre.is_empty(),
    };
    versions.into_iter().filter(|(version, _)| permits(version)).max_by(|(one, _), (other, _)| one.cmp(other))
}

/// The artifact of a repository that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// How it is found.
    pub pick: Pick,
    /// The digest that it has, and that finds it by itself in a registry.
    pub digest: Option<Digest>,
}

/// How an artifact is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// By its tag, or its version.
    Name(String),
    /// The newest that a range permits.
    Range(VersionReq),
    /// The newest release, or the tag `latest`.
    Newest,
    /// By its digest alone.
    Digest,
}

/// A text that selects no artifact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} selects no artifact; use a tag or version such as 1.2.3, a range such as \"^1.2\" or \">=1.2, <2\", a \
     digest, or TAG@DIGEST"
)]
pub struct InvalidSelector(String);

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let failed = || InvalidSelector(text.chars().take(LONGEST).collect());
        if let Ok(digest) = text.parse() {
            return Ok(Self { pick: Pick::Digest, digest: Some(digest) });
        }
        let (text, digest) = match text.split_once('@') {
            Some((name, digest)) if is_name(name) => (name, Some(digest.parse().map_err(|_| failed())?)),
            Some(_) => return Err(failed()),
            None => (text, None),
        };
        let pick = match text {
            "" => Pick::Newest,
            name if is_name(name) => Pick::Name(name.to_owned()),
            range => Pick::Range(range.parse().map_err(|_| failed())?),
        };
        Ok(Self { pick, digest })
    }
}

/// Whether a text is a tag or a version, which may have `+`.
fn is_name(text: &str) -> bool {
    is_tag(text) || text.parse::<Version>().is_ok()
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pick {
            Pick::Name(name) => f.write_str(name)?,
            Pick::Range(range) => write!(f, "{range}")?,
            Pick::Newest | Pick::Digest => {}
        }
        match (&self.digest, &self.pick) {
            (Some(digest), Pick::Digest) => write!(f, "{digest}"),
            (Some(digest), _) => write!(f, "@{digest}"),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_name_their_registry() {
        for (text, registry, name) in [
            ("oci://registry.example.com/shop/config", "registry.example.com", "shop/config"),
            ("localhost:5000/a", "localhost:5000", "a"),
            ("oci://[::1]:5000/a-b/c__d.e", "[::1]:5000", "a-b/c__d.e"),
            ("127.0.0.1/a---b", "127.0.0.1", "a---b"),
        ] {
            let parsed: Repository = text.parse().unwrap();
            assert_eq!((parsed.registry.as_str(), parsed.name.as_str()), (registry, name));
            assert_eq!(parsed.to_string().parse::<Repository>().unwrap(), parsed);
        }
        for text in [
            "",
            "a",
            "/a",
            "https://registry.example.com/a",
            "registry.example.com/A",
            "registry.example.com/a:1",
            "registry.example.com/a@sha256:00",
            "registry.example.com/a/",
            "registry.example.com//a",
            "registry.example.com/../a",
            "registry.example.com/a___b",
            "registry.example.com/a._b",
            "user@registry.example.com/a",
            "registry.example.com:0/a",
            "registry.example.com:+5/a",
            "registry.example.com:/a",
            "[::g]/a",
            "-a.example.com/a",
            "registry.example.com/a?b",
            &format!("registry.example.com/{}", "a".repeat(250)),
        ] {
            assert!(text.parse::<Repository>().is_err(), "{text}");
        }
    }

    #[test]
    fn selectors_are_tags_digests_and_ranges() {
        let digest = Digest::of(b"x");
        let parsed = |text: &str| text.parse::<Selector>().unwrap();
        assert_eq!(parsed(""), Selector { pick: Pick::Newest, digest: None });
        assert_eq!(parsed("v1.2"), Selector { pick: Pick::Name("v1.2".to_owned()), digest: None });
        assert_eq!(parsed("1.2.3+a"), Selector { pick: Pick::Name("1.2.3+a".to_owned()), digest: None });
        let pinned = format!("1.2.3@{digest}");
        assert_eq!(parsed(&pinned), Selector { pick: Pick::Name("1.2.3".to_owned()), digest: Some(digest.clone()) });
        assert_eq!(parsed(&digest.to_string()), Selector { pick: Pick::Digest, digest: Some(digest.clone()) });
        assert_eq!(parsed("^1.2").pick, Pick::Range("^1.2".parse().unwrap()));
        for text in ["", "1.2.3", ">=1.2, <2", &pinned, &digest.to_string()] {
            assert_eq!(parsed(&parsed(text).to_string()), parsed(text));
        }
        for text in ["a/b", "-a", "1.2.3@", "^1@sha256:00", &format!("^1@{digest}"), "sha256:00", ">= x", "@"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }

    #[test]
    fn newest_version_is_chosen() {
        let versions = || ["1.2.0", "v1.10.0", "2.0.0-rc.1", "1.10.0_b1", "main"].map(|tag| (version_of(tag), tag));
        let versions = || versions().into_iter().filter_map(|(version, tag)| Some((version?, tag)));
        let tag =
            |range: Option<&str>| newest(versions(), range.map(|it| it.parse().unwrap()).as_ref()).map(|(_, tag)| tag);
        assert_eq!(tag(None), Some("1.10.0_b1"));
        assert_eq!(tag(Some("<1.10")), Some("1.2.0"));
        assert_eq!(tag(Some("^2.0.0-rc")), Some("2.0.0-rc.1"));
        assert_eq!(tag(Some("^3")), None);
        assert_eq!(tag_of(&"1.10.0+b1".parse().unwrap()), "1.10.0_b1");
    }
}
