//! What a delivery of a webhook says in its headers: how its sender proves who it is, and whether it tells of a push or a pull
//! request.
//!
//! GitHub, Gitea, Forgejo, Gogs, Bitbucket and Flux sign the body with a secret; GitLab shows the secret. Nothing else in the
//! delivery of a Git server is read.

use http::{HeaderMap, header};
use rand::Rng as _;
use ring::hmac;

/// Signatures as `sha256=` and 64 hex digits.
const SIGNATURES: [&str; 3] = ["x-hub-signature-256", "x-hub-signature", "x-signature"];
/// Signatures as 64 hex digits.
const BARE_SIGNATURES: [&str; 3] = ["x-forgejo-signature", "x-gitea-signature", "x-gogs-signature"];
/// What happened.
const EVENTS: [&str; 6] =
    ["x-github-event", "x-forgejo-event", "x-gitea-event", "x-gogs-event", "x-gitlab-event", "x-event-key"];
/// What may have moved a branch or a tag, or opened or closed a pull request.
const NEWS: [&str; 9] = [
    "push",
    "create",
    "delete",
    "Push Hook",
    "Tag Push Hook",
    "System Hook",
    "repo:push",
    "repo:refs_changed",
    "pull_request",
];

/// How a sender proves that it has the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The HMAC-SHA256 of the body.
    Signature([u8; 32]),
    /// The secret itself.
    Token(Vec<u8>),
}

impl Proof {
    /// The proof in the headers, a signature if there is one; nothing if there is none, or none that can be read.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        // GitHub and Gitea send one with SHA-1 besides.
        let prefixed = SIGNATURES.iter().filter_map(|name| text(name)).find(|value| !value.starts_with("sha1="));
        if let Some(signature) = prefixed {
            return digest(signature.strip_prefix("sha256=")?).map(Self::Signature);
        }
        if let Some(signature) = BARE_SIGNATURES.iter().find_map(|name| text(name)) {
            return digest(signature).map(Self::Signature);
        }
        if let Some(token) = headers.get("x-gitlab-token") {
            return Some(Self::Token(token.as_bytes().to_vec()));
        }
        let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Self::Token(token.trim().as_bytes().to_vec()))
    }
}

/// The bytes of 64 hex digits.
fn digest(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// Whether a delivery may be about a push or a pull request; one that does not say what it is about may.
pub(super) fn may_be_news(headers: &HeaderMap) -> bool {
    let event = EVENTS.iter().find_map(|name| headers.get(*name));
    event.is_none_or(|event| NEWS.iter().any(|news| event.as_bytes() == news.as_bytes()))
}

/// Checks a proof against a body that comes in pieces, of which none is kept.
pub(super) struct Check {
    /// The signature that was given, and that of what has come; nothing when the secret was shown.
    signature: Option<([u8; 32], hmac::Context)>,
}

impl Check {
    /// Nothing, when there is no secret that somebody could have, or another was shown: that takes no body to know.
    pub(super) fn new(proof: Proof, secret: &[u8]) -> Option<Self> {
        if secret.is_empty() {
            return None;
        }
        match proof {
            Proof::Signature(given) => {
                let body = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
                Some(Self { signature: Some((given, body)) })
            }
            Proof::Token(token) => is_same(secret, &token).then_some(Self { signature: None }),
        }
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        if let Some((_, body)) = &mut self.signature {
            body.update(piece);
        }
    }

    /// Whether the sender has the secret. How long that takes does not tell how much of it was right.
    pub(super) fn holds(self) -> bool {
        self.signature.is_none_or(|(given, body)| is_same(body.sign().as_ref(), &given))
    }
}

/// Compares in a time that depends on neither: of what is compared byte by byte, nobody outside knows a bit.
fn is_same(expected: &[u8], given: &[u8]) -> bool {
    let mut blind = [0; 32];
    rand::rng().fill_bytes(&mut blind);
    let blind = hmac::Key::new(hmac::HMAC_SHA256, &blind);
    hmac::verify(&blind, given, hmac::sign(&blind, expected).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use stoa_engine::digest::hex;

    use super::*;

    const SECRET: &[u8] = b"It's a Secret to Everybody";
    /// From GitHub's documentation.
    const SIGNED: (&str, &str) = ("Hello, World!", "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&str, &str)| {
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
        };
        fields.iter().filter_map(field).collect()
    }

    fn accepts(headers: &HeaderMap, body: &[u8], secret: &[u8]) -> bool {
        let Some(mut check) = Proof::of(headers).and_then(|proof| Check::new(proof, secret)) else { return false };
        // However it comes.
        body.chunks(7).for_each(|piece| check.update(piece));
        check.holds()
    }

    #[test]
    fn webhook_accepts_secret_of_each_server_kind() {
        let (body, signature) = SIGNED;
        let prefixed = format!("sha256={signature}");
        let secret = std::str::from_utf8(SECRET).unwrap();
        let bearer = format!("Bearer {secret}");
        let old = ("X-Hub-Signature", "sha1=0000000000000000000000000000000000000000");
        for known in [
            vec![("X-Hub-Signature-256", prefixed.as_str()), old],
            vec![("X-Hub-Signature", &prefixed)],
            vec![("X-Signature", &prefixed)],
            vec![("X-Gitea-Signature", signature), old],
            vec![("X-Gogs-Signature", signature)],
            vec![("X-Gitlab-Token", secret)],
            vec![("Authorization", &bearer)],
        ] {
            let known = headers(&known);
            assert!(accepts(&known, body.as_bytes(), SECRET), "{known:?}");
            assert!(!accepts(&known, body.as_bytes(), b"another"), "{known:?}");
            assert!(!accepts(&known, body.as_bytes(), b""), "{known:?}");
            let is_signed = matches!(Proof::of(&known), Some(Proof::Signature(_)));
            assert_eq!(accepts(&known, b"Hello, World?", SECRET), !is_signed, "{known:?}");
        }
        let (cut, other) = (&prefixed[..70], format!("sha256={}", "0".repeat(64)));
        for unknown in [
            vec![],
            vec![old],
            vec![("X-Hub-Signature-256", signature)],
            vec![("X-Hub-Signature-256", cut), ("X-Gitlab-Token", secret)],
            vec![("X-Hub-Signature-256", &other), ("X-Gitlab-Token", secret)],
            vec![("X-Gitlab-Token", "")],
            vec![("Authorization", secret)],
            vec![("Authorization", "Basic x")],
        ] {
            assert!(!accepts(&headers(&unknown), body.as_bytes(), SECRET), "{unknown:?}");
        }
    }

    #[test]
    fn deliveries_about_something_else_are_told_apart() {
        for push in ["push", "create", "pull_request"] {
            assert!(may_be_news(&headers(&[("X-GitHub-Event", push)])));
        }
        assert!(may_be_news(&headers(&[("X-Gitlab-Event", "Tag Push Hook")])));
        assert!(may_be_news(&headers(&[])));
        assert!(!may_be_news(&headers(&[("X-GitHub-Event", "ping")])));
        assert!(!may_be_news(&headers(&[("X-Gitlab-Event", "Issue Hook")])));
    }

    /// Headers in lines, an empty one, and the body.
    fn only_whoever_has_the_secret_gets_in(input: &[u8]) {
        let end = input.windows(2).position(|pair| pair == b"\n\n");
        let (head, body) = end.map_or((input, &b""[..]), |end| (&input[..end], &input[end + 2..]));
        let mut sent = HeaderMap::new();
        for line in head.split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(value)) {
                sent.append(name, value);
            }
        }
        may_be_news(&sent);
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        let signature = hmac::sign(&key, body);
        let is_right = match Proof::of(&sent) {
            None => false,
            Some(Proof::Signature(given)) => given == signature.as_ref(),
            Some(Proof::Token(token)) => token == SECRET,
        };
        assert_eq!(accepts(&sent, body, SECRET), is_right);
        assert!(!accepts(&sent, body, b""));
        let signed = format!("sha256={}", hex(signature.as_ref()));
        sent.insert("x-hub-signature-256", HeaderValue::from_str(&signed).unwrap());
        assert!(accepts(&sent, body, SECRET));
        assert!(!accepts(&sent, &[body, b" "].concat(), SECRET));
    }

    mod fuzz {
        #[test]
        fn webhooks() {
            stoa_fuzz::run::test("webhooks", super::only_whoever_has_the_secret_gets_in);
        }
    }
}
