//! `authorizer` in expressions: `authorizer.group("apps").resource("deployments").check("create").allowed()`.
//!
//! An answer may have to be asked for over the network, and evaluation never waits. So an evaluation that needs one
//! that is not known ends, the question is asked, and the evaluation begins anew with the answer.

use std::collections::HashMap;

use super::{eval::Error, value::Value};
use crate::auth::{Attributes, Decision};

/// Answers to questions that evaluations have had.
pub(super) type Answers = HashMap<Attributes, Result<Decision, String>>;

/// A question to the authorizer, as far as it has been put.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Check {
    stage: Stage,
    attributes: Attributes,
    /// The resource of the request that is admitted, for `authorizer.requestResource`.
    request: Attributes,
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
    pub(super) fn new(request: Attributes) -> Self {
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

    /// `authorizer.requestResource`.
    pub(super) fn request_resource(&self) -> Self {
        Self { stage: Stage::Resource, attributes: self.request.clone(), request: self.request.clone() }
    }

    /// A method of it; nothing when it has none of that name here.
    pub(super) fn call<'a>(
        mut self,
        method: &str,
        args: &[Value<'a>],
        answers: &Answers,
    ) -> Option<Result<Value<'a>, Error>> {
        let text = |index: usize| match args.get(index) {
            Some(Value::String(text)) => Some(text.clone().into_owned()),
            _ => None,
        };
        match (self.stage, method, args.len()) {
            (Stage::Authorizer, "path", 1) => {
                (self.stage, self.attributes.path) = (Stage::Path, text(0)?);
            }
            (Stage::Authorizer, "group", 1) => {
                (self.stage, self.attributes.group) = (Stage::Group, text(0)?);
            }
            (Stage::Authorizer, "serviceAccount", 2) => {
                return Some(Err(Error::Message(
                    "authorizer.serviceAccount is not supported by this server".to_owned(),
                )));
            }
            (Stage::Group, "resource", 1) => {
                (self.stage, self.attributes.resource) = (Stage::Resource, text(0)?);
                self.attributes.version = "*".to_owned();
            }
            (Stage::Resource, "subresource", 1) => self.attributes.subresource = text(0)?,
            (Stage::Resource, "namespace", 1) => self.attributes.namespace = text(0)?,
            (Stage::Resource, "name", 1) => self.attributes.name = text(0)?,
            (Stage::Resource, "fieldSelector", 1) => self.attributes.field_selector = text(0)?,
            (Stage::Resource, "labelSelector", 1) => self.attributes.label_selector = text(0)?,
            (Stage::Resource | Stage::Path, "check", 1) => {
                (self.stage, self.attributes.verb) = (Stage::Decision, text(0)?);
            }
            (Stage::Decision, "allowed" | "reason" | "errored" | "error", 0) => {
                return Some(self.decided(method, answers));
            }
            _ => return None,
        }
        Some(Ok(Value::Authorizer(Box::new(self))))
    }

    fn decided<'a>(self, method: &str, answers: &Answers) -> Result<Value<'a>, Error> {
        let Some(answer) = answers.get(&self.attributes) else {
            return Err(Error::Unanswered(Box::new(self.attributes)));
        };
        Ok(match (method, answer) {
            ("allowed", answer) => Value::Bool(matches!(answer, Ok(Decision::Allow))),
            ("reason", Ok(Decision::Deny(reason))) => Value::text(reason.clone()),
            ("errored", answer) => Value::Bool(answer.is_err()),
            ("error", Err(error)) => Value::text(error.clone()),
            (_, _) => Value::text(""),
        })
    }
}
