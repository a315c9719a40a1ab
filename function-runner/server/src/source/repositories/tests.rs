//! What is done at the servers of repositories, and what is said to the processes that do it.

use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;

/// What comes out of the pipe at the other end.
fn sent<T: prost::Message + Default>(message: &T) -> T {
    T::decode(message.encode_to_vec().as_slice()).unwrap()
}

#[test]
fn requests_survive_encoding() {
    let from = Oid::from_str(&"1a".repeat(20)).unwrap();
    let own = "refs/stoa/new-refs/1".to_owned();
    for task in [Task::List, Task::Fetch { own: own.clone() }, Task::Push { own, from }] {
        let request = Request { url: "https://x/y".to_owned(), branch: "refs/heads/main".to_owned(), task };
        let asked = sent(&RemoteRequest::of(&request, &Grant::unlimited(), monotonic()));
        let (arrived, grant) = asked.into_request("https://x/y", monotonic).unwrap();
        assert_eq!((arrived, grant.remaining()), (request, None));
    }
}

#[tokio::test(start_paused = true)]
async fn grant_ends_in_the_process_on_time() {
    let (second, start) = (Duration::from_secs(1), Instant::now());
    // The clock of both processes, which is not paused otherwise.
    let clock = || 1_000 * second + start.elapsed();
    let request = Request { url: String::new(), branch: String::new(), task: Task::List };
    let grant = Grant::until(start + 60 * second);
    let asked = sent(&RemoteRequest::of(&request, &grant, clock()));
    // The process is suspended before it hears of it.
    tokio::time::advance(20 * second).await;
    let (_, there) = asked.clone().into_request("", clock).unwrap();
    assert_eq!(there.remaining(), Some(40 * second));
    tokio::time::advance(40 * second).await;
    there.check().unwrap_err();
    let (_, there) = asked.clone().into_request("", clock).unwrap();
    there.check().unwrap_err();
    // It was extended meanwhile, and the process asks.
    grant.extend(start + 90 * second);
    let (_, there) = asked.into_request("", clock).unwrap();
    sent(&Deadline::of(&grant, clock())).extend(&there, clock);
    assert_eq!(there.remaining(), Some(30 * second));
}

#[tokio::test(start_paused = true)]
async fn work_under_way_ends_with_its_grant() {
    let (second, directory) = (Duration::from_secs(1), TempDir::new().unwrap());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/a.git", listener.local_addr().unwrap());
    let folders = Folders::new(directory.path().to_owned());
    let cache = folders.take("gitops", "a");
    let copy = cache.path().join("copy");
    git2::Repository::init_bare(&copy).unwrap();
    let source = Source { remote: url.clone(), ..Source::default() };
    let repository = Repository::new(source, cache, folders, ReaderPool::in_process());
    let request = Request { url, branch: "refs/heads/main".to_owned(), task: Task::List };
    let grant = Grant::until(Instant::now() + second);
    let (reached, ()) = tokio::join!(repository.ask(&copy, &request, &grant), async move {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::time::advance(2 * second).await;
        // Without an end by then this is what would be heard of.
        drop((stream, listener));
    });
    // A process that is about to push asks.
    assert!(matches!(&reached, Err(Unreached::Lapsed)), "{reached:?}");
}

#[tokio::test]
async fn organization_above_its_share_fetches_no_copy() {
    let directory = TempDir::new().unwrap();
    let origin = git2::Repository::init_bare(directory.path().join("origin")).unwrap();
    let me = git2::Signature::now("me", "me@example.com").unwrap();
    let tree = origin.find_tree(origin.treebuilder(None).unwrap().write().unwrap()).unwrap();
    let commit = origin.commit(Some("refs/heads/main"), &me, &me, "first", &tree, &[]).unwrap();
    let url = format!("file://{}", origin.path().display());
    let folders = Folders::new(directory.path().join("cache")).of_at_most(1);
    let of = |name: &str, organization: &str| {
        let cache = folders.take_for("gitops", name, organization);
        git2::Repository::init_bare(cache.path().join("copy")).unwrap();
        let source = Source { remote: url.clone(), organization: organization.to_owned(), ..Source::default() };
        Repository::new(source, cache, folders.clone(), ReaderPool::in_process())
    };
    let fetch = async |repository: &Repository| {
        let task = Task::Fetch { own: "refs/stoa/new-refs/1".to_owned() };
        let request = Request { url: url.clone(), branch: "refs/heads/main".to_owned(), task };
        let copy = repository.cache.path().join("copy");
        repository.ask(&copy, &request, &Grant::unlimited()).await.map(|reached| reached.branch)
    };
    let (first, second, of_other) = (of("first", "a"), of("second", "a"), of("of-other", "b"));
    assert_eq!(fetch(&first).await.unwrap(), Some(commit));
    assert!(folders.size_of(&first.cache) > 0, "it was measured");
    let refused = fetch(&second).await;
    assert!(matches!(&refused, Err(Unreached::Unbegun(why)) if why == LACKS_ROOM), "{refused:?}");
    for has_share in [&of_other, &first] {
        assert_eq!(fetch(has_share).await.unwrap(), Some(commit));
    }
    drop(first);
    assert_eq!(fetch(&second).await.unwrap(), Some(commit), "nobody is at work in the other one any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_left_in_a_copy_are_not_followed() {
    let directory = TempDir::new().unwrap();
    let others = git2::Repository::init_bare(directory.path().join("others")).unwrap();
    let theirs = others.blob(b"theirs").unwrap();
    let folders = Folders::new(directory.path().join("cache"));
    let cache = folders.take("gitops", "a");
    let path = cache.path().join("copy");
    let own = git2::Repository::init_bare(&path).unwrap().blob(b"own").unwrap();
    let repository = Repository::new(Source::default(), cache, folders, ReaderPool::in_process());
    let has = |blob: Oid| git2::Repository::open_bare(&path).and_then(|copy| copy.find_blob(blob).map(drop)).is_ok();
    let apart = |blob: Oid| {
        let mut found = None;
        repository.apart(&mut || found = Some(has(blob))).unwrap();
        found.unwrap()
    };
    assert!(apart(own) && !apart(theirs));
    let objects = others.path().join("objects");
    std::fs::write(path.join("objects/info/alternates"), format!("{}\n", objects.display())).unwrap();
    assert!(has(theirs), "libgit2 goes where it leads");
    if std::thread::spawn(|| keep_to(&[], &[])).join().unwrap() {
        assert!(!apart(theirs));
    }
    std::fs::remove_file(path.join("objects/info/alternates")).unwrap();
    assert!(apart(own), "it is read as before");
}

#[tokio::test]
async fn request_queued_past_its_grant_has_not_begun() {
    let directory = TempDir::new().unwrap();
    let folders = Folders::new(directory.path().to_owned());
    let cache = folders.take("gitops", "a");
    let copy = cache.path().join("copy");
    git2::Repository::init_bare(&copy).unwrap();
    // Whoever asked there would be told that it is not there.
    let url = format!("file://{}", directory.path().join("none").display());
    let source = Source { remote: url.clone(), ..Source::default() };
    let repository = Repository::new(source, cache, folders, ReaderPool::in_process());
    let task = Task::Push { own: "refs/heads/main".to_owned(), from: Oid::ZERO_SHA1 };
    let request = Request { url, branch: "refs/heads/main".to_owned(), task };
    let reached = repository.ask(&copy, &request, &Grant::until(Instant::now())).await;
    assert!(matches!(reached, Err(Unreached::Lapsed)), "{reached:?}");
}

#[test]
fn oversized_push_has_not_arrived() {
    let connect = OnBehalf {
        authenticated: Authenticated::with(&Source::default()),
        progress: Progress::unheard(),
        kill_deadline: Mutex::default(),
        has_room: true,
        has_fetched: AtomicBool::new(false),
        may_have_pushed: AtomicBool::new(false),
    };
    let is_in_doubt = || connect.may_have_pushed.load(Ordering::Relaxed);
    assert!(!is_in_doubt());
    connect.may_push(&Grant::unlimited()).unwrap();
    assert!(is_in_doubt(), "it may have nothing to tell of");
    connect.pushing(Pushing::Prepares);
    assert!(!is_in_doubt());
    connect.pushing(Pushing::Sends);
    assert!(is_in_doubt());
    let too_large = || Unreached::TooLarge("a".to_owned());
    let in_doubt = RemoteAnswer::of(Err(too_large())).in_doubt().into_result();
    assert!(matches!(in_doubt, Err(Unreached::Unavailable(why)) if why == "a"));
    assert!(RemoteAnswer::of(Ok(Reached::default())).in_doubt().into_result().is_ok());

    for (may_have_pushed, at) in [(false, None), (true, Some(PREPARES))] {
        assert!(matches!(known(too_large(), may_have_pushed, at), Unreached::TooLarge(_)));
    }
    assert!(matches!(known(too_large(), true, None), Unreached::Unavailable(_)));
    // What it said last may not have been heard of one that was ended.
    let ended = || Unreached::Unavailable("b".to_owned());
    assert!(matches!(known(ended(), true, Some(PREPARES)), Unreached::Unavailable(_)));
    assert!(matches!(known(ended(), false, None), Unreached::Unbegun(_)));
}

#[test]
fn monotonic_clock_advances() {
    let before = monotonic();
    std::thread::sleep(Duration::from_millis(1));
    assert!(monotonic() > before);
}

#[test]
fn answers_survive_encoding() {
    let told = |reached| sent(&RemoteAnswer::of(reached)).into_result();
    let commit = Some(Oid::from_str(&"1a".repeat(20)).unwrap());
    for reached in [
        Reached::default(),
        Reached { branch: commit, refused: None },
        Reached { branch: None, refused: Some("no".to_owned()) },
    ] {
        assert_eq!(told(Ok(reached.clone())).unwrap(), reached);
    }
    for code in CODES {
        let Err(Unreached::Git(err)) = told(Err(git2::Error::new(code, ErrorClass::Net, "away").into())) else {
            panic!("{code:?}")
        };
        assert_eq!((err.code(), err.class(), err.message()), (code, ErrorClass::Net, "away"));
    }
    for class in CLASSES.into_iter().filter(|class| *class != ErrorClass::NoMemory) {
        let err = git2::Error::new(ErrorCode::GenericError, class, "away");
        let Err(Unreached::Git(err)) = told(Err(err.into())) else { panic!("{class:?}") };
        assert_eq!(err.class(), class);
    }
    let full = git2::Error::new(ErrorCode::GenericError, ErrorClass::NoMemory, "Out of memory");
    assert!(matches!(told(Err(full.into())), Err(Unreached::TooLarge(_))));
    assert!(matches!(told(Err(Unreached::TooLarge("a".to_owned()))), Err(Unreached::TooLarge(why)) if why == "a"));
    let unavailable = told(Err(Unreached::Unavailable("b".to_owned())));
    assert!(matches!(unavailable, Err(Unreached::Unavailable(why)) if why == "b"));
    assert!(matches!(told(Err(Unreached::Unbegun("c".to_owned()))), Err(Unreached::Unbegun(why)) if why == "c"));
    assert!(matches!(told(Err(Unreached::Lapsed)), Err(Unreached::Lapsed)));
}
