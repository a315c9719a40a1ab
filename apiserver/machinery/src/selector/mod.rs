//! Label and field selectors: what a list or watch is narrowed to.
//!
//! Both parse from the query parameters and answer 400 `BadRequest` to what they do not
//! understand, in the words of `k8s.io/apimachinery`.

mod bits;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod label;

pub(crate) use bits::LabelBits;
pub use field::FieldSelector;
pub(crate) use field::FieldTerms;
pub use label::LabelSelector;
