//! The demands of a registry for credentials: the header `WWW-Authenticate`.

use http::{HeaderMap, header};

/// A scheme that a registry takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A user name and a password with each request.
    Basic,
    /// A token of another server.
    Bearer {
        /// The URL of that server.
        realm: String,
        /// The name of the registry there.
        service: String,
    },
}

/// The schemes that an answer offers and that are known here, in its order.
pub(crate) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let texts = headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(parse).collect()
}

/// The schemes in one header: `SCHEME name=value, name="quoted \" value", SCHEME …`.
pub fn parse(text: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find(|it: char| !is_token(it)).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        let (word, after) = rest.split_at(end);
        let spaceless = after.trim_start_matches([' ', '\t']);
        match (spaceless.strip_prefix('='), found.last_mut()) {
            (Some(value), Some((_, parameters))) => {
                let Some((value, after)) = value_of(value.trim_start_matches([' ', '\t'])) else { break };
                parameters.push((word.to_ascii_lowercase(), value));
                rest = after;
            }
            (Some(_), None) => break,
            (None, _) => {
                found.push((word.to_ascii_lowercase(), Vec::new()));
                rest = after;
            }
        }
    }
    found.into_iter().filter_map(|(scheme, parameters)| challenge(&scheme, &parameters)).collect()
}

fn challenge(scheme: &str, parameters: &[(String, String)]) -> Option<Challenge> {
    let text = |name: &str| parameters.iter().find(|(it, _)| it == name).map(|(_, value)| value.clone());
    match scheme {
        "basic" => Some(Challenge::Basic),
        "bearer" => Some(Challenge::Bearer { realm: text("realm")?, service: text("service").unwrap_or_default() }),
        _ => None,
    }
}

fn is_token(it: char) -> bool {
    it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it)
}

/// A token or a quoted string, and the rest.
fn value_of(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|it: char| !is_token(it)).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, it) in quoted.char_indices() {
        match it {
            _ if is_escaped => {
                value.push(it);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return Some((value, &quoted[at + 1..])),
            it => value.push(it),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer =
            |realm: &str, service: &str| Challenge::Bearer { realm: realm.to_owned(), service: service.to_owned() };
        for (text, expected) in [
            (r#"Basic realm="Registry""#, vec![Challenge::Basic]),
            (
                r#"Bearer realm="https://a.example.com/token",service="reg",scope="repository:a:pull""#,
                vec![bearer("https://a.example.com/token", "reg")],
            ),
            (
                r#"Negotiate, bearer realm = "https://a/\"x\"" , error=invalid, Basic"#,
                vec![bearer("https://a/\"x\"", ""), Challenge::Basic],
            ),
            ("Bearer service=a", vec![]),
            (r#"Bearer realm="https://a"#, vec![]),
            ("=x", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
