//! Bech32 texts, as BIP 173 defines them and age uses them without a limit of the length.

const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// The characters of the checksum.
const CHECKSUM: usize = 6;

/// The bytes of a text in one case with a prefix in lower case. `None` for any other text.
pub(crate) fn decode(text: &str, prefix: &str) -> Option<Vec<u8>> {
    let lower = text.to_ascii_lowercase();
    if text != lower && text != text.to_ascii_uppercase() {
        return None;
    }
    let data = lower.strip_prefix(prefix)?.strip_prefix('1')?;
    let values: Option<Vec<u8>> = data.bytes().map(value).collect();
    let values = values.filter(|values| values.len() >= CHECKSUM)?;
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    let checked = high.chain([0]).chain(low).chain(values.iter().copied());
    if polymod(checked) != 1 {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for value in &values[..values.len() - CHECKSUM] {
        bits = (bits << 5 | u32::from(*value)) & 0xfff;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    // Padding is short, and zero.
    (count < 5 && bits & ((1 << count) - 1) == 0).then_some(bytes)
}

fn value(byte: u8) -> Option<u8> {
    CHARACTERS.iter().position(|it| *it == byte).and_then(|at| u8::try_from(at).ok())
}

fn polymod(values: impl Iterator<Item = u8>) -> u32 {
    const GENERATORS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.fold(1, |sum, value| {
        let shifted = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
        let used = GENERATORS.iter().enumerate().filter(|(at, _)| sum >> 25 >> at & 1 == 1);
        used.fold(shifted, |sum, (_, generator)| sum ^ generator)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_a_right_checksum_are_read() {
        assert_eq!(decode("A12UEL5L", "a"), Some(Vec::new()));
        assert_eq!(decode("abcdef1qpzry9x8gf2tvdw0s3jn54khce6mua7lmqqqxw", "abcdef").unwrap().len(), 20);
        for text in ["a12uel5m", "A12uEL5L", "a1", "b12uel5l", "a12uel5!", "", "a"] {
            assert_eq!(decode(text, "a"), None, "{text}");
        }
    }
}
