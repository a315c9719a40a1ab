//! Messages of protobuf that are written, field by field; `openapi` and `/metrics` have such.

/// A message being written: its fields one after the other.
#[derive(Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// Adds a field of bytes or text.
    pub(crate) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.delimited(bytes);
    }

    /// Adds a field that is a message.
    pub(crate) fn message(&mut self, field: u64, message: Self) {
        self.bytes(field, &message.0);
    }

    /// A whole number that is not negative, or a flag, or a choice.
    pub(crate) fn count(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    /// Adds a field that is a double.
    pub(crate) fn number(&mut self, field: u64, value: f64) {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// How many bytes, and then these, as one message of several stands in a stream.
    pub(crate) fn delimited(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lengths_take_several_bytes() {
        let mut message = Message::default();
        message.varint(300);
        assert_eq!(message.0, [0xac, 0x02]);
    }
}
