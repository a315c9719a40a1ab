//! What clients are told of runs: their plans and logs, however large, and that there is no time for them now.

use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use stoa_controller::testing::FaultyLog;
use stoa_engine::{Plan, document};
use stoa_machinery::http::{ApiHandler, Body, RequestInfo, body};
use stoa_runs::{run_log::Line, testing::runner_at};

use super::fenced_runners::{A, BUSY, Scripted, deleting};
use super::*;

const RUNS: &str = "/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs";

/// An answer over HTTP; its body may go on.
pub(super) struct Answer {
    code: u16,
    headers: HeaderMap,
    body: Body,
}

impl Answer {
    /// The next piece of the body.
    async fn piece(&mut self) -> Option<String> {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("it goes on")?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    /// The body to its end.
    pub(super) async fn text(self) -> String {
        let whole = tokio::time::timeout(PATIENCE, self.body.collect()).await.expect("it ends").unwrap();
        String::from_utf8(whole.to_bytes().to_vec()).unwrap()
    }

    async fn json(self) -> Value {
        serde_json::from_str(&self.text().await).unwrap()
    }
}

impl TestServer {
    async fn send(&self, method: Method, path: &str, accept: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).header("accept", accept);
        let request = request.body(body::full("")).unwrap();
        let info = RequestInfo::new(request.method(), request.uri());
        let handler = ApiHandler::new(&self.registry);
        let (parts, body) = handler.handle(info, RequestContext::internal("test"), request).await.into_parts();
        Answer { code: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "*/*").await
    }

    /// The records of journals that are in the log.
    async fn records(&self) -> usize {
        self.services.log.scan("/stoa/journal/", None).await.unwrap().entries.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approver_reads_plan_of_any_size() {
    // The ids alone are more than etcd takes in one transaction.
    let ids: Vec<String> =
        (0..20_000).map(|number| format!("v1:ConfigMap:shop:{}{number}", "long-".repeat(20))).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (address, _conversations) = Scripted::start(&ids).await;
    let world = TestServer::over(FaultyLog::new(0), runner_at(address), |builder| builder).await;
    let guard = |workspace: &mut stoa_types::Workspace| workspace.spec.require_approval = true;
    world.registry.api::<stoa_types::Workspace>().update_with("", "dev", guard).await.unwrap();
    let world = world.controlled();
    world.destroy("one").await;
    let waiting = world.until("one", |status| status.phase == RunPhase::AwaitingApproval).await;

    let plan = world.get(&format!("{RUNS}/one/plan")).await;
    assert_eq!((plan.code, plan.headers["content-type"].to_str().unwrap()), (200, "application/json"));
    let text = plan.text().await;
    assert!(text.len() > 2 << 20, "{}", text.len());
    let read: Plan = document::decode(text.as_bytes()).unwrap();
    assert_eq!((&read, Some(&read.digest())), (&deleting(&ids), waiting.plan.as_ref().map(|plan| &plan.digest)));

    let table = world.get(&format!("{RUNS}/one/plan?format=table")).await;
    assert_eq!(table.headers["content-type"], "text/plain; charset=utf-8");
    let table = table.text().await;
    assert!(table.len() > 2 << 20 && !table.contains('\u{1b}'));
    assert_eq!(table.lines().filter(|line| line.starts_with("- delete")).count(), ids.len());
    assert_eq!(world.send(Method::GET, &format!("{RUNS}/one/plan"), "text/plain").await.text().await, table);
    let coloured = world.get(&format!("{RUNS}/one/plan?format=table&colour=true")).await.text().await;
    assert!(coloured.contains(&format!("\u{1b}[31m- delete  \u{1b}[0m {}\n", ids[0])), "{}", &coloured[..500]);

    // The log has the beginning of the table and says where the rest is.
    let log = world.journal("one").await;
    let shown = log.lines().filter(|line| line.starts_with("- delete")).count();
    assert!(log.contains(&format!("… {} lines more, see runs/plan?format=table", ids.len() - shown + 2)), "{shown}");
    assert!(shown > 1_000 && log.contains("Plan: 20000 to delete."));
}

#[tokio::test]
async fn run_without_a_plan_says_so() {
    let world = TestServer::with_controller().await;
    world.apply("one").await;
    world.began("one").await;
    let answer = world.get(&format!("{RUNS}/one/plan")).await;
    let code = answer.code;
    let status = answer.json().await;
    assert_eq!((code, status["message"].as_str()), (404, Some("run one has no plan; its phase is Generating")));
    for (query, field) in [("format=dot", "format"), ("format=table&colour=red", "colour")] {
        let answer = world.get(&format!("{RUNS}/one/plan?{query}")).await;
        assert_eq!(answer.code, 400);
        assert_eq!(answer.json().await["details"]["causes"][0]["field"], field);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_follows_run_and_moves_to_backend() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut conversation = conversations.recv().await.unwrap();
    conversation.begin("only").await;
    let mut text = world.get(&format!("{RUNS}/one/log?follow=true")).await;
    let lines = world.get(&format!("{RUNS}/one/log?follow=true&format=json")).await;
    let first = text.piece().await.unwrap();
    assert!(first.contains(&format!("- delete   {A}\n")), "{first}");
    assert!(world.records().await > 0);
    conversation.carry_out(&[A]).await;
    let ended = world.ended("one").await;
    let followed = first + &text.text().await;
    let lines: Vec<Line> = lines.text().await.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(Line::text).collect::<String>(), followed);
    assert!(lines.last().unwrap().phase == "Succeeded" && followed.contains(&format!("Applying Delete {A} Done\n")));

    // What is followed once it has ended is read from its document, and ends at once.
    let digest = ended.log.expect("it is in the backend");
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
    assert_eq!(ended.stack_uid.as_deref(), Some(stack.as_str()));
    let store = world.services.backends.store("default").await.unwrap();
    let document = store.get(&format!("shop/{stack}"), &digest.parse().unwrap()).await.unwrap().unwrap();
    let kept = world.get(&format!("{RUNS}/one/log?follow=true&format=json")).await.text().await;
    assert_eq!(kept.as_bytes(), document);
    assert_eq!(world.journal("one").await, followed);
    let gone = async {
        while world.records().await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("its records go");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_followers_see_end_of_deleted_run() {
    let world = TestServer::with_controller().await;
    world.apply("one").await;
    world.began("one").await;
    let log = world.get(&format!("{RUNS}/one/log?follow=true")).await;
    world.registry.api::<Run>().delete("shop", "one", &DeleteOptions::default()).await.unwrap();
    let text = log.text().await;
    assert!(text.lines().last().unwrap().contains("Canceled: the run was cancelled"), "{text}");
    let gone = async {
        while world.get(&format!("{RUNS}/one/log")).await.code != 404 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it goes with its run");
    assert_eq!(world.records().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_backend_write_leaves_run_log_available() {
    let world = TestServer::new().await;
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("documents");
    world.create("Backend", "lost", json!({"type": "Local", "local": {"directory": place}})).await;
    let gitops = json!({"backend": {"name": "lost"}, "gitops": {"repository": "file:///deploy.git"}});
    world.create("Workspace", "lost", gitops).await;
    let world = world.controlled();
    world.create("Run", "one", json!({"stack": "web", "workspace": "lost", "operation": "Preview"})).await;
    world.began("one").await;
    // A file where the folders of documents would be.
    std::fs::remove_dir_all(&place).ok();
    std::fs::write(&place, "").unwrap();
    world.change("one", |run| run.spec.cancel = true).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, ended.log), (RunPhase::Canceled, None));
    assert!(world.journal("one").await.contains("Canceled: the run was cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_generator_returns_retry_interval() {
    let (address, _conversations) = Scripted::start(&[]).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let path = "/apis/config.stoa.dev/v1alpha1/namespaces/shop/stacks/web/generate?workspace=dev";
    let answer = world.send(Method::POST, path, "application/json").await;
    assert_eq!((answer.code, answer.headers["retry-after"].to_str().unwrap()), (429, "1"));
    let status = answer.json().await;
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("TooManyRequests")), "{status:#}");
    assert!(status["message"].as_str().unwrap().contains(BUSY), "{status:#}");
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
}
