//! Who gets memory, who waits, who is rejected, and how long memory is held.

use std::sync::mpsc;

use futures_util::FutureExt as _;
use http_body_util::Full;
use hyper::Response;
use tokio::sync::oneshot;

use super::*;

const LARGE: usize = 16 * MIB;

/// Memory that is free now, if there is any.
fn free(budget: &Budget, namespace: &str, bytes: usize) -> Option<Memory> {
    budget.take(namespace, bytes).now_or_never().and_then(Result::ok)
}

fn answer(length: usize) -> SubresourceResponse {
    let body = Full::new(Bytes::from(vec![b'x'; length]));
    Response::new(body.map_err(|never| match never {}).boxed_unsync())
}

/// Takes a whole answer; how many bytes it has.
async fn sent(answer: SubresourceResponse) -> usize {
    let mut body = answer.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().into_data().unwrap().len();
    }
    length
}

#[tokio::test(start_paused = true)]
async fn namespace_at_its_share_leaves_memory_to_others() {
    let budget = Budget::new(64, 16);
    let held = [free(&budget, "busy", MIB), free(&budget, "busy", LARGE), free(&budget, "busy", LARGE)];
    assert!(held.iter().all(Option::is_some));
    let mut waiting = Box::pin(budget.take("busy", LARGE));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(free(&budget, "busy", SMALL - 1).is_some(), "small ones need none");
    assert!(free(&budget, "quick", LARGE).is_some(), "all that is left is there for others");
    assert_eq!(waiting.await.unwrap_err().code(), 429);
    drop(held);
    assert!(free(&budget, "busy", 4 * LARGE).is_some(), "all has been given back");
}

#[tokio::test]
async fn namespace_that_always_reads_lets_others_pass() {
    let budget = Budget::new(64, 16);
    let held = free(&budget, "busy", 4 * LARGE).unwrap();
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(budget.take("busy", 4 * LARGE))).collect();
    assert!(waiting.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
    let mut quick = Box::pin(budget.take("quick", LARGE));
    assert!(quick.as_mut().now_or_never().is_none());
    drop(held);
    drop(waiting.remove(0).await.unwrap());
    assert!(quick.await.is_ok(), "the other had its turn");
    assert!(waiting.remove(0).await.is_ok());
}

#[tokio::test]
async fn large_request_waits_for_memory_of_others() {
    let budget = Budget::new(64, 16);
    let quick = free(&budget, "quick", 2 * LARGE).unwrap();
    let mut large = Box::pin(budget.take("busy", 100 * MIB));
    assert!(large.as_mut().now_or_never().is_none());
    assert!(free(&budget, "third", LARGE).is_none(), "it was there first");
    drop(quick);
    let large = large.await.unwrap();
    assert!(free(&budget, "third", LARGE).is_none(), "it has all of it");
    drop(large);
    assert!(free(&budget, "third", LARGE).is_some());
}

#[tokio::test]
async fn full_queue_of_a_namespace_rejects_at_once() {
    let budget = Budget::new(32, 16);
    let held = free(&budget, "busy", LARGE).unwrap();
    let mut line: Vec<_> = (0..MAX_QUEUED).map(|_| Box::pin(budget.take("busy", LARGE))).collect();
    assert!(line.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
    let refused = budget.take("busy", LARGE).now_or_never().expect("it does not wait").unwrap_err();
    assert_eq!(refused.code(), 429);
    assert!(free(&budget, "quick", LARGE).is_some());
    drop(held);
    assert!(line.remove(0).await.is_ok(), "who waited longest is next");
}

#[tokio::test]
async fn work_holds_its_memory_when_its_caller_leaves() {
    let budget = Budget::new(32, 16);
    let (tell, told) = mpsc::channel::<()>();
    let mut working = Box::pin(free(&budget, "busy", LARGE).unwrap().work(move || told.recv().is_ok()));
    assert!(working.as_mut().now_or_never().is_none());
    drop(working);
    assert!(free(&budget, "busy", LARGE).is_none(), "it is worked on");
    tell.send(()).unwrap();
    let memory = budget.take("busy", LARGE).await.unwrap();

    let (tell, told) = oneshot::channel::<()>();
    let mut reading = Box::pin(memory.read(told));
    assert!(reading.as_mut().now_or_never().is_none());
    drop(reading);
    assert!(free(&budget, "busy", LARGE).is_none(), "it is read");
    tell.send(()).unwrap();
    budget.take("busy", LARGE).await.unwrap();
}

#[tokio::test]
async fn panic_reaches_the_caller_and_returns_the_memory() {
    let budget = Budget::new(32, 16);
    let memory = free(&budget, "busy", LARGE).unwrap();
    let joined = tokio::spawn(async move { memory.work::<()>(|| panic!("never mind")).await.0 }).await;
    assert!(joined.unwrap_err().is_panic());
    budget.take("busy", LARGE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn answer_holds_its_memory_until_it_is_sent() {
    let budget = Budget::new(32, 16);
    let length = PIECE + 1;
    let memory = free(&budget, "slow", LARGE).unwrap();
    let mut body = memory.until_sent(answer(length)).await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(length as u64));
    assert_eq!(budget.documents.available(), 32, "it is not worked on any more");
    let mut sent = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    assert_eq!((sent.len(), budget.answers.available()), (PIECE, 127));
    sent.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    assert_eq!(sent, vec![b'x'; length]);
    assert!(body.is_end_stream());
    assert_eq!(budget.answers.available(), 128, "though the body is there yet");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn reads_wait_only_for_too_many_answers() {
    let budget = Budget::new(32, 16);
    let memory = free(&budget, "slow", LARGE).unwrap();
    let sending = memory.until_sent(answer(1)).await.unwrap();
    let memory = free(&budget, "slow", 2 * LARGE).expect("all of it is free");
    let others = budget.answers.try_acquire("slow", 95).expect("one answer is being sent");
    let refused =
        memory.until_sent(answer(1)).await.expect_err("the namespace has three quarters of the memory for answers");
    assert_eq!(refused.code(), 429);
    assert_eq!(sent(sending).await, 1);
    let memory = free(&budget, "slow", LARGE).expect("what was refused holds nothing");
    assert_eq!(sent(memory.until_sent(answer(1)).await.unwrap()).await, 1);
    drop(others);
    let memory = free(&budget, "slow", LARGE).unwrap();
    let largest = memory.until_sent(answer(97 * MIB)).await.unwrap();
    assert_eq!(budget.answers.held_by("slow"), 97, "one may be larger than what its namespace may have");
    assert_eq!(sent(largest).await, 97 * MIB);
    assert_eq!(budget.answers.available(), 128);
}

#[tokio::test(start_paused = true)]
async fn answer_that_its_client_leaves_breaks_off() {
    let budget = Budget::new(32, 16);
    let memory = free(&budget, "slow", LARGE).unwrap();
    let mut body = memory.until_sent(answer(2 * PIECE)).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    sleep(2 * SENDING).await;
    assert_eq!(budget.answers.available(), 128);
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
}
