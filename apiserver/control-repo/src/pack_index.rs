//! Encodes and decodes the index of a pack, version 2, as in gitformat-pack(5): a header, 256 counts of the ids up to each
//! first byte, the sorted ids, a checksum and an offset of each, offsets that need more than 31 bits, and two digests.

use std::io::{self, Write};

use git2::Oid;

/// How it begins.
const HEADER: &[u8] = b"\xfftOc\0\0\0\x02";
/// Where the number of objects stands in it: the last of 256 counts.
pub(super) const COUNT_AT: u64 = 8 + 255 * 4;
/// Marks an offset that stands among the long ones.
const LONG: u32 = 1 << 31;

/// Where an object is in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub id: Oid,
    /// Of the entry as it stands in the pack.
    pub crc: u32,
    pub offset: u64,
}

/// Writes the index for these objects, in the order of their ids, of the pack that ends in `trailer`; its own digest is
/// yet to be added.
pub(super) fn encode(places: &[IndexEntry], trailer: Oid, index: &mut impl Write) -> io::Result<()> {
    index.write_all(HEADER)?;
    let mut upto = 0;
    for first in 0..=u8::MAX {
        upto += places[upto..].iter().take_while(|place| place.id.as_bytes()[0] == first).count();
        // Git has no pack with more.
        index.write_all(&u32::try_from(upto).unwrap_or(u32::MAX).to_be_bytes())?;
    }
    for place in places {
        index.write_all(place.id.as_bytes())?;
    }
    for place in places {
        index.write_all(&place.crc.to_be_bytes())?;
    }
    let mut long = Vec::new();
    for place in places {
        let short = u32::try_from(place.offset).ok().filter(|offset| *offset < LONG);
        index.write_all(&short.unwrap_or(LONG | (long.len() / 8) as u32).to_be_bytes())?;
        if short.is_none() {
            long.extend(place.offset.to_be_bytes());
        }
    }
    index.write_all(&long)?;
    index.write_all(trailer.as_bytes())
}

/// The objects of an index, in the order of their ids; nothing when it makes no sense.
pub(super) fn decode(index: &[u8]) -> Option<Vec<IndexEntry>> {
    let fanout = index.strip_prefix(HEADER)?;
    let count = word(fanout, 255)? as usize;
    let ids = fanout.get(256 * 4..)?;
    let crcs = ids.get(count.checked_mul(20)?..)?;
    let offsets = crcs.get(count.checked_mul(4)?..)?;
    let long = offsets.get(count.checked_mul(4)?..)?;
    let place = |number: usize| {
        let offset = match word(offsets, number)? {
            short if short & LONG == 0 => u64::from(short),
            at => {
                let bytes = long.get((at & !LONG) as usize * 8..)?.get(..8)?;
                u64::from_be_bytes(bytes.try_into().ok()?)
            }
        };
        Some(IndexEntry { id: Oid::from_bytes(&ids[number * 20..][..20]).ok()?, crc: word(crcs, number)?, offset })
    };
    let mut places = Vec::with_capacity(count);
    for number in 0..count {
        places.push(place(number)?);
    }
    Some(places)
}

fn word(words: &[u8], number: usize) -> Option<u32> {
    Some(u32::from_be_bytes(words.get(number * 4..)?.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(objects in proptest::collection::btree_map(any::<[u8; 20]>(), (any::<u32>(), 0_u64..1 << 40), 0..300)) {
            let place = |(id, (crc, offset)): (&[u8; 20], &(u32, u64))| IndexEntry { id: Oid::from_bytes(id).unwrap(), crc: *crc, offset: *offset };
            let places: Vec<IndexEntry> = objects.iter().map(place).collect();
            let mut index = Vec::new();
            encode(&places, Oid::ZERO_SHA1, &mut index).unwrap();
            prop_assert_eq!(decode(&index), Some(places));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let _ = decode(&[HEADER, &bytes].concat());
            let _ = decode(&bytes);
        }
    }
}
