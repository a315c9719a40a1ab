//! Runs generators: reads the files that one wants, in the process of its profile.
//!
//! Start at [`Generators::render`].

use std::collections::HashMap;
use std::path::Path;

use prost::Message as _;
use prost::bytes::Bytes;
use stoa_fairness::{FairSemaphore, MaxShare};
use stoa_kcl::VERSION;
use stoa_proto::renderer::{self, Kustomize, Parameter, RenderRequest, RenderResponse, render_request};
use stoa_proto::{HelmOptions, Problem, Source, SourceModule, StoreCredentials, ValueOrigin};
use stoa_runtime_kubernetes::Capabilities;
use stoa_workers::{Pool, StartError, SubprocessStarter};
use tempfile::TempDir;
use tonic::Code;

use super::cached::{Cached, FilesOf, Tools, files_key, is_of_content, key};
use super::generator::{Profile, Provenance, Tool, Values, named};
use super::job::{Answered, Job, Paths, Rendered, answered, decrypted, evaluated};
use super::modules::{self, Call, Modules, Registries};
use super::placeholders::Placeholders;
use super::renderer::Renderer;
use super::warm::{WarmError, WarmWorkers};
use super::{SecretValues, copied_tree, helm, is_auto, kcl, overlays};
use crate::blocking::run_blocking;
use crate::capabilities::TargetCapabilities;
use crate::failure::{Failure, problem, reason};
use crate::source::{self, MemorySlot, SourceFile, Sources, StackFiles, Tree};
use crate::worker;

/// The most renderings of a stack that find more files of SOPS. Each finds those that the decrypted ones name.
const DECRYPTIONS: usize = 50;

/// A stack to render.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) commit: &'a str,
    /// The path of the stack in the source.
    pub(crate) path: &'a str,
    /// The generator's name; empty for `Auto`.
    pub(crate) generator: &'a str,
    pub(crate) values: &'a Values,
    pub(crate) helm: &'a HelmOptions,
    /// What charts are rendered for.
    pub(crate) target: &'a TargetCapabilities,
    /// The credentials of the registries of modules, by the names of these in the Workspace.
    pub(crate) module_credentials: &'a HashMap<String, StoreCredentials>,
}

/// Generators, in processes of their own.
#[derive(Clone, Debug)]
pub(crate) struct Generators {
    /// Workers that open nothing.
    pool: Pool,
    /// Starts workers that read a tree.
    tree_workers: SubprocessStarter,
    /// A slot for each of them.
    tree_slots: FairSemaphore,
    renderer: Renderer,
    /// Workers with KCL's library, if the runner has it.
    kcl: Option<WarmWorkers>,
    /// Modules of Kusion.
    modules: Modules,
    cached: Cached,
}

impl Generators {
    /// As many workers read trees at once.
    pub(crate) fn new(
        pool: Pool,
        tree_workers: SubprocessStarter,
        workers: usize,
        renderer: Renderer,
        modules: Modules,
    ) -> Self {
        let tree_slots = FairSemaphore::new(workers, MaxShare::All);
        Self { pool, tree_workers, tree_slots, renderer, kcl: None, modules, cached: Cached::default() }
    }

    /// Renders programs in KCL in these workers.
    pub(crate) fn with_kcl(self, kcl: Option<WarmWorkers>) -> Self {
        Self { kcl, ..self }
    }

    /// The digests of the programs of a Workspace's modules.
    pub(crate) async fn module_digests(&self, settings: &str) -> Result<String, Failure> {
        if settings.is_empty() {
            return Ok(String::new());
        }
        let (modules, settings) = (self.modules.clone(), settings.to_owned());
        let digests = tokio::task::spawn_blocking(move || modules.digests(&settings)).await;
        digests.map_err(|error| Failure::internal(&error))
    }

    /// The modules of Kusion.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The renderer, which executes templates too.
    pub(crate) fn renderer(&self) -> &Renderer {
        &self.renderer
    }

    /// Ends the idle processes of the renderer.
    pub(crate) fn shut_down(&self) {
        self.renderer.shut_down();
    }

    /// Renders a stack of a commit.
    pub(crate) async fn render(
        &self,
        sources: &Sources,
        source: &Source,
        request: &Request<'_>,
    ) -> Result<Rendered, Failure> {
        if !is_auto(request.generator) && named(request.generator).is_none() {
            return self.rendered(sources, source, request, None).await;
        }
        // Nothing stays of a working copy.
        if source::is_working_copy(source) {
            return self.rendered(sources, source, request, None).await;
        }
        let tools = Tools { renderer: self.renderer.digest().await, has_kcl: self.kcl.is_some() };
        let base = key(source, request, FilesOf::Commit(request.commit), &tools, None);
        // The target of a chart counts, and only that.
        let is_chart = request.generator == helm::NAME || self.cached.is_chart(&base);
        let capabilities = if is_chart { request.target.get().await? } else { None };
        let key_of = |files, capabilities| key(source, request, files, &tools, capabilities);
        let of_commit = key_of(FilesOf::Commit(request.commit), capabilities);
        if let Some(rendered) = self.cached.get(&of_commit) {
            return Ok(rendered);
        }
        // Most commits do not touch a stack.
        let content_id = self.content_id(sources, source, request).await?;
        let of_content = content_id.as_ref().map(|id| key_of(FilesOf::Content(id), capabilities));
        if let Some((content, rendered)) = of_content.and_then(|content| Some((content, self.cached.get(&content)?))) {
            self.cached.same(of_commit, content);
            return Ok(rendered);
        }
        let rendered = self.rendered(sources, source, request, content_id.as_deref()).await?;
        let (mut of_commit, mut of_content) = (of_commit, of_content);
        if rendered.provenance.generator == helm::NAME && !is_chart {
            self.cached.note_chart(base);
            let capabilities = request.target.get().await?;
            of_commit = key_of(FilesOf::Commit(request.commit), capabilities);
            of_content = content_id.as_ref().map(|id| key_of(FilesOf::Content(id), capabilities));
        }
        if !rendered.is_volatile {
            match of_content.filter(|_| is_of_content(&rendered, request.path)) {
                Some(content) => {
                    self.cached.put(content, rendered.clone());
                    self.cached.same(of_commit, content);
                }
                None => self.cached.put(of_commit, rendered.clone()),
            }
        }
        Ok(rendered)
    }

    /// The id of the content of a stack at a commit; nothing if the path does not exist.
    async fn content_id(
        &self,
        sources: &Sources,
        source: &Source,
        request: &Request<'_>,
    ) -> Result<Option<String>, Failure> {
        let values_files = &request.helm.values_files;
        // A stack is rendered for several workspaces.
        let key = files_key(source, FilesOf::Commit(request.commit), request.path, values_files);
        if let Some(id) = self.cached.content(&key) {
            return Ok(Some(id));
        }
        match sources.content(source, request.commit, request.path, values_files.clone()).await {
            Ok(id) => {
                self.cached.note_content(key, &id);
                Ok(Some(id))
            }
            // A generator says it with its own words.
            Err(failure) if failure.code() == Code::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn rendered(
        &self,
        sources: &Sources,
        source: &Source,
        request: &Request<'_>,
        content_id: Option<&str>,
    ) -> Result<Rendered, Failure> {
        let profile = |name: &str| named(name).map_or(Profile::Nothing, |generator| generator.profile());
        let mut name = request.generator.to_owned();
        // Files that were read once need not be read again to detect their generator.
        let of_content = content_id.map(|id| files_key(source, FilesOf::Content(id), request.path, &[]));
        if is_auto(&name)
            && let Some(detected) = of_content.and_then(|key| self.cached.detected(&key))
        {
            name = detected;
        }
        if profile(&name) == Profile::Nothing {
            let content = sources.read_in_turn(source, request.commit, request.path).await?;
            match self.render_content(request, content).await? {
                Answered::Rendered(rendered) => return Ok(rendered),
                Answered::Detected(detected) => {
                    if let Some(key) = of_content {
                        self.cached.note_detected(key, &detected);
                    }
                    name = detected;
                }
                Answered::Incomplete(..) => return Err(Failure::internal(&"a generator without a tree calls modules")),
            }
        }
        if profile(&name) == Profile::Kcl && self.kcl.is_none() {
            return Err(without_library());
        }
        let tree = sources.tree(source, request.commit).await?;
        match profile(&name) {
            Profile::Nothing => Err(Failure::internal(&"a generator without a tree was detected")),
            Profile::Tree => self.render_tree(&name, request, &tree).await,
            Profile::Kcl => self.render_kcl(&name, request, &tree, sources).await,
            Profile::Renderer(tool) => self.render_documents(&name, tool, request, &tree).await,
        }
    }

    /// Renders a tree to documents, and has a worker read them.
    async fn render_documents(
        &self,
        name: &str,
        tool: Tool,
        request: &Request<'_>,
        tree: &Tree,
    ) -> Result<Rendered, Failure> {
        let path = source::normalized(request.path)?;
        let organization = &request.values.organization;
        let capabilities = if tool == Tool::Helm { request.target.get().await? } else { None };
        let mut wanted = RenderRequest {
            tree: tree.root().to_string_lossy().into_owned(),
            path: path.clone(),
            report_encrypted: !request.values.age_keys.is_empty(),
            replaced: Vec::new(),
            tool: Some(match tool {
                Tool::Kustomize => render_request::Tool::Kustomize(Kustomize { values: flat(request.values) }),
                Tool::Helm => render_request::Tool::Helm(release(request, capabilities)),
            }),
            max_bytes: u32::try_from(self.pool.limits().answer).unwrap_or(u32::MAX),
        };
        let (mut secrets, mut renderings) = (Vec::new(), 0);
        let RenderResponse {
            documents,
            warnings,
            problems,
            version,
            files,
            volatile,
            takes_values,
            origins,
            subcharts,
            encrypted: _,
        } = loop {
            // Only a rendering shows which files the tool reads.
            let response = self.renderer.render(tree.organization(), name, wanted.clone()).await?;
            if response.encrypted.is_empty() {
                break response;
            }
            renderings += 1;
            if renderings > DECRYPTIONS {
                let message = format!(
                    "decrypted files name other encrypted ones more than {DECRYPTIONS} times in a row; name all in one file"
                );
                let wrong = Problem { file: path, ..problem(reason::TOO_LARGE, message) };
                return Err(Failure::invalid(vec![wrong]));
            }
            let encrypted = response.encrypted.into_iter().map(source_file).collect();
            let (files, found) = self.decrypt(request.values, encrypted).await?;
            wanted.replaced.extend(files.into_iter().map(renderer_file));
            secrets.extend(found);
        };
        let (secrets, texts) = with_texts(secrets).await?;
        if !problems.is_empty() {
            let problems = problems.into_iter().map(in_source).collect();
            return Err(Failure::invalid(texts.redacted_all(problems)));
        }
        let warnings: Vec<String> = warnings.iter().map(|warning| texts.redact(warning)).collect();
        let job = Job::of_documents(name, request.values, documents, &path).with_values_read(takes_values);
        let job = job.with_secrets(secrets);
        let job = beside(job, request, tree, &path)?;
        let Answered::Rendered(mut rendered) = self.work(organization, job).await? else {
            return Err(Failure::internal(&"a generator that is named detects nothing"));
        };
        rendered.warnings.splice(0..0, warnings);
        rendered.warnings.extend(request.target.warning().filter(|_| tool == Tool::Helm).map(str::to_owned));
        let origins = origins.into_iter().map(origin).collect();
        let modules = subcharts.into_iter().map(module).collect();
        let mut files: Vec<String> = files.into_iter().chain(rendered.provenance.files).collect();
        files.sort_unstable();
        // A tool may read files of the overlay itself.
        files.dedup();
        let generator = rendered.provenance.generator;
        let kubernetes = match tool {
            Tool::Helm => capabilities.map_or_else(|| DEFAULT_KUBERNETES.to_owned(), |it| it.version.clone()),
            Tool::Kustomize => String::new(),
        };
        rendered.provenance = Provenance { generator, version, files, origins, modules, kubernetes };
        rendered.is_volatile = volatile;
        Ok(rendered)
    }

    /// Decrypts files of SOPS in the pool. Returns them with the values in them.
    async fn decrypt(
        &self,
        values: &Values,
        files: Vec<SourceFile>,
    ) -> Result<(Vec<SourceFile>, Vec<stoa_proto::Value>), Failure> {
        let job = Job::of_encrypted(values, files);
        let bytes = Bytes::from(job.encode_to_vec());
        let paths = Paths::of(job);
        let explain = |failed| paths.explain(failed, self.pool.limits());
        decrypted(self.pool.submit(&values.organization, bytes).map_err(explain)?.answer().await.map_err(explain)?)
    }

    /// A copy of a tree with its files of SOPS decrypted, and with the packages of registered modules, and the values in these files;
    /// nothing if there are none of both.
    async fn copied_tree(
        &self,
        workers: &WarmWorkers,
        request: &Request<'_>,
        tree: &Tree,
        registries: &Registries<'_>,
    ) -> Result<Option<(TempDir, Vec<stoa_proto::Value>)>, Failure> {
        let values = request.values;
        let added = modules::packages(registries, &values.modules).await?;
        let found = if values.age_keys.is_empty() {
            Vec::new()
        } else {
            let of_search = tree.clone();
            run_blocking(async move { copied_tree::encrypted_in(of_search.root()) }).await?
        };
        if found.is_empty() && added.is_empty() {
            return Ok(None);
        }
        let (files, secrets) = if found.is_empty() { Default::default() } else { self.decrypt(values, found).await? };
        let (of_copy, temporary) = (tree.clone(), workers.temporary().to_owned());
        let copy = run_blocking(async move { copied_tree::copy(of_copy.root(), &files, &added, &temporary) }).await?;
        Ok(Some((copy, secrets)))
    }

    /// Runs a built-in function of a package in the pool.
    pub(crate) async fn evaluate(
        &self,
        organization: &str,
        image: String,
        resource_list: Bytes,
    ) -> Result<Bytes, Failure> {
        self.function(organization, Job::of_function(image, resource_list)).await
    }

    /// Reads the answer of a function that failed elsewhere, in the pool. The result is its failure.
    pub(crate) async fn failed_function(
        &self,
        image: String,
        answer: Bytes,
        stderr: String,
        exit_code: i32,
    ) -> Result<Bytes, Failure> {
        self.function("", Job::of_failed_function(image, answer, stderr, exit_code)).await
    }

    async fn function(&self, organization: &str, job: Job) -> Result<Bytes, Failure> {
        let bytes = Bytes::from(job.encode_to_vec());
        let paths = Paths::of(job);
        let explain = |failed| paths.explain(failed, self.pool.limits());
        evaluated(self.pool.submit(organization, bytes).map_err(explain)?.answer().await.map_err(explain)?)
    }

    /// Does a job in the pool.
    async fn work(&self, organization: &str, job: Job) -> Result<Answered, Failure> {
        let bytes = Bytes::from(job.encode_to_vec());
        let paths = Paths::of(job);
        let explain = |failed| paths.explain(failed, self.pool.limits());
        answered(self.pool.submit(organization, bytes).map_err(explain)?.answer().await.map_err(explain)?)
    }

    /// Runs a generator in the pool. From here on the content counts as a waiting job, and frees its memory slot for the next content.
    async fn render_content(
        &self,
        request: &Request<'_>,
        (files, slot): (StackFiles, MemorySlot),
    ) -> Result<Answered, Failure> {
        let job = Job::of_content(request.generator, request.values, files);
        let bytes = Bytes::from(job.encode_to_vec());
        let paths = Paths::of(job);
        let explain = |failed| paths.explain(failed, self.pool.limits());
        let pending = self.pool.submit(&request.values.organization, bytes).map_err(explain)?;
        drop(slot);
        answered(pending.answer().await.map_err(explain)?)
    }

    /// Runs a generator in a process that reads a tree, and ends with the job.
    async fn render_tree(&self, name: &str, request: &Request<'_>, tree: &Tree) -> Result<Rendered, Failure> {
        let path = source::normalized(request.path)?;
        let job = beside(Job::of_tree(name, request.values, tree.root(), &path), request, tree, &path)?;
        let _slot = self.tree_slots.acquire(&request.values.organization, 1).await;
        let mut worker = self.start_tree_worker(tree.root()).await?;
        let done = worker.work(&job.encode_to_vec(), None).await;
        worker.end().await;
        let answer = done.map_err(|failed| Paths::of(job).explain(failed, self.tree_workers.limits()))?;
        match answered(answer)? {
            Answered::Rendered(rendered) => Ok(rendered),
            Answered::Detected(_) | Answered::Incomplete(..) => {
                Err(Failure::internal(&"a tree is rendered in one job"))
            }
        }
    }

    /// Runs a generator in a warm process that reads a tree.
    async fn render_kcl(
        &self,
        name: &str,
        request: &Request<'_>,
        tree: &Tree,
        sources: &Sources,
    ) -> Result<Rendered, Failure> {
        let workers = self.kcl.as_ref().ok_or_else(without_library)?;
        let path = source::normalized(request.path)?;
        let organization = &request.values.organization;
        let registries = Registries { sources, credentials: request.module_credentials };
        let copied = self.copied_tree(workers, request, tree, &registries).await?;
        let root = copied.as_ref().map_or(tree.root(), |(copy, _)| copy.path());
        let secrets = copied.as_ref().map(|(_, secrets)| secrets.clone()).unwrap_or_default();
        let job = beside(Job::of_tree(name, request.values, root, &path), request, tree, &path)?;
        let (secrets, texts) = with_texts(secrets).await?;
        let job = job.with_secrets(secrets.clone());
        let done = match &copied {
            Some((copy, _)) => workers.work_once(organization, copy.path(), &job.encode_to_vec()).await,
            None => workers.work(organization, tree, &job.encode_to_vec()).await,
        };
        if let Some((copy, _)) = copied {
            // It has as many files as the tree.
            tokio::task::spawn_blocking(move || drop(copy));
        }
        let answer = done.map_err(|error| match error {
            WarmError::Start(error) => not_started(&error),
            WarmError::Sandbox(mechanism) => {
                let message = format!(
                    "the kernel denies {mechanism}, without which no program in KCL runs; use Linux 5.13 or later, and permit it in \
                     the container"
                );
                Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message)
            }
            WarmError::Job(failed) => {
                let died = kcl::died(&failed, &path).map(|failure| texts.redacted_failure(failure));
                died.unwrap_or_else(|| Paths::of(job).explain(failed, workers.limits()))
            }
        })?;
        match answered(answer)? {
            Answered::Rendered(rendered) => Ok(rendered),
            Answered::Incomplete(rendered, calls) => {
                let complete = self.complete(request, (tree, &path), (rendered, calls), &registries, secrets);
                // A module may quote what it got.
                Box::pin(complete).await.map_err(|failure| texts.redacted_failure(failure))
            }
            Answered::Detected(_) => Err(Failure::internal(&"a generator that is named detects nothing")),
        }
    }

    /// Calls the modules whose resources a Spec of a path lacks, and adds these. The overlay of the workspace changes them, too.
    async fn complete(
        &self,
        request: &Request<'_>,
        (tree, path): (&Tree, &str),
        (rendered, calls): (Rendered, Vec<Call>),
        registries: &Registries<'_>,
        secrets: Vec<stoa_proto::Value>,
    ) -> Result<Rendered, Failure> {
        let organization = &request.values.organization;
        let responses = self.modules.call_all(organization, &calls, registries).await?;
        let mut versions: Vec<String> = calls.iter().map(Call::versioned).collect();
        versions.sort_unstable();
        versions.dedup();
        let job = Job::of_modules(request.values, rendered.spec, (calls, responses), path);
        let job = beside(job, request, tree, path)?.with_secrets(secrets);
        let Answered::Rendered(merged) = self.work(organization, job).await? else {
            return Err(Failure::internal(&"a job about modules calls others"));
        };
        let version = format!("{}, modules {}", rendered.provenance.version, versions.join(", "));
        Ok(Rendered {
            spec: merged.spec,
            warnings: [rendered.warnings, merged.warnings].concat(),
            provenance: Provenance { version, ..rendered.provenance },
            is_volatile: rendered.is_volatile,
        })
    }

    async fn start_tree_worker(&self, root: &Path) -> Result<stoa_workers::Subprocess, Failure> {
        self.tree_workers.start(worker::more_for_tree(root)).await.map_err(|error| not_started(&error))
    }
}

/// Decrypted values, and their texts for messages. A repository may have many, so another thread finds them.
async fn with_texts(secrets: Vec<stoa_proto::Value>) -> Result<(Vec<stoa_proto::Value>, SecretValues), Failure> {
    if secrets.is_empty() {
        return Ok((secrets, SecretValues::default()));
    }
    run_blocking(async move {
        let texts = SecretValues::of(&secrets);
        Ok((secrets, texts))
    })
    .await
}

/// A job with the files of the tree that count beside those of its generator: the lock file, and the overlay of the workspace.
fn beside(job: Job, request: &Request<'_>, tree: &Tree, path: &str) -> Result<Job, Failure> {
    let overlay = match overlays::folder_of(path, &request.values.workspace) {
        Some(folder) => source::files_of_folder(tree.root(), path, &folder)?,
        None => Vec::new(),
    };
    Ok(job.with_lock(source::lock_of_folder(tree.root(), path)?).with_overlay(overlay))
}

fn not_started(error: &StartError) -> Failure {
    tracing::error!(error = error as &dyn std::error::Error, "the process for a tree did not start");
    let message = "the function-runner cannot start a process to render the stack; try again";
    Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
}

/// The runner renders no programs in KCL.
fn without_library() -> Failure {
    let message = format!(
        "generator KCL needs KCL's library, which this function-runner lacks; download the Python package kcl_lib {VERSION}, and start \
         function-runner with --kcl-library"
    );
    Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message)
}

fn source_file(file: renderer::File) -> SourceFile {
    SourceFile { path: file.path, bytes: file.content.into() }
}

fn renderer_file(file: SourceFile) -> renderer::File {
    renderer::File { path: file.path, content: file.bytes.into() }
}

/// All values and parameters as texts, sorted.
fn flat(values: &Values) -> Vec<Parameter> {
    let flat = Placeholders::of(values).flat();
    flat.into_iter().map(|(name, value)| Parameter { name, value }).collect()
}

/// The version of Kubernetes that the renderer assumes for charts without a target.
const DEFAULT_KUBERNETES: &str = "v1.35.0";

/// The release of a chart. Parameters are sorted.
fn release(request: &Request<'_>, capabilities: Option<&Capabilities>) -> renderer::Helm {
    let Request { values, helm, .. } = request;
    let sorted = |map: &HashMap<String, String>| {
        let mut all: Vec<Parameter> =
            map.iter().map(|(name, value)| Parameter { name: name.clone(), value: value.clone() }).collect();
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    };
    let or = |given: &String, otherwise: &str| if given.is_empty() { otherwise.to_owned() } else { given.clone() };
    renderer::Helm {
        release_name: or(&helm.release_name, &format!("{}-{}", values.project, values.stack)),
        namespace: or(&helm.namespace, "default"),
        values_files: helm.values_files.clone(),
        parameters: sorted(&values.parameters),
        values: values.platform.iter().map(platform_value).collect(),
        kube_version: capabilities.map(|it| it.version.clone()).unwrap_or_default(),
        api_versions: capabilities.map(|it| it.apis.clone()).unwrap_or_default(),
    }
}

fn platform_value(value: &stoa_proto::Value) -> renderer::Value {
    let stoa_proto::Value { name, json, origin, is_final, .. } = value.clone();
    renderer::Value { name, json, origin, is_final }
}

/// A file that sets a value of a chart. One that the stack names is stronger than the platform.
fn origin(found: renderer::Origin) -> ValueOrigin {
    let renderer::Origin { name, subchart, file, line, is_default } = found;
    let kind = match (subchart.is_empty(), is_default) {
        (false, _) => "Module",
        (true, true) => "Default",
        (true, false) => "File",
    };
    ValueOrigin { name, kind: kind.to_owned(), file, line, is_stronger: !is_default }
}

fn module(found: renderer::Subchart) -> SourceModule {
    let renderer::Subchart { name, version, path } = found;
    SourceModule { name, version, path }
}

/// A problem of the renderer.
fn in_source(found: renderer::Problem) -> Problem {
    let renderer::Problem { file, line, message, too_large } = found;
    let reason = if too_large { reason::TOO_LARGE } else { reason::NOT_RENDERED };
    Problem { file, line, ..problem(reason, message) }
}
