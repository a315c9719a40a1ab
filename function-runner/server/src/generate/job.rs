//! The jobs of generators and their answers, between this process and its workers.
//!
//! Both ends are one binary, so the messages need no versions.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use prost::Message as _;
use prost::bytes::Bytes;
use stoa_engine::bounds::check_spec_size;
use stoa_engine::digest::canonical_json;
use stoa_kusion_module::proto::GeneratorResponse;
use stoa_packages::Limits as PackageLimits;
use stoa_packages::evaluate::{EvaluateError, evaluate, failure_message};
use stoa_proto::renderer::Document;
use stoa_proto::{Problem, Value};
use stoa_workers::worker::Progress;
use stoa_workers::{Failed, Fault, Limits};
use tonic::Code;

use super::generator::{Files, Generated, Input, Provenance, Values};
use super::modules::{self, Call};
use super::placeholders::Placeholders;
use super::{Outcome, SecretValues, generate, lock, overlays, sops};
use crate::failure::{Failure, problem, reason, size};
use crate::source::{self, Content, LockFile, SourceFile, StackFiles};

/// A worker reports only larger files to the pool, in bytes: reporting a small file takes longer than reading it.
const REPORTED: usize = 64 << 10;

/// The files of a stack, and the name of the generator.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Job {
    #[prost(string, tag = "1")]
    generator: String,
    #[prost(message, optional, tag = "3")]
    values: Option<Values>,
    #[prost(oneof = "JobFiles", tags = "2, 4, 5, 7, 10, 11")]
    files: Option<JobFiles>,
    /// The lock file of Terraform's providers, beside a tree or documents; content has its own.
    #[prost(message, optional, tag = "6")]
    lock: Option<source::Lock>,
    /// The overlay of the workspace, beside a tree, documents or the answers of modules; content has its own.
    #[prost(message, repeated, tag = "9")]
    overlay: Vec<source::File>,
    /// Whether the renderer gave all values to the files.
    #[prost(bool, tag = "8")]
    values_read: bool,
    /// The values of files that were decrypted for a tool.
    #[prost(message, repeated, tag = "12")]
    secrets: Vec<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum JobFiles {
    #[prost(message, tag = "2")]
    Content(source::Files),
    #[prost(message, tag = "4")]
    Tree(JobTree),
    #[prost(message, tag = "5")]
    Documents(JobDocuments),
    #[prost(message, tag = "7")]
    Modules(JobModules),
    #[prost(message, tag = "10")]
    Function(JobFunction),
    #[prost(message, tag = "11")]
    Encrypted(JobEncrypted),
}

/// Files of SOPS to decrypt.
#[derive(Clone, PartialEq, prost::Message)]
struct JobEncrypted {
    #[prost(message, repeated, tag = "1")]
    files: Vec<source::File>,
}

/// A function of a package, and its input.
#[derive(Clone, PartialEq, prost::Message)]
struct JobFunction {
    #[prost(string, tag = "1")]
    image: String,
    #[prost(bytes = "bytes", tag = "2")]
    resource_list: Bytes,
    /// The end of a function that failed elsewhere; the list is its answer.
    #[prost(message, optional, tag = "3")]
    failed: Option<FailedFunction>,
}

/// The end of a function that failed.
#[derive(Clone, PartialEq, prost::Message)]
struct FailedFunction {
    #[prost(string, tag = "1")]
    stderr: String,
    #[prost(int32, tag = "2")]
    exit_code: i32,
}

/// A Spec without the resources of modules, and the answers of these.
#[derive(Clone, PartialEq, prost::Message)]
struct JobModules {
    #[prost(bytes = "bytes", tag = "1")]
    spec: Bytes,
    #[prost(message, repeated, tag = "2")]
    calls: Vec<Call>,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<GeneratorResponse>,
    #[prost(string, tag = "4")]
    path: String,
}

/// The output of the renderer.
#[derive(Clone, PartialEq, prost::Message)]
struct JobDocuments {
    #[prost(message, repeated, tag = "1")]
    documents: Vec<Document>,
    #[prost(string, tag = "2")]
    path: String,
}

/// A tree that the process may read.
#[derive(Clone, PartialEq, prost::Message)]
struct JobTree {
    #[prost(bytes = "vec", tag = "1")]
    root: Vec<u8>,
    #[prost(string, tag = "2")]
    path: String,
}

/// A Spec, the name of a generator for other files, or with another code than 0 all problems.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, repeated, tag = "2")]
    problems: Vec<Problem>,
    #[prost(bytes = "bytes", tag = "3")]
    spec: Bytes,
    #[prost(string, repeated, tag = "4")]
    warnings: Vec<String>,
    #[prost(message, optional, tag = "5")]
    provenance: Option<Provenance>,
    #[prost(string, tag = "6")]
    detected: String,
    #[prost(message, repeated, tag = "7")]
    calls: Vec<Call>,
    #[prost(bool, tag = "8")]
    is_volatile: bool,
    /// The output of a function.
    #[prost(bytes = "bytes", tag = "9")]
    resource_list: Bytes,
    /// Decrypted files.
    #[prost(message, repeated, tag = "10")]
    files: Vec<source::File>,
    /// The values of decrypted files.
    #[prost(message, repeated, tag = "11")]
    secrets: Vec<Value>,
}

/// The result of a generator in a worker.
#[derive(Clone, Debug)]
pub(crate) struct Rendered {
    /// The Spec in canonical JSON.
    pub(crate) spec: Bytes,
    pub(crate) warnings: Vec<String>,
    pub(crate) provenance: Provenance,
    /// Whether another rendering of the same input gives another Spec.
    pub(crate) is_volatile: bool,
}

/// The answer of a worker.
#[derive(Debug)]
pub(super) enum Answered {
    Rendered(Rendered),
    /// `Auto` detected this generator, which needs other files or another process.
    Detected(String),
    /// The Spec lacks the resources of modules, which are called.
    Incomplete(Rendered, Vec<Call>),
}

/// Does a job in a worker.
pub(crate) fn work(job: Vec<u8>, progress: &Progress) -> Vec<u8> {
    // The decoded job has a copy of the files.
    let decoded = Job::decode(job.as_slice());
    drop(job);
    let answer = match decoded {
        Ok(job) => {
            #[cfg(debug_assertions)]
            if let Some(warnings) = super::testing::run(&job.generator) {
                return Answer { warnings, ..Answer::default() }.encode_to_vec();
            }
            job.answer(progress)
        }
        Err(err) => Answer::from(Failure::internal(&err)),
    };
    answer.encode_to_vec()
}

impl Job {
    /// A job about the content of a path.
    pub(super) fn of_content(generator: &str, values: &Values, files: StackFiles) -> Self {
        Self::new(generator, values, JobFiles::Content(files.into()))
    }

    /// A job about a path of a tree.
    pub(super) fn of_tree(generator: &str, values: &Values, root: &Path, path: &str) -> Self {
        let tree = JobTree { root: root.as_os_str().as_bytes().to_vec(), path: path.to_owned() };
        Self::new(generator, values, JobFiles::Tree(tree))
    }

    /// A job about what the renderer made of a path.
    pub(super) fn of_documents(generator: &str, values: &Values, documents: Vec<Document>, path: &str) -> Self {
        Self::new(generator, values, JobFiles::Documents(JobDocuments { documents, path: path.to_owned() }))
    }

    /// A job about a Spec of a path, and the answers to calls of modules.
    pub(super) fn of_modules(
        values: &Values,
        spec: Bytes,
        (calls, responses): (Vec<Call>, Vec<GeneratorResponse>),
        path: &str,
    ) -> Self {
        let modules = JobModules { spec, calls, responses, path: path.to_owned() };
        Self::new("", values, JobFiles::Modules(modules))
    }

    fn new(generator: &str, values: &Values, files: JobFiles) -> Self {
        Self { generator: generator.to_owned(), values: Some(values.clone()), files: Some(files), ..Self::default() }
    }

    /// Decrypts files of SOPS.
    pub(super) fn of_encrypted(values: &Values, files: Vec<SourceFile>) -> Self {
        let files = files.into_iter().map(Into::into).collect();
        Self::new("", values, JobFiles::Encrypted(JobEncrypted { files }))
    }

    /// The job about a tool's output or a tree, for which files with these values were decrypted.
    pub(super) fn with_secrets(self, secrets: Vec<Value>) -> Self {
        Self { secrets, ..self }
    }

    /// The job with a lock file of providers.
    pub(super) fn with_lock(self, lock: Option<LockFile>) -> Self {
        Self { lock: lock.map(Into::into), ..self }
    }

    /// The job with the overlay of the workspace.
    pub(super) fn with_overlay(self, overlay: Vec<SourceFile>) -> Self {
        Self { overlay: overlay.into_iter().map(Into::into).collect(), ..self }
    }

    /// Runs a built-in function.
    pub(super) fn of_function(image: String, resource_list: Bytes) -> Self {
        Self { files: Some(JobFiles::Function(JobFunction { image, resource_list, failed: None })), ..Self::default() }
    }

    /// Reads the answer of a function that failed.
    pub(super) fn of_failed_function(image: String, resource_list: Bytes, stderr: String, exit_code: i32) -> Self {
        let failed = Some(FailedFunction { stderr, exit_code });
        Self { files: Some(JobFiles::Function(JobFunction { image, resource_list, failed })), ..Self::default() }
    }

    /// The job about documents for which the renderer gave all values to the files, or did not.
    pub(super) fn with_values_read(self, values_read: bool) -> Self {
        Self { values_read, ..self }
    }

    fn answer(self, progress: &Progress) -> Answer {
        let values = self.values.unwrap_or_default();
        let lock = self.lock.and_then(source::Lock::into_file);
        let mut overlay: Vec<SourceFile> = self.overlay.into_iter().map(SourceFile::from).collect();
        let mut secrets = self.secrets;
        match sops::decrypt_all(&mut overlay, &values) {
            Ok(found) => secrets.extend(found),
            Err(failure) => return failure.into(),
        }
        let secrets = SecretValues::of(&secrets);
        let placeholders = Placeholders::of(&values);
        let input = |files, at| Input {
            files,
            overlay: &overlay,
            values: &values,
            placeholders: &placeholders,
            values_read: self.values_read,
            at,
        };
        match self.files {
            Some(JobFiles::Content(files)) => {
                let StackFiles { content, lock } = files.into();
                let (content, of_content) = match sops::decrypted(content, &values) {
                    Ok(decrypted) => decrypted,
                    Err(failure) => return failure.into(),
                };
                let files = content.files();
                let was_reported = Cell::new(false);
                let at = |file: Option<usize>| {
                    let file = file.filter(|file| files.get(*file).is_some_and(|file| file.bytes.len() >= REPORTED));
                    if file.is_some() || was_reported.get() {
                        progress.at(file.and_then(|file| file.try_into().ok()));
                    }
                    was_reported.set(file.is_some());
                };
                let path = match &content {
                    Content::Folder { path, .. } => path,
                    Content::File(file) => &file.path,
                };
                Answer::of(&self.generator, &input(Files::Content(&content), &at), lock.as_ref(), path)
                    .protected(&of_content)
            }
            Some(JobFiles::Tree(JobTree { root, path })) => {
                let files = Files::Tree { root: Path::new(OsStr::from_bytes(&root)), path: &path };
                Answer::of(&self.generator, &input(files, &|_| {}), lock.as_ref(), &path).protected(&secrets)
            }
            Some(JobFiles::Documents(JobDocuments { documents, path })) => {
                let files = Files::Documents(&documents);
                Answer::of(&self.generator, &input(files, &|_| {}), lock.as_ref(), &path).protected(&secrets)
            }
            Some(JobFiles::Modules(JobModules { spec, calls, responses, path })) => {
                let merged = modules::merge(&spec, &calls, &responses);
                merged
                    .and_then(|generated| overlays::changed(generated, &overlay, &placeholders))
                    .and_then(|generated| Answer::rendered(generated, lock.as_ref(), &path))
                    .unwrap_or_else(Answer::from)
                    .protected(&secrets)
            }
            Some(JobFiles::Encrypted(JobEncrypted { files })) => {
                let mut files: Vec<SourceFile> = files.into_iter().map(SourceFile::from).collect();
                match sops::decrypt_all(&mut files, &values) {
                    Ok(secrets) => {
                        Answer { files: files.into_iter().map(Into::into).collect(), secrets, ..Answer::default() }
                    }
                    Err(failure) => failure.into(),
                }
            }
            Some(JobFiles::Function(function)) => function.answer(),
            None => Failure::internal(&"a job has files").into(),
        }
    }
}

impl JobFunction {
    fn answer(self) -> Answer {
        if let Some(FailedFunction { stderr, exit_code }) = self.failed {
            let message = failure_message(&self.image, &self.resource_list, &stderr, exit_code);
            return Failure::new(Code::FailedPrecondition, reason::FUNCTION_FAILED, message).into();
        }
        let failed = |code, reason, err: &EvaluateError| Answer::from(Failure::new(code, reason, with_causes(err)));
        match evaluate(&self.image, &self.resource_list, &PackageLimits::default()) {
            Ok(evaluated) => Answer { resource_list: evaluated.resource_list.into(), ..Answer::default() },
            Err(err @ EvaluateError::Unknown(_)) => failed(Code::NotFound, reason::UNKNOWN_FUNCTION, &err),
            Err(err @ EvaluateError::List(..)) => failed(Code::InvalidArgument, reason::MALFORMED_YAML, &err),
            Err(err @ EvaluateError::Failed { .. }) => failed(Code::FailedPrecondition, reason::FUNCTION_FAILED, &err),
        }
    }
}

/// An error with its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}

impl Answer {
    fn of(generator: &str, input: &Input<'_>, lock: Option<&LockFile>, path: &str) -> Self {
        let outcome = generate(generator, input).and_then(|outcome| match outcome {
            Outcome::Detected(detected) => Ok(Self { detected: detected.to_owned(), ..Self::default() }),
            Outcome::Rendered(generated) => Self::rendered(*generated, lock, path),
        });
        outcome.unwrap_or_else(Self::from)
    }

    /// The answer with the values of decrypted files declared and hidden.
    fn protected(self, secrets: &SecretValues) -> Self {
        if secrets.is_empty() {
            return self;
        }
        let problems = secrets.redacted_all(self.problems);
        let warnings = self.warnings.iter().map(|warning| secrets.redact(warning)).collect();
        if self.spec.is_empty() {
            return Self { problems, warnings, ..self };
        }
        match secrets.declared(&self.spec) {
            Ok(spec) => Self { spec, problems, warnings, ..self },
            Err(failure) => failure.into(),
        }
    }

    fn rendered(generated: Generated, lock: Option<&LockFile>, path: &str) -> Result<Self, Failure> {
        let Generated { mut spec, warnings, provenance, calls, is_volatile } = generated;
        lock::record(&mut spec, lock)?;
        let spec = bounded(canonical_json(&spec), path)?;
        Ok(Self { spec, warnings, provenance: Some(provenance), calls, is_volatile, ..Self::default() })
    }
}

/// Decodes the answer to a job about a function.
pub(super) fn evaluated(answer: Bytes) -> Result<Bytes, Failure> {
    let Answer { code, problems, resource_list, .. } = Answer::decode(answer).map_err(|err| Failure::internal(&err))?;
    if code == 0 { Ok(resource_list) } else { Err(Failure::of(Code::from_i32(code), problems)) }
}

/// Decodes the answer to a job about encrypted files: the decrypted files, and the values in them.
pub(super) fn decrypted(answer: Bytes) -> Result<(Vec<SourceFile>, Vec<Value>), Failure> {
    let Answer { code, problems, files, secrets, .. } =
        Answer::decode(answer).map_err(|err| Failure::internal(&err))?;
    if code == 0 {
        Ok((files.into_iter().map(SourceFile::from).collect(), secrets))
    } else {
        Err(Failure::of(Code::from_i32(code), problems))
    }
}

/// Decodes the answer to a job.
pub(super) fn answered(answer: Bytes) -> Result<Answered, Failure> {
    let answer = Answer::decode(answer).map_err(|err| Failure::internal(&err))?;
    if answer.code != 0 {
        return Err(Failure::of(Code::from_i32(answer.code), answer.problems));
    }
    if !answer.detected.is_empty() {
        return Ok(Answered::Detected(answer.detected));
    }
    let Answer { spec, warnings, provenance, calls, is_volatile, .. } = answer;
    let rendered = Rendered { spec, warnings, provenance: provenance.unwrap_or_default(), is_volatile };
    Ok(if calls.is_empty() { Answered::Rendered(rendered) } else { Answered::Incomplete(rendered, calls) })
}

/// Checks the size of a Spec in JSON, which was rendered from a path.
fn bounded(spec: Vec<u8>, place: &str) -> Result<Bytes, Failure> {
    match check_spec_size(spec.len()) {
        Ok(()) => Ok(spec.into()),
        Err(err) => {
            let file = place.to_owned();
            Err(Failure::invalid(vec![Problem { file, ..problem(reason::TOO_LARGE, err.to_string()) }]))
        }
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        let (code, problems) = failure.into_parts();
        Self { code: code.into(), problems, ..Self::default() }
    }
}

/// The paths of a job's files, for problems after its content was sent.
pub(super) struct Paths {
    folder: Option<String>,
    files: Vec<String>,
}

impl Paths {
    pub(super) fn of(job: Job) -> Self {
        match job.files {
            Some(JobFiles::Content(source::Files { files, folder, .. })) => {
                let files = files.into_iter().map(|file| file.path).collect();
                Self { folder: folder.map(|folder| folder.path), files }
            }
            Some(
                JobFiles::Tree(JobTree { path, .. })
                | JobFiles::Documents(JobDocuments { path, .. })
                | JobFiles::Modules(JobModules { path, .. }),
            ) => Self { folder: Some(path), files: Vec::new() },
            Some(JobFiles::Encrypted(JobEncrypted { files })) => {
                Self { folder: None, files: files.into_iter().map(|file| file.path).collect() }
            }
            Some(JobFiles::Function(_)) | None => Self { folder: None, files: Vec::new() },
        }
    }

    /// The failure of a job that has no answer.
    pub(super) fn explain(&self, failed: Failed, limits: &Limits) -> Failure {
        let Failed { fault, at, .. } = failed;
        let of_source = |reason, message: String| {
            let part = at.and_then(|at| self.files.get(at as usize));
            let file = part.or(self.folder.as_ref()).or(self.files.first()).cloned().unwrap_or_default();
            Failure::invalid(vec![Problem { file, ..problem(reason, message) }])
        };
        match fault {
            Fault::Memory => of_source(
                reason::TOO_LARGE,
                format!("rendering took more than {} of memory; split the stack", size(limits.memory)),
            ),
            Fault::Processor => {
                let seconds = limits.processor.as_secs();
                of_source(
                    reason::TOOK_TOO_LONG,
                    format!("rendering took more than {seconds} s of CPU time; split the stack"),
                )
            }
            Fault::Time => of_source(
                reason::TOOK_TOO_LONG,
                format!("rendering took more than {} s; split the stack", limits.time.as_secs()),
            ),
            Fault::Answer => {
                let most = size(limits.answer.try_into().unwrap_or(u64::MAX));
                of_source(reason::TOO_LARGE, format!("renders to a Spec of more than {most}; split the stack"))
            }
            Fault::Busy => {
                Failure::new(Code::ResourceExhausted, reason::BUSY, "too many jobs wait for a worker; retry later")
            }
            Fault::Killed(signal) => {
                let message = format!("a worker was killed by signal {signal}; try again");
                Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
            }
            Fault::NoWorker(why) => {
                tracing::error!(why, "there is no worker");
                Failure::new(
                    Code::Unavailable,
                    reason::UNAVAILABLE,
                    "the function-runner cannot start a worker; retry later",
                )
            }
            Fault::Closed => crate::apply::draining(),
            Fault::Panicked(place) => Failure::internal(&format!("a worker panicked at {place}")),
            Fault::Died(how) => Failure::internal(&format!("a worker died: {how}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stoa_engine::bounds::LARGEST_SPEC;

    use super::*;
    use crate::source::SourceFile;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn job_encodes_content_and_answer_encodes_spec() {
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let folder = Content::Folder {
            path: "s".to_owned(),
            files: vec![file("s/a.yaml", object)],
            others: vec!["README".to_owned()],
            warnings: vec!["s/b: symbolic links are not followed".to_owned()],
        };
        for content in [folder, Content::File(file("a.yaml", object))] {
            let job = Job::of_content("Auto", &Values::default(), content.clone().into());
            let answer = Bytes::from(work(job.encode_to_vec(), &Progress::unheard()));
            let Answered::Rendered(rendered) = answered(answer).unwrap() else { panic!("no Spec") };
            let expected = super::super::tests::generate("Auto", &content).unwrap();
            assert_eq!(rendered.warnings, expected.warnings);
            assert_eq!(rendered.spec, canonical_json(&expected.spec));
            assert_eq!(rendered.provenance.generator, "Manifests");
        }
    }

    #[test]
    fn oversized_spec_names_its_folder() {
        assert_eq!(bounded(vec![0; LARGEST_SPEC], "s").unwrap().len(), LARGEST_SPEC);
        let failure = bounded(vec![0; LARGEST_SPEC + 1], "s").unwrap_err();
        let told = crate::failure::sentence(&failure.problems()[0]);
        assert_eq!(told, "s: the Spec is larger than 64 MiB as JSON; split it into several stacks");
        assert_eq!(failure.problems()[0].reason, reason::TOO_LARGE);
    }

    #[test]
    fn failures_survive_encoding() {
        let content = Content::File(file("a.yaml", "apiVersion: v1\nkind: [\n"));
        let expected = super::super::tests::generate("Auto", &content).unwrap_err();
        let job = Job::of_content("Auto", &Values::default(), content.into());
        let failure = answered(work(job.encode_to_vec(), &Progress::unheard()).into()).unwrap_err();
        assert_eq!((failure.code(), failure.problems()), (expected.code(), expected.problems()));
    }

    #[test]
    fn exceeded_limit_names_the_file_or_folder() {
        let limits = Limits {
            memory: 3 << 29,
            processor: Duration::from_secs(30),
            time: Duration::from_secs(60),
            answer: 2 << 30,
        };
        let folder = Paths { folder: Some("s".to_owned()), files: vec!["s/a.yaml".to_owned(), "s/b.yaml".to_owned()] };
        let alone = Paths { folder: None, files: vec!["spec.yaml".to_owned()] };
        let told = |paths: &Paths, fault: Fault, at| {
            let failure = paths.explain(Failed { at, ..Failed::from(fault) }, &limits);
            (failure.code(), crate::failure::sentence(&failure.problems()[0]))
        };
        let invalid = |text: &str| (Code::InvalidArgument, text.to_owned());
        assert_eq!(
            told(&folder, Fault::Memory, Some(1)),
            invalid("s/b.yaml: rendering took more than 1536 MiB of memory; split the stack")
        );
        assert_eq!(told(&folder, Fault::Time, None), invalid("s: rendering took more than 60 s; split the stack"));
        assert_eq!(
            told(&alone, Fault::Processor, None),
            invalid("spec.yaml: rendering took more than 30 s of CPU time; split the stack")
        );
        assert_eq!(
            told(&alone, Fault::Answer, None),
            invalid("spec.yaml: renders to a Spec of more than 2 GiB; split the stack")
        );
        assert_eq!(told(&alone, Fault::Busy, None).0, Code::ResourceExhausted);
        assert_eq!(told(&alone, Fault::Killed(9), None).0, Code::Unavailable);
        assert_eq!(told(&alone, Fault::Panicked("x.rs:1:1".to_owned()), None).0, Code::Internal);
    }
}
