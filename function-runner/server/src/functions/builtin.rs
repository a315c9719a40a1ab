//! Functions of kpt's catalog that are built in.

use async_trait::async_trait;
use stoa_packages::builtins;
use stoa_packages::function_metadata::FunctionDescription;

use super::{Call, Executor, Output};
use crate::failure::Failure;
use crate::generate::Generators;

/// Runs them in the pool of workers.
#[derive(Debug)]
pub(super) struct Builtins {
    generators: Generators,
}

impl Builtins {
    pub(super) fn new(generators: Generators) -> Self {
        Self { generators }
    }
}

#[async_trait]
impl Executor for Builtins {
    fn has(&self, image: &str) -> bool {
        builtins::find(image).is_some()
    }

    fn offered(&self) -> Vec<FunctionDescription> {
        builtins::offered()
    }

    async fn run(&self, call: &Call) -> Result<Output, Failure> {
        let stdout = self.generators.evaluate(&call.organization, call.image.clone(), call.list.clone()).await?;
        Ok(Output { stdout, ..Output::default() })
    }
}
