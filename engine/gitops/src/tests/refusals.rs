//! Tests of rejections and their messages.

use super::*;

#[tokio::test]
async fn missing_branch_is_rejected_unless_created() {
    for repository in TestRepository::both() {
        let config = GitOpsConfig { create_branch: false, ..repository.config("u-1") };
        let runtime = GitOpsRuntime::new(config.clone(), Arc::new(Anonymous)).unwrap();
        let expected = format!(
            "repository {} has no branch main; create the branch, or set spec.gitops.createBranch: true",
            config.repository
        );
        assert_eq!(told(runtime.read(&[]).await), (false, expected.clone()));
        apply(&runtime, &config_map("a", "1")).await;
        let failed = runtime.finish(&Grant::unlimited()).await.unwrap_err();
        assert_eq!((failed.is_retryable(), failed.to_string()), (false, expected));
        assert!(repository.log().is_empty());
        let first = repository.run("u-2");
        apply(&first, &config_map("a", "1")).await;
        finish(&first).await.unwrap();
        let runtime = GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap();
        apply(&runtime, &config_map("a", "2")).await;
        finish(&runtime).await.unwrap();
    }
}

#[tokio::test]
async fn rejected_push_is_not_repeated() {
    let repository = TestRepository::remote();
    repository.refuse_pushes();
    let runtime = repository.run("u-1");
    apply(&runtime, &config_map("a", "1")).await;
    let (retryable, message) = told(runtime.finish(&Grant::unlimited()).await);
    assert!(!retryable && message.contains("rejects the push: pre-receive hook declined"), "{message}");
}

#[tokio::test]
async fn invalid_file_name_is_rejected() {
    let repository = TestRepository::local();
    let runtime = repository.run("u-1");
    let role = |name: String| {
        let mut role = config_map("a", "1");
        role.attributes.insert("metadata".to_owned(), json!({"name": name, "namespace": "shop"}));
        role
    };
    let most = 255 - "configmap-.yaml".len();
    runtime.preview(&ApplyRequest::new(&role("a".repeat(most)), None), None).await.unwrap();
    for name in ["a".repeat(most + 1), ":".repeat(most / 3 + 1)] {
        let refused = runtime.preview(&ApplyRequest::new(&role(name), None), None).await.unwrap_err();
        let RuntimeError::Invalid { message, field } = refused else { panic!("{refused:?}") };
        assert_eq!(field.as_deref(), Some("attributes.metadata.name"));
        assert!(message.starts_with("the name of its file would be too long"), "{message}");
    }
}

#[tokio::test]
async fn unreachable_path_is_absent_and_not_written() {
    let repository = TestRepository::local();
    let first = repository.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    finish(&first).await;
    let runtime = repository.run("u-2");
    for (field, value) in [
        ("apiVersion", json!("example\0.com/v1")),
        ("metadata", json!({"name": "a", "namespace": "shop\0"})),
        ("metadata", json!({"name": "a\0", "namespace": "shop"})),
    ] {
        let mut desired = config_map("a", "1");
        desired.attributes.insert(field.to_owned(), value);
        let read = runtime.read(&[ReadRequest { desired: Some(&desired), prior: None }]).await.unwrap();
        assert!(matches!(read.as_slice(), [Ok(Live::Absent)]), "{read:?}");
        let refused = runtime.apply(&ApplyRequest::new(&desired, None)).await.unwrap_err();
        assert!(matches!(refused, RuntimeError::Invalid { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn file_in_place_of_folder_is_reported() {
    let repository = TestRepository::local();
    let first = repository.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    finish(&first).await;
    repository.foreign_push("dev/other", "a file\n");
    let mut desired = config_map("b", "1");
    desired.attributes["metadata"]["namespace"] = json!("other");
    let second = repository.run("u-2");
    apply(&second, &desired).await;
    let err = second.finish(&Grant::unlimited()).await.unwrap_err();
    assert_eq!(
        err.to_string(),
        "dev/other/configmap-b.yaml cannot be written: a file stands where a folder should be, or a folder where a file should"
    );
}

#[tokio::test]
async fn folder_in_place_of_file_is_kept() {
    let repository = TestRepository::local();
    let first = repository.run("u-1");
    apply(&first, &config_map("a", "1")).await;
    finish(&first).await;
    let prior = apply(&repository.run("u-0"), &config_map("b", "1")).await;
    let theirs = "dev/shop/configmap-b.yaml/theirs.yaml";
    repository.foreign_push(theirs, "a: 1\n");
    let second = repository.run("u-2");
    apply(&second, &config_map("b", "2")).await;
    let (retryable, message) = told(second.finish(&Grant::unlimited()).await);
    assert!(!retryable && message.starts_with("dev/shop/configmap-b.yaml cannot be written"), "{message}");
    let third = repository.run("u-3");
    third.delete(&prior).await.unwrap();
    assert_eq!(finish(&third).await, None, "there is no such file");
    assert_eq!(repository.files(), ["dev/shop/configmap-a.yaml", theirs]);
}

#[tokio::test]
async fn missing_repository_is_reported() {
    let repository = TestRepository::local();
    let at = |url: String| {
        let config = GitOpsConfig { repository: url, ..repository.config("u") };
        GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap()
    };
    let (retryable, message) = told(at("file:///nowhere/deploy.git".to_owned()).read(&[]).await);
    assert_eq!((retryable, message.as_str()), (false, "repository file:///nowhere/deploy.git does not exist"));

    let plain = repository.directory.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let (retryable, message) = told(at(plain.display().to_string()).read(&[]).await);
    assert!(!retryable && message.contains("does not exist"), "{message}");

    // Nothing listens on port 1.
    let (retryable, message) = told(at("http://bot:hunter2@127.0.0.1:1/deploy.git".to_owned()).read(&[]).await);
    assert!(
        retryable && message.starts_with("repository http://127.0.0.1:1/deploy.git cannot be reached"),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
}

/// Shows a token, as far as messages go.
#[derive(Debug)]
struct Token(&'static str);

impl Connect for Token {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        git2::RemoteCallbacks::new()
    }

    fn credentials(&self) -> Credentials {
        [("token".to_owned(), self.0.as_bytes().to_vec())].into_iter().collect()
    }
}

#[tokio::test]
async fn credentials_in_server_message_are_redacted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("git://{}/deploy.git", listener.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let said = "ERR nobody is called s3cr3t";
        std::io::Write::write_all(&mut stream, format!("{:04x}{said}", said.len() + 4).as_bytes()).unwrap();
        // Until it is read, lest it be reset.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let repository = TestRepository::local();
    let config = GitOpsConfig { repository: url, ..repository.config("u") };
    let (_, message) = told(GitOpsRuntime::new(config, Arc::new(Token("s3cr3t"))).unwrap().read(&[]).await);
    answer.join().unwrap();
    assert!(message.ends_with("remote error: nobody is called (sensitive)"), "{message}");

    // So is a hook that refuses a push.
    let repository = TestRepository::remote();
    repository.refuse_pushes();
    let runtime = GitOpsRuntime::new(repository.config("u-1"), Arc::new(Token("declined"))).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let (_, message) = told(runtime.finish(&Grant::unlimited()).await);
    assert!(message.ends_with("pre-receive hook (sensitive)"), "{message}");
}

/// Has no process that comes to an end.
#[derive(Debug)]
struct Cut(fn(String) -> Unreached);

impl Remotes for Cut {
    fn shown(&self) -> Credentials {
        Credentials::default()
    }

    fn reach(&self, _: &Repository, request: &Request, _: &Grant) -> Result<Reached, Unreached> {
        Err((self.0)(format!("{} takes too much", request.url)))
    }
}

#[tokio::test]
async fn oversized_answer_is_rejected_and_timeout_retried() {
    let too_large: fn(String) -> Unreached = Unreached::TooLarge;
    let too_long: fn(String) -> Unreached = Unreached::Unavailable;
    for (unreached, may_be_tried) in [(too_large, false), (too_long, true)] {
        let repository = TestRepository::remote();
        let runtime = GitOpsRuntime::new(repository.config("u-1"), Arc::new(Cut(unreached))).unwrap();
        let expected = (may_be_tried, format!("{} takes too much", repository.config("u-1").repository));
        assert_eq!(told(runtime.read(&[]).await), expected);
        apply(&runtime, &config_map("a", "1")).await;
        let failed = runtime.finish(&Grant::unlimited()).await.unwrap_err();
        assert!(!failed.is_unanswered(), "the branch was not even found: {failed:?}");
        assert_eq!((failed.is_retryable(), failed.to_string()), expected);
    }
}

/// Has nobody who looks at a copy.
#[derive(Debug)]
struct Alone;

impl Remotes for Alone {
    fn shown(&self) -> Credentials {
        Credentials::default()
    }

    fn reach(&self, copy: &Repository, request: &Request, grant: &Grant) -> Result<Reached, Unreached> {
        reach(&Anonymous, copy, request, grant)
    }

    fn apart(&self, _: &mut (dyn FnMut() + Send)) -> io::Result<()> {
        Err(io::Error::other("no thread is left"))
    }
}

#[tokio::test]
async fn unavailable_server_is_retried() {
    let repository = TestRepository::remote();
    let runtime = GitOpsRuntime::new(repository.config("u-1"), Arc::new(Alone)).unwrap();
    let expected = (true, format!("repository {}: no thread is left", repository.config("u-1").repository));
    assert_eq!(told(runtime.read(&[]).await), expected);
    apply(&runtime, &config_map("a", "1")).await;
    let failed = runtime.finish(&Grant::unlimited()).await.unwrap_err();
    assert!(failed.is_retryable() && !failed.is_unanswered(), "{failed:?}");
    assert!(repository.log().is_empty());
}

#[tokio::test]
async fn expired_lease_prevents_writes() {
    for repository in TestRepository::both() {
        let runtime = repository.run("u-1");
        apply(&runtime, &config_map("a", "1")).await;
        let failed = runtime.finish(&Grant::until(tokio::time::Instant::now())).await.unwrap_err();
        assert!(failed.is_retryable() && !failed.is_unanswered(), "{failed:?}");
        assert!(repository.log().is_empty());
    }
}

/// Pushes, and reaches a limit while it hears what came of that.
#[derive(Debug)]
struct CutAfterwards;

impl Remotes for CutAfterwards {
    fn shown(&self) -> Credentials {
        Credentials::default()
    }

    fn reach(&self, copy: &Repository, request: &Request, grant: &Grant) -> Result<Reached, Unreached> {
        let reached = reach(&Anonymous, copy, request, grant);
        match request.task {
            Task::List | Task::Fetch { .. } => reached,
            Task::Push { .. } => Err(Unreached::TooLarge("it takes too much".to_owned()).in_doubt()),
        }
    }
}

#[tokio::test]
async fn push_with_oversized_answer_may_have_arrived() {
    let repository = TestRepository::remote();
    let runtime = GitOpsRuntime::new(repository.config("u-1"), Arc::new(CutAfterwards)).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let failed = runtime.finish(&Grant::unlimited()).await.unwrap_err();
    assert!(failed.is_retryable() && failed.is_unanswered(), "{failed:?}");
    assert_eq!(finish(&runtime).await, Some(repository.log()[0]), "the next try finds it");
    assert_eq!(repository.log().len(), 1);
}

/// Reaches servers when the time for it is over, as far as is known there.
#[derive(Debug)]
struct Late;

impl Remotes for Late {
    fn shown(&self) -> Credentials {
        Credentials::default()
    }

    fn reach(&self, copy: &Repository, request: &Request, _: &Grant) -> Result<Reached, Unreached> {
        reach(&Anonymous, copy, request, &Grant::until(tokio::time::Instant::now()))
    }
}

#[tokio::test]
async fn late_push_is_retryable() {
    let repository = TestRepository::remote();
    let runtime = GitOpsRuntime::new(repository.config("u-1"), Arc::new(Late)).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let failed = runtime.finish(&Grant::unlimited()).await.unwrap_err();
    assert!(matches!(failed, RuntimeError::Unread { .. }), "{failed:?}");
    assert!(failed.is_retryable() && !failed.is_unanswered() && repository.log().is_empty(), "{failed}");
}

#[tokio::test]
async fn oversized_file_is_not_read() {
    for repository in TestRepository::both() {
        let first = repository.run("u-0");
        let prior = apply(&first, &config_map("a", "1")).await;
        apply(&first, &config_map("c", "1")).await;
        finish(&first).await;
        repository.foreign_push("dev/shop/configmap-a.yaml", &"# nothing\n".repeat(2 << 20));
        let [large, other] = ["a", "c"].map(|name| config_map(name, "1"));
        let request = |desired| ReadRequest { desired: Some(desired), prior: None };
        let mut read = repository.run("u-1").read(&[request(&large), request(&other)]).await.unwrap();
        assert!(matches!(&read[1], Ok(Live::Present(_))), "it has nothing to do with the other: {read:?}");
        let (retryable, message) = told(read.remove(0));
        assert_eq!((retryable, message.as_str()), (false, "dev/shop/configmap-a.yaml is larger than 16 MiB"));
        let recorded = ReadRequest { desired: Some(&large), prior: Some(&prior) };
        let read = repository.run("u-1").read(&[recorded]).await.unwrap();
        assert!(matches!(&read[0], Ok(Live::Present(_))), "it can be written anew: {read:?}");
        // Nor is one written.
        let runtime = repository.run("u-2");
        apply(&runtime, &config_map("b", &"x".repeat(17 << 20))).await;
        let (retryable, message) = told(runtime.finish(&Grant::unlimited()).await);
        assert!(!retryable && message.ends_with("would be larger than 16 MiB"), "{message}");
    }
}

#[tokio::test]
async fn checked_out_branch_is_not_written() {
    let repository = TestRepository::local();
    let path: &Path = &repository.directory.path().join("work");
    Repository::init_opts(path, RepositoryInitOptions::new().initial_head("main")).unwrap();
    let config = GitOpsConfig { repository: path.display().to_string(), ..repository.config("u") };
    let (retryable, message) =
        told(GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap().finish(&Grant::unlimited()).await);
    assert!(!retryable && message.ends_with("has refs/heads/main checked out; use a bare repository"), "{message}");
}

#[test]
fn invalid_settings_are_rejected_by_field() {
    let repository = TestRepository::local();
    let check = |change: fn(&mut GitOpsConfig), expected: &str| {
        let mut config = repository.config("u");
        change(&mut config);
        let Err(RuntimeError::Invalid { field, .. }) = GitOpsRuntime::new(config, Arc::new(Anonymous)) else {
            panic!("{expected} is accepted")
        };
        assert_eq!(field.as_deref(), Some(expected));
    };
    check(|config| config.branch = "a..b".to_owned(), "spec.gitops.branch");
    check(|config| config.directory = "../up".to_owned(), "spec.gitops.directory");
    check(|config| config.directory = "a/.git/hooks".to_owned(), "spec.gitops.directory");
    check(|config| config.directory = "a/b\0".to_owned(), "spec.gitops.directory");
    check(|config| config.repository.clear(), "spec.gitops.repository");
    check(|config| config.validation.kubernetes = "1.12".to_owned(), "spec.gitops.kubernetesVersion");
}

#[tokio::test]
async fn trailers_and_authors_cannot_be_forged() {
    let repository = TestRepository::local();
    let mut config = repository.config("u-1");
    config.run.requester = "eve <x@y>\nStoa-Run: u-2".to_owned();
    let runtime = GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap();
    apply(&runtime, &config_map("a", "1")).await;
    let commit = finish(&runtime).await.unwrap();
    let repository = repository.repository();
    let commit = repository.find_commit(commit).unwrap();
    assert!(!commit.message().unwrap().lines().any(|line| line == "Stoa-Run: u-2"));
    assert_eq!(commit.author().name().unwrap(), "eve x@yStoa-Run: u-2");
}
