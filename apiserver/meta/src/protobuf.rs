//! Objects and reviews in protobuf, which typed Go clients send.

pub mod messages;
pub mod objects;
mod reviews;
