//! Programs that try to leave the sandbox. This test program plays them: it starts itself again, enters the sandbox, and becomes a
//! copy of itself.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// The part of a process, and what it needs to play it.
const ROLE: &str = "STOA_TEST_PROGRAM_ROLE";
/// What a program begins its answer with, among the lines of the test harness.
const ANSWER: &str = "answer: ";
/// Enough for a test program.
const MEMORY: u64 = 256 << 20;

/// A package with a copy of this program, and folders inside and outside of the sandbox.
struct Bed {
    folder: TempDir,
    digest: [u8; 32],
}

impl Bed {
    /// Nothing where the kernel has no Landlock, without which no program runs.
    fn new() -> Option<Self> {
        #[expect(unsafe_code, reason = "no library asks for the version alone")]
        // SAFETY: the call has no pointers.
        let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<()>(), 0, 1) };
        if version < 1 {
            eprintln!("skipped: the kernel has no Landlock");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["package", "own", "shared", "read", "outside"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("outside/key"), "secret").unwrap();
        fs::write(folder.path().join("package/data"), "data").unwrap();
        fs::write(folder.path().join("read/file"), "data").unwrap();
        let executable = folder.path().join("package/program");
        fs::copy(std::env::current_exe().unwrap(), &executable).unwrap();
        let digest = Sha256::digest(fs::read(&executable).unwrap()).into();
        Some(Self { folder, digest })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, network: Network, work: &[&str]) -> Program {
        Program {
            parent: std::process::id(),
            executable: self.path("package/program"),
            is_alone: false,
            digest: self.digest,
            arguments: harness().map(OsString::from).to_vec(),
            environment: vec![(ROLE.into(), work.join("\n").into()), ("ANIMAL".into(), "cat".into())],
            folder: self.path("own"),
            writes: vec![self.path("shared")],
            reads: vec![self.path("read")],
            largest_file: LARGEST_FILE,
            network,
            memory: MEMORY,
        }
    }

    /// What a program answers, if it ends in order.
    fn answer(&self, network: Network, work: &[&str]) -> String {
        let ended = start(&self.program(network, work)).wait_with_output().unwrap();
        answer_of(&ended).unwrap_or_else(|| panic!("{ended:?}"))
    }
}

fn answer_of(ended: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&ended.stdout);
    text.lines().find_map(|line| Some(line.split_once(ANSWER)?.1.to_owned()))
}

/// The arguments with which this test program plays a role.
fn harness() -> [&'static str; 4] {
    ["--exact", "program::tests::other_process", "--ignored", "--nocapture"]
}

/// Starts this test program, which enters the sandbox and becomes the program.
fn start(program: &Program) -> Child {
    let hex = program.digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let network = format!("{:?}", program.network);
    let own = [&program.executable, &program.folder, &program.writes[0], &program.reads[0]]
        .map(|path| path.display().to_string());
    let work = program.environment[0].1.to_str().unwrap().to_owned();
    let (parent, alone) = (program.parent.to_string(), program.is_alone.to_string());
    let role = ["enter", &parent, &hex, &network, &own[0], &own[1], &own[2], &own[3], &alone].join("\n");
    Command::new(std::env::current_exe().unwrap())
        .args(harness())
        .env(ROLE, role)
        .env("STOA_TEST_WORK", work)
        .env("STOA_TEST_SECRET", "hidden")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Enters the sandbox, as the text of [`start`] says.
fn enter(said: &[&str]) -> ProgramError {
    let [parent, digest, network, executable, folder, shared, read, alone] = said[..] else { panic!("{said:?}") };
    let byte = |at: usize| u8::from_str_radix(&digest[2 * at..2 * at + 2], 16).unwrap();
    let digest: [u8; 32] = std::array::from_fn(byte);
    let work = std::env::var("STOA_TEST_WORK").unwrap();
    run(&Program {
        parent: parent.parse().unwrap(),
        executable: executable.into(),
        is_alone: alone == "true",
        digest,
        arguments: harness().map(OsString::from).to_vec(),
        environment: vec![(ROLE.into(), work.into()), ("ANIMAL".into(), "cat".into())],
        folder: folder.into(),
        writes: vec![shared.into()],
        reads: vec![read.into()],
        largest_file: LARGEST_FILE,
        network: if network == "Allow" { Network::Allow } else { Network::Deny },
        memory: MEMORY,
    })
}

fn kind<T>(result: io::Result<T>) -> String {
    result.err().map_or("done".to_owned(), |error| format!("{:?}", error.kind()))
}

/// What a program does in the sandbox, and what it says of it.
fn work(work: &[&str]) -> String {
    match *work {
        ["read", path] => kind(fs::read(path)),
        ["list", path] => kind(fs::read_dir(path)),
        ["write", path] => kind(fs::write(path, "x")),
        ["remove", path] => kind(fs::remove_file(path)),
        ["environment"] => {
            let mut names: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
            names.sort();
            names.join(" ")
        }
        ["spawn", program] => kind(Command::new(program).output()),
        ["listen"] => kind(TcpListener::bind("127.0.0.1:0")),
        ["connect", address] => kind(TcpStream::connect(address)),
        ["datagram"] => kind(UdpSocket::bind("127.0.0.1:0")),
        ["unix", path] => kind(UnixStream::connect(path)),
        ["list-sockets"] => {
            #[expect(unsafe_code, reason = "no library opens such a socket")]
            // SAFETY: the call has no pointers.
            let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG) };
            kind(if socket < 0 { Err(io::Error::last_os_error()) } else { Ok(()) })
        }
        ["serve"] => {
            let listener = UnixListener::bind("socket").unwrap();
            writeln!(io::stdout(), "{ANSWER}ready").unwrap();
            listener.accept().unwrap().0.write_all(b"served").unwrap();
            "done".to_owned()
        }
        ["signal", process] => {
            let process = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
            kind(rustix::process::kill_process(process, rustix::process::Signal::CONT).map_err(io::Error::from))
        }
        ["thread"] => std::thread::spawn(|| "done".to_owned()).join().unwrap(),
        ["memory"] => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(vec![1; 16 << 20]);
                std::hint::black_box(&all);
            }
        }
        ["chmod", path] => kind(fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))),
        ["truncate", path] => {
            let path = CString::new(path).unwrap();
            #[expect(unsafe_code, reason = "no library truncates a file by its path")]
            // SAFETY: the path ends with a NUL, and lives until the call returns.
            let done = unsafe { libc::truncate(path.as_ptr(), 0) };
            kind(if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) })
        }
        ["watch"] => {
            #[expect(unsafe_code, reason = "no dependency watches files")]
            // SAFETY: the call has no pointers.
            let watch = unsafe { libc::inotify_init1(0) };
            kind(if watch < 0 { Err(io::Error::last_os_error()) } else { Ok(()) })
        }
        ["shared-memory"] => {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            #[expect(unsafe_code, reason = "memory that is shared with nobody")]
            // SAFETY: a new mapping replaces none.
            let memory = unsafe { libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0) };
            kind(if memory == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) })
        }
        ["survive"] => kind(rustix::process::set_parent_process_death_signal(None).map_err(io::Error::from)),
        ["limits"] => {
            let of = |resource| rustix::process::getrlimit(resource).maximum;
            let limits = [Resource::Core, Resource::Data, Resource::Fsize].map(of);
            format!("{limits:?} {:?}", rustix::thread::no_new_privs().unwrap())
        }
        ["wait"] => {
            writeln!(io::stdout(), "{ANSWER}{}", std::process::id()).unwrap();
            std::thread::sleep(Duration::from_secs(60));
            "it was not killed".to_owned()
        }
        // It starts a program, and waits for its end.
        ["parent", role] => {
            let role = role.replace("PARENT", &std::process::id().to_string()).replace('|', "\n");
            let child = Command::new(std::env::current_exe().unwrap()).args(harness()).env(ROLE, role).spawn();
            kind(child.unwrap().wait())
        }
        _ => panic!("{work:?}"),
    }
}

#[test]
#[ignore = "the process that other tests start"]
fn other_process() {
    let role = std::env::var(ROLE).unwrap();
    let role: Vec<&str> = role.lines().collect();
    match role.split_first() {
        Some((&"enter", said)) => panic!("{}", enter(said)),
        _ => writeln!(io::stdout(), "{ANSWER}{}", work(&role)).unwrap(),
    }
}

#[test]
fn program_reads_only_its_package_and_folders() {
    let Some(bed) = Bed::new() else { return };
    let on = |what: &str, name: &str| bed.answer(Network::Allow, &[what, bed.path(name).to_str().unwrap()]);
    for (what, name) in [
        ("read", "package/data"),
        ("list", "package"),
        ("write", "own/new"),
        ("read", "own/new"),
        ("write", "shared/new"),
        ("read", "read/file"),
        ("list", "read"),
    ] {
        assert_eq!(on(what, name), "done", "{what} {name}");
    }
    for (what, name) in [
        ("read", "outside/key"),
        ("write", "outside/new"),
        ("remove", "outside/key"),
        ("list", "outside"),
        ("write", "read/new"),
        ("remove", "read/file"),
        ("write", "package/data"),
        ("remove", "package/program"),
        ("chmod", "outside/key"),
        ("chmod", "package/program"),
        ("truncate", "outside/key"),
    ] {
        assert_eq!(on(what, name), "PermissionDenied", "{what} {name}");
    }
    assert_eq!(bed.answer(Network::Allow, &["watch"]), "PermissionDenied");
    let parent = format!("/proc/{}", std::process::id());
    for path in [format!("{parent}/environ"), format!("{parent}/mem"), "/proc/self/environ".to_owned()] {
        assert_eq!(bed.answer(Network::Allow, &["read", &path]), "PermissionDenied", "{path}");
    }
    std::os::unix::fs::symlink(bed.path("outside"), bed.path("own/link")).unwrap();
    assert_eq!(on("read", "own/link/key"), "PermissionDenied");
}

#[test]
fn program_alone_reads_no_file_beside_it() {
    let Some(bed) = Bed::new() else { return };
    for (what, name, answer) in [
        ("read", "package/program", "done"),
        ("read", "package/data", "PermissionDenied"),
        ("list", "package", "PermissionDenied"),
        ("read", "read/file", "done"),
        ("write", "own/new", "done"),
    ] {
        let program = bed.program(Network::Deny, &[what, bed.path(name).to_str().unwrap()]);
        let ended = start(&Program { is_alone: true, ..program }).wait_with_output().unwrap();
        assert_eq!(answer_of(&ended).as_deref(), Some(answer), "{what} {name}: {ended:?}");
    }
}

#[test]
fn program_has_its_own_environment_and_limits() {
    let Some(bed) = Bed::new() else { return };
    assert_eq!(bed.answer(Network::Deny, &["environment"]), format!("ANIMAL {ROLE}"));
    let limits = bed.answer(Network::Deny, &["limits"]);
    assert_eq!(limits, format!("{:?} true", [Some(0), Some(MEMORY), Some(LARGEST_FILE)]));
}

#[test]
fn program_starts_threads_and_no_process() {
    let Some(bed) = Bed::new() else { return };
    assert_eq!(bed.answer(Network::Allow, &["thread"]), "done");
    for program in [bed.path("package/program").to_str().unwrap(), "/bin/true"] {
        assert_eq!(bed.answer(Network::Allow, &["spawn", program]), "PermissionDenied", "{program}");
    }
    let parent = std::process::id().to_string();
    assert_eq!(bed.answer(Network::Allow, &["signal", &parent]), "PermissionDenied");
}

#[test]
fn program_with_network_connects() {
    let Some(bed) = Bed::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for work in [&["connect", &address][..], &["listen"], &["datagram"]] {
        assert_eq!(bed.answer(Network::Allow, work), "done", "{work:?}");
    }
    assert_eq!(bed.answer(Network::Allow, &["list-sockets"]), "PermissionDenied");
    let resolved = bed.answer(Network::Allow, &["read", "/etc/resolv.conf"]);
    assert_eq!(resolved, kind(fs::read("/etc/resolv.conf")));
}

#[test]
fn program_without_network_has_no_socket_but_its_own() {
    let Some(bed) = Bed::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = bed.path("outside/socket");
    let _other = UnixListener::bind(&other).unwrap();
    let unix = ["unix", other.to_str().unwrap()];
    for work in [&["connect", &address][..], &["listen"], &["datagram"], &unix, &["list-sockets"]] {
        assert_eq!(bed.answer(Network::Deny, work), "PermissionDenied", "{work:?}");
    }
    if fs::exists("/etc/hosts").unwrap() {
        assert_eq!(bed.answer(Network::Deny, &["read", "/etc/hosts"]), "PermissionDenied");
    }
    let mut child = start(&bed.program(Network::Deny, &["serve"]));
    until_answer(&mut child);
    let mut served = String::new();
    UnixStream::connect(bed.path("own/socket")).unwrap().read_to_string(&mut served).unwrap();
    assert_eq!(served, "served");
    child.wait().unwrap();
}

/// Waits for the first answer of a program.
fn until_answer(child: &mut Child) -> String {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answer = lines.map_while(Result::ok).find_map(|line| Some(line.split_once(ANSWER)?.1.to_owned()));
    answer.expect("the program answers")
}

#[test]
fn memory_limit_ends_the_program_alone() {
    let Some(bed) = Bed::new() else { return };
    let ended = start(&bed.program(Network::Deny, &["memory"])).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("memory allocation of"), "{ended:?}");
    assert_eq!(bed.answer(Network::Deny, &["shared-memory"]), "PermissionDenied");
    assert_eq!(bed.answer(Network::Deny, &["thread"]), "done");
}

#[test]
fn program_ends_with_its_parent() {
    let Some(bed) = Bed::new() else { return };
    assert_eq!(bed.answer(Network::Deny, &["survive"]), "PermissionDenied");
    let program = bed.program(Network::Deny, &["wait"]);
    let hex = bed.digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let paths = [&program.executable, &program.folder, &program.writes[0], &program.reads[0]]
        .map(|path| path.display().to_string());
    let role = ["enter", "PARENT", &hex, "Deny", &paths[0], &paths[1], &paths[2], &paths[3], "false"].join("|");
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(harness())
        .env(ROLE, format!("parent\n{role}"))
        .env("STOA_TEST_WORK", "wait")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let id = until_answer(&mut parent);
    let runs = || fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(runs());
    parent.kill().unwrap();
    parent.wait().unwrap();
    for _ in 0..1000 {
        if !runs() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the program survived its parent");
}

#[test]
fn other_files_and_orphans_do_not_run() {
    let Some(bed) = Bed::new() else { return };
    let failed = |program: &Program| {
        let ended = start(program).wait_with_output().unwrap();
        assert!(!ended.status.success() && answer_of(&ended).is_none(), "{ended:?}");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    let program = bed.program(Network::Deny, &["thread"]);
    let orphan = failed(&Program { parent: 1, ..program.clone() });
    assert!(orphan.contains("the process that starts it has ended"), "{orphan}");
    let missing = failed(&Program { executable: bed.path("package/missing"), ..program.clone() });
    assert!(missing.contains("reading ") && missing.contains("missing"), "{missing}");
    fs::OpenOptions::new().append(true).open(&program.executable).unwrap().write_all(b"x").unwrap();
    let changed = failed(&program);
    assert!(changed.contains("is not the installed one"), "{changed}");
}

#[test]
fn variables_need_names() {
    let of = |name: &str, value: &str| variables(&[(name.into(), value.into())]);
    assert_eq!(of("A", "b=c").unwrap(), [CString::new("A=b=c").unwrap()]);
    for (name, value) in [("", "x"), ("A=B", "x"), ("A", "x\0y")] {
        assert!(matches!(of(name, value), Err(ProgramError::Variable(_))), "{name:?}");
    }
}
