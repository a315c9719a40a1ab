//! `authorizer` in expressions: `authorizer.group("apps").resource("deployments").check("create").allowed()`.
//!
//! An answer may have to be asked for over the network, and evaluation never waits. So an evaluation that needs one
//! that is not known ends, the question is asked, and the evaluation begins anew with the answer.

use std::{collections::HashMap, sync::Arc};

use super::{eval::Error, names, value::Value};

/// The method that has the authorizer asked.
pub(super) const CHECK: &str = "check";
/// How many steps that takes, of which an expression has enough for two; as upstream counts it.
pub(super) const CHECKING: u64 = 350_000;

/// What an authorizer is asked: whether somebody may do this, as in `authorization.k8s.io/v1 SubjectAccessReviewSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Question {
    /// The API verb, such as `list`; the lower-case HTTP method for paths that are no resource.
    pub verb: String,
    /// The API group; empty for core.
    pub group: String,
    /// The version, such as `v1alpha1`, or `*` for any.
    pub version: String,
    /// The plural noun; empty for paths that are no resource.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace; empty for cluster-wide requests.
    pub namespace: String,
    /// The object's name; empty for all.
    pub name: String,
    /// The path, for requests that are no resource's.
    pub path: String,
    /// The field selector as sent, for authorizers that look at it.
    pub field_selector: String,
    /// The label selector as sent.
    pub label_selector: String,
}

impl Question {
    /// How long its texts are together, in bytes.
    pub fn size(&self) -> usize {
        let Self { verb, group, version, resource, subresource, namespace, name, path, field_selector, label_selector } =
            self;
        [verb, group, version, resource, subresource, namespace, name, path, field_selector, label_selector]
            .iter()
            .map(|text| text.len())
            .sum()
    }
}

/// What the authorizer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The user may, for a reason that may be empty.
    Allowed(String),
    /// The user may not, for a reason that may be empty.
    Denied(String),
    /// It could not be asked, and why.
    Errored(String),
}

/// A question, and about whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inquiry {
    /// Whether somebody may do this.
    pub question: Question,
    /// The service account that is asked about, if it is not the user of the request.
    pub service_account: Option<ServiceAccount>,
}

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Answers to what evaluations have asked.
pub type Answers = HashMap<Inquiry, Answer>;

/// A question to the authorizer, as far as it has been put.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Check {
    stage: Stage,
    question: Question,
    service_account: Option<ServiceAccount>,
    /// The resource of the request that is admitted, for `authorizer.requestResource`.
    request: Question,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Authorizer,
    Path,
    Group,
    Resource,
    /// `check(verb)` was called.
    Decision,
}

impl Check {
    /// `authorizer`, while the resource of `request` is admitted.
    pub(super) fn new(request: Question) -> Self {
        Self { request, ..Self::default() }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
            Stage::Decision => "kubernetes.authorization.Decision",
        }
    }

    pub(super) fn size(&self) -> usize {
        let account = self.service_account.as_ref();
        self.question.size() + account.map_or(0, |account| account.namespace.len() + account.name.len())
    }

    pub(super) fn request_resource(&self) -> Self {
        Self { stage: Stage::Resource, question: self.request.clone(), ..self.clone() }
    }

    /// A method of it; nothing when it has none of that name here.
    pub(super) fn call<'a>(
        mut self,
        method: &str,
        args: &[Value<'a>],
        answers: &Answers,
    ) -> Option<Result<Value<'a>, Error>> {
        let text = |index: usize| match args.get(index) {
            Some(Value::String(text)) => Some(text.to_string()),
            _ => None,
        };
        let refused = |why: &str| Some(Err(Error::new(why)));
        match (self.stage, method, args.len()) {
            (Stage::Authorizer, "path", 1) => {
                (self.stage, self.question.path) = (Stage::Path, text(0)?);
                if self.question.path.trim().is_empty() {
                    return refused("path must not be empty");
                }
            }
            (Stage::Authorizer, "group", 1) => {
                (self.stage, self.question.group) = (Stage::Group, text(0)?);
            }
            (Stage::Authorizer, "serviceAccount", 2) => {
                let account = ServiceAccount { namespace: text(0)?, name: text(1)? };
                if !names::dns_subdomain(&account.name).is_empty() {
                    return refused("Invalid service account name");
                }
                if !names::dns_label(&account.namespace).is_empty() {
                    return refused("Invalid service account namespace");
                }
                self.service_account = Some(account);
            }
            (Stage::Group, "resource", 1) => {
                (self.stage, self.question.resource) = (Stage::Resource, text(0)?);
                self.question.version = "*".to_owned();
                if self.question.resource.trim().is_empty() {
                    return refused("resource must not be empty");
                }
            }
            (Stage::Resource, "subresource", 1) => self.question.subresource = text(0)?,
            (Stage::Resource, "namespace", 1) => self.question.namespace = text(0)?,
            (Stage::Resource, "name", 1) => self.question.name = text(0)?,
            (Stage::Resource, "fieldSelector", 1) => self.question.field_selector = text(0)?,
            (Stage::Resource, "labelSelector", 1) => self.question.label_selector = text(0)?,
            (Stage::Resource | Stage::Path, CHECK, 1) => {
                (self.stage, self.question.verb) = (Stage::Decision, text(0)?);
            }
            (Stage::Decision, "allowed" | "reason" | "errored" | "error", 0) => {
                return Some(self.decided(method, answers));
            }
            _ => return None,
        }
        Some(Ok(Value::Authorizer(Arc::new(self))))
    }

    fn decided<'a>(self, method: &str, answers: &Answers) -> Result<Value<'a>, Error> {
        let inquiry = Inquiry { question: self.question, service_account: self.service_account };
        let Some(answer) = answers.get(&inquiry) else {
            return Err(Error::Unanswered(Box::new(inquiry)));
        };
        Ok(match (method, answer) {
            ("allowed", answer) => Value::Bool(matches!(answer, Answer::Allowed(_))),
            ("reason", Answer::Allowed(reason) | Answer::Denied(reason)) => Value::text(reason.clone()),
            ("errored", answer) => Value::Bool(matches!(answer, Answer::Errored(_))),
            ("error", Answer::Errored(error)) => Value::text(error.clone()),
            (_, _) => Value::text(""),
        })
    }
}
