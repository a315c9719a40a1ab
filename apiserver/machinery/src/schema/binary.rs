//! Bytes in JSON, as Go's `encoding/json` reads them.

use std::borrow::Cow;

use base64::{
    Engine as _,
    alphabet::STANDARD as ALPHABET,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD},
};
use serde_json::Value;

/// Text that is no base64, in Go's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub(super) struct Corrupt(usize);

/// As Go's decoder, which does not look at the bits that the last letter has over.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&ALPHABET, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// The same bytes as Go writes them again: in one line.
pub(super) fn plain(text: &str) -> Result<Cow<'_, str>, Corrupt> {
    check(text.as_bytes())?;
    let in_one_line: Vec<u8> = text.bytes().filter(|byte| !is_line_end(*byte)).collect();
    let bytes = LENIENT.decode(in_one_line).map_err(|_| Corrupt(0))?;
    let plain = STANDARD.encode(bytes);
    Ok(if plain == text { Cow::Borrowed(text) } else { Cow::Owned(plain) })
}

/// The bytes of a list of numbers, which Go's decoder takes for bytes, too.
pub(super) fn encoded(items: &[Value]) -> Option<String> {
    let byte = |item: &Value| u8::try_from(item.as_u64()?).ok();
    Some(STANDARD.encode(items.iter().map(byte).collect::<Option<Vec<u8>>>()?))
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Follows `decodeQuantum` of Go's `encoding/base64`, for the place that it names.
fn check(text: &[u8]) -> Result<(), Corrupt> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut rest = text.iter().enumerate().filter(|(_, byte)| !is_line_end(**byte));
    loop {
        for letters in 0..4 {
            match rest.next() {
                None if letters == 0 => return Ok(()),
                None => return Err(Corrupt(text.len() - letters)),
                Some((_, byte)) if is_letter(*byte) => {}
                Some((_, b'=')) if letters >= 2 => {
                    if letters == 2 {
                        match rest.next() {
                            None => return Err(Corrupt(text.len())),
                            Some((_, b'=')) => {}
                            Some((at, _)) => return Err(Corrupt(at - 1)),
                        }
                    }
                    return rest.next().map_or(Ok(()), |(at, _)| Err(Corrupt(at)));
                }
                Some((at, _)) => return Err(Corrupt(at)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn base64_is_taken_in_lines_and_written_in_one() {
        let taken = |text| plain(text).expect("it is base64");
        assert_eq!(taken("aGVs\nbG8=\r\n"), "aGVsbG8=");
        assert!(matches!(taken("aGVsbG8="), Cow::Borrowed(_)));
        // The last letter has bits over.
        assert_eq!(taken("aGVsbG9="), "aGVsbG8=");
        assert_eq!(taken(""), "");
    }

    #[test]
    fn what_is_none_is_told_where_go_tells_it() {
        for (text, at) in [
            ("not!", 3),
            ("a", 0),
            ("abc", 0),
            ("aGVsbG8", 4),
            ("=abc", 0),
            ("ab=", 3),
            ("ab=c", 2),
            ("ab==c", 4),
            ("abc=d", 4),
        ] {
            assert_eq!(plain(text), Err(Corrupt(at)), "{text}");
        }
        assert_eq!(Corrupt(4).to_string(), "illegal base64 data at input byte 4");
    }

    #[test]
    fn lists_of_bytes_are_bytes() {
        assert_eq!(encoded(&[]).as_deref(), Some(""));
        assert_eq!(encoded(&[json!(104), json!(105)]).as_deref(), Some("aGk="));
        assert_eq!(encoded(&[json!(256)]), None);
        assert_eq!(encoded(&[json!("a")]), None);
    }
}
