//! `ValidatingAdmissionWebhook`: webhooks that say yes or no, all at once.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use stoa_meta::{object::Object, status::ApiError};
use stoa_registry::admission::{AdmissionPlugin, Attributes};

use super::{
    Hooks, Webhooks,
    hook::{CallPosition, Hook},
};
use crate::cluster::Namespaces;

/// Asks webhooks that let a write pass or refuse it.
#[derive(Debug)]
pub struct ValidatingWebhooks(Webhooks);

impl ValidatingWebhooks {
    /// Asks `hooks`, for objects in `namespaces`.
    pub fn new(hooks: Hooks, namespaces: Arc<dyn Namespaces>) -> Self {
        Self(Webhooks { hooks, namespaces })
    }
}

#[async_trait]
impl AdmissionPlugin for ValidatingWebhooks {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn validates(&self, attributes: &Attributes<'_>) -> bool {
        self.0.handles(attributes)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
        let hooks = self.0.current(attributes, object).await?;
        let mut asked: Vec<&Hook> = Vec::new();
        for hook in hooks.iter() {
            if hook.should_call(attributes, object, &*self.0.namespaces).await? {
                asked.push(hook);
            }
        }
        let calls = asked.iter().enumerate().map(|(index, hook)| async move {
            let (place, began) = (CallPosition { round: 0, index }, Instant::now());
            let outcome = hook.call(attributes, object, place).await;
            hook.settle(attributes, place, began, outcome).map(|_| ())
        });
        // All of them answer, so that warnings and annotations do not depend on who is fastest.
        join_all(calls).await.into_iter().collect()
    }
}
