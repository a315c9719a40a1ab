//! Writes the difference between two versions of an object, as in gitformat-pack(5): copies from the base, and inserts.

/// A difference that is being written.
#[derive(Debug)]
pub(super) struct Delta {
    bytes: Vec<u8>,
}

/// Readers take shorter ones for damage.
const LEAST: usize = 4;

impl Delta {
    /// A difference between objects of these lengths.
    pub(super) fn new(base: usize, result: usize) -> Self {
        let mut delta = Self { bytes: Vec::new() };
        delta.size(base);
        delta.size(result);
        delta
    }

    fn size(&mut self, mut number: usize) {
        while number >= 0x80 {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Goes on with these bytes of the base, in pieces that a reader of any age takes.
    pub(super) fn copy(&mut self, mut from: usize, to: usize) {
        while from < to {
            let length = (to - from).min(0xffff);
            let at = self.bytes.len();
            self.bytes.push(0x80);
            for (bit, byte) in [from, from >> 8, from >> 16, from >> 24, length, length >> 8].into_iter().enumerate() {
                if byte & 0xff != 0 {
                    self.bytes[at] |= 1 << bit;
                    self.bytes.push((byte & 0xff) as u8);
                }
            }
            from += length;
        }
    }

    /// Goes on with other bytes.
    pub(super) fn insert(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(0x7f) {
            self.bytes.push(piece.len() as u8);
            self.bytes.extend(piece);
        }
    }

    /// The difference; nothing when it is too short for one.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        Some(self.bytes).filter(|bytes| bytes.len() >= LEAST)
    }
}

/// Follows the instructions of a delta.
#[cfg(test)]
pub(super) fn follow(base: &[u8], mut delta: &[u8]) -> Vec<u8> {
    let mut take = || {
        let byte = delta[0];
        delta = &delta[1..];
        byte
    };
    let mut size = || {
        let (mut size, mut shift) = (0, 0);
        loop {
            let byte = take();
            size |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return size;
            }
        }
    };
    assert_eq!(size(), base.len());
    let result = size();
    let mut out = Vec::new();
    while out.len() < result {
        let instruction = take();
        if instruction & 0x80 == 0 {
            out.extend((0..instruction).map(|_| take()));
            continue;
        }
        let mut fields = [0_usize; 6];
        for (bit, field) in fields.iter_mut().enumerate() {
            if instruction & 1 << bit != 0 {
                *field = usize::from(take());
            }
        }
        let from = fields[0] | fields[1] << 8 | fields[2] << 16 | fields[3] << 24;
        let length = fields[4] | fields[5] << 8;
        out.extend(&base[from..from + length]);
    }
    assert!(delta.is_empty());
    out
}
