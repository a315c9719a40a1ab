//! Packets of OpenPGP, and the fields in them.

/// Tags of packets.
pub(super) const SIGNATURE: u8 = 2;
pub(super) const PUBLIC_KEY: u8 = 6;
pub(super) const USER_ID: u8 = 13;
pub(super) const PUBLIC_SUBKEY: u8 = 14;
pub(super) const USER_ATTRIBUTE: u8 = 17;

/// The most packets of a text.
const MOST: usize = 10_000;

/// Bytes that are no OpenPGP packet, as the end of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(super) &'static str);

const TOO_MANY: Malformed = Malformed("an OpenPGP text has more than 10,000 packets");
const ENDS: Malformed = Malformed("an OpenPGP packet ends too early");

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'b> {
    pub(super) tag: u8,
    pub(super) body: &'b [u8],
}

/// The packets of some bytes, up to the first that cannot be read.
pub(super) fn packets(bytes: &[u8]) -> impl Iterator<Item = Result<Packet<'_>, Malformed>> {
    let mut fields = Fields(bytes);
    let (mut count, mut has_failed) = (0, false);
    let next = move || {
        if fields.0.is_empty() || has_failed {
            return None;
        }
        count += 1;
        // The packets after the limit may have a revocation.
        let packet = if count > MOST { Err(TOO_MANY) } else { fields.packet() };
        has_failed = packet.is_err();
        Some(packet)
    };
    std::iter::from_fn(next)
}

/// Fields that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'b>(pub(super) &'b [u8]);

impl<'b> Fields<'b> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ENDS)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<usize, Malformed> {
        self.take(2).map(|bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn long(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.u32()?).map_err(|_| ENDS)
    }

    /// A big-endian number with its length in bits.
    pub(super) fn number(&mut self) -> Result<&'b [u8], Malformed> {
        let bits = self.u16()?;
        self.take(bits.div_ceil(8))
    }

    fn packet(&mut self) -> Result<Packet<'b>, Malformed> {
        let first = self.u8()?;
        if first & 0x80 == 0 {
            return Err(Malformed("it is no OpenPGP packet"));
        }
        let is_new = first & 0x40 != 0;
        let (tag, length) = if is_new {
            let length = match self.u8()? {
                short @ 0..=191 => usize::from(short),
                high @ 192..=223 => (usize::from(high - 192) << 8) + usize::from(self.u8()?) + 192,
                255 => self.long()?,
                224..=254 => return Err(Malformed("an OpenPGP packet has a partial length")),
            };
            (first & 0x3f, length)
        } else {
            let length = match first & 3 {
                0 => usize::from(self.u8()?),
                1 => self.u16()?,
                2 => self.long()?,
                _ => return Err(Malformed("an OpenPGP packet has no length")),
            };
            ((first >> 2) & 0xf, length)
        };
        Ok(Packet { tag, body: self.take(length)? })
    }

    /// The next subpacket of a signature: its type with the critical bit, and its content.
    pub(super) fn subpacket(&mut self) -> Result<(u8, &'b [u8]), Malformed> {
        let length = match self.u8()? {
            short @ 0..=191 => usize::from(short),
            high @ 192..=254 => (usize::from(high - 192) << 8) + usize::from(self.u8()?) + 192,
            255 => self.long()?,
        };
        let body = self.take(length)?;
        body.split_first().map(|(kind, content)| (*kind, content)).ok_or(ENDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_both_formats_are_read() {
        let read =
            |bytes: &[u8]| packets(bytes).map(|packet| packet.map(|it| (it.tag, it.body.len()))).collect::<Vec<_>>();
        assert_eq!(read(&[0x88, 1, 0, 0xc6, 2, 0, 0]), [Ok((2, 1)), Ok((6, 2))]);
        assert_eq!(read(&[0x89, 0, 1, 0]), [Ok((2, 1))]);
        assert_eq!(read(&[0x8a, 0, 0, 0, 1, 0]), [Ok((2, 1))]);
        assert_eq!(read(&[&[0xc2, 192, 0][..], &[0; 192]].concat()), [Ok((2, 192))]);
        assert_eq!(read(&[0xc2, 255, 0, 0, 0, 0]), [Ok((2, 0))]);
        for bytes in [&[0x8b, 0][..], &[0xc2, 224], &[0xc2, 9], &[0x02, 0], &[0xc2], &[0xc2, 255, 255, 255, 255, 255]] {
            assert!(read(bytes)[0].is_err(), "{bytes:?}");
        }
    }
}
