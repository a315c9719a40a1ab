//! Signed objects of Git: the part of a commit or tag that its signature covers.
//!
//! The functions take the content of the object, without Git's `<type> <size>\0` before it. They follow
//! `parse_buffer_signed_by_header` and `parse_signed_buffer` of Git.

use crate::Unverified;

/// The beginnings of signatures in tags, as in Git's `gpg-interface.c`.
const BEGINNINGS: [&[u8]; 4] = [
    b"-----BEGIN PGP SIGNATURE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"-----BEGIN SIGNED MESSAGE-----",
    b"-----BEGIN SSH SIGNATURE-----",
];

/// An object without its signature, and the signature.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) payload: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

/// The parts of a commit.
///
/// # Errors
///
/// [`Unverified::Missing`] without a signature, and [`Unverified::Invalid`] for several.
pub(crate) fn commit(content: &[u8]) -> Result<Signed, Unverified> {
    let mut payload = Vec::with_capacity(content.len());
    let mut signature: Option<Vec<u8>> = None;
    let mut part = Part::Payload;
    let mut lines = content.split_inclusive(|byte| *byte == b'\n');
    for line in lines.by_ref() {
        let continues = line.first() == Some(&b' ');
        let text = match part {
            Part::Signature | Part::Other if continues => &line[1..],
            _ if line.starts_with(b"gpgsig ") => {
                if signature.is_some() {
                    return Err(Unverified::invalid("is one of several; sign the commit once"));
                }
                (part, signature) = (Part::Signature, Some(Vec::new()));
                &line[b"gpgsig ".len()..]
            }
            // That of the same commit by SHA-256.
            _ if line.starts_with(b"gpgsig") => {
                part = Part::Other;
                line
            }
            _ => {
                part = Part::Payload;
                line
            }
        };
        match part {
            Part::Payload => payload.extend_from_slice(text),
            Part::Signature => signature.get_or_insert_default().extend_from_slice(text),
            Part::Other => {}
        }
        if line == b"\n" {
            break;
        }
    }
    lines.for_each(|line| payload.extend_from_slice(line));
    Ok(Signed { payload, signature: signature.ok_or(Unverified::Missing)? })
}

enum Part {
    Payload,
    Signature,
    Other,
}

/// The parts of a tag: the last line that begins a signature begins the signature.
///
/// # Errors
///
/// [`Unverified::Missing`] without a signature.
pub(crate) fn tag(content: &[u8]) -> Result<Signed, Unverified> {
    let (mut at, mut begin) = (0, None);
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if BEGINNINGS.iter().any(|beginning| line.starts_with(beginning)) {
            begin = Some(at);
        }
        at += line.len();
    }
    let (payload, signature) = content.split_at(begin.ok_or(Unverified::Missing)?);
    Ok(Signed { payload: payload.to_vec(), signature: signature.to_vec() })
}

/// The object and name that the signed part of a tag has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedTag {
    /// The id of the object, 40 hex digits.
    pub object: String,
    /// The name of the tag.
    pub name: String,
}

/// Reads the headers in the signed part of a tag. `None` where the signature does not cover them.
pub fn tag_of(content: &[u8]) -> Option<SignedTag> {
    let payload = tag(content).ok()?.payload;
    let end = payload.windows(2).position(|two| two == b"\n\n")?;
    let mut headers = std::str::from_utf8(&payload[..end]).ok()?.lines();
    let mut header = |name: &str| headers.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
    let (object, kind, name) = (header("object")?, header("type")?, header("tag")?);
    (kind == "commit").then_some(SignedTag { object, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_is_signed_without_its_signatures() {
        let commit = |headers: &str| super::commit(format!("tree 1\n{headers}author a\n\ngpgsig x\n m\n").as_bytes());
        let signed = commit("gpgsig-sha256 other\n more\ngpgsig -----BEGIN\n \n abc\n").unwrap();
        assert_eq!(String::from_utf8(signed.payload).unwrap(), "tree 1\nauthor a\n\ngpgsig x\n m\n");
        assert_eq!(String::from_utf8(signed.signature).unwrap(), "-----BEGIN\n\nabc\n");
        assert_eq!(commit(""), Err(Unverified::Missing));
        assert_eq!(commit("gpgsig-sha256 a\n b\n"), Err(Unverified::Missing));
        assert!(matches!(commit("gpgsig a\ngpgsig b\n"), Err(Unverified::Invalid { .. })));
        assert!(super::commit(b"").is_err());
    }

    #[test]
    fn last_beginning_of_a_signature_counts_in_tags() {
        let head = "object 1\ntype commit\ntag v1\ntagger t\n\nm\n-----BEGIN SSH SIGNATURE-----\nquoted\n";
        let text = format!("{head}-----BEGIN PGP SIGNATURE-----\nx\n");
        let signed = tag(text.as_bytes()).unwrap();
        assert_eq!(signed.payload, head.as_bytes());
        assert_eq!(tag(b"object 1\n\nm"), Err(Unverified::Missing));
        let found = tag_of(text.as_bytes()).unwrap();
        assert_eq!((found.object.as_str(), found.name.as_str()), ("1", "v1"));
        assert_eq!(tag_of(b"object 1\ntype tree\ntag v1\n\nm\n-----BEGIN SSH SIGNATURE-----\n"), None);
        assert_eq!(tag_of(b"object 1\ntype commit\ntag v1\n-----BEGIN SSH SIGNATURE-----\n\n"), None);
    }
}
