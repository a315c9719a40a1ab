//! Restrictions that a worker enters before it reads its first job. It cannot leave them again.
//!
//! Each mechanism alone would keep a worker from files and from the network. A kernel may lack one, and each may have a bug.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::worker::Terms;

/// How many descriptors are closed one by one if the kernel cannot close them at once.
const MOST_DESCRIPTORS: u64 = 65_536;

/// The access that a worker keeps besides its pipes.
#[derive(Clone, Debug)]
pub enum Profile {
    /// None: no file, no network, no thread.
    Isolated,
    /// A folder that it reads, with all that is below. No network, no thread.
    Tree(PathBuf),
    /// Servers, and the files that they need.
    Servers(Servers),
}

/// The files of a worker that reaches servers.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The folders that it reads and writes, with all that is below.
    pub folders: Vec<PathBuf>,
    /// Other files and folders that it reads; missing ones are left out.
    pub reads: Vec<PathBuf>,
    /// How large a file may become, in bytes. Writing beyond fails.
    pub file: u64,
}

/// The mechanisms of the kernel that restrict a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// Landlock: the worker opens only the paths of its profile. Where the kernel supports it, the worker sends no signal to other
    /// processes and, if it is isolated, connects to no port.
    pub landlock: bool,
    /// A filter of system calls. An isolated worker may only use memory and its pipes, and end. One that reaches servers may not start
    /// programs or inspect other processes.
    pub seccomp: bool,
}

impl Restrictions {
    /// Each mechanism by name, and whether it is active.
    pub fn by_name(self) -> [(&'static str, bool); 2] {
        [("landlock", self.landlock), ("seccomp", self.seccomp)]
    }

    /// Logs the mechanisms that the kernel lacks.
    pub(crate) fn warn(self, processes: &str) {
        for (mechanism, _) in self.by_name().into_iter().filter(|(_, is_there)| !is_there) {
            tracing::warn!(mechanism, processes, "the kernel lacks a sandbox mechanism; the others still apply");
        }
    }

    pub(crate) fn byte(self) -> u8 {
        u8::from(self.landlock) | u8::from(self.seccomp) << 1
    }

    pub(crate) fn of_byte(byte: u8) -> Self {
        Self { landlock: byte & 1 != 0, seccomp: byte & 2 != 0 }
    }
}

/// Restricts a process with one thread.
pub(crate) fn enter(terms: &Terms) -> io::Result<Restrictions> {
    close_all_but_the_pipes();
    die_first();
    // Memory of the heap counts, by brk and by mmap; the program itself, as large as it may be, does not.
    limit(Resource::Data, terms.memory)?;
    limit(Resource::Stack, terms.stack)?;
    limit(Resource::Core, 0)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    let (landlock, seccomp) = match &terms.profile {
        Profile::Isolated => {
            limit(Resource::Fsize, 0)?;
            let landlock = paths_without_network(&[]);
            limit(Resource::Nofile, 3)?;
            (landlock, few_calls(&[]))
        }
        Profile::Tree(folder) => {
            limit(Resource::Fsize, 0)?;
            (paths_without_network(std::slice::from_ref(folder)), few_calls(READS))
        }
        Profile::Servers(servers) => {
            limit(Resource::Fsize, servers.file)?;
            outlive_full_files();
            (few_paths(servers), no_programs())
        }
    };
    Ok(Restrictions { landlock, seccomp })
}

/// When memory runs out, the kernel kills this process, not the pool.
pub(crate) fn die_first() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Writing beyond the limit of a file is an error like others, and the writer removes the file.
#[expect(unsafe_code, reason = "dispositions of signals are the C library's")]
fn outlive_full_files() {
    // SAFETY: to ignore a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Sets a hard limit, at most to the present one.
pub(crate) fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let hard = rustix::process::getrlimit(resource).maximum;
    let most = hard.map_or(most, |hard| hard.min(most));
    rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    Ok(())
}

#[expect(unsafe_code, reason = "file descriptors are closed by their numbers")]
pub(crate) fn close_all_but_the_pipes() {
    // SAFETY: the process has one thread, which has opened no file.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // Linux before 5.9, or a container that denies the call.
    let most = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(MOST_DESCRIPTORS).min(MOST_DESCRIPTORS);
    for number in 3..i32::try_from(most).unwrap_or(i32::MAX) {
        // SAFETY: as above.
        unsafe { libc::close(number) };
    }
}

/// Denies the network to the thread, and all paths but some that it reads; false if the kernel cannot.
fn paths_without_network(reads: &[PathBuf]) -> bool {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V7))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(ABI::V7)))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V7)));
    restrict(rules, &[], reads)
}

/// Denies all paths to the thread except a few; false if the kernel cannot.
fn few_paths(servers: &Servers) -> bool {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V7))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V7)));
    restrict(rules, &servers.folders, &servers.reads)
}

/// Confines this thread, and those that it starts from now on, to some folders with all that is below, and to paths that it only
/// reads; false if the kernel cannot. A link that leads out of the folders leads nowhere. The confinement cannot be undone, and
/// restricts nothing else.
///
/// Kernels before 5.19 do not: they would also deny moves between folders, which writes to repositories need.
pub fn keep_to(folders: &[PathBuf], reads: &[PathBuf]) -> bool {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)
        .and_then(|rules| rules.set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(ABI::V7)));
    restrict(rules, folders, reads)
}

fn restrict(rules: Result<Ruleset, RulesetError>, folders: &[PathBuf], reads: &[PathBuf]) -> bool {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let restricted = rules
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(reads, read)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(folders, AccessFs::from_all(ABI::V7))))
        .and_then(|rules| rules.restrict_self());
    restricted.is_ok_and(|restricted| restricted.ruleset != RulesetStatus::NotEnforced)
}

/// Denies programs and other processes to the thread; false if the kernel cannot.
fn no_programs() -> bool {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else { return false };
    without_programs(architecture)
        .is_ok_and(|filters| filters.iter().all(|filter| seccompiler::apply_filter(filter).is_ok()))
}

/// System calls that neither a process that reaches servers nor a program of others needs.
const NEVER: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_kcmp,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    // What the kernel offers to few, and where its mistakes are.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_chroot,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Libraries that resolve names, speak TLS and write files use too many system calls to list, so this lists those that they never
/// use.
fn without_programs(architecture: TargetArch) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    without_other_processes(architecture, [libc::SYS_execve, libc::SYS_execveat].map(|call| (call, Vec::new())))
}

/// Filters that deny what reaches other processes, and more calls by their rules. They allow threads.
///
/// A filter cannot see the flags of `clone3`: without it, threads are started by `clone`.
pub(crate) fn without_other_processes(
    architecture: TargetArch,
    more: impl IntoIterator<Item = (libc::c_long, Vec<SeccompRule>)>,
) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = NEVER.iter().map(|call| (*call, Vec::new())).collect();
    rules.extend(more);
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    let no_thread = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_thread])?]);
    let not_of = |process: u32| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, process.into())
            .and_then(|condition| SeccompRule::new(vec![condition]))
    };
    // What aborts sends itself a signal. The C library sets and reads limits of its own process as those of none in particular.
    rules.insert(libc::SYS_tgkill, vec![not_of(std::process::id())?]);
    rules.insert(libc::SYS_prlimit64, vec![not_of(0)?]);
    let refuse = |rules: BTreeMap<i64, Vec<SeccompRule>>, error: libc::c_int| {
        let refused = SeccompAction::Errno(error.cast_unsigned());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?;
        BpfProgram::try_from(filter)
    };
    Ok(vec![refuse(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?, refuse(rules, libc::EPERM)?])
}

/// The calls that read files. Landlock decides which ones; to write there is another call, or the limit of a file's size.
const READS: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
];

/// Denies all system calls to the thread except those that every worker needs, and some more; false if the kernel cannot.
fn few_calls(more: &[libc::c_long]) -> bool {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else { return false };
    filter(architecture, more).is_ok_and(|filter| seccompiler::apply_filter(&filter).is_ok())
}

/// All other calls fail with `EPERM`, which libraries handle, and which tests see.
fn filter(architecture: TargetArch, more: &[libc::c_long]) -> Result<BpfProgram, seccompiler::BackendError> {
    let always = [
        // The pipes.
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        // Memory.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        // Time, locks and seeds of hash maps.
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_getrandom,
        // Ends, in order or by a signal.
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_restart_syscall,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let only_if = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
            .map(|rule| vec![rule])
    };
    let executable = u64::from(libc::PROT_EXEC.cast_unsigned());
    let no_code = || only_if(2, SeccompCmpOp::MaskedEq(executable), 0);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        always.iter().chain(more).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_mmap, no_code()?);
    rules.insert(libc::SYS_mprotect, no_code()?);
    // What aborts sends itself a signal, and nobody else.
    rules.insert(libc::SYS_tgkill, only_if(0, SeccompCmpOp::Eq, std::process::id().into())?);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::ErrorKind;

    /// What a thread of its own comes to, which may shut itself in.
    fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    /// What the kernel says to a system call.
    #[expect(unsafe_code, reason = "no library makes these calls")]
    fn call(number: libc::c_long, arguments: [libc::c_long; 4]) -> Option<io::Error> {
        let [first, second, third, fourth] = arguments;
        let none: libc::c_long = 0;
        // SAFETY: nothing here is where anything would be written to.
        let answer = unsafe { libc::syscall(number, first, second, third, fourth, none, none) };
        (answer < 0).then(io::Error::last_os_error)
    }

    /// Whether this kernel has a mechanism. Where it has not, there is nothing to test.
    fn is_there(restricted: bool, mechanism: &str) -> bool {
        if !restricted {
            eprintln!("skipped: the kernel has no {mechanism}");
        }
        restricted
    }

    #[test]
    fn landlock_alone_keeps_files_away() {
        let program = std::env::current_exe().unwrap();
        std::fs::File::open(&program).unwrap();
        let found = apart(move || {
            let restricted = paths_without_network(&[]);
            let files = [std::fs::File::open(&program).err(), std::fs::File::create("/tmp/stoa-landlock").err()];
            let programs = std::process::Command::new(&program).arg("--list").output().err();
            (restricted, files.into_iter().chain([programs]).map(|err| err.map(|err| err.kind())).collect::<Vec<_>>())
        });
        if is_there(found.0, "landlock") {
            assert_eq!(found.1, [Some(ErrorKind::PermissionDenied); 3]);
        }
    }

    #[test]
    fn filter_alone_denies_files_sockets_and_programs() {
        let program = std::env::current_exe().unwrap();
        let found = apart(move || {
            let restricted = few_calls(&[]);
            let found = [
                std::fs::File::open(&program).err(),
                std::net::UdpSocket::bind("127.0.0.1:0").err(),
                std::os::unix::net::UnixStream::pair().err(),
                std::process::Command::new(&program).arg("--list").output().err(),
                std::thread::Builder::new().spawn(|| {}).err(),
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
                    .err()
                    .map(Into::into),
            ];
            (restricted, found.map(|err| err.map(|err| err.kind())))
        });
        if is_there(found.0, "seccomp") {
            assert_eq!(found.1, [Some(ErrorKind::PermissionDenied); 6]);
        }
    }

    #[test]
    fn landlock_allows_one_folder_and_listed_reads() {
        let root = std::env::temp_dir().join(format!("stoa-landlock-{}", std::process::id()));
        let (folder, read, other) = (root.join("folder"), root.join("read"), root.join("other"));
        for folder in [&folder, &read, &other] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("there"), "x").unwrap();
        }
        let servers =
            Servers { folders: vec![folder.clone()], reads: vec![read.clone(), root.join("missing")], file: 1 << 20 };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let found = apart(move || {
            let restricted = few_paths(&servers);
            let kind = |result: std::io::Result<()>| result.err().map(|err| err.kind());
            let allowed = [
                kind(std::fs::write(folder.join("new"), "x")),
                kind(std::fs::create_dir(folder.join("below"))),
                kind(std::fs::rename(folder.join("new"), folder.join("renamed"))),
                kind(std::fs::read(read.join("there")).map(drop)),
                kind(std::net::TcpStream::connect(address).map(drop)),
            ];
            let refused = [
                kind(std::fs::write(read.join("there"), "y")),
                kind(std::fs::read(other.join("there")).map(drop)),
                kind(std::fs::write(other.join("new"), "x")),
                kind(std::fs::read_dir("/").map(drop)),
            ];
            (restricted, allowed, refused)
        });
        std::fs::remove_dir_all(&root).unwrap();
        if is_there(found.0, "landlock") {
            assert_eq!((found.1, found.2), ([None; 5], [Some(ErrorKind::PermissionDenied); 4]));
        }
    }

    #[test]
    fn tree_worker_reads_its_tree_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("stoa-tree-{}", std::process::id()));
        let (tree, other) = (root.join("tree"), root.join("other"));
        for folder in [&tree.join("below"), &other] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("there"), "x").unwrap();
        }
        std::os::unix::fs::symlink(&other, tree.join("link")).unwrap();
        let program = std::env::current_exe().unwrap();
        let found = apart(move || {
            let restricted = (paths_without_network(std::slice::from_ref(&tree)), few_calls(READS));
            let kind = |result: std::io::Result<()>| result.err().map(|err| err.kind());
            let allowed = [
                kind(std::fs::read(tree.join("below/there")).map(drop)),
                kind(std::fs::read_dir(&tree).map(drop)),
                kind(std::fs::read_link(tree.join("link")).map(drop)),
                kind(std::fs::symlink_metadata(tree.join("below")).map(drop)),
            ];
            let refused = [
                kind(std::fs::read(other.join("there")).map(drop)),
                kind(std::fs::read(tree.join("link/there")).map(drop)),
                kind(std::fs::write(tree.join("new"), "x")),
                kind(std::fs::remove_file(tree.join("below/there"))),
                kind(std::net::UdpSocket::bind("127.0.0.1:0").map(drop)),
                kind(std::process::Command::new(&program).arg("--list").output().map(drop)),
                kind(std::thread::Builder::new().spawn(|| {}).map(drop)),
            ];
            (restricted, allowed, refused)
        });
        std::fs::remove_dir_all(&root).unwrap();
        if is_there(found.0.0, "landlock") && is_there(found.0.1, "seccomp") {
            assert_eq!((found.1, found.2), ([None; 4], [Some(ErrorKind::PermissionDenied); 7]));
        }
    }

    #[test]
    fn confined_thread_follows_no_link_outside() {
        let root = std::env::temp_dir().join(format!("stoa-kept-{}", std::process::id()));
        let (folder, other) = (root.join("folder"), root.join("other"));
        for folder in [&folder, &other] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("there"), "x").unwrap();
        }
        std::os::unix::fs::symlink(&other, folder.join("link")).unwrap();
        let link = folder.join("link/there");
        let of_thread = link.clone();
        let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = apart(move || {
            let mut child = child;
            let kept = keep_to(std::slice::from_ref(&folder), &[]);
            let read = |path: PathBuf| std::fs::read(path).err().map(|err| err.kind());
            let (own, linked) = (read(folder.join("there")), read(of_thread));
            // What is done besides is done as ever.
            child.kill().unwrap();
            child.wait().unwrap();
            (kept, own, linked)
        });
        assert!(std::fs::read(link).is_ok(), "other threads are not kept to it");
        std::fs::remove_dir_all(&root).unwrap();
        if is_there(found.0, "landlock") {
            assert_eq!((found.1, found.2), (None, Some(ErrorKind::PermissionDenied)));
        }
    }

    #[test]
    fn confined_thread_moves_files_inside() {
        let root = std::env::temp_dir().join(format!("stoa-moved-{}", std::process::id()));
        let (from, to) = (root.join("from"), root.join("to"));
        for folder in [&from.join("folder"), &to] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(from.join("file"), "x").unwrap();
        let folder = root.clone();
        // Whether the kernel knows of Landlock or not, or only of the first.
        let moved = apart(move || {
            keep_to(&[folder], &[]);
            ["file", "folder"].map(|name| std::fs::rename(from.join(name), to.join(name)).err().map(|err| err.kind()))
        });
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(moved, [None; 2]);
    }

    #[test]
    fn server_filter_denies_programs_and_other_processes() {
        let program = std::env::current_exe().unwrap();
        let found = apart(move || {
            let restricted = no_programs();
            let refused = [
                std::process::Command::new(&program).arg("--list").output().err(),
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
                    .err()
                    .map(Into::into),
            ];
            let allowed = [
                std::fs::File::open(&program).err(),
                std::net::TcpListener::bind("127.0.0.1:0").err(),
                // Packs of repositories on this machine are made by several.
                std::thread::Builder::new().spawn(|| {}).err(),
            ];
            let kind = |err: Option<io::Error>| err.map(|err| err.kind());
            (restricted, refused.map(kind), allowed.map(kind))
        });
        if is_there(found.0, "seccomp") {
            assert_eq!((found.1, found.2), ([Some(ErrorKind::PermissionDenied); 2], [None; 3]));
        }
    }

    #[test]
    fn server_filter_allows_its_own_process() {
        let number = |pid: Option<rustix::process::Pid>| libc::c_long::from(pid.unwrap().as_raw_pid());
        let own = number(Some(rustix::process::getpid()));
        let other = number(rustix::process::getppid());
        let core = libc::c_long::from(libc::RLIMIT_CORE);
        let found = apart(move || {
            let thread = number(Some(rustix::thread::gettid()));
            let restricted = no_programs();
            // None of them changes anything where it is let through.
            let refused = [
                (libc::SYS_prlimit64, [other, core, 0, 0]),
                (libc::SYS_tgkill, [other, other, 0, 0]),
                (libc::SYS_rt_tgsigqueueinfo, [other, other, 0, 0]),
                (libc::SYS_pidfd_open, [other, 0, 0, 0]),
                (libc::SYS_pidfd_getfd, [-1, 0, 0, 0]),
                (libc::SYS_pidfd_send_signal, [-1, 0, 0, 0]),
                (libc::SYS_process_madvise, [-1, 0, 0, 0]),
                (libc::SYS_setpriority, [-1, 0, 0, 0]),
                (libc::SYS_sched_setaffinity, [0, 0, 0, 0]),
                (libc::SYS_kcmp, [own, own, -1, 0]),
            ];
            let allowed = [(libc::SYS_prlimit64, [0, core, 0, 0]), (libc::SYS_tgkill, [own, thread, 0, 0])];
            let told = |(number, arguments)| call(number, arguments).and_then(|err| err.raw_os_error());
            (restricted, refused.map(told), allowed.map(told))
        });
        if is_there(found.0, "seccomp") {
            assert_eq!((found.1, found.2), ([Some(libc::EPERM); 10], [None; 2]));
        }
    }

    #[test]
    fn restrictions_encode_as_a_byte() {
        for byte in 0..4 {
            assert_eq!(Restrictions::of_byte(byte).byte(), byte);
        }
    }
}
