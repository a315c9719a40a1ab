//! Label and field selectors, which narrow lists and watches.
//!
//! Both parse from the query parameters and answer 400 `BadRequest` to what they do not
//! understand, in the words of `k8s.io/apimachinery`.

mod bits;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod label;

pub use bits::LabelBits;
pub use field::FieldSelector;
pub use field::FieldTerms;
pub use label::LabelSelector;
