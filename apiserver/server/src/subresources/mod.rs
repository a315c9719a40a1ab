//! Subresources: shorthand for programs, and documents that are too large for objects.
//!
//! Start at [`Subresources`]; [`crate::behaviours`] attaches them to the kinds. kubectl reaches subresources only with `--raw`,
//! so every task of a person is possible by objects alone.

mod archive;
mod deployment_rows;
mod fleet_bundle;
mod fleet_diff;
mod fleet_provenance;
mod format;
mod generate;
mod graph;
mod log;
mod package_diff;
mod package_log;
mod release_diff;
mod release_documents;
mod run_plan;
mod stack_inputs;
mod stack_state;
mod stack_values;
mod start_run;
mod stored;
mod terraform_state;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use stoa_machinery::{
    ApiError,
    definition::{Subresource, SubresourceCall, SubresourceHandler, SubresourceResponse},
};
use stoa_types::{
    Release, Run, Stack,
    delivery::{Operation, PackageOperation},
    hub::DeploymentQuery,
    names,
    porch::PackageRevision,
    scheduler::{Assignment, GitOpsRepo},
};

pub(crate) use self::run_plan::plan_text;
use crate::services::AllServices;

/// The handlers of all kinds' subresources.
#[derive(Debug)]
pub(crate) struct Subresources {
    services: AllServices,
}

impl Subresources {
    pub(crate) fn new(services: AllServices) -> Self {
        Self { services }
    }

    /// The handler of a function that takes a part of the services.
    fn handler<S, F, A>(&self, answer: F) -> Arc<dyn SubresourceHandler>
    where
        S: for<'a> From<&'a AllServices> + Clone + Send + Sync + 'static,
        F: Fn(S, SubresourceCall) -> A + Send + Sync + 'static,
        A: Future<Output = Result<SubresourceResponse, ApiError>> + Send + 'static,
    {
        Arc::new(Handler { services: S::from(&self.services), answer })
    }

    /// Those of queries to the history of deployments.
    pub(crate) fn of_deployment_queries(&self) -> Vec<Subresource> {
        vec![Subresource {
            name: "rows",
            verbs: &["get"],
            kind: names::sibling::<DeploymentQuery>("DeploymentRows"),
            description: "The answer as a table: a list of objects in JSON or YAML. The query names its parameters.",
            produces: &[],
            handler: self.handler(deployment_rows::rows),
        }]
    }

    /// Those of GitOps repositories of fleets.
    pub(crate) fn of_gitops_repos(&self) -> Vec<Subresource> {
        vec![
            Subresource {
                name: "diff",
                verbs: &["get"],
                kind: names::sibling::<Assignment>("FleetDiff"),
                description: "The files in which the branch differs from the rendered files, or from those of another revision \
                              of the environment's control plane (revision).",
                produces: fleet_diff::PRODUCES,
                handler: self.handler(fleet_diff::of_repository),
            },
            Subresource {
                name: "bundle",
                verbs: &["get"],
                kind: names::sibling::<GitOpsRepo>("FleetBundle"),
                description: "The folder of a cluster type (clusterType) at the head of the branch: the archive of an OCI image \
                              layout with one artifact of Flux.",
                produces: fleet_bundle::PRODUCES,
                handler: self.handler(fleet_bundle::bundle),
            },
        ]
    }

    /// Those of assignments.
    pub(crate) fn of_assignments(&self) -> Vec<Subresource> {
        vec![
            Subresource {
                name: "diff",
                verbs: &["get"],
                kind: names::sibling::<Assignment>("FleetDiff"),
                description: "The files of the assignment that differ, as diff of its GitOpsRepo.",
                produces: fleet_diff::PRODUCES,
                handler: self.handler(fleet_diff::of_assignment),
            },
            Subresource {
                name: "provenance",
                verbs: &["get"],
                kind: names::sibling::<Assignment>("Provenance"),
                description: "The policies, templates and configuration of the assignment, with the ConfigMaps of each value.",
                produces: &[],
                handler: self.handler(fleet_provenance::provenance),
            },
        ]
    }

    fn graph(&self, scope: graph::Scope) -> Subresource {
        Subresource {
            name: "graph",
            verbs: &["get"],
            kind: names::sibling::<Stack>("Graph"),
            description: "The recorded topology: as JSON or YAML, or as a drawing in DOT or Mermaid.",
            produces: graph::PRODUCES,
            handler: self.handler(move |services, call| graph::graph(services, scope, call)),
        }
    }

    /// Those of organizations.
    pub(crate) fn of_organizations(&self) -> Vec<Subresource> {
        vec![self.graph(graph::Scope::Organization)]
    }

    /// Those of projects.
    pub(crate) fn of_projects(&self) -> Vec<Subresource> {
        vec![self.graph(graph::Scope::Project)]
    }

    /// Those of stacks.
    pub(crate) fn of_stacks(&self) -> Vec<Subresource> {
        let start = |name, description, operation| Subresource {
            name,
            verbs: &["create"],
            kind: names::sibling::<Run>("Run"),
            description,
            produces: &[],
            handler: self.handler(move |services, call| start_run::start_run(services, operation, call)),
        };
        let generate = Arc::new(generate::Generate::new(self.services.base.clone()));
        let preview = start(
            "preview",
            "Starts a Preview: creates the Run and returns it. For the archive of a working copy, \
                                        returns its plan, and creates nothing.",
            Operation::Preview,
        );
        let handler = Arc::new(archive::Preview { generate: generate.clone(), others: preview.handler.clone() });
        let preview = Subresource { produces: run_plan::PRODUCES, handler, ..preview };
        vec![
            Subresource {
                name: "generate",
                verbs: &["create"],
                kind: names::sibling::<Stack>("Stack"),
                description: "Renders the Spec of a stack for a workspace, or shows the values for its generator. Nothing is \
                              recorded.",
                produces: generate::PRODUCES,
                handler: generate,
            },
            preview,
            start("apply", "Starts an Apply: creates the Run and returns it.", Operation::Apply),
            start("destroy", "Starts a Destroy: creates the Run and returns it.", Operation::Destroy),
            start("rollback", "Starts a Rollback: creates the Run and returns it.", Operation::Rollback),
            self.graph(graph::Scope::Stack),
            Subresource {
                name: "state",
                verbs: &["get"],
                kind: names::sibling::<Stack>("Stack"),
                description: "The current State of the stack in a workspace, between releases too.",
                produces: &[],
                handler: self.handler(stack_state::stack_state),
            },
            Subresource {
                name: "terraformstate",
                verbs: &["get"],
                kind: names::sibling::<Stack>("Stack"),
                description: "The resources of Terraform's providers as a terraform.tfstate, with secrets in clear.",
                produces: &[],
                handler: self.handler(terraform_state::terraform_state),
            },
            start("import", "Starts an Import: creates the Run and returns it.", Operation::Import),
        ]
    }

    /// Those of notification sinks.
    pub(crate) fn of_notification_sinks(&self) -> Vec<Subresource> {
        stoa_notifications::subresources(&self.services.notifications)
    }

    /// Those of runs.
    pub(crate) fn of_runs(&self) -> Vec<Subresource> {
        vec![
            Subresource {
                name: "log",
                verbs: &["get"],
                kind: names::sibling::<Run>("Run"),
                description: "The log of the run, as text or as JSON lines; with follow=true until the run ends.",
                produces: &["text/plain"],
                handler: self.handler(log::run_log),
            },
            Subresource {
                name: "plan",
                verbs: &["get"],
                kind: names::sibling::<Run>("Plan"),
                description: "The plan of the run, as JSON or YAML, or as a table for people.",
                produces: run_plan::PRODUCES,
                handler: self.handler(run_plan::run_plan),
            },
        ]
    }

    /// Those of package revisions.
    pub(crate) fn of_package_revisions(&self) -> Vec<Subresource> {
        vec![Subresource {
            name: "diff",
            verbs: &["get"],
            kind: names::sibling::<PackageRevision>("PackageDiff"),
            description: "The changes from another revision to this one, by default from the published one before.",
            produces: package_diff::PRODUCES,
            handler: self.handler(package_diff::revision_diff),
        }]
    }

    /// Those of package operations.
    pub(crate) fn of_package_operations(&self) -> Vec<Subresource> {
        vec![
            Subresource {
                name: "log",
                verbs: &["get"],
                kind: names::sibling::<PackageOperation>("PackageOperation"),
                description: "The log of the operation, as text or as JSON lines; with follow=true until it ends.",
                produces: &["text/plain"],
                handler: self.handler(package_log::operation_log),
            },
            Subresource {
                name: "plan",
                verbs: &["get"],
                kind: names::sibling::<PackageOperation>("PackageOperationPlan"),
                description: "The changes of the operation in each package, as JSON or YAML, or as text for people.",
                produces: package_diff::PRODUCES,
                handler: self.handler(package_diff::operation_plan),
            },
        ]
    }

    /// Those of releases.
    pub(crate) fn of_releases(&self) -> Vec<Subresource> {
        let document = |name, description, document| Subresource {
            name,
            verbs: &["get"],
            kind: names::sibling::<Release>("Release"),
            description,
            produces: &[],
            handler: self.handler(move |services, call| release_documents::release_document(services, document, call)),
        };
        vec![
            Subresource {
                name: "diff",
                verbs: &["get"],
                kind: names::sibling::<Release>("ReleaseDiff"),
                description: "The changes from another release to this one, by default from the one before. The other \
                              release may be of another stack of the project, or of another workspace.",
                produces: release_diff::PRODUCES,
                handler: self.handler(release_diff::release_diff),
            },
            document("spec", "The Spec that was released.", release_documents::Document::Spec),
            document("state", "The State after the release.", release_documents::Document::State),
        ]
    }
}

/// Answers by a function.
#[derive(educe::Educe)]
#[educe(Debug)]
struct Handler<S, F> {
    #[educe(Debug(ignore))]
    services: S,
    #[educe(Debug(ignore))]
    answer: F,
}

#[async_trait]
impl<S, F, A> SubresourceHandler for Handler<S, F>
where
    S: Clone + Send + Sync + 'static,
    F: Fn(S, SubresourceCall) -> A + Send + Sync + 'static,
    A: Future<Output = Result<SubresourceResponse, ApiError>> + Send + 'static,
{
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        Box::pin((self.answer)(self.services.clone(), call)).await
    }
}

/// Whether a client asks for JSON rather than for the other format: by `?format=`, or by an Accept header that takes JSON
/// and not just anything, as that of `kubectl get --raw` does, behind which a person reads.
///
/// # Errors
///
/// 400 that names the field for a format that is neither.
fn wants_json(headers: &HeaderMap, query: &[(String, String)], other: &str) -> Result<bool, ApiError> {
    let of_headers = || {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        accept.is_some_and(|accept| accept.contains("application/json") && !accept.contains("*/*"))
    };
    Ok(format::asked(query, &["json", other])?.map_or_else(of_headers, |at| at == 0))
}

/// The first value of a query parameter.
fn parameter<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

/// The same where an empty value says as little as none.
fn non_empty<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameter(query, name).filter(|value| !value.is_empty())
}

/// A whole answer.
fn answer(code: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Result<SubresourceResponse, ApiError> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, content_type)
        .body(body)
        .map_err(|error| ApiError::internal(error.to_string()))
}

/// A JSON document as the client wants it: JSON or YAML.
fn document(json: &[u8], as_json: bool) -> Result<SubresourceResponse, ApiError> {
    if as_json {
        return answer(StatusCode::OK, "application/json", json.to_vec());
    }
    let value: serde_json::Value = serde_json::from_slice(json).map_err(|e| ApiError::internal(e.to_string()))?;
    let yaml = serde_saphyr::to_string(&value).map_err(|e| ApiError::internal(e.to_string()))?;
    answer(StatusCode::OK, "application/yaml", yaml)
}

/// A [`StepError`](stoa_runs::StepError) of something that a client waits for.
fn failure(halt: stoa_runs::StepError) -> ApiError {
    let is_final = halt.is_final();
    match halt.into_reason(stoa_types::reason::UNREACHABLE) {
        (stoa_types::reason::PERMISSION_DENIED, message) => ApiError::new(403, "Forbidden", message),
        (reason, message) if is_final => ApiError::new(422, "Invalid", message.clone()).with_cause(reason, "", message),
        (_, message) => ApiError::service_unavailable(message).with_retry_after(1),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn query_or_headers_select_format_and_reject_unknown() {
        let wants = |accept: &'static str, format: Option<&str>| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            let query: Vec<(String, String)> =
                format.map(|format| ("format".to_owned(), format.to_owned())).into_iter().collect();
            wants_json(&headers, &query, "yaml")
        };
        for (accept, format, wanted) in [
            ("application/json", None, true),
            ("application/json", Some(""), true),
            ("application/json", Some("yaml"), false),
            ("application/json, */*", None, false),
            ("application/json, */*", Some("json"), true),
        ] {
            assert_eq!(wants(accept, format).unwrap(), wanted, "{accept} {format:?}");
        }
        for unknown in ["xml", "JSON", "text"] {
            let error = wants("application/json", Some(unknown)).unwrap_err();
            assert_eq!(error.code(), 400, "{unknown}");
            let told = format!("format: Unsupported value: \"{unknown}\": supported values: \"json\", \"yaml\"");
            assert_eq!(error.message(), told);
        }
    }
}
