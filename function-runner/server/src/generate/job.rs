//! The jobs of generators and their answers, between this process and its workers.
//!
//! Both ends are one binary, so the messages need no versions.

use std::cell::Cell;

use prost::Message as _;
use prost::bytes::Bytes;
use stoa_engine::bounds::check_spec_size;
use stoa_engine::digest::canonical_json;
use stoa_proto::Problem;
use stoa_workers::worker::Progress;
use stoa_workers::{Failed, Fault, Limits, Pool};
use tonic::Code;

use super::{generate, lock};
use crate::failure::{Failure, problem, reason, size};
use crate::source::{Content, Files, MemorySlot, StackFiles};

/// A worker reports only larger files to the pool, in bytes: reporting a small file takes longer than reading it.
const REPORTED: usize = 64 << 10;

/// Content, and the name of the generator.
#[derive(Clone, PartialEq, prost::Message)]
struct Job {
    #[prost(string, tag = "1")]
    generator: String,
    #[prost(message, optional, tag = "2")]
    content: Option<Files>,
}

/// A Spec, or with another code than 0 all problems.
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
    #[prost(string, tag = "5")]
    generator: String,
}

/// The result of a generator in a worker.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// The Spec in canonical JSON.
    pub(crate) spec: Bytes,
    pub(crate) warnings: Vec<String>,
    /// The generator that ran.
    pub(crate) generator: String,
}

/// Generators, in workers.
#[derive(Clone, Debug)]
pub(crate) struct Generators(Pool);

impl Generators {
    pub(crate) fn new(pool: Pool) -> Self {
        Self(pool)
    }

    /// Runs a generator for an organization. From here on the content counts as a waiting job, and frees its memory slot for the
    /// next content.
    pub(crate) async fn run(
        &self,
        organization: &str,
        generator: &str,
        (files, place): (StackFiles, MemorySlot),
    ) -> Result<Rendered, Failure> {
        let job = Job::new(generator, files);
        let bytes = Bytes::from(job.encode_to_vec());
        let paths = Paths::of(job);
        let explain = |failed| paths.explain(failed, self.0.limits());
        let pending = self.0.submit(organization, bytes).map_err(explain)?;
        drop(place);
        let answer = pending.answer().await.map_err(explain)?;
        let answer = Answer::decode(answer).map_err(|err| Failure::internal(&err))?;
        if answer.code != 0 {
            return Err(Failure::of(Code::from_i32(answer.code), answer.problems));
        }
        let Answer { spec, warnings, generator, .. } = answer;
        Ok(Rendered { spec, warnings, generator })
    }
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
            answer(job, progress)
        }
        Err(err) => Answer::from(Failure::internal(&err)),
    };
    answer.encode_to_vec()
}

fn answer(job: Job, progress: &Progress) -> Answer {
    let (generator, StackFiles { content, lock }) = job.into_parts();
    let files = content.files();
    let was_reported = Cell::new(false);
    let at = |file: Option<usize>| {
        let file = file.filter(|file| files.get(*file).is_some_and(|file| file.bytes.len() >= REPORTED));
        if file.is_some() || was_reported.get() {
            progress.at(file.and_then(|file| file.try_into().ok()));
        }
        was_reported.set(file.is_some());
    };
    let generated = generate(&generator, &content, &at).and_then(|mut generated| {
        lock::record(&mut generated.spec, lock.as_ref())?;
        let place = match &content {
            Content::Folder { path, .. } => path,
            Content::File(file) => &file.path,
        };
        Ok((bounded(canonical_json(&generated.spec), place)?, generated))
    });
    match generated {
        Ok((spec, generated)) => Answer {
            spec,
            warnings: generated.warnings,
            generator: generated.generator.to_owned(),
            ..Answer::default()
        },
        Err(failure) => failure.into(),
    }
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

impl Job {
    fn new(generator: &str, files: StackFiles) -> Self {
        Self { generator: generator.to_owned(), content: Some(files.into()) }
    }

    fn into_parts(self) -> (String, StackFiles) {
        (self.generator, self.content.unwrap_or_default().into())
    }
}

/// The paths of a job's files, for problems after its content was sent.
struct Paths {
    folder: Option<String>,
    files: Vec<String>,
}

impl Paths {
    fn of(job: Job) -> Self {
        let Files { files, folder, .. } = job.content.unwrap_or_default();
        let files = files.into_iter().map(|file| file.path).collect();
        Self { folder: folder.map(|folder| folder.path), files }
    }

    /// The failure of a job that has no answer.
    fn explain(&self, failed: Failed, limits: &Limits) -> Failure {
        let Failed { fault, at } = failed;
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
            let lock = Some(file(".terraform.lock.hcl", ""));
            let files = StackFiles { content: content.clone(), lock };
            let bytes = Job::new("Auto", files.clone()).encode_to_vec();
            let job = Job::decode(bytes.as_slice()).unwrap();
            assert_eq!(job.clone().into_parts(), ("Auto".to_owned(), files));
            let answer = answer(job, &Progress::unheard());
            let expected = generate("Auto", &content, &|_| {}).unwrap();
            assert_eq!((answer.code, &answer.warnings), (0, &expected.warnings));
            assert_eq!((answer.spec, answer.generator.as_str()), (canonical_json(&expected.spec).into(), "Manifests"));
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
        let expected = generate("Auto", &content, &|_| {}).unwrap_err();
        let answer = answer(Job::new("Auto", content.into()), &Progress::unheard());
        let answer = Answer::decode(answer.encode_to_vec().as_slice()).unwrap();
        assert_eq!((Code::from_i32(answer.code), answer.problems.as_slice()), (expected.code(), expected.problems()));
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
            let failure = paths.explain(Failed { fault, at }, &limits);
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
