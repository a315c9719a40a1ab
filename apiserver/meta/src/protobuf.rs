//! Objects and reviews in protobuf, which typed Go clients send.

pub mod objects;
mod reviews;
