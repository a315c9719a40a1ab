//! Who has room, who waits and who is told to come again, and how long room is held.

use std::sync::mpsc;

use futures_util::FutureExt as _;
use http::Response;
use http_body_util::Full;
use tokio::sync::oneshot;

use super::*;

const LARGE: usize = 16 * MIB;

/// Room that is free now, if there is any.
fn free(rooms: &Rooms, namespace: &str, bytes: usize) -> Option<Room> {
    rooms.take(namespace, bytes).now_or_never().and_then(Result::ok)
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
async fn namespace_has_three_quarters_of_the_room_and_keeps_no_other_from_having_some() {
    let rooms = Rooms::new(64, 16);
    let held = [free(&rooms, "busy", MIB), free(&rooms, "busy", LARGE), free(&rooms, "busy", LARGE)];
    assert!(held.iter().all(Option::is_some));
    let mut waiting = Box::pin(rooms.take("busy", LARGE));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(free(&rooms, "busy", SMALL - 1).is_some(), "small ones need none");
    assert!(free(&rooms, "quick", LARGE).is_some(), "all that is left is there for others");
    assert_eq!(waiting.await.unwrap_err().code(), 429);
    drop(held);
    assert!(free(&rooms, "busy", 4 * LARGE).is_some(), "all has been given back");
}

#[tokio::test]
async fn namespace_that_reads_all_the_time_lets_others_go_ahead() {
    let rooms = Rooms::new(64, 16);
    let held = free(&rooms, "busy", 4 * LARGE).unwrap();
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(rooms.take("busy", 4 * LARGE))).collect();
    assert!(waiting.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
    let mut quick = Box::pin(rooms.take("quick", LARGE));
    assert!(quick.as_mut().now_or_never().is_none());
    drop(held);
    drop(waiting.remove(0).await.unwrap());
    assert!(quick.await.is_ok(), "the other had its turn");
    assert!(waiting.remove(0).await.is_ok());
}

#[tokio::test]
async fn what_needs_more_than_a_share_waits_for_the_room_of_others() {
    let rooms = Rooms::new(64, 16);
    let quick = free(&rooms, "quick", 2 * LARGE).unwrap();
    let mut large = Box::pin(rooms.take("busy", 100 * MIB));
    assert!(large.as_mut().now_or_never().is_none());
    assert!(free(&rooms, "third", LARGE).is_none(), "it was there first");
    drop(quick);
    let large = large.await.unwrap();
    assert!(free(&rooms, "third", LARGE).is_none(), "it has all of it");
    drop(large);
    assert!(free(&rooms, "third", LARGE).is_some());
}

#[tokio::test]
async fn only_so_many_of_a_namespace_wait_and_more_are_told_at_once() {
    let rooms = Rooms::new(32, 16);
    let held = free(&rooms, "busy", LARGE).unwrap();
    let mut line: Vec<_> = (0..IN_LINE).map(|_| Box::pin(rooms.take("busy", LARGE))).collect();
    assert!(line.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
    let refused = rooms.take("busy", LARGE).now_or_never().expect("it does not wait").unwrap_err();
    assert_eq!(refused.code(), 429);
    assert!(free(&rooms, "quick", LARGE).is_some());
    drop(held);
    assert!(line.remove(0).await.is_ok(), "who waited longest is next");
}

#[tokio::test]
async fn what_was_begun_holds_its_room_though_its_caller_is_gone() {
    let rooms = Rooms::new(32, 16);
    let (tell, told) = mpsc::channel::<()>();
    let mut working = Box::pin(free(&rooms, "busy", LARGE).unwrap().work(move || told.recv().is_ok()));
    assert!(working.as_mut().now_or_never().is_none());
    drop(working);
    assert!(free(&rooms, "busy", LARGE).is_none(), "it is worked on");
    tell.send(()).unwrap();
    let room = rooms.take("busy", LARGE).await.unwrap();

    let (tell, told) = oneshot::channel::<()>();
    let mut reading = Box::pin(room.read(told));
    assert!(reading.as_mut().now_or_never().is_none());
    drop(reading);
    assert!(free(&rooms, "busy", LARGE).is_none(), "it is read");
    tell.send(()).unwrap();
    rooms.take("busy", LARGE).await.unwrap();
}

#[tokio::test]
async fn panic_is_the_callers_and_gives_the_room_back() {
    let rooms = Rooms::new(32, 16);
    let room = free(&rooms, "busy", LARGE).unwrap();
    let joined = tokio::spawn(async move { room.work::<()>(|| panic!("never mind")).await.0 }).await;
    assert!(joined.unwrap_err().is_panic());
    rooms.take("busy", LARGE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn answer_holds_what_it_takes_until_it_is_sent() {
    let rooms = Rooms::new(32, 16);
    let length = PIECE + 1;
    let room = free(&rooms, "slow", LARGE).unwrap();
    let mut body = room.until_sent(answer(length)).await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(length as u64));
    assert_eq!(rooms.documents.free(), 32, "it is not worked on any more");
    let mut sent = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    assert_eq!((sent.len(), rooms.answers.free()), (PIECE, 127));
    sent.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    assert_eq!(sent, vec![b'x'; length]);
    assert!(body.is_end_stream());
    assert_eq!(rooms.answers.free(), 128, "though the body is there yet");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn answers_that_are_being_sent_keep_nothing_from_being_read_until_there_are_too_many() {
    let rooms = Rooms::new(32, 16);
    let room = free(&rooms, "slow", LARGE).unwrap();
    let sending = room.until_sent(answer(1)).await.unwrap();
    let room = free(&rooms, "slow", 2 * LARGE).expect("all of it is free");
    let others = rooms.answers.try_take("slow", 63).expect("one answer is being sent");
    let refused = room.until_sent(answer(1)).await.expect_err("the namespace has half of the room for answers");
    assert_eq!(refused.code(), 429);
    assert_eq!(sent(sending).await, 1);
    let room = free(&rooms, "slow", LARGE).expect("what was refused holds nothing");
    assert_eq!(sent(room.until_sent(answer(1)).await.unwrap()).await, 1);
    drop(others);
    let room = free(&rooms, "slow", LARGE).unwrap();
    let largest = room.until_sent(answer(65 * MIB)).await.unwrap();
    assert_eq!(rooms.answers.of("slow"), 65, "one may be larger than what its namespace may have");
    assert_eq!(sent(largest).await, 65 * MIB);
    assert_eq!(rooms.answers.free(), 128);
}

#[tokio::test(start_paused = true)]
async fn answer_that_its_client_does_not_take_breaks_off() {
    let rooms = Rooms::new(32, 16);
    let room = free(&rooms, "slow", LARGE).unwrap();
    let mut body = room.until_sent(answer(2 * PIECE)).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    sleep(2 * SENDING).await;
    assert_eq!(rooms.answers.free(), 128);
    assert_eq!(body.frame().await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
}
