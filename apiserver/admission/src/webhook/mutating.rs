//! `MutatingAdmissionWebhook`: webhooks that change objects, one after the other.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use stoa_meta::{
    json,
    object::Object,
    patch::{apply_operations, json_operations},
    request::FieldValidation,
    status::ApiError,
};
use stoa_registry::admission::{AdmissionPlugin, Attributes, Reinvocation, reinvocation::Memory};

use super::{
    Hooks, Webhooks,
    hook::{CallError, CallPosition, Failure, Hook},
    review::JSON_PATCH,
};
use crate::cluster::Namespaces;

const NAME: &str = "MutatingAdmissionWebhook";

/// Asks webhooks that may change the object.
#[derive(Debug)]
pub struct MutatingWebhooks(Webhooks);

/// What a webhook's patch was, as the audit event tells it, its fields in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Patched<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a [Value],
    patch_type: &'a str,
}

impl MutatingWebhooks {
    /// Asks `hooks`, for objects in `namespaces`.
    pub fn new(hooks: Hooks, namespaces: Arc<dyn Namespaces>) -> Self {
        Self(Webhooks { hooks, namespaces })
    }

    /// Calls one webhook and applies its patch; says whether that changed the object.
    async fn call(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        object: &mut Option<&mut Object>,
        place: CallPosition,
    ) -> Result<bool, Failure> {
        let answer = hook.call(attributes, object.as_deref(), place).await?;
        let Some((bytes, patch_type)) = answer.patch else { return Ok(false) };
        let operations = json_operations(&bytes).map_err(|error| {
            Failure::Call(CallError::new(503, format!("received undecodable patch in webhook response: {error}")))
        })?;
        if operations.is_empty() {
            return Ok(false);
        }
        let Some(object) = object else {
            return Err(Failure::Other(ApiError::internal(format_args!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                hook.name
            ))));
        };
        if patch_type != JSON_PATCH {
            let reason = format!("unsupported patch type {patch_type:?}");
            return Err(Failure::Call(CallError::new(400, reason)));
        }
        let mut document = Value::Object(object.0.clone());
        // The author of the webhook is told why, as nobody else is.
        apply_operations(&mut document, &operations).map_err(|error| Failure::Other(ApiError::internal(error)))?;
        let patched = attributes.reread(document, FieldValidation::Ignore).map_err(Failure::Other)?;
        let changed = patched != **object;
        let said = Patched {
            configuration: &hook.configuration,
            webhook: &hook.name,
            patch: &operations,
            patch_type: JSON_PATCH,
        };
        attributes.context.annotate_request(format!("patch.webhook.admission.k8s.io/{place}"), json::text(&said));
        **object = patched;
        Ok(changed)
    }
}

#[async_trait]
impl AdmissionPlugin for MutatingWebhooks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn admits(&self, attributes: &Attributes<'_>) -> bool {
        self.0.handles(attributes)
    }

    async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Object>,
        reinvocation: &mut Reinvocation,
    ) -> Result<(), ApiError> {
        let hooks = self.0.current(attributes, object.as_deref()).await?;
        let second = reinvocation.is_second();
        reinvocation.memory::<Memory>(NAME).begin(second, object.as_deref());
        for (index, hook) in hooks.iter().enumerate() {
            if !hook.should_call(attributes, object.as_deref(), &*self.0.namespaces).await? {
                continue;
            }
            if second && !reinvocation.memory::<Memory>(NAME).is_again(&hook.uid) {
                continue;
            }
            let place = CallPosition { round: u8::from(second), index };
            let began = Instant::now();
            let outcome = self.call(hook, attributes, &mut object, place).await;
            let changed = matches!(outcome, Ok(true));
            hook.annotate_mutation(attributes, place, changed);
            let memory = reinvocation.memory::<Memory>(NAME);
            if changed {
                memory.all_again();
            }
            if hook.reinvoke {
                memory.asked(&hook.uid);
            }
            if changed {
                reinvocation.changed();
            }
            hook.settle(attributes, place, began, outcome)?;
        }
        reinvocation.memory::<Memory>(NAME).end(object.as_deref());
        Ok(())
    }
}
