//! Secret values in the result of a generator: declared sensitive in its Spec, and hidden in its messages.
//!
//! A generator may write a value anywhere, and quote it in an error. Start at [`SecretValues::protect`].

use prost::bytes::Bytes;
use serde_json::Map;
use stoa_engine::declared::declare;
use stoa_engine::digest::canonical_json;
use stoa_engine::{Sensitive, Spec};
use stoa_proto::Value;

use super::Rendered;
use crate::blocking::run_blocking;
use crate::failure::Failure;

/// The texts of the secret values of a stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretValues(Sensitive);

impl SecretValues {
    /// The secret ones of some values.
    pub(crate) fn of(values: &[Value]) -> Self {
        let secret = values.iter().filter(|value| value.sensitive);
        let texts: Map<String, serde_json::Value> =
            secret.filter_map(|value| Some((value.name.clone(), serde_json::from_str(&value.json).ok()?))).collect();
        Self(Sensitive::of_texts(&texts))
    }

    /// The result of a generator with the secret values declared and hidden.
    pub(crate) async fn protect(self, result: Result<Rendered, Failure>) -> Result<Rendered, Failure> {
        if self.0.is_empty() {
            return result;
        }
        match result {
            Ok(mut rendered) => {
                rendered.warnings.iter_mut().for_each(|warning| *warning = self.0.redact(warning));
                let spec = std::mem::take(&mut rendered.spec);
                rendered.spec = run_blocking(async move { self.declared(&spec) }).await?;
                Ok(rendered)
            }
            Err(failure) => {
                let (code, mut problems) = failure.into_parts();
                problems.iter_mut().for_each(|problem| problem.message = self.0.redact(&problem.message));
                Err(Failure::of(code, problems))
            }
        }
    }

    fn declared(&self, spec: &Bytes) -> Result<Bytes, Failure> {
        let mut parsed: Spec = serde_json::from_slice(spec).map_err(|error| Failure::internal(&error))?;
        declare(&mut parsed, &self.0);
        Ok(canonical_json(&parsed).into())
    }
}
