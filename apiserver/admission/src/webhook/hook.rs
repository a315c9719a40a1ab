//! One webhook of a configuration: its match with a write, and its call.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::admissionregistration::v1::{
        MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
        ValidatingWebhookConfiguration,
    },
    apimachinery::pkg::apis::meta::v1::Status,
};
use kube::ResourceExt as _;
use serde::Serialize;
use stoa_meta::{json, object::Object, selector::LabelSelector, status::ApiError};
use stoa_registry::admission::{
    Attributes, Operation,
    metrics::{self, ConditionsOf, Rejection, Step},
};
use uuid::Uuid;

use super::{
    client::HookClient,
    review::{self, Answer, ReviewVersion},
};
use crate::{
    cel::Conditions,
    cluster::{Namespaces, ServiceResolver, namespace_of},
    rules, selector,
};

/// How long a webhook may take when its configuration does not say.
const DEFAULT_TIMEOUT: i32 = 10;

/// A webhook, ready to be called.
#[derive(Debug)]
pub struct Hook {
    pub(super) configuration: String,
    pub(super) name: String,
    /// The same for as long as it stays where it is in its configuration.
    pub(super) uid: String,
    hook_type: HookType,
    /// Whether a failure to call it lets the write pass.
    ignores_failures: bool,
    /// Whether it may be called again when others change the object after it.
    pub(super) reinvoke: bool,
    rules: Vec<RuleWithOperations>,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
    conditions: Conditions,
    side_effects: String,
    versions: Vec<String>,
    timeout: Duration,
    client: HookClient,
}

/// What a webhook may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookType {
    Mutating,
    Validating,
}

impl HookType {
    pub(super) fn step(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }

    fn part(self) -> Step {
        match self {
            Self::Mutating => Step::Admit,
            Self::Validating => Step::Validate,
        }
    }

    fn annotation(self) -> &'static str {
        match self {
            Self::Mutating => "mutation",
            Self::Validating => "validating",
        }
    }
}

/// How a call ended that did not let the write pass.
#[derive(Debug)]
pub(super) enum Failure {
    /// It could not be asked; the failure policy decides.
    Call(CallError),
    /// It said no.
    Rejected(ApiError),
    /// Something is wrong that no policy excuses.
    Other(ApiError),
}

/// Why a webhook could not be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) reason: String,
    /// The HTTP status that this comes nearest to.
    pub(super) code: u16,
}

impl CallError {
    pub(super) fn new(code: u16, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), code }
    }
}

/// Where in its round a webhook is asked; annotations say so.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPosition {
    pub(super) round: u8,
    pub(super) index: usize,
}

impl fmt::Display for CallPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round_{}_index_{}", self.round, self.index)
    }
}

/// That a webhook was asked, as the audit event tells it, its fields in upstream's order.
#[derive(Serialize)]
struct AuditedCall<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// A webhook is waited for, which is noted however that ends: the request may have no time left, or nobody who hears of it.
struct TimedCall<'a> {
    hook: &'a Hook,
    attributes: &'a Attributes<'a>,
    place: CallPosition,
    began: Instant,
    has_ended: bool,
}

impl Drop for TimedCall<'_> {
    fn drop(&mut self) {
        let (took, waits) = (self.began.elapsed(), self.attributes.context.waits());
        if self.hook.mutates() {
            waits.mutating(took)
        } else {
            waits.validating(took)
        }
        if self.has_ended {
            return;
        }
        if self.hook.mutates() {
            self.hook.annotate_mutation(self.attributes, self.place, false);
        }
        // Upstream's call ends with its request, as one that failed. Nobody waits for what comes of it.
        if self.attributes.context.end().is_some_and(|end| end <= tokio::time::Instant::now()) {
            let failure = Failure::Call(CallError::new(503, "context deadline exceeded"));
            let _ = self.hook.settle::<()>(self.attributes, self.place, self.began, Err(failure));
        } else {
            let rejection = (!self.hook.ignores_failures).then_some(Rejection::Abandoned);
            self.hook.count(self.attributes, self.began, 503, rejection);
        }
    }
}

impl Hook {
    /// The webhooks of all configurations: by the configurations' names, and in order in each.
    pub fn of_mutating(
        configurations: Vec<Arc<MutatingWebhookConfiguration>>,
        resolver: &Arc<dyn ServiceResolver>,
    ) -> Vec<Arc<Self>> {
        let named = |found: &Arc<MutatingWebhookConfiguration>| {
            (found.name_any(), found.webhooks.iter().flatten().cloned().collect())
        };
        Self::all(configurations.iter().map(named).collect(), HookType::Mutating, resolver)
    }

    /// The same for webhooks that validate.
    pub fn of_validating(
        configurations: Vec<Arc<ValidatingWebhookConfiguration>>,
        resolver: &Arc<dyn ServiceResolver>,
    ) -> Vec<Arc<Self>> {
        let named = |found: &Arc<ValidatingWebhookConfiguration>| {
            (found.name_any(), found.webhooks.iter().flatten().cloned().map(in_common).collect())
        };
        Self::all(configurations.iter().map(named).collect(), HookType::Validating, resolver)
    }

    fn all(
        mut configurations: Vec<(String, Vec<MutatingWebhook>)>,
        hook_type: HookType,
        resolver: &Arc<dyn ServiceResolver>,
    ) -> Vec<Arc<Self>> {
        configurations.sort_by(|(a, _), (b, _)| a.cmp(b));
        let of_configuration = |(name, hooks): (String, Vec<MutatingWebhook>)| {
            let numbered = hooks.into_iter().enumerate();
            numbered.map(move |(index, hook)| Arc::new(Self::new(&name, index, hook, hook_type, resolver)))
        };
        configurations.into_iter().flat_map(of_configuration).collect()
    }

    fn new(
        configuration: &str,
        index: usize,
        hook: MutatingWebhook,
        hook_type: HookType,
        resolver: &Arc<dyn ServiceResolver>,
    ) -> Self {
        let seconds = hook.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT).clamp(1, 30);
        let ignores_failures = hook.failure_policy.as_deref() == Some("Ignore");
        Self {
            configuration: configuration.to_owned(),
            uid: format!("{configuration}/{}/{index}", hook.name),
            hook_type,
            ignores_failures,
            reinvoke: hook.reinvocation_policy.as_deref() == Some("IfNeeded"),
            namespaces: selector::parse(hook.namespace_selector.as_ref()),
            objects: selector::parse(hook.object_selector.as_ref()),
            conditions: Conditions::compile(hook.match_conditions.as_deref().unwrap_or_default(), ignores_failures),
            timeout: Duration::from_secs(u64::from(seconds.unsigned_abs())),
            client: HookClient::new(&hook.client_config, resolver.clone()),
            rules: hook.rules.unwrap_or_default(),
            side_effects: hook.side_effects,
            versions: hook.admission_review_versions,
            name: hook.name,
        }
    }

    /// Whether any of its rules names the write.
    pub(super) fn has_rule_for(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rules::matches(rule, attributes))
    }

    /// Whether it is to be asked: its selectors, rules and conditions.
    pub(super) async fn should_call(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        namespaces: &dyn Namespaces,
    ) -> Result<bool, ApiError> {
        if !self.has_rule_for(attributes) {
            return Ok(false);
        }
        let objects = self.objects.as_ref().map_err(ApiError::internal)?;
        if !selector::matches_either(objects, object, attributes.old_object) {
            return Ok(false);
        }
        let selector = self.namespaces.as_ref().map_err(ApiError::internal)?;
        if !in_selected_namespace(selector, attributes, object, namespaces).await? {
            return Ok(false);
        }
        let of = ConditionsOf { name: &self.name, kind: "webhook", step: self.hook_type.step() };
        match self.conditions.hold(of, attributes, object, &Arc::default()).await {
            Ok(true) => Ok(true),
            Ok(false) => {
                attributes.metrics.excluded(&self.name, self.hook_type.part(), attributes.operation);
                Ok(false)
            }
            Err(error) => Err(ApiError::forbidden(
                &attributes.definition.group,
                &attributes.definition.plural,
                attributes.name,
                error,
            )),
        }
    }

    fn mutates(&self) -> bool {
        self.hook_type == HookType::Mutating
    }

    /// Asks the webhook; its warnings and annotations are taken over.
    ///
    /// When the future is dropped since the request has no time left, the call is settled as one that failed. When it is
    /// dropped before that, the client has gone: the call is counted as one that failed, and no policy decides about it.
    pub(super) async fn call(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        place: CallPosition,
    ) -> Result<Answer, Failure> {
        if attributes.dry_run && !matches!(self.side_effects.as_str(), "None" | "NoneOnDryRun") {
            let text = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::Other(ApiError::bad_request(text)));
        }
        let version = ReviewVersion::choose(&self.versions).ok_or_else(|| {
            let known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::Call(CallError::new(400, format!("could not create admission objects: {known}")))
        })?;
        let uid = Uuid::new_v4().to_string();
        let body = review::encode(version, &uid, attributes, object);
        let answer = {
            let mut waiting = TimedCall { hook: self, attributes, place, began: Instant::now(), has_ended: false };
            let answer = self.client.post(body, self.timeout, attributes.context.end()).await;
            waiting.has_ended = true;
            answer
        };
        let answer = answer.map_err(Failure::Call)?;
        let answer = review::decode(version, &uid, self.mutates(), &answer);
        let answer = answer.map_err(|reason| Failure::Call(CallError::new(503, reason)))?;
        for (key, value) in &answer.audit_annotations {
            attributes.annotate(format!("{}/{key}", self.name), value.clone());
        }
        for warning in &answer.warnings {
            attributes.context.warn(warning);
        }
        if answer.allowed { Ok(answer) } else { Err(Failure::Rejected(self.rejection(answer.status))) }
    }

    /// Counts a call that ended like this, and does what the failure policy says about one that failed.
    ///
    /// Nothing when it failed and the write goes on.
    pub(super) fn settle<T>(
        &self,
        attributes: &Attributes<'_>,
        place: CallPosition,
        began: Instant,
        outcome: Result<T, Failure>,
    ) -> Result<Option<T>, ApiError> {
        let count = |code: i32, rejection: Option<Rejection>| self.count(attributes, began, code, rejection);
        let CallError { reason, code } = match outcome {
            Ok(value) => {
                count(200, None);
                return Ok(Some(value));
            }
            Err(Failure::Rejected(error)) => {
                count(error.0.code.unwrap_or(0), Some(Rejection::Answered));
                return Err(error);
            }
            Err(Failure::Other(error)) => {
                count(0, Some(Rejection::Internal));
                return Err(error);
            }
            Err(Failure::Call(error)) => error,
        };
        let text = format!("failed calling webhook {:?}: {reason}", self.name);
        if !self.ignores_failures {
            count(code.into(), Some(Rejection::CallingWebhook));
            tracing::warn!(error = text, "failing closed");
            return Err(ApiError::internal(text));
        }
        count(code.into(), None);
        attributes.metrics.failed_open(&self.name, self.hook_type.step());
        tracing::warn!(error = text, "failing open");
        let key = format!("failed-open.{}.webhook.admission.k8s.io/{place}", self.hook_type.annotation());
        attributes.context.annotate(key, self.name.clone());
        Ok(None)
    }

    fn count(&self, attributes: &Attributes<'_>, began: Instant, code: i32, rejection: Option<Rejection>) {
        let call = metrics::Call {
            webhook: &self.name,
            step: self.hook_type.step(),
            operation: attributes.operation,
            took: began.elapsed(),
            code,
        };
        attributes.metrics.called(call, rejection);
    }

    /// Notes that it was asked, and whether it changed the object.
    pub(super) fn annotate_mutation(&self, attributes: &Attributes<'_>, place: CallPosition, mutated: bool) {
        let said = AuditedCall { configuration: &self.configuration, webhook: &self.name, mutated };
        attributes.context.annotate(format!("mutation.webhook.admission.k8s.io/{place}"), json::text(&said));
    }

    /// The refusal of a webhook as its client hears it.
    fn rejection(&self, status: Option<Status>) -> ApiError {
        let mut status = status.unwrap_or_default();
        if status.code.unwrap_or(0) < 400 {
            status.code = Some(400);
        }
        if matches!(status.status.as_deref(), None | Some("" | "Success")) {
            status.status = Some("Failure".to_owned());
        }
        let denied = format!("admission webhook {:?} denied the request", self.name);
        let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        status.message = Some(match said(&status.message).or_else(|| said(&status.reason)) {
            Some(why) => format!("{denied}: {why}"),
            None => format!("{denied} without explanation"),
        });
        ApiError(Box::new(status))
    }
}

/// A webhook that validates, as one that might mutate: the second has all fields of the first.
fn in_common(hook: ValidatingWebhook) -> MutatingWebhook {
    let fields = serde_json::to_value(hook).expect("a webhook serializes");
    serde_json::from_value(fields).expect("a mutating webhook has the fields of a validating one")
}

/// Whether the namespace of a write has the labels that are selected. What is in no namespace always counts.
pub(crate) async fn in_selected_namespace(
    selector: &LabelSelector,
    attributes: &Attributes<'_>,
    object: Option<&Object>,
    namespaces: &dyn Namespaces,
) -> Result<bool, ApiError> {
    let is_namespace = rules::is_namespaces(attributes);
    if selector.is_empty() || (attributes.namespace.is_empty() && !is_namespace) {
        return Ok(true);
    }
    if is_namespace && attributes.subresource.is_empty() && attributes.operation != Operation::Delete {
        return Ok(object.is_some_and(|object| selector::matches_object(selector, object)));
    }
    let name = if is_namespace { attributes.name } else { attributes.namespace };
    match namespace_of(attributes, name, namespaces).await {
        Ok(Some(found)) => Ok(selector::matches_labels(selector, found.metadata.labels.as_ref().unwrap_or(&NO_LABELS))),
        Ok(None) => Ok(false),
        Err(error) if error.code() == 404 => Err(error),
        Err(error) => Err(ApiError::internal(error.message())),
    }
}

static NO_LABELS: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
