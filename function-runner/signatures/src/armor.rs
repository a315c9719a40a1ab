//! Armored texts: base64 between `-----BEGIN X-----` and `-----END X-----`, as PEM, OpenPGP and OpenSSH have it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A block of a text, and the text after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'t> {
    /// The label, such as `PGP SIGNATURE`.
    pub(crate) label: &'t str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) rest: &'t str,
}

/// Reads the first block. `None` where no line begins one.
///
/// Headers before an empty line and OpenPGP's checksum are ignored: signatures protect what counts.
///
/// # Errors
///
/// The end of a sentence about the block.
pub(crate) fn first(text: &str) -> Option<Result<Block<'_>, &'static str>> {
    let mut rest = text;
    loop {
        let (line, after) = line_of(rest)?;
        rest = after;
        if let Some(label) = line.trim_end().strip_prefix("-----BEGIN ").and_then(|it| it.strip_suffix("-----")) {
            return Some(block(label, rest));
        }
    }
}

fn block<'t>(label: &'t str, text: &'t str) -> Result<Block<'t>, &'static str> {
    let (mut base64, mut rest, mut in_headers) = (String::new(), text, false);
    let mut is_first = true;
    loop {
        let (line, after) = line_of(rest).ok_or("has no end")?;
        let line = line.trim();
        rest = after;
        if let Some(end) = line.strip_prefix("-----END ").and_then(|it| it.strip_suffix("-----")) {
            if end != label {
                return Err("has another end than beginning");
            }
            let bytes = STANDARD.decode(&base64).map_err(|_| "is no base64")?;
            return Ok(Block { label, bytes, rest });
        }
        // Base64 has no colon.
        in_headers = (is_first || in_headers) && line.contains(':');
        is_first = false;
        let is_checksum = line.len() == 5 && line.starts_with('=');
        if !in_headers && !is_checksum {
            base64.push_str(line);
        }
    }
}

/// The first line of a text, and the rest.
fn line_of(text: &str) -> Option<(&str, &str)> {
    if text.is_empty() { None } else { Some(text.split_once('\n').unwrap_or((text, ""))) }
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_one_after_another() {
        let text = "x\r\n-----BEGIN A B-----\r\nVersion: 1\r\n\r\naGVs\r\nbG8=\r\n=abcd\r\n-----END A B-----\r\n\
                    -----BEGIN C-----\nAA==\n-----END C-----";
        let one = first(text).unwrap().unwrap();
        assert_eq!((one.label, one.bytes.as_slice()), ("A B", &b"hello"[..]));
        let two = first(one.rest).unwrap().unwrap();
        assert_eq!(two, Block { label: "C", bytes: vec![0], rest: "" });
        assert_eq!(first(two.rest), None);
    }

    #[test]
    fn broken_blocks_are_errors() {
        for (text, why) in [
            ("-----BEGIN A-----\nAAAA\n", "has no end"),
            ("-----BEGIN A-----\nAAAA\n-----END B-----\n", "has another end than beginning"),
            ("-----BEGIN A-----\nA*AA\n-----END A-----\n", "is no base64"),
        ] {
            assert_eq!(first(text), Some(Err(why)), "{text}");
        }
        assert_eq!(first("plain"), None);
    }
}
