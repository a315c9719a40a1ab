//! What others do: they fork a repository, and run servers.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn unreferenced_commit_has_no_short_id() {
    let origin = Origin::new();
    let first = origin.commit("first", &[("b.yaml", "b: 1")]).to_string();
    let stray = strays(&origin, 1).remove(0);
    let (_server, source) = serving_all(&origin).await;
    let sources = origin.sources();
    let resolve = async |version: &str| sources.resolve(&source, version, "").await.map(|resolved| resolved.commit);
    assert_eq!(resolve(&stray).await.unwrap(), stray, "all of it says which is meant");
    check(resolve(&stray[..10]).await, Code::NotFound, reason::VERSION_NOT_FOUND);
    let looked = sources.look(&source, "", vec![stray[..10].to_owned(), first[..10].to_owned()]).await.unwrap();
    assert_eq!(looked.commits, HashMap::from([(first[..10].to_owned(), first.clone())]));

    // One that a branch led to once is here by itself, and no branch leads to it any more.
    let second = origin.commit("second", &[("b.yaml", "b: 2")]).to_string();
    assert_eq!(resolve(&second[..10]).await.unwrap(), second);
    let short = |commit: &str| commit[..10].to_owned();
    let look = async || {
        let versions = [&first, &stray, &second].map(|commit| short(commit)).into();
        sources.look(&source, "", versions).await.unwrap().commits
    };
    let both = [(short(&first), first.clone()), (short(&second), second.clone())];
    assert_eq!(look().await, HashMap::from(both), "one walk finds all of them");
    let repository = origin.repository();
    repository.reference("refs/heads/main", Oid::from_str(&first).unwrap(), true, "rewritten").unwrap();
    check(resolve(&second[..10]).await, Code::NotFound, reason::VERSION_NOT_FOUND);
    assert_eq!(look().await, HashMap::from([(short(&first), first.clone())]));
    assert_eq!(resolve(&first[..10]).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_do_not_follow_redirects() {
    let origin = Origin::new();
    origin.commit("first", &[("b.yaml", "b: 1")]);
    let (server, source) = serving_all(&origin).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = format!("{}/info/refs?service=git-upload-pack", source.remote);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // What is asked for does not matter.
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            let answer = format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n");
            let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
        }
    });
    // To the other server it is `localhost`.
    let redirected = Source { remote: format!("http://127.0.0.1:{port}/a.git"), ..source.clone() };
    let sources = origin.sources();
    let failure = sources.resolve(&redirected, "main", "").await.unwrap_err();
    let problem = &failure.problems()[0];
    assert_eq!((failure.code(), problem.reason.as_str()), (Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED));
    assert!(problem.message.contains("write the address that it leads to"), "{problem:?}");
    assert_eq!(server.requests(), 0, "the other one heard nothing of us");
    // With nothing to hide it is followed, and that one wants a password.
    let anonymous = Source { credentials: Default::default(), ..redirected };
    check(sources.resolve(&anonymous, "main", "").await, Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED);
    assert_ne!(server.requests(), 0);
    sources.resolve(&source, "main", "").await.unwrap();
}
