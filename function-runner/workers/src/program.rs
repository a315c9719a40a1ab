//! A program in a sandbox, such as a provider of Terraform or the renderer.
//!
//! Start at [`run`]. A process enters the sandbox and becomes the program. The program executes nothing but the files of its own
//! package, and starts no process. It reads its package, a few files of the system and folders that it is for, and writes its own
//! folder.
//!
//! The digest is that of the file that the kernel executes: the process opens the file, hashes it, and executes the open file
//! (`execveat`). Another file at its path changes nothing. Only this user can write to the file, and no program in this sandbox can.
//!
//! Unlike for our own code, both mechanisms of the kernel are required: without Landlock, the program could read the runner's keys.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::Resource;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BackendError, BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule, TargetArch, sock_filter,
};
use sha2::{Digest as _, Sha256};

use crate::sandbox::{close_all_but_the_pipes, die_first, limit, without_other_processes};
use crate::worker::end_with;

/// The largest file of a program that writes files, in bytes.
pub const LARGEST_FILE: u64 = 1 << 30;
/// How many threads the user may have in all for a program to start another one. A user without limits is exempt.
const THREADS: u64 = 16_384;

/// The libraries and settings of programs that are not linked statically, time zones, and devices that are no hardware.
const OF_PROGRAMS: [&str; 8] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/dev/urandom",
];
/// The first of them, which have the loader of programs.
const LIBRARIES: usize = 4;

/// The files that a program reads to find hosts, and to verify their certificates. None has a private key.
const OF_NETWORK: [&str; 14] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// System calls that Landlock does not see, and that would reach files of the runner or use memory beyond the limit.
const UNSEEN: &[libc::c_long] = &[
    // The modes, owners, times and attributes of all files of this user.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
    // Older kernels do not see it.
    libc::SYS_truncate,
    // The names of files that others make.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
    // Memory that is no data of the process.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
];

/// Calls that the C library does not name everywhere. All architectures have the same numbers.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// The network of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// All of it.
    Allow,
    /// None. The program accepts connections on Unix sockets in its own folder.
    Deny,
}

/// A program, and the access that it has.
#[derive(Clone, educe::Educe)]
#[educe(Debug)]
pub struct Program {
    /// The process that starts it, with which it ends.
    pub parent: u32,
    /// The executable. The folder around it is the package, which the program reads and executes unless it is alone.
    pub executable: PathBuf,
    /// Whether the program reads and executes no other file of that folder.
    pub is_alone: bool,
    /// The SHA-256 of the executable.
    pub digest: [u8; 32],
    /// Its arguments.
    #[educe(Debug(ignore))]
    pub arguments: Vec<OsString>,
    /// All variables of its environment.
    #[educe(Debug(ignore))]
    pub environment: Vec<(OsString, OsString)>,
    /// The folder in which it runs and which it writes.
    pub folder: PathBuf,
    /// Other folders that it writes.
    pub writes: Vec<PathBuf>,
    /// Other folders that it reads.
    pub reads: Vec<PathBuf>,
    /// How large a file may become, in bytes. Writing beyond ends the program.
    pub largest_file: u64,
    /// Its network.
    pub network: Network,
    /// The limit of its memory, in bytes.
    pub memory: u64,
}

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The parent ended first.
    #[error("the process that starts it has ended")]
    Orphan,
    /// The file is another one.
    #[error("the file {} is not the installed one: its SHA-256 differs", .0.display())]
    Changed(PathBuf),
    /// The executable cannot be read.
    #[error("reading {}", path.display())]
    Read {
        /// The executable.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// An argument has a byte that the kernel does not accept.
    #[error("the environment has the variable {0:?} with a NUL or without a name")]
    Variable(String),
    /// A part of the sandbox is missing.
    #[error(
        "the kernel denies {mechanism}, without which no program of others runs; use Linux 5.13 or later, and permit it in the container"
    )]
    Sandbox {
        /// The mechanism.
        mechanism: &'static str,
    },
    /// A limit cannot be set.
    #[error("restricting the process")]
    Limit(#[source] io::Error),
    /// The kernel does not execute the file.
    #[error("executing {}", path.display())]
    Execute {
        /// The executable.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Becomes a program. The process must have one thread. Returns only if the program does not run.
pub fn run(program: &Program) -> ProgramError {
    match become_program(program) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

enum Never {}

fn become_program(program: &Program) -> Result<Never, ProgramError> {
    if !end_with(program.parent).map_err(ProgramError::Limit)? {
        return Err(ProgramError::Orphan);
    }
    close_all_but_the_pipes();
    let executable = verified(&program.executable, &program.digest)?;
    let environment = variables(&program.environment)?;
    let arguments = arguments(program)?;
    die_first();
    restrict(program).map_err(ProgramError::Limit)?;
    let missing = |mechanism| ProgramError::Sandbox { mechanism };
    confine(program).ok().filter(|is_enforced| *is_enforced).ok_or(missing("Landlock"))?;
    filter(program.network).ok_or(missing("seccomp"))?;
    let source = execute(&executable, &arguments, &environment);
    Err(ProgramError::Execute { path: program.executable.clone(), source })
}

/// The open file, if it has the digest.
fn verified(path: &Path, digest: &[u8; 32]) -> Result<File, ProgramError> {
    let failed = |source| ProgramError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    let found: [u8; 32] = hasher.finalize().into();
    if found == *digest { Ok(file) } else { Err(ProgramError::Changed(path.to_owned())) }
}

fn variables(environment: &[(OsString, OsString)]) -> Result<Vec<CString>, ProgramError> {
    let variable = |(name, value): &(OsString, OsString)| {
        let wrong = || ProgramError::Variable(name.to_string_lossy().into_owned());
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            return Err(wrong());
        }
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        CString::new(text).map_err(|_| wrong())
    };
    environment.iter().map(variable).collect()
}

/// The path of the executable, and its arguments.
fn arguments(program: &Program) -> Result<Vec<CString>, ProgramError> {
    let wrong = |_| ProgramError::Execute {
        path: program.executable.clone(),
        source: io::Error::new(io::ErrorKind::InvalidInput, "an argument has a NUL"),
    };
    let all = [program.executable.as_os_str()].into_iter().chain(program.arguments.iter().map(OsString::as_os_str));
    all.map(|it| CString::new(it.as_bytes()).map_err(wrong)).collect()
}

/// Sets limits, and gives up all privileges.
fn restrict(program: &Program) -> io::Result<()> {
    std::env::set_current_dir(&program.folder)?;
    // Reserved addresses do not count, of which Go has many.
    limit(Resource::Data, program.memory)?;
    limit(Resource::Fsize, program.largest_file)?;
    limit(Resource::Nproc, THREADS)?;
    limit(Resource::Core, 0)?;
    rustix::thread::set_no_new_privs(true)?;
    for capability in CapabilitySet::all() {
        // The kernel may not know it, and an ordinary user has none.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

/// Denies other files, and the network if the kernel can; false if it cannot deny files.
fn confine(program: &Program) -> Result<bool, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let own: BitFlags<AccessFs> =
        AccessFs::from_all(ABI::V7) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(ABI::V7))?.scope(Scope::from_all(ABI::V7))?;
    if program.network == Network::Deny {
        rules = rules.handle_access(AccessNet::from_all(ABI::V7))?;
    }
    let reads = match program.network {
        Network::Allow => &OF_NETWORK[..],
        Network::Deny => &[],
    };
    let (libraries, others) = OF_PROGRAMS.split_at(LIBRARIES);
    let package = if program.is_alone { Some(program.executable.as_path()) } else { program.executable.parent() };
    let executed = libraries.iter().map(Path::new).chain(package);
    let restricted = rules
        .create()?
        .add_rules(path_beneath_rules(executed, read | AccessFs::Execute))?
        .add_rules(path_beneath_rules(others.iter().chain(reads), read))?
        .add_rules(path_beneath_rules(&program.reads, read))?
        .add_rules(path_beneath_rules(["/dev/null"], read | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules([&program.folder].into_iter().chain(&program.writes), own))?
        .restrict_self()?;
    Ok(restricted.ruleset != RulesetStatus::NotEnforced)
}

/// Denies system calls; nothing if the kernel cannot.
fn filter(network: Network) -> Option<()> {
    let architecture = std::env::consts::ARCH.try_into().ok()?;
    let filters = filters(architecture, network).ok()?;
    filters.iter().all(|filter| seccompiler::apply_filter(filter).is_ok()).then_some(())
}

/// The program itself was executed by another call than the ordinary one, which is denied as well.
fn filters(architecture: TargetArch, network: Network) -> Result<Vec<BpfProgram>, BackendError> {
    let when = |argument: u8, operator: SeccompCmpOp, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let number = |it: libc::c_int| u64::from(it.cast_unsigned());
    let is_not = |family: libc::c_int| when(0, SeccompCmpOp::Ne, number(family));
    let unix = is_not(libc::AF_UNIX)?;
    let mut more: Vec<_> = UNSEEN.iter().chain(&[libc::SYS_execve]).map(|call| (*call, Vec::new())).collect();
    // It ends with its parent, and its shared memory would not count.
    let death_signal = when(0, SeccompCmpOp::Eq, number(libc::PR_SET_PDEATHSIG))?;
    more.push((libc::SYS_prctl, vec![SeccompRule::new(vec![death_signal])?]));
    let shared = number(libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    more.push((libc::SYS_mmap, vec![SeccompRule::new(vec![when(3, SeccompCmpOp::MaskedEq(shared), shared)?])?]));
    match network {
        Network::Allow => {
            let families = [unix, is_not(libc::AF_INET)?, is_not(libc::AF_INET6)?, is_not(libc::AF_NETLINK)?];
            // Libraries list the addresses of this machine, and may not list the sockets of others.
            let netlink = when(0, SeccompCmpOp::Eq, number(libc::AF_NETLINK))?;
            let other = when(2, SeccompCmpOp::Ne, number(libc::NETLINK_ROUTE))?;
            let rules = vec![SeccompRule::new(families.to_vec())?, SeccompRule::new(vec![netlink, other])?];
            more.push((libc::SYS_socket, rules));
        }
        Network::Deny => {
            // Only streams remain, which have to be connected. So the program reaches no socket, and accepts connections.
            let is_a = |kind: libc::c_int| when(1, SeccompCmpOp::MaskedEq(0xf), number(kind));
            let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET];
            let kinds = kinds.into_iter().map(|kind| SeccompRule::new(vec![is_a(kind)?]));
            let rules = [SeccompRule::new(vec![unix])].into_iter().chain(kinds).collect::<Result<_, _>>()?;
            more.push((libc::SYS_socket, rules));
            more.push((libc::SYS_connect, Vec::new()));
        }
    }
    let mut filters = without_other_processes(architecture, more)?;
    if architecture == TargetArch::x86_64 {
        filters.push(without_x32());
    }
    Ok(filters)
}

/// Denies the second set of numbers that x86-64 has for its calls, which other filters do not see.
fn without_x32() -> BpfProgram {
    let step = |code: u16, k: u32, jf: u8| sock_filter { code, jt: 0, jf, k };
    let absolute = step((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0);
    let is_x32 = step((libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16, 0x4000_0000, 1);
    let answer = |k: u32| step((libc::BPF_RET | libc::BPF_K) as u16, k, 0);
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    vec![absolute, is_x32, answer(refused), answer(libc::SECCOMP_RET_ALLOW)]
}

/// Executes an open file. Returns only if that fails.
#[expect(unsafe_code, reason = "no library executes an open file")]
fn execute(file: &File, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| texts.iter().map(|it| it.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>();
    let (arguments, variables) = (pointers(arguments), pointers(environment));
    // SAFETY: the arrays end with null, and all texts live until the call returns.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            variables.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

#[cfg(test)]
mod tests;
