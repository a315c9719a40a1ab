//! The packets of Git's protocol: four hex digits of length, then data.

use std::io::{self, Read};

/// The most data of a packet, in bytes.
const LONGEST: usize = 65_516;

/// One packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Data(Vec<u8>),
    /// The end of a list.
    Flush,
}

/// Appends a packet.
pub(crate) fn write(out: &mut Vec<u8>, data: &[u8]) {
    debug_assert!(data.len() <= LONGEST, "names of refs are short");
    out.extend_from_slice(format!("{:04x}", data.len() + 4).as_bytes());
    out.extend_from_slice(data);
}

/// Appends the end of a list.
pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

/// Reads a packet; nothing at the end of the stream.
///
/// # Errors
///
/// Those of the stream, and [`io::ErrorKind::InvalidData`] for a length that is none.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Packet>> {
    let mut length = [0; 4];
    let mut read = 0;
    while read < length.len() {
        match from.read(&mut length[read..])? {
            0 if read == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => read += more,
        }
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "a packet has no length");
    let length = std::str::from_utf8(&length).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
    match length.ok_or_else(invalid)? {
        0 => Ok(Some(Packet::Flush)),
        length @ 4.. => {
            let mut data = vec![0; length - 4];
            from.read_exact(&mut data)?;
            Ok(Some(Packet::Data(data)))
        }
        1..=3 => Err(invalid()),
    }
}

/// Joins the first band of packets with several, and the texts of the others, up to the end of the list.
///
/// # Errors
///
/// As [`read`], and for a stream that ends early.
pub(crate) fn first_band(from: &mut impl Read) -> io::Result<(Vec<u8>, String)> {
    let (mut first, mut others) = (Vec::new(), String::new());
    loop {
        match read(from)? {
            Some(Packet::Data(data)) => match data.split_first() {
                Some((1, rest)) => first.extend_from_slice(rest),
                // Progress has no end either.
                Some((_, rest)) if others.len() < LONGEST => others.push_str(&String::from_utf8_lossy(rest)),
                _ => {}
            },
            Some(Packet::Flush) => return Ok((first, others)),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_a_round_trip() {
        let mut bytes = Vec::new();
        write(&mut bytes, b"a");
        write(&mut bytes, b"");
        flush(&mut bytes);
        assert_eq!(bytes, b"0005a00040000");
        let mut stream = bytes.as_slice();
        let data = |text: &str| Some(Packet::Data(text.as_bytes().to_vec()));
        for expected in [data("a"), data(""), Some(Packet::Flush), None] {
            assert_eq!(read(&mut stream).unwrap(), expected);
        }
    }

    #[test]
    fn broken_packets_are_errors() {
        for bytes in ["00", "0003", "zzzz", "0008abc", "-005a"] {
            assert!(read(&mut bytes.as_bytes()).is_err(), "{bytes}");
        }
    }

    #[test]
    fn bands_are_separated() {
        let mut bytes = Vec::new();
        for data in [b"\x01ab".as_slice(), b"\x02hello", b"\x01c"] {
            write(&mut bytes, data);
        }
        assert!(first_band(&mut bytes.as_slice()).is_err(), "it has no end");
        flush(&mut bytes);
        assert_eq!(first_band(&mut bytes.as_slice()).unwrap(), (b"abc".to_vec(), "hello".to_owned()));
    }
}
