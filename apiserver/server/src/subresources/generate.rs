//! `stacks/generate`: the Spec as it would be, recorded nowhere, sensitive values masked.
//!
//! A source that does not answer keeps whoever asks waiting, with a place among all requests that change something. So a
//! namespace has only so many at once ([`ProbeSlots`]), and more are turned away rather than kept waiting.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use stoa_controller::{memory_budget, probes::ProbeSlots};
use stoa_fairness::Permit;
use stoa_kinds::{lookup, run::target_workspace, values::parameter_names};
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceHandler, SubresourceResponse},
    status::FieldError,
};
use stoa_proto::GenerateResponse;
use stoa_runs::{Services, StepError, documents, runner, target::Target, values::StackValues, working_copy};
use stoa_types::{Backend, Run, Stack, Workspace, delivery::Operation, reason};
use tonic::{Code, Status};

use super::{
    archive, document, failure,
    format::{Format, PLAIN, bad_parameter},
    non_empty, parameter, run_plan,
    stack_inputs::{self, ShownInputs},
    stack_values::{self, ShownValues},
    wants_json,
};

/// How long a client is kept waiting.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the values wait for those of files, which are not shown after it.
const VALUES_TIMEOUT: Duration = Duration::from_secs(10);
/// So many are generated at once, three quarters of them for one namespace alone. It is a small part of the requests that
/// change something, and of the calls of a function-runner, of which runs need some.
const AT_ONCE: usize = 32;
/// A Spec of so many bytes is taken before there is room for it; all that are generated at once have as much as there is room.
const SMALL: usize = 4 << 20;
/// So many larger ones are taken at once, three of them for one namespace alone.
const LARGE_AT_ONCE: usize = 4;
/// Query parameters that are not the generator's.
const OWN: &[&str] =
    &["workspace", "version", "show", "format", "timeout", "pretty", "dryRun", "fieldManager", "color", "colour"];
/// What it comes in besides JSON and YAML.
pub(super) const PRODUCES: &[&str] = &[PLAIN];

#[derive(Debug)]
pub(super) struct Generate {
    services: Services,
    turns: ProbeSlots,
    /// For Specs that are not small.
    large: ProbeSlots,
}

#[async_trait]
impl SubresourceHandler for Generate {
    /// Query parameters: `workspace` (may be left out when the stack has one), `version`, `format` (`json` or `yaml`);
    /// every other one is a parameter of the generator, such as `cell=c1`. `show=values` answers with the values for the
    /// generator and their origins instead, and `show=inputs` with all that decided the Spec; their `format` may be `table`
    /// too. A body that is an archive has the files, instead of a version of the source ([`working_copy`]).
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        self.in_turn(&call.namespace, Box::pin(self.generate(&call))).await
    }
}

impl Generate {
    pub(super) fn new(services: Services) -> Self {
        Self { services, turns: ProbeSlots::new(AT_ONCE), large: ProbeSlots::new(LARGE_AT_ONCE) }
    }

    /// Does something that a client waits for, if the namespace has not too much under way.
    async fn in_turn<T>(
        &self,
        namespace: &str,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let turns = self.turns.of(namespace);
        let Some(_turn) = turns.try_take() else {
            let message = format!(
                "namespace {namespace:?} has reached its limit of concurrent Spec generations; retry later, or create a Run \
                 with operation Preview, which waits in the queue"
            );
            return Err(ApiError::too_many_requests(message, 1));
        };
        match tokio::time::timeout(TIMEOUT, work).await {
            Ok(answer) => answer,
            Err(_) => Err(ApiError::timeout(
                "generating took longer than 30s; create a Run with operation Preview, which may take longer",
                1,
            )),
        }
    }

    /// Plans the working copy in the body of a call for a Stack. `workspace` is a query parameter, and so are `format` and
    /// `color`, as of `runs/plan`; every other one is a parameter of the generator.
    pub(super) async fn preview(&self, call: SubresourceCall, archive: Bytes) -> Result<SubresourceResponse, ApiError> {
        let namespace = call.namespace.clone();
        let work = Box::pin(async move {
            lookup::require::<Run>(&call.context, "create", "", &call.namespace, "").await?;
            let Asked { target, values, files } = self.asked(&call, Some(archive)).await?;
            let Rendered { response, turn, .. } = Box::pin(self.rendered(&call, &target, &values, files)).await?;
            for warning in response.warnings {
                call.context.warn(warning);
            }
            let bytes = response.spec.len();
            let plan = Box::pin(working_copy::plan(&self.services, &target, response.spec)).await.map_err(failure)?;
            drop(turn);
            let room = memory_budget::take(&call.namespace, bytes).await?;
            run_plan::written(call, plan, room).await
        });
        self.in_turn(&namespace, work).await
    }

    /// The Stack, the Workspace, the values and the files of a call. The requester may use all of them.
    async fn asked(&self, call: &SubresourceCall, archive: Option<Bytes>) -> Result<Asked, ApiError> {
        let services = &self.services;
        let stack = services.lookup.api::<Stack>()?.get(&call.namespace, &call.name).await?;
        let workspace = workspace_of(call, &stack)?;
        lookup::require_use::<Workspace>(&call.context, &workspace).await?;
        let version = non_empty(&call.query, "version");
        let files = match archive {
            Some(_) if version.is_some() => {
                return Err(ApiError::bad_request(
                    "version may not be set together with a working copy; remove one of them",
                ));
            }
            Some(archive) => FilesOf::WorkingCopy(archive),
            None => FilesOf::Version(version.unwrap_or(&stack.spec.desired_version).to_owned()),
        };
        let target = Target::of_stack(services, stack, &workspace).await.map_err(failure)?;
        lookup::require_use::<Backend>(&call.context, &target.workspace.spec.backend.name).await?;
        let parameters: BTreeMap<String, String> =
            call.query.iter().filter(|(key, _)| !OWN.contains(&key.as_str())).cloned().collect();
        if let Some(error) = parameter_names("query", parameters.keys()).first() {
            return Err(bad_parameter(error));
        }
        let values = StackValues::of(services, &target, &parameters, Some(&call.context)).await.map_err(failure)?;
        let values = match &files {
            FilesOf::WorkingCopy(_) => working_copy::values(services, &target, values).map_err(failure)?,
            FilesOf::Version(_) => values,
        };
        Ok(Asked { target, values, files })
    }

    async fn generate(&self, call: &SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        let show = Show::asked(&call.query)?;
        let as_json = match show {
            Show::Spec => wants_json(&call.headers, &call.query, "yaml")?,
            Show::Values | Show::Inputs => false,
        };
        let Asked { target, values, files } = self.asked(call, archive::of(call)?).await?;
        if show == Show::Values {
            let format = Format::choose(call, stack_values::FORMATS)?;
            let generated = Box::pin(self.rendered(call, &target, &values, files));
            let origins = match tokio::time::timeout(VALUES_TIMEOUT, generated).await {
                Ok(Ok(rendered)) => Ok(rendered.response.origins),
                Ok(Err(error)) => Err(error.message().to_owned()),
                Err(_) => Err(format!("rendering took longer than {VALUES_TIMEOUT:?}")),
            };
            let origins = origins.unwrap_or_else(|why| {
                call.context.warn(format!("values of files and defaults are not shown: {why}"));
                Vec::new()
            });
            return format.write(call, &ShownValues::of(&values, &origins));
        }
        let inputs_format = (show == Show::Inputs).then(|| Format::choose(call, stack_inputs::FORMATS)).transpose()?;
        let Rendered { commit, response, turn } = Box::pin(self.rendered(call, &target, &values, files)).await?;
        if let Some(format) = inputs_format {
            return format.write(call, &ShownInputs::of(&target, commit, response, &values));
        }
        for warning in response.warnings {
            call.context.warn(warning);
        }
        let spec = response.spec;
        let room = memory_budget::take(&call.namespace, spec.len()).await?;
        let show = move || document(&documents::shown(spec).map_err(ApiError::internal)?, as_json);
        let (answer, room) = room.work(show).await;
        drop(turn);
        room.until_sent(answer?).await
    }

    /// Renders files of the stack.
    async fn rendered(
        &self,
        call: &SubresourceCall,
        target: &Target,
        values: &StackValues,
        files: FilesOf,
    ) -> Result<Rendered, ApiError> {
        let services = &self.services;
        let refused = |status: Status| match status.code() {
            // Runs wait until the function-runner has time; whoever waits for an answer is told.
            Code::ResourceExhausted => ApiError::too_many_requests(status.message(), 1),
            _ => failure(runner::halt(&status, reason::GENERATE_FAILED)),
        };
        let (commit, request) = match files {
            FilesOf::WorkingCopy(archive) => {
                let request = working_copy::generate_request(services, target, archive, values).await;
                ("working copy".to_owned(), request.map_err(failure)?)
            }
            FilesOf::Version(version) => {
                let request = target.resolve_request(services, &version).await.map_err(failure)?;
                let commit = services.runner.resolve(request).await.map_err(refused)?.into_inner().commit;
                let request = target.generate_request(services, &commit, values).await.map_err(failure)?;
                (commit, request)
            }
        };
        let large = self.large.of(&call.namespace);
        let turn = Mutex::new(None);
        // How large it is nobody knows before. No room is kept for it while it is generated: that takes as long as a source or a
        // generator likes.
        let admit = |bytes: Option<usize>| {
            let mut turn = turn.lock();
            if turn.is_none() && bytes.is_none_or(|bytes| bytes > SMALL) {
                *turn = large.try_take();
                if turn.is_none() {
                    let message = "the limit of concurrent generations of Specs over 4 MiB is reached; retry later, \
                                   or create a Run with operation Preview, which waits in the queue";
                    return Err(Status::resource_exhausted(message));
                }
            }
            Ok(())
        };
        let response = services.runner.generate_admitted(request, &admit).await.map_err(refused)?;
        Ok(Rendered { commit, response: response.into_inner(), turn: turn.into_inner() })
    }
}

/// What a call asks for.
struct Asked {
    target: Target,
    values: StackValues,
    files: FilesOf,
}

/// The files that are rendered.
enum FilesOf {
    /// Those of a version of the source.
    Version(String),
    /// Those of this archive.
    WorkingCopy(Bytes),
}

/// A rendered stack.
#[derive(Debug)]
struct Rendered {
    commit: String,
    response: GenerateResponse,
    /// For a Spec that is not small.
    turn: Option<Permit>,
}

/// What an answer has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Show {
    Spec,
    Values,
    Inputs,
}

impl Show {
    /// The one that `?show=` asks for.
    ///
    /// # Errors
    ///
    /// 400 that names the field.
    fn asked(query: &[(String, String)]) -> Result<Self, ApiError> {
        match non_empty(query, "show") {
            None | Some("spec") => Ok(Self::Spec),
            Some("values") => Ok(Self::Values),
            Some("inputs") => Ok(Self::Inputs),
            Some(other) => Err(bad_parameter(&FieldError::not_supported("show", other, &["spec", "values", "inputs"]))),
        }
    }
}

fn workspace_of(call: &SubresourceCall, stack: &Stack) -> Result<String, ApiError> {
    let mut spec = serde_json::json!({ "stack": call.name, "operation": Operation::Preview });
    spec["workspace"] = parameter(&call.query, "workspace").unwrap_or("").into();
    let run: Run = serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": spec }))
        .map_err(|e| ApiError::internal(e.to_string()))?;
    target_workspace(&run, stack).map_err(|error| {
        let message = format!("workspace: {}", error.message);
        failure(StepError::failed(reason::REFERENCE_NOT_FOUND, message))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        iter,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };

    use http::{HeaderMap, Method};
    use stoa_machinery::RequestContext;
    use stoa_proto::{GenerateRequest, ResolveRequest, ResolveResponse, SourceModule, ValueOrigin};
    use stoa_runs::testing::{Answer, FakeRunner, SPEC_BYTES, runner_at, unreachable_runner};
    use tonic::{Request, Response};

    use super::*;
    use crate::testing::TestServer;

    fn call(namespace: &str) -> SubresourceCall {
        SubresourceCall {
            context: RequestContext::internal("tests"),
            namespace: namespace.to_owned(),
            name: "web".to_owned(),
            method: Method::POST,
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
        }
    }

    #[tokio::test]
    async fn namespace_share_limits_concurrent_generation() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let generate = Generate::new(world.services.clone());
        let silent = generate.turns.of("silent");
        let held: Vec<_> = iter::from_fn(|| silent.try_take()).collect();
        assert_eq!(held.len(), AT_ONCE / 4 * 3);
        let code = async |namespace| generate.call(call(namespace)).await.unwrap_err().code();
        assert_eq!(code("silent").await, 429);
        assert_eq!(code("quick").await, 404, "it goes on to the stack, which does not exist");
        drop(held);
        assert_eq!([code("silent").await, code("silent").await], [404, 404], "a turn is given back");
    }

    /// A runner whose Specs have so many bytes and some more.
    struct Rendering {
        bytes: usize,
        /// Whether it says so before.
        tells: bool,
        calls: Arc<AtomicUsize>,
    }

    #[tonic::async_trait]
    impl FakeRunner for Rendering {
        async fn resolve(&self, _: Request<ResolveRequest>) -> Answer<ResolveResponse> {
            Ok(Response::new(ResolveResponse { commit: "a".repeat(40), ..ResolveResponse::default() }))
        }

        async fn generate(&self, _: Request<GenerateRequest>) -> Answer<GenerateResponse> {
            let attributes = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "shop"}, "data": {"a": "x".repeat(self.bytes)}});
            let resource =
                serde_json::json!({"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": attributes});
            let spec = serde_json::to_vec(&serde_json::json!({ "resources": [resource] })).unwrap();
            let bytes = spec.len();
            let (name, path) = ("db".to_owned(), "web/charts/db".to_owned());
            let origin = |name: &str, kind: &str, line: u32, is_stronger: bool| ValueOrigin {
                name: name.to_owned(),
                kind: kind.to_owned(),
                file: "web/values.yaml".to_owned(),
                line,
                is_stronger,
            };
            let mut answer = Response::new(GenerateResponse {
                spec: spec.into(),
                generator: "Helm".to_owned(),
                generator_version: "helm v4.1.0".to_owned(),
                files: vec!["web/Chart.yaml".to_owned()],
                modules: vec![SourceModule { name, version: "1.2.0".to_owned(), path }],
                origins: vec![origin("cell", "Default", 2, false), origin("replicas", "File", 7, true)],
                ..GenerateResponse::default()
            });
            if self.tells {
                answer.metadata_mut().insert(SPEC_BYTES, bytes.into());
            }
            self.calls.fetch_add(1, Relaxed);
            Ok(answer)
        }
    }

    async fn shown(runner: stoa_runs::runner::Runner, show: &str) -> (String, Vec<String>) {
        let world = TestServer::with_runner(runner).await;
        let mut call = call("shop");
        let query = [("workspace", "dev"), ("show", show), ("format", "table"), ("cell", "c1")];
        call.query.extend(query.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let context = call.context.clone();
        let generate = Generate::new(world.services.clone());
        let answer = Box::pin(generate.generate(&call)).await.unwrap();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (String::from_utf8(body.to_vec()).unwrap(), context.take_warnings())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn inputs_and_origins_are_shown() {
        let rendering = || {
            let calls = Arc::new(AtomicUsize::new(0));
            runner_at(Rendering { bytes: 1, tells: true, calls }.serve())
        };
        let (inputs, _) = shown(rendering(), "inputs").await;
        let commit = "a".repeat(40);
        let expected = format!(
            "GENERATOR   Helm   helm v4.1.0\nCOMMIT      {commit}\nFILE        web/Chart.yaml\n\
             MODULE      db     1.2.0   web/charts/db\n"
        );
        assert_eq!(inputs, expected);
        let (values, _) = shown(rendering(), "values").await;
        let expected = "NAME       VALUE   FROM                     FINAL   OVERRIDES\n\
                        cell       \"c1\"    the Run                  no      Default web/values.yaml:2\n\
                        replicas   -       File web/values.yaml:7   no\n";
        assert_eq!(values, expected);
        // Without a runner, the platform's values are shown all the same.
        let (values, warnings) = shown(unreachable_runner(), "values").await;
        assert_eq!(values.lines().nth(1), Some("cell   \"c1\"    the Run   no"));
        assert!(warnings[0].starts_with("values of files and defaults are not shown: "), "{warnings:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn parameter_with_two_meanings_is_refused() {
        let calls = Arc::new(AtomicUsize::new(0));
        let rendering = Rendering { bytes: 2, tells: true, calls: calls.clone() };
        let world = TestServer::with_runner(runner_at(rendering.serve())).await;
        let mut call = call("shop");
        call.query.push(("workspace".to_owned(), "dev".to_owned()));
        call.query.push(("cell,region".to_owned(), "c1".to_owned()));
        let error = Generate::new(world.services.clone()).generate(&call).await.unwrap_err();
        assert_eq!((error.code(), calls.load(Relaxed)), (400, 0));
        assert!(error.message().contains("\"cell,region\": must begin with a letter or _"), "{}", error.message());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn generation_limits_concurrency_of_large_specs() {
        // Of an earlier version's nobody knows that they are small.
        for (bytes, tells, is_large) in [(SMALL, true, true), (SMALL / 2, true, false), (SMALL / 2, false, true)] {
            let calls = Arc::new(AtomicUsize::new(0));
            let rendering = Rendering { bytes, tells, calls: calls.clone() };
            let world = TestServer::with_runner(runner_at(rendering.serve())).await;
            let generate = Generate::new(world.services.clone());
            let others: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| generate.large.of(name)).collect();
            let held: Vec<_> = others.iter().filter_map(|of| of.try_take()).collect();
            assert_eq!(held.len(), LARGE_AT_ONCE);
            let mut call = call("shop");
            call.query.push(("workspace".to_owned(), "dev".to_owned()));
            let answer = generate.generate(&call).await.map(|answer| answer.status().as_u16());
            assert_eq!(answer.map_err(|error| error.code()), if is_large { Err(429) } else { Ok(200) });
            drop(held);
            let answer = generate.generate(&call).await.map(|answer| answer.status().as_u16());
            assert_eq!(answer.map_err(|error| error.code()), Ok(200));
            assert_eq!(calls.load(Relaxed), 2, "each was rendered once");
        }
    }
}
