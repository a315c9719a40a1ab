//! The state of an object that its provider needs back.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of an object that its provider needs back with each call, such as Terraform's. It may contain secrets, and
/// its form is known to the runtime alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProviderState {
    /// In clear: in a function-runner, and on the way to and from it. The API server stores none.
    Open(String),
    /// Encrypted, as the API server stores it.
    Sealed(String),
}

impl ProviderState {
    /// The text in clear; `None` of an encrypted one.
    pub fn open(&self) -> Option<&str> {
        match self {
            Self::Open(text) => Some(text),
            Self::Sealed(_) => None,
        }
    }
}

impl fmt::Debug for ProviderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open(_) => "ProviderState::Open",
            Self::Sealed(_) => "ProviderState::Sealed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_state() {
        for state in [ProviderState::Open("hunter2".to_owned()), ProviderState::Sealed("hunter2".to_owned())] {
            assert!(!format!("{state:?}").contains("hunter2"));
            let stored = serde_json::to_value(&state).unwrap();
            assert_eq!(serde_json::from_value::<ProviderState>(stored).unwrap(), state);
        }
    }
}
