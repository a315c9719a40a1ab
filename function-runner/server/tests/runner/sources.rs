//! Git servers that mean harm: what they send is heard in a process with limits, and nobody else waits for it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stoa_proto::{ResolveRequest, ResolveResponse, Source};
use tokio::task::JoinHandle;
use tonic::{Code, Response, Status};

use crate::bed::{Bed, Origin, problem};
use crate::caller::git;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A server that answers whoever asks for its refs with these bytes, and then with whatever else is written. Returns its URL.
fn server(answer: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.git", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            std::thread::spawn(move || {
                // What is asked for does not matter, nor when whoever asked has enough. The client wants to hear of a length.
                let _ = stream.read(&mut [0; 4096]);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\
                            Content-Length: 1099511627776\r\n\r\n001e# service=git-upload-pack\n0000";
                let _ = stream.write_all(head.as_bytes()).and_then(|()| answer(&mut stream));
            });
        }
    });
    url
}

/// A line of refs, the first of which says what the server can do.
fn ref_line(number: u64) -> String {
    let capabilities = if number == 0 { "\0side-band-64k ofs-delta" } else { "" };
    let line = format!("{} refs/heads/b{number:032}{capabilities}\n", "1".repeat(40));
    format!("{:04x}{line}", line.len() + 4)
}

/// A server that has refs without end.
pub(crate) fn endless() -> String {
    server(|stream| {
        for block in 0.. {
            let lines: String = (0..1000).map(|line| ref_line(block * 1000 + line)).collect();
            stream.write_all(lines.as_bytes())?;
        }
        Ok(())
    })
}

async fn begin(bed: &Bed, source: Source) -> JoinHandle<Result<Response<ResolveResponse>, Status>> {
    let mut client = bed.client().await;
    let request = ResolveRequest { source: Some(source), version: "main".to_owned(), ..ResolveRequest::default() };
    tokio::spawn(async move { client.resolve(request).await })
}

async fn resolve(bed: &Bed, source: Source) -> Result<String, Status> {
    let answer = tokio::time::timeout(PATIENCE, begin(bed, source).await).await.unwrap().unwrap();
    answer.map(|answer| answer.into_inner().commit)
}

/// Waits until so many processes are there besides the one worker.
async fn until_at_work(bed: &Bed, processes: usize) {
    let start = Instant::now();
    while bed.children().len() != processes + 1 {
        assert!(start.elapsed() < PATIENCE, "{:?}", bed.children());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_refs_use_no_runner_memory() {
    let bed = Bed::start_with(&["--workers=1", "--source-memory-mib=96"]);
    let origin = Origin::new(&bed.path("origin"));
    let commit = origin.commit(&[("a.yaml", "a: 1\n")]);
    assert_eq!(resolve(&bed, git(&origin.remote())).await.unwrap(), commit);
    let before = bed.most_memory();
    let (code, told) = problem(&resolve(&bed, git(&endless())).await.unwrap_err());
    assert_eq!((code, told.reason.as_str()), (Code::InvalidArgument, "TooLarge"), "{told:?}");
    let more = bed.most_memory() - before;
    assert!(more < 64 << 20, "{} MiB more in the runner", more >> 20);
    until_at_work(&bed, 0).await;
    assert_eq!(resolve(&bed, git(&origin.remote())).await.unwrap(), commit);
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_server_delays_no_other_organization() {
    let bed = Bed::start_with(&["--workers=1", "--source-processes=2", "--source-timeout-seconds=10"]);
    let origin = Origin::new(&bed.path("origin"));
    let commit = origin.commit(&[("a.yaml", "a: 1\n")]);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let slow = server(move |stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        for byte in ref_line(0).as_bytes().iter().cycle() {
            stream.write_all(&[*byte])?;
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    });
    let of = |organization: &str, remote: &str| Source { organization: organization.to_owned(), ..git(remote) };
    let held = begin(&bed, of("a", &slow)).await;
    until_at_work(&bed, 1).await;
    // The other place is not that organization's, though there are more of its sources.
    let waiting = begin(&bed, of("a", &format!("{slow}/other"))).await;
    assert_eq!(resolve(&bed, of("b", &origin.remote())).await.unwrap(), commit);
    for call in [held, waiting] {
        let (code, told) = problem(&tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap().unwrap_err());
        assert_eq!((code, told.reason.as_str()), (Code::Unavailable, "SourceUnavailable"), "{told:?}");
        assert!(
            told.message.ends_with("was not fetched and read within 10 s; check that its Git server answers"),
            "{told:?}"
        );
    }
    until_at_work(&bed, 0).await;

    // Whoever gives up keeps the process no longer than that.
    let before = asked.load(Ordering::SeqCst);
    let left = begin(&bed, of("a", &slow)).await;
    // A process may be there that was told nothing yet.
    let start = Instant::now();
    while asked.load(Ordering::SeqCst) == before {
        assert!(start.elapsed() < PATIENCE, "the server is not asked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    left.abort();
    until_at_work(&bed, 0).await;
    // Whoever asks next hears how that ended, and the one after that has it tried again.
    let before = asked.load(Ordering::SeqCst);
    for tries in 0..2 {
        let (code, told) = problem(&resolve(&bed, of("a", &slow)).await.unwrap_err());
        assert_eq!((code, told.reason.as_str()), (Code::Unavailable, "SourceUnavailable"), "{told:?}");
        assert!(
            told.message.ends_with("was not fetched and read within 10 s; check that its Git server answers"),
            "{told:?}"
        );
        assert_eq!(asked.load(Ordering::SeqCst) - before, tries);
    }
    assert_eq!(resolve(&bed, of("a", &origin.remote())).await.unwrap(), commit);
}

#[tokio::test(flavor = "multi_thread")]
async fn source_process_reaches_no_secret() {
    let bed = Bed::start_in(&[("STOA_TEST_SECRET", "hidden")], &["--workers=1"]);
    let (asked, is_asked) = std::sync::mpsc::channel();
    let slow = server(move |_| {
        asked.send(()).unwrap();
        std::thread::sleep(PATIENCE);
        Ok(())
    });
    let workers = bed.children();
    let credentials = [("token".to_owned(), b"s3cr3t".to_vec().into())].into();
    let _call = begin(&bed, Source { credentials, ..git(&slow) }).await;
    is_asked.recv_timeout(PATIENCE).unwrap();
    let process = bed.children().into_iter().find(|process| !workers.contains(process)).unwrap();
    let of_process = |file: &str| {
        std::fs::read(format!("/proc/{process}/{file}")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let arguments = of_process("cmdline").unwrap();
    assert!(arguments.contains("--cache=") && !arguments.contains("s3cr3t") && !arguments.contains("127.0.0.1"));
    // A process that may not be looked into shows it to root alone.
    if let Ok(environment) = of_process("environ") {
        assert!(!environment.contains("s3cr3t") && !environment.contains("hidden"), "{environment}");
    }
    let status = of_process("status").unwrap();
    let says = |field: &str| status.lines().find_map(|line| line.strip_prefix(field)).map(str::trim);
    assert_eq!((says("NoNewPrivs:"), says("Threads:")), (Some("1"), Some("1")), "{status}");
}
