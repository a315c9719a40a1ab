//! Maps by object ids. An id is a hash already, so its first bytes serve as the hash.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use git2::Oid;

/// Values by id.
pub(super) type ById<V> = HashMap<Oid, V, BuildHasherDefault<FirstBytes>>;

/// The first eight bytes of what was written last: of an id, which comes after its length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, hash::BuildHasher as _};

    use super::*;

    #[test]
    fn ids_are_told_apart_by_their_first_bytes() {
        let ids: Vec<Oid> = (0..=255_u8).map(|first| Oid::from_bytes(&[first; 20]).unwrap()).collect();
        let hashes: HashSet<u64> =
            ids.iter().map(|id| BuildHasherDefault::<FirstBytes>::default().hash_one(id)).collect();
        assert_eq!(hashes.len(), ids.len());
    }
}
