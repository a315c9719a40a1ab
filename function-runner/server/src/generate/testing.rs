//! Jobs for tests of workers: generators named `Trial:…`. Release builds have none, and other builds only where
//! `STOA_WORKER_TRIALS` is set.

use std::io;

/// The variable without which there are no trials.
pub(crate) const VARIABLE: &str = "STOA_WORKER_TRIALS";

/// Does what is asked for by the name of a generator, if it is a trial. Says what it came to.
pub(super) fn run(generator: &str) -> Option<Vec<String>> {
    let trial = generator.strip_prefix("Trial:")?;
    std::env::var_os(VARIABLE)?;
    Some(match trial {
        // Never ends, and takes all of a processor.
        "spin" => loop {
            std::hint::spin_loop();
        },
        // Never ends, and takes nothing.
        "wait" => loop {
            std::thread::park();
        },
        "memory" => vec![take_memory().to_string()],
        "abort" => std::process::abort(),
        "panic" => panic!("as a test wants"),
        "reach" => reach(),
        "environment" => std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect(),
        _ => return None,
    })
}

/// Takes memory until there is no more.
fn take_memory() -> usize {
    let mut all = Vec::new();
    loop {
        all.push(vec![1_u8; 1 << 20]);
        if all.len() > 1 << 20 {
            return all.len();
        }
    }
}

/// Reaches for all that is outside, and says what came of it.
fn reach() -> Vec<String> {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    let said = |what: &str, done: io::Result<()>| match done {
        Ok(()) => format!("{what}: done"),
        Err(err) => format!("{what}: {:?}", err.kind()),
    };
    vec![
        said("read", std::fs::read("/etc/passwd").map(drop)),
        said("read of its own", std::fs::read("/proc/self/environ").map(drop)),
        said("write", std::fs::write("/tmp/stoa-worker-trial", "x")),
        said("list", std::fs::read_dir("/").map(drop)),
        said("connect", TcpStream::connect(("127.0.0.1", 80)).map(drop)),
        said("listen", TcpListener::bind(("127.0.0.1", 0)).map(drop)),
        said("send", UdpSocket::bind(("127.0.0.1", 0)).map(drop)),
        said("pipe", std::io::pipe().map(drop)),
        said("program", std::process::Command::new("/bin/true").spawn().map(drop)),
        said("itself", std::process::Command::new("/proc/self/exe").spawn().map(drop)),
        said("thread", std::thread::Builder::new().spawn(|| {}).map(drop)),
    ]
}
