//! The function `starlark` of kpt's catalog.

use std::sync::Arc;

use async_trait::async_trait;
use stoa_packages::builtins::{self, catalog_name};
use stoa_packages::function_metadata::{FunctionDescription, TypeName};

use super::worker::FunctionWorker;
use super::{Call, Executor, Output};
use crate::failure::Failure;

/// The name in the catalog.
const NAME: &str = "starlark";

/// Runs it in the function worker.
#[derive(Debug)]
pub(super) struct Starlark {
    worker: Arc<FunctionWorker>,
}

impl Starlark {
    pub(super) fn new(worker: Arc<FunctionWorker>) -> Self {
        Self { worker }
    }
}

#[async_trait]
impl Executor for Starlark {
    fn has(&self, image: &str) -> bool {
        catalog_name(image).is_some_and(|(name, _)| name == NAME)
    }

    fn offered(&self) -> Vec<FunctionDescription> {
        vec![FunctionDescription {
            image: builtins::catalog_image(NAME),
            types: ["mutator", "validator"].map(str::to_owned).to_vec(),
            description: "Runs a program in Starlark on the objects.".to_owned(),
            keywords: vec![NAME.to_owned()],
            configs: vec![TypeName { api_version: "fn.kpt.dev/v1alpha1".to_owned(), kind: "StarlarkRun".to_owned() }],
            ..FunctionDescription::default()
        }]
    }

    async fn run(&self, call: &Call) -> Result<Output, Failure> {
        self.worker.starlark(call).await
    }
}
