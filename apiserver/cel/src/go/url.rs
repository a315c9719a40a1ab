//! URLs as Go's `net/url` reads them.
//!
//! Start at [`Url::parse`], which takes an absolute URL or an absolute path, as `ParseRequestURI` does.

use std::{fmt, net::IpAddr};

use super::{address, text::quote};

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

/// Where a character stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Path,
    Host,
    Zone,
    User,
    Fragment,
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// `parse "…": …`, in Go's words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |text: &str, why: String| format!("parse {}: {why}", quote(text));
        // As if all of it were sent with a request, which has no fragment; then what stands before the fragment.
        read(text, Form::Request).map_err(|why| wrong(text, why))?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = read(before, Form::Any).map_err(|why| wrong(before, why))?;
        unescape(fragment, Place::Fragment).map_err(|why| wrong(text, why))?;
        Ok(Self {
            rest: text.split_once(':').filter(|_| !url.scheme.is_empty()).map_or(text, |(_, rest)| rest).to_owned(),
            ..url
        })
    }

    /// Says what is wrong with a text that should be a URL.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse), but a fragment is a part of the path or query.
    pub(crate) fn check(text: &str) -> Result<(), String> {
        read(text, Form::Request).map(drop).map_err(|why| format!("parse {}: {why}", quote(text)))
    }

    /// The host without port and brackets.
    pub(crate) fn hostname(&self) -> &str {
        let host = split(&self.host).0;
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The port, or nothing.
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

/// Host and port.
fn split(host: &str) -> (&str, &str) {
    host.rfind(':')
        .filter(|colon| is_port(&host[*colon..]))
        .map_or((host, ""), |colon| (&host[..colon], &host[colon + 1..]))
}

/// Whether a text is nothing, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a text may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// An absolute URL or an absolute path.
    Request,
    /// Also a host and a path.
    Any,
}

fn read(text: &str, form: Form) -> Result<Url, String> {
    let none = Url {
        scheme: String::new(),
        host: String::new(),
        path: String::new(),
        query: String::new(),
        rest: String::new(),
    };
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    match text {
        "" => return Err("empty url".to_owned()),
        "*" => return Ok(Url { path: "*".to_owned(), ..none }),
        _ => {}
    }
    let (scheme, rest) = scheme(text)?;
    let scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query = query.to_owned();
    if !rest.starts_with('/') {
        // With a scheme, it is opaque.
        return match scheme.is_empty() {
            true => Err("invalid URI for request".to_owned()),
            false => Ok(Url { scheme, query, ..none }),
        };
    }
    let has_host = !scheme.is_empty() || (form == Form::Any && !rest.starts_with("///"));
    let (authority, path) = match rest.strip_prefix("//").filter(|_| has_host) {
        Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
        None => ("", rest),
    };
    let host = self::authority(&scheme, authority)?;
    let path = escaped(path)?;
    Ok(Url { scheme, host, path, query, ..none })
}

/// The scheme, or nothing, and what follows it.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let is_part = |(index, byte): (usize, u8)| {
        byte.is_ascii_alphabetic() || (index > 0 && (byte.is_ascii_digit() || b"+-.".contains(&byte)))
    };
    match text.bytes().enumerate().find(|part| !is_part(*part)) {
        Some((0, b':')) => Err("missing protocol scheme".to_owned()),
        Some((colon, b':')) => Ok((&text[..colon], &text[colon + 1..])),
        _ => Ok(("", text)),
    }
}

/// The host in `user@host`.
fn authority(scheme: &str, authority: &str) -> Result<String, String> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let host = self::host(scheme, host)?;
    if let Some(user) = user {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(fits) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        unescape(name, Place::User)?;
        unescape(password, Place::User)?;
    }
    Ok(host)
}

fn host(scheme: &str, host: &str) -> Result<String, String> {
    let check_port = |port: &str| match is_port(port) {
        true => Ok(()),
        false => Err(format!("invalid port {} after host", quote(port))),
    };
    match host.rfind('[') {
        Some(0) => {
            let end = host.rfind(']').ok_or("missing ']' in host")?;
            let (inner, port) = (&host[1..end], &host[end + 1..]);
            check_port(port)?;
            let name = match inner.find("%25") {
                Some(zone) => unescape(&inner[..zone], Place::Host)? + &unescape(&inner[zone..], Place::Zone)?,
                None => unescape(inner, Place::Host)?,
            };
            let address = address::parse(&name).map_err(|error| format!("invalid host: {error}"))?;
            if matches!(address.ip, IpAddr::V4(_)) {
                return Err("invalid IP-literal".to_owned());
            }
            return Ok(format!("[{name}]{port}"));
        }
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    // Some databases take lists of hosts with ports.
    let strict = scheme == "http" || scheme == "https";
    if let Some(colon) = if strict { host.find(':') } else { host.rfind(':') } {
        check_port(&host[colon..])?;
    }
    unescape(host, Place::Host)
}

/// A path as it is written, if its escapes are whole and it needs no others; else with all the escapes it needs.
fn escaped(path: &str) -> Result<String, String> {
    let plain = unescape(path, Place::Path)?;
    let stands = |byte: u8| is_plain(byte, Place::Path) || b"!'()*,;[]%".contains(&byte);
    if path.bytes().all(stands) || plain == "*" {
        return Ok(path.to_owned());
    }
    let mut out = String::with_capacity(path.len());
    for byte in unescape_bytes(path) {
        if is_plain(byte, Place::Path) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(out)
}

/// Whether a byte stands for itself.
fn is_plain(byte: u8, place: Place) -> bool {
    byte.is_ascii_alphanumeric()
        || match place {
            Place::Path => b"$&+,-./:;=@_~".contains(&byte),
            Place::Host | Place::Zone => b"!\"$&'()*+,-.:;<=>[]_~".contains(&byte),
            Place::User | Place::Fragment => true,
        }
}

/// A text without escapes.
fn unescape(text: &str, place: Place) -> Result<String, String> {
    let hexadecimal = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    let in_host = matches!(place, Place::Host | Place::Zone);
    let bytes = text.as_bytes();
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        if *byte != b'%' {
            if in_host && byte.is_ascii() && !is_plain(*byte, place) {
                return Err(format!("invalid character {} in host name", quote(&text[index..=index])));
            }
            index += 1;
            continue;
        }
        let digits = bytes.get(index + 1..index + 3).filter(|digits| hexadecimal(digits));
        let escape = String::from_utf8_lossy(&bytes[index..bytes.len().min(index + 3)]);
        let wrong = || format!("invalid URL escape {}", quote(&escape));
        digits.ok_or_else(wrong)?;
        // What a host could have without an escape, it may not have with one.
        let value = u8::from_str_radix(&escape[1..], 16).unwrap_or(0);
        let allowed = match place {
            Place::Host => !value.is_ascii() || escape == "%25",
            Place::Zone => escape == "%25" || value == b' ' || is_plain(value, Place::Host),
            Place::Path | Place::User | Place::Fragment => true,
        };
        if !allowed {
            return Err(wrong());
        }
        index += 3;
    }
    Ok(String::from_utf8_lossy(&unescape_bytes(text)).into_owned())
}

fn unescape_bytes(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
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
    fn what_is_wrong_with_urls_is_told_in_the_words_of_go() {
        for (text, why) in [
            ("", "empty url"),
            ("a/b", "invalid URI for request"),
            ("1http://a", "invalid URI for request"),
            (":a", "missing protocol scheme"),
            ("/\n", "net/url: invalid control character in URL"),
            ("/%2", "invalid URL escape \"%2\""),
            ("/%zz/", "invalid URL escape \"%zz\""),
            ("http://a b/", "invalid character \" \" in host name"),
            ("http://a%20b/", "invalid URL escape \"%20\""),
            ("http://a:b:c/", "invalid port \":b:c\" after host"),
            ("http://[::1]a/", "invalid port \"a\" after host"),
            ("http://[::1/", "missing ']' in host"),
            ("http://a[::1]/", "invalid IP-literal"),
            ("http://[1.2.3.4]/", "invalid IP-literal"),
            ("http://[x]/", "invalid host: ParseAddr(\"x\"): unable to parse IP"),
            ("http://a b@c/", "net/url: invalid userinfo"),
            ("http://a%zz@c/", "invalid URL escape \"%zz\""),
            ("http://host#x", "invalid character \"#\" in host name"),
        ] {
            assert_eq!(Url::parse(text), Err(format!("parse {}: {why}", quote(text))));
        }
        assert_eq!(Url::check("/a#%zz"), Err("parse \"/a#%zz\": invalid URL escape \"%zz\"".to_owned()));
    }
}
