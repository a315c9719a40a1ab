//! The jobs of the process that reads a source, and their answers.
//!
//! Both ends are one binary, so the messages need no versions. Start at [`work`], which that process calls.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Once;

use git2::ObjectType;
use prost::Message as _;
use stoa_proto::{
    CompareRequest, CompareResponse, ContentRequest, ContentsRequest, ContentsResponse, FilesRequest, FunctionsRequest,
    FunctionsResponse, LookRequest, LookResponse, Problem, ProposeFilesRequest, ProposeFilesResponse, PushRequest,
    PushResponse, ReadFileRequest, ReadFileResponse, ResolveRequest, ResolveResponse, Source,
};
use stoa_workers::worker::Progress;
use tonic::Code;

use super::import::{ChartAnswer, ChartQuery, Import};
use super::repositories::{RemoteAnswer, RemoteRequest};
use super::sources::StackPaths;
use super::tree::Purpose;
use super::wire::Files;
use super::{Cache, Looked, Resolved, content, import, logged, repositories, tree};
use crate::failure::Failure;
use crate::fleet::propose;
use crate::packages::{
    ArtifactPackage, ArtifactQuestion, DiscoverJob, DiscoverPage, PackageFiles, artifact, discover, files, functions,
    push,
};

/// The largest tree that libgit2 keeps in memory, in bytes: a folder with 100,000 others. By itself it keeps those of 100 entries,
/// and reads a larger one again for each path in it.
const LARGEST_CACHED_TREE: usize = 8 << 20;
/// How much libgit2 keeps in memory, in bytes.
const CACHED: isize = 32 << 20;

/// A question about a source or the repository of a workspace. The process gets credentials from here alone.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Job {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<Source>,
    /// The path of its cache.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) cache: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub(super) max_unreferenced: u32,
    /// Whether to fetch commits that no ref leads to, after all that refs lead to.
    #[prost(bool, tag = "4")]
    pub(super) with_unreferenced: bool,
    #[prost(oneof = "Question", tags = "5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 20, 21, 22, 23, 25, 26, 27, 28")]
    pub(super) question: Option<Question>,
    /// Whether nothing may be fetched, for lack of disk space.
    #[prost(bool, tag = "13")]
    pub(super) lacks_room: bool,
    /// Whether a repository on this machine is written.
    #[prost(bool, tag = "24")]
    pub(super) writes: bool,
}

/// The question. Its requests have no source here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Question {
    #[prost(message, tag = "5")]
    Resolve(ResolveRequest),
    #[prost(message, tag = "6")]
    Look(LookRequest),
    /// The ids of the files or folders at paths.
    #[prost(message, tag = "7")]
    Contents(ContentsRequest),
    #[prost(message, tag = "8")]
    Compare(CompareRequest),
    #[prost(message, tag = "9")]
    ReadFile(ReadFileRequest),
    /// Fetches a commit.
    #[prost(string, tag = "10")]
    Fetch(String),
    /// The content at a path.
    #[prost(message, tag = "11")]
    Read(ContentRequest),
    /// Something about the repository of a workspace, whose copy the cache is.
    #[prost(message, tag = "12")]
    Reach(RemoteRequest),
    /// Whether an artifact or chart is here, by its digest.
    #[prost(string, tag = "14")]
    Has(String),
    /// Makes a commit of an artifact or chart.
    #[prost(message, tag = "15")]
    Import(Import),
    /// A version of a chart.
    #[prost(message, tag = "16")]
    Chart(ChartQuery),
    /// Writes the tree of a commit into the cache.
    #[prost(string, tag = "20")]
    WriteTree(String),
    /// The same with large files, which are executable.
    #[prost(string, tag = "25")]
    WritePrograms(String),
    /// Package revisions.
    #[prost(message, tag = "21")]
    Discover(DiscoverJob),
    /// The files of a package.
    #[prost(message, tag = "22")]
    Files(FilesRequest),
    /// Makes commits of packages, and pushes them.
    #[prost(message, tag = "23")]
    Push(PushRequest),
    /// The functions of a repository.
    #[prost(message, tag = "26")]
    Functions(FunctionsRequest),
    /// Compares files with a branch, and commits the difference to another.
    #[prost(message, tag = "27")]
    Propose(ProposeFilesRequest),
    /// The package that an artifact is.
    #[prost(message, tag = "28")]
    Package(ArtifactQuestion),
}

/// A reply, or with another code than 0 all problems.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Answer {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, repeated, tag = "2")]
    problems: Vec<Problem>,
    /// A commit is missing that no ref leads to, and was not fetched.
    #[prost(bool, tag = "3")]
    pub(super) lacks_unreferenced: bool,
    /// Messages of the process for the log.
    #[prost(string, tag = "4")]
    pub(super) log: String,
    #[prost(oneof = "Reply", tags = "5, 6, 7, 8, 9, 10, 11, 12, 14, 20, 21, 22, 23, 25, 27, 28")]
    reply: Option<Reply>,
    /// Whether the cache may have grown.
    #[prost(bool, tag = "13")]
    pub(super) has_fetched: bool,
}

/// The reply to a question.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Reply {
    #[prost(message, tag = "5")]
    Resolved(ResolveResponse),
    #[prost(message, tag = "6")]
    Looked(LookResponse),
    #[prost(message, tag = "7")]
    Contents(ContentsResponse),
    #[prost(message, tag = "8")]
    Compared(CompareResponse),
    #[prost(message, tag = "9")]
    File(ReadFileResponse),
    #[prost(bool, tag = "10")]
    Fetched(bool),
    #[prost(message, tag = "11")]
    Read(Files),
    #[prost(message, tag = "12")]
    Reached(RemoteAnswer),
    #[prost(message, tag = "14")]
    Chart(ChartAnswer),
    #[prost(bool, tag = "20")]
    WroteTree(bool),
    #[prost(message, tag = "21")]
    Discovered(DiscoverPage),
    #[prost(message, tag = "22")]
    Files(PackageFiles),
    #[prost(message, tag = "23")]
    Pushed(PushResponse),
    #[prost(message, tag = "25")]
    Functions(FunctionsResponse),
    #[prost(message, tag = "27")]
    Proposed(ProposeFilesResponse),
    #[prost(message, tag = "28")]
    Package(ArtifactPackage),
}

/// Does a job in the process that reads a source.
pub(crate) fn work(job: Vec<u8>, progress: &Progress) -> Vec<u8> {
    static READY: Once = Once::new();
    READY.call_once(|| {
        logged::keep();
        #[expect(unsafe_code, reason = "libgit2's options are globals")]
        // SAFETY: the process has one thread.
        let timeouts = unsafe { stoa_git::set_timeouts() };
        if let Err(error) = timeouts {
            tracing::error!(%error, "libgit2 takes no timeouts");
        }
        #[expect(unsafe_code, reason = "libgit2's options are globals")]
        // SAFETY: the process has one thread.
        let cached = unsafe {
            git2::opts::set_cache_object_limit(ObjectType::Tree, LARGEST_CACHED_TREE)
                .and_then(|()| git2::opts::set_cache_max_size(CACHED))
        };
        if let Err(error) = cached {
            tracing::error!(%error, "libgit2 keeps no large folders in memory");
        }
    });
    let answer = match Job::decode(job.as_slice()) {
        Ok(job) => job.answer(*progress),
        Err(err) => Answer::of(Err(Failure::internal(&err)), false),
    };
    Answer { log: logged::take(), ..answer }.encode_to_vec()
}

impl Job {
    /// Where the cache is.
    pub(super) fn path(&self) -> PathBuf {
        OsStr::from_bytes(&self.cache).into()
    }

    pub(super) fn answer(self, progress: Progress) -> Answer {
        let path = self.path();
        let Self {
            source: Some(source),
            max_unreferenced,
            with_unreferenced,
            question: Some(question),
            lacks_room,
            ..
        } = self
        else {
            return Answer::of(Err(Failure::internal(&"a job has a source and a question")), false);
        };
        if let Question::Reach(asked) = question {
            let (told, has_fetched) = repositories::reach(&path, &source, asked, !lacks_room, progress);
            return Answer { has_fetched, ..Answer::of(Ok(Reply::Reached(told)), false) };
        }
        match Cache::open(&path, source, max_unreferenced as usize, with_unreferenced) {
            Ok(mut cache) => {
                cache.has_room = !lacks_room;
                let answered = question.of(&cache);
                Answer { has_fetched: cache.has_fetched.get(), ..Answer::of(answered, cache.lacks_unreferenced.get()) }
            }
            Err(failure) => Answer::of(Err(failure), false),
        }
    }
}

impl Question {
    fn of(self, cache: &Cache) -> Result<Reply, Failure> {
        let here = |revision: &str| cache.at(revision);
        let verified = |revision: &str| cache.verified_at(revision);
        Ok(match self {
            Self::Resolve(ResolveRequest { version, r#ref, .. }) => {
                let Resolved { commit, subject, signed_by } = cache.resolve(&version, &r#ref)?;
                Reply::Resolved(ResolveResponse { commit, subject, signed_by })
            }
            Self::Look(LookRequest { r#ref, versions, branch_only, .. }) => {
                let looked = if branch_only { cache.branch(&r#ref) } else { cache.look(&r#ref, &versions) };
                let Looked { latest, commits, signed_by } = looked?;
                Reply::Looked(LookResponse { latest, commits, signed_by })
            }
            Self::Contents(ContentsRequest { commit, paths, values_files, .. }) => {
                let paths = StackPaths { paths, values_files };
                let digests = content::ids(&cache.repository, verified(&commit)?, paths)?;
                Reply::Contents(ContentsResponse { digests })
            }
            Self::Compare(CompareRequest { base, commit, paths, values_files, .. }) => {
                let paths = StackPaths { paths, values_files };
                here(&base)?;
                // The base may have gone to make room for the other.
                let (commit, base) = (here(&commit)?, here(&base)?);
                let changed = content::changed(&cache.repository, base, commit, &paths)?;
                Reply::Compared(CompareResponse { is_in_base: changed.is_none(), changed: changed.unwrap_or_default() })
            }
            Self::ReadFile(ReadFileRequest { commit, path, max_bytes, .. }) => {
                let (path, text) =
                    content::file(&cache.repository, (verified(&commit)?, &commit), &path, max_bytes as usize)?;
                Reply::File(ReadFileResponse { text, path, is_verified: cache.source.verify.is_some() })
            }
            Self::Fetch(commit) => {
                verified(&commit)?;
                Reply::Fetched(true)
            }
            Self::Read(ContentRequest { commit, path, .. }) => {
                Reply::Read(content::read(&cache.repository, verified(&commit)?, &commit, &path)?.into())
            }
            Self::Has(revision) => Reply::Fetched(import::find(&cache.repository, &revision).is_some()),
            Self::Import(import) => {
                cache.has_fetched.set(true);
                import::import(&cache.repository, &import)?;
                Reply::Fetched(true)
            }
            Self::Chart(query) => Reply::Chart(query.answer()?),
            Self::WriteTree(commit) => {
                tree::write(&cache.repository, verified(&commit)?, Purpose::Render)?;
                Reply::WroteTree(true)
            }
            Self::WritePrograms(commit) => {
                tree::write(&cache.repository, verified(&commit)?, Purpose::Run)?;
                Reply::WroteTree(true)
            }
            Self::Discover(job) => Reply::Discovered(discover::page(cache, &job)?),
            Self::Files(request) => {
                let commit = verified(&request.commit)?;
                Reply::Files(files::read(cache, commit, &request)?)
            }
            Self::Package(question) => {
                let commit = here(&question.digest)?;
                Reply::Package(artifact::read(cache, commit, &question.path)?)
            }
            Self::Functions(request) => Reply::Functions(functions::read(cache, &request)?),
            Self::Push(request) => Reply::Pushed(push::push(cache, &request)?),
            Self::Propose(request) => Reply::Proposed(propose::propose(cache, &request)?),
            Self::Reach(_) => return Err(Failure::internal(&"a source is no repository of a workspace")),
        })
    }
}

impl Answer {
    fn of(answered: Result<Reply, Failure>, lacks_unreferenced: bool) -> Self {
        match answered {
            Ok(reply) => Self { reply: Some(reply), ..Self::default() },
            Err(failure) => {
                let (code, problems) = failure.into_parts();
                Self { code: code.into(), problems, lacks_unreferenced, ..Self::default() }
            }
        }
    }

    pub(super) fn into_result(self) -> Result<Reply, Failure> {
        match self.reply {
            Some(reply) if self.code == 0 => Ok(reply),
            _ if self.code == 0 => Err(Failure::internal(&"an answer has a reply")),
            _ => Err(Failure::of(Code::from_i32(self.code), self.problems)),
        }
    }
}
