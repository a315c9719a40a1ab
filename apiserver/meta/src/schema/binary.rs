//! Bytes in JSON, as Go's `encoding/json` reads them.

use std::borrow::Cow;

use base64::{
    Engine as _,
    alphabet::{self, Alphabet},
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, NO_PAD, PAD},
};
use serde_json::Value;

/// Text that is no base64, in Go's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub struct Corrupt(usize);

/// A form of base64, read as by Go's decoder, which passes over the ends of lines and does not look at the bits that the last
/// letter has over.
pub struct Base64 {
    engine: GeneralPurpose,
    /// What there is beside letters and digits.
    signs: [u8; 2],
    /// Whether `=` fills the last four.
    is_padded: bool,
}

/// That of bytes in JSON.
pub const STANDARD: Base64 = Base64::new(&alphabet::STANDARD, PAD, *b"+/", true);
/// That of what goes into a URL.
pub const RAW_URL: Base64 = Base64::new(&alphabet::URL_SAFE, NO_PAD, *b"-_", false);

impl Base64 {
    const fn new(alphabet: &Alphabet, config: GeneralPurposeConfig, signs: [u8; 2], is_padded: bool) -> Self {
        let config = config.with_decode_allow_trailing_bits(true);
        Self { engine: GeneralPurpose::new(alphabet, config), signs, is_padded }
    }

    /// Encodes bytes.
    pub fn encode(&self, bytes: impl AsRef<[u8]>) -> String {
        self.engine.encode(bytes)
    }

    /// Decodes text. Fails with [`Corrupt`] for text that is not in this form.
    pub fn decode(&self, text: &str) -> Result<Vec<u8>, Corrupt> {
        self.check(text.as_bytes())?;
        let in_one_line: Vec<u8> = text.bytes().filter(|byte| !is_line_end(*byte)).collect();
        self.engine.decode(in_one_line).map_err(|_| Corrupt(0))
    }

    /// Follows `decodeQuantum` of Go's `encoding/base64`, for the place that it names.
    fn check(&self, text: &[u8]) -> Result<(), Corrupt> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || self.signs.contains(&byte);
        let mut rest = text.iter().enumerate().filter(|(_, byte)| !is_line_end(**byte));
        loop {
            for letters in 0..4 {
                match rest.next() {
                    None if letters == 0 || letters > 1 && !self.is_padded => return Ok(()),
                    None => return Err(Corrupt(text.len() - letters)),
                    Some((_, byte)) if is_letter(*byte) => {}
                    Some((_, b'=')) if letters >= 2 && self.is_padded => {
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
}

/// The same bytes as Go writes them again: in one line.
pub(super) fn plain(text: &str) -> Result<Cow<'_, str>, Corrupt> {
    let plain = STANDARD.encode(STANDARD.decode(text)?);
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
