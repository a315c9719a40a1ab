//! One webhook of a configuration: whether it is asked about a write, and asking it.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
        WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::{self, Status},
};
use kube::ResourceExt as _;
use uuid::Uuid;

use super::{
    client::HookClient,
    review::{self, Answer, ReviewVersion},
};
use crate::{
    admission::{
        Attributes, Operation,
        cel::Conditions,
        cluster::{Namespaces, ServiceResolver},
        rules, selector,
    },
    object::Object,
    selector::LabelSelector,
    status::ApiError,
};

/// How long a webhook may take when its configuration does not say.
const DEFAULT_TIMEOUT: i32 = 10;

/// A webhook, ready to be called.
#[derive(Debug)]
pub struct Hook {
    /// The name of its configuration.
    pub(super) configuration: String,
    /// Its own name.
    pub(super) name: String,
    /// The same for as long as it stays where it is in its configuration.
    pub(super) uid: String,
    /// Whether a failure to call it lets the write pass.
    pub(super) ignores_failures: bool,
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

/// How a call ended that did not let the write pass.
#[derive(Debug)]
pub(super) enum Failure {
    /// It could not be asked; the failure policy decides.
    Call(String),
    /// It said no.
    Rejected(ApiError),
    /// Something is wrong that no policy excuses.
    Other(ApiError),
}

/// What both kinds of webhooks have.
struct Parts<'a> {
    name: &'a str,
    rules: Option<&'a [RuleWithOperations]>,
    namespaces: Option<&'a v1::LabelSelector>,
    objects: Option<&'a v1::LabelSelector>,
    conditions: Option<&'a [MatchCondition]>,
    failure_policy: Option<&'a str>,
    side_effects: &'a str,
    versions: &'a [String],
    timeout: Option<i32>,
    client: &'a WebhookClientConfig,
    reinvoke: bool,
}

impl Hook {
    /// The webhooks of all configurations: by the configurations' names, and in order in each.
    pub fn of_mutating(
        mut configurations: Vec<Arc<MutatingWebhookConfiguration>>,
        resolver: &Arc<dyn ServiceResolver>,
    ) -> Vec<Arc<Self>> {
        configurations.sort_by_key(|configuration| configuration.name_any());
        let hooks = configurations.iter().flat_map(|configuration| {
            let name = configuration.name_any();
            configuration.webhooks.iter().flatten().enumerate().map(move |(index, hook)| {
                let parts = Parts {
                    name: &hook.name,
                    rules: hook.rules.as_deref(),
                    namespaces: hook.namespace_selector.as_ref(),
                    objects: hook.object_selector.as_ref(),
                    conditions: hook.match_conditions.as_deref(),
                    failure_policy: hook.failure_policy.as_deref(),
                    side_effects: &hook.side_effects,
                    versions: &hook.admission_review_versions,
                    timeout: hook.timeout_seconds,
                    client: &hook.client_config,
                    reinvoke: hook.reinvocation_policy.as_deref() == Some("IfNeeded"),
                };
                Arc::new(Self::new(&name, index, &parts, resolver))
            })
        });
        hooks.collect()
    }

    /// The same for webhooks that validate.
    pub fn of_validating(
        mut configurations: Vec<Arc<ValidatingWebhookConfiguration>>,
        resolver: &Arc<dyn ServiceResolver>,
    ) -> Vec<Arc<Self>> {
        configurations.sort_by_key(|configuration| configuration.name_any());
        let hooks = configurations.iter().flat_map(|configuration| {
            let name = configuration.name_any();
            configuration.webhooks.iter().flatten().enumerate().map(move |(index, hook)| {
                let parts = Parts {
                    name: &hook.name,
                    rules: hook.rules.as_deref(),
                    namespaces: hook.namespace_selector.as_ref(),
                    objects: hook.object_selector.as_ref(),
                    conditions: hook.match_conditions.as_deref(),
                    failure_policy: hook.failure_policy.as_deref(),
                    side_effects: &hook.side_effects,
                    versions: &hook.admission_review_versions,
                    timeout: hook.timeout_seconds,
                    client: &hook.client_config,
                    reinvoke: false,
                };
                Arc::new(Self::new(&name, index, &parts, resolver))
            })
        });
        hooks.collect()
    }

    fn new(configuration: &str, index: usize, parts: &Parts<'_>, resolver: &Arc<dyn ServiceResolver>) -> Self {
        let seconds = parts.timeout.unwrap_or(DEFAULT_TIMEOUT).clamp(1, 30);
        let ignores_failures = parts.failure_policy == Some("Ignore");
        Self {
            configuration: configuration.to_owned(),
            name: parts.name.to_owned(),
            uid: format!("{configuration}/{}/{index}", parts.name),
            ignores_failures,
            reinvoke: parts.reinvoke,
            rules: parts.rules.unwrap_or_default().to_vec(),
            namespaces: selector::parse(parts.namespaces),
            objects: selector::parse(parts.objects),
            conditions: Conditions::compile(parts.conditions.unwrap_or_default(), ignores_failures),
            side_effects: parts.side_effects.to_owned(),
            versions: parts.versions.to_vec(),
            timeout: Duration::from_secs(u64::from(seconds.unsigned_abs())),
            client: HookClient::new(parts.client, resolver.clone()),
        }
    }

    /// Whether any of its rules names the write.
    pub(super) fn has_rule_for(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rules::matches(rule, attributes))
    }

    /// Whether it is to be asked: its selectors, rules and conditions.
    ///
    /// # Errors
    ///
    /// The answer to the client when that could not be told.
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
        let selected = |object: Option<&Object>| object.is_some_and(|o| selector::matches_object(objects, o));
        if !objects.is_empty() && !selected(object) && !selected(attributes.old_object) {
            return Ok(false);
        }
        let selector = self.namespaces.as_ref().map_err(ApiError::internal)?;
        if !in_selected_namespace(selector, attributes, object, namespaces).await? {
            return Ok(false);
        }
        match self.conditions.hold(attributes, object).await {
            Ok(hold) => Ok(hold),
            Err(error) => Err(ApiError::forbidden(
                &attributes.definition.group,
                &attributes.definition.plural,
                attributes.name,
                error,
            )),
        }
    }

    /// Asks the webhook; its warnings and annotations are taken over.
    pub(super) async fn call(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        mutates: bool,
    ) -> Result<Answer, Failure> {
        if attributes.dry_run && !matches!(self.side_effects.as_str(), "None" | "NoneOnDryRun") {
            let text = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::Other(ApiError::bad_request(text)));
        }
        let version = ReviewVersion::choose(&self.versions).ok_or_else(|| {
            Failure::Call(
                "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, \
                 v1beta1)"
                    .to_owned(),
            )
        })?;
        let uid = Uuid::new_v4().to_string();
        let body = review::encode(version, &uid, attributes, object);
        let answer = self.client.post(body, self.timeout).await.map_err(Failure::Call)?;
        let answer = review::decode(version, &uid, mutates, &answer).map_err(Failure::Call)?;
        for (key, value) in &answer.audit_annotations {
            attributes.context.annotate(format!("{}/{key}", self.name), value.clone());
        }
        for warning in &answer.warnings {
            attributes.context.warn(warning);
        }
        if answer.allowed { Ok(answer) } else { Err(Failure::Rejected(self.rejection(answer.status))) }
    }

    /// `failed calling webhook "x": …`, for the client when failures count.
    pub(super) fn call_failed(&self, reason: &str) -> String {
        format!("failed calling webhook {:?}: {reason}", self.name)
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

/// Whether the namespace of a write has the labels that are selected. What is in no namespace always counts.
pub(in crate::admission) async fn in_selected_namespace(
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
    match namespaces.namespace(name).await {
        Ok(found) => Ok(selector::matches_labels(selector, found.metadata.labels.as_ref().unwrap_or(&NO_LABELS))),
        Err(error) if error.code() == 404 => Err(error),
        Err(error) => Err(ApiError::internal(error.message())),
    }
}

static NO_LABELS: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
