//! `MutatingAdmissionWebhook`: webhooks that change objects, one after the other.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    Hooks, Webhooks,
    hook::{Failure, Hook},
    review::JSON_PATCH,
};
use crate::{
    admission::{AdmissionPlugin, Attributes, Reinvocation, cluster::Namespaces},
    http::patch::{Patch, PatchType},
    object::Object,
    request::FieldValidation,
    status::ApiError,
};

const NAME: &str = "MutatingAdmissionWebhook";

/// Asks webhooks that may change the object.
#[derive(Debug)]
pub struct MutatingWebhooks(Webhooks);

/// What is remembered of a write between two rounds.
#[derive(Debug, Default)]
struct Memory {
    /// The webhooks called so far that may be called again, and those that are to be.
    called: HashSet<String>,
    again: HashSet<String>,
    /// The object as the last webhook left it.
    output: Option<Object>,
}

impl Memory {
    /// Whoever was called before is called again.
    fn all_again(&mut self) {
        self.again.extend(self.called.drain());
    }
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
        index: usize,
        round: u8,
    ) -> Result<bool, Failure> {
        let answer = hook.call(attributes, object.as_deref(), true).await?;
        let Some((bytes, patch_type)) = answer.patch else { return Ok(false) };
        if patch_type != JSON_PATCH {
            return Err(Failure::Call(format!("unsupported patch type {patch_type:?}")));
        }
        let patch = Patch::parse(PatchType::Json, &bytes)
            .map_err(|error| Failure::Call(format!("received undecodable patch in webhook response: {error}")))?;
        let operations: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if operations.as_array().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let Some(object) = object else {
            return Err(Failure::Other(ApiError::internal(format_args!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                hook.name
            ))));
        };
        let mut patched = patch
            .apply(object, &attributes.definition.schema)
            .map_err(|error| Failure::Other(ApiError::internal(error)))?;
        attributes
            .decoder
            .conform(&mut patched, FieldValidation::Ignore)
            .map_err(|error| Failure::Other(ApiError::internal(error)))?;
        let changed = patched != **object;
        let value = json!({
            "configuration": hook.configuration, "webhook": hook.name, "patch": operations, "patchType": JSON_PATCH,
        });
        attributes
            .context
            .annotate_request(format!("patch.webhook.admission.k8s.io/round_{round}_index_{index}"), value.to_string());
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
        let round = u8::from(second);
        if second && reinvocation.memory::<Memory>(NAME).output.as_ref() != object.as_deref() {
            // Another plugin changed the object after the last webhook saw it.
            reinvocation.memory::<Memory>(NAME).all_again();
        }
        for (index, hook) in hooks.iter().enumerate() {
            if !hook.should_call(attributes, object.as_deref(), &*self.0.namespaces).await? {
                continue;
            }
            if second && !reinvocation.memory::<Memory>(NAME).again.contains(&hook.uid) {
                continue;
            }
            let outcome = self.call(hook, attributes, &mut object, index, round).await;
            let changed = matches!(outcome, Ok(true));
            attributes.context.annotate(
                format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}"),
                format!(
                    r#"{{"configuration":{},"webhook":{},"mutated":{changed}}}"#,
                    Value::from(hook.configuration.as_str()),
                    Value::from(hook.name.as_str())
                ),
            );
            let memory = reinvocation.memory::<Memory>(NAME);
            if changed {
                memory.all_again();
            }
            if hook.reinvoke {
                memory.called.insert(hook.uid.clone());
            }
            if changed {
                reinvocation.changed();
            }
            match outcome {
                Ok(_) => {}
                Err(Failure::Rejected(error) | Failure::Other(error)) => return Err(error),
                Err(Failure::Call(reason)) => {
                    let text = hook.call_failed(&reason);
                    if !hook.ignores_failures {
                        tracing::warn!(error = text, "failing closed");
                        return Err(ApiError::internal(text));
                    }
                    tracing::warn!(error = text, "failing open");
                    attributes.context.annotate(
                        format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{index}"),
                        hook.name.clone(),
                    );
                }
            }
        }
        reinvocation.memory::<Memory>(NAME).output = object.as_deref().cloned();
        Ok(())
    }
}
