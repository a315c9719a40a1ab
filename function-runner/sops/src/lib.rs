//! Files that age and SOPS encrypted, decrypted by an age key.
//!
//! Start at [`decrypt`] for files of SOPS, and at [`age::decrypt`] for files of age. They read no file, socket or clock, and
//! keep no key longer than a call. The crate `age`
//! brings fifty others, most of them for translations; the format is one page, and the primitives are `ring`'s and OpenSSL's.
//!
//! Elsewhere: the function-runner decides which files to decrypt, and declares their values sensitive.

pub mod age;
mod bech32;
mod cipher;
mod document;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod node;
mod rules;

pub use self::document::{Decrypted, SopsError, decrypt, may_be_encrypted};
