//! URLs as Go's `net/url` reads them.
//!
//! Start at [`Url::parse`], which takes an absolute URL or an absolute path, as `ParseRequestURI` does.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::{address, is_escaped_well, text::quote};

/// A URL that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Lower case; empty where there is none.
    pub(crate) scheme: String,
    /// With the port, and with an IPv6 address in brackets.
    pub(crate) host: String,
    /// As it is written, with escapes where characters need them.
    pub(crate) path: String,
    /// What stands after the question mark, as it is written.
    pub(crate) query: String,
    /// What two URLs that are equal have in common besides these: what is written, without the scheme.
    rest: String,
}

impl Url {
    /// Reads a URL. The error has Go's words for a text that is like none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        // As if all of it were sent with a request, which has no fragment; then what stands before the fragment.
        Self::check(text)?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = read(before, true).filter(|_| is_escaped_well(fragment)).ok_or_else(|| wrong(text))?;
        let rest = text.split_once(':').filter(|_| !url.scheme.is_empty()).map_or(text, |(_, rest)| rest).to_owned();
        Ok(Self { rest, ..url })
    }

    /// Says whether a text is a URL. Other than for [`parse`](Self::parse), a fragment is a part of the path or query.
    pub(crate) fn check(text: &str) -> Result<(), String> {
        read(text, false).map(drop).ok_or_else(|| wrong(text))
    }

    /// The host without port and brackets.
    pub(crate) fn hostname(&self) -> &str {
        let host = split(&self.host).0;
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(crate) fn port(&self) -> &str {
        split(&self.host).1
    }

    /// How long it is, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.scheme.len() + self.rest.len()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.scheme.is_empty() { "" } else { ":" };
        write!(f, "{}{separator}{}", self.scheme, self.rest)
    }
}

fn wrong(text: &str) -> String {
    format!("parse {}: invalid URI for request", quote(text))
}

fn split(host: &str) -> (&str, &str) {
    host.rfind(':')
        .filter(|colon| is_port(&host[*colon..]))
        .map_or((host, ""), |colon| (&host[..colon], &host[colon + 1..]))
}

/// Whether a text is nothing, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Reads an absolute URL or an absolute path, or where `takes_host` also `//` with a host and a path.
fn read(text: &str, takes_host: bool) -> Option<Url> {
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return None;
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let url = |host: String, path: String| {
        let (scheme, query) = (scheme.to_ascii_lowercase(), query.to_owned());
        Some(Url { scheme, host, path, query, rest: String::new() })
    };
    if text == "*" {
        return url(String::new(), text.to_owned());
    }
    if !rest.starts_with('/') {
        // With a scheme, it is opaque.
        return if scheme.is_empty() { None } else { url(String::new(), String::new()) };
    }
    let has_host = !scheme.is_empty() || (takes_host && !rest.starts_with("///"));
    let (authority, path) = match rest.strip_prefix("//").filter(|_| has_host) {
        Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
        None => ("", rest),
    };
    url(host(&scheme.to_ascii_lowercase(), authority)?, escaped(path)?)
}

/// The scheme, or nothing, and what follows it.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let is_part = |(index, byte): (usize, u8)| {
        byte.is_ascii_alphabetic() || (index > 0 && (byte.is_ascii_digit() || b"+-.".contains(&byte)))
    };
    match text.bytes().enumerate().find(|part| !is_part(*part)) {
        Some((0, b':')) => None,
        Some((colon, b':')) => Some((&text[..colon], &text[colon + 1..])),
        _ => Some(("", text)),
    }
}

/// The host in `user@host:port`, with the port.
fn host(scheme: &str, authority: &str) -> Option<String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_of_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(is_of_user) || !is_escaped_well(user) {
        return None;
    }
    if let Some(rest) = host.strip_prefix('[') {
        let (inner, port) = rest.rsplit_once(']').filter(|(_, port)| is_port(port))?;
        let name = decoded(inner);
        let is_literal = is_escaped_well(inner) && address::parse(&name).is_ok_and(|address| address.ip.is_ipv6());
        return is_literal.then(|| format!("[{name}]{port}"));
    }
    // Some databases take lists of hosts with ports.
    let strict = scheme == "http" || scheme == "https";
    let port = if strict { host.find(':') } else { host.rfind(':') }.map_or("", |colon| &host[colon..]);
    let is_of_host = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!\"$&'()*+,-.:;<=>]_~%".contains(c);
    // What a host could have without an escape, it may not have with one.
    let is_needed = |rest: &str| rest.starts_with("25") || rest.starts_with(|digit: char| digit > '7');
    let fits = is_port(port) && host.chars().all(is_of_host);
    (fits && is_escaped_well(host) && host.split('%').skip(1).all(is_needed)).then(|| decoded(host))
}

/// A path as it is written, if its escapes are whole and it needs no others; else with all the escapes it needs.
fn escaped(path: &str) -> Option<String> {
    if !is_escaped_well(path) {
        return None;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"$&+,-./:;=@_~".contains(&byte);
    if path.bytes().all(|byte| is_plain(byte) || b"!'()*,;[]%".contains(&byte)) {
        return Some(path.to_owned());
    }
    let escape = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    Some(percent_decode_str(path).map(escape).collect())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_urls() {
        #[track_caller]
        fn check(text: &str, scheme: &str, host: &str, path: &str, query: &str) {
            let url = Url::parse(text).unwrap();
            let parts = (url.scheme.as_str(), url.host.as_str(), url.path.as_str(), url.query.as_str());
            assert_eq!(parts, (scheme, host, path, query), "{text}");
        }
        check(
            "https://user:pass@example.com:80/path?query=val#fragment",
            "https",
            "example.com:80",
            "/path",
            "query=val",
        );
        check("HTTP://Example.com", "http", "Example.com", "", "");
        check("https://[::1]:80/", "https", "[::1]:80", "/", "");
        check("https://[fe80::1%25en0]/", "https", "[fe80::1%en0]", "/", "");
        check("/a b/ä?x y", "", "", "/a%20b/%C3%A4", "x y");
        check("/a%2fb", "", "", "/a%2fb", "");
        check("/a%2fb c", "", "", "/a/b%20c", "");
        check("//host/path", "", "host", "/path", "");
        check("///path", "", "", "///path", "");
        check("http:///a", "http", "", "/a", "");
        check("mailto:a@b.c?d", "mailto", "", "", "d");
        check("*", "", "", "*", "");
        check("mysql://a:1,b:2/", "mysql", "a:1,b:2", "/", "");
        let url = Url::parse("https://[fe80::1%25en0]:8080/").unwrap();
        assert_eq!(
            (url.hostname(), url.port(), url.to_string().as_str()),
            ("fe80::1%en0", "8080", "https://[fe80::1%25en0]:8080/")
        );
        assert_ne!(Url::parse("https://a"), Url::parse("https://a/"));
    }

    #[test]
    fn texts_that_are_no_urls_are_refused() {
        for text in [
            "",
            "a/b",
            "1http://a",
            ":a",
            "/\n",
            "/%2",
            "/%zz/",
            "http://a b/",
            "http://a%20b/",
            "http://a:b:c/",
            "http://[::1]a/",
            "http://[::1/",
            "http://a[::1]/",
            "http://[1.2.3.4]/",
            "http://[x]/",
            "http://a b@c/",
            "http://a%zz@c/",
            "http://host#x",
        ] {
            assert_eq!(Url::parse(text), Err(format!("parse {}: invalid URI for request", quote(text))));
        }
        assert!(Url::check("/a#%zz").is_err());
    }
}
