//! Values as providers exchange them: msgpack, led by the type.
//!
//! Start at [`encode`] and [`decode`]. The encoder is strict, since providers check little of what they receive. The
//! decoder accepts each form that some provider library sends.

mod decode;
mod encode;

pub use self::decode::{DecodeError, DecodeProblem, decode};
pub use self::encode::{EncodeError, encode};

#[cfg(test)]
mod tests;
