//! What is given up.

use std::sync::Arc;

use http::Method;
use http_body_util::BodyExt as _;
use stoa_machinery::definition::SubresourceCall;

use super::*;
use crate::worker::MOST_DEAD;

impl Bed {
    /// Calls a subresource of a sink.
    async fn call(&self, sink: &str, name: &str, query: &[(&str, &str)]) -> (u16, Value) {
        let method = if name == "deadletters" { Method::GET } else { Method::POST };
        self.call_by(method, sink, name, query).await
    }

    async fn delete(&self, sink: &str, query: &[(&str, &str)]) -> (u16, Value) {
        self.call_by(Method::DELETE, sink, "deadletters", query).await
    }

    async fn call_by(&self, method: Method, sink: &str, name: &str, query: &[(&str, &str)]) -> (u16, Value) {
        let all = subresources(&self.services);
        let found = all.into_iter().find(|there| there.name == name).unwrap();
        let call = SubresourceCall {
            context: RequestContext::internal("test"),
            namespace: String::new(),
            name: sink.to_owned(),
            method,
            query: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        match found.handler.call(call).await {
            Err(error) => (error.code(), Value::Null),
            Ok(response) => {
                let code = response.status().as_u16();
                let body = response.into_body().collect().await.unwrap().to_bytes();
                (code, serde_json::from_slice(&body).unwrap())
            }
        }
    }

    async fn letters(&self, sink: &str) -> Vec<Value> {
        let (code, list) = self.call(sink, "deadletters", &[]).await;
        assert_eq!((code, &list["kind"]), (200, &json!("DeadLetterList")));
        list["items"].as_array().unwrap().clone()
    }

    async fn until_dead(&self, sink: &str, count: i64) -> NotificationSink {
        self.until(sink, |sink| sink.status.as_ref().is_some_and(|status| status.dead_letters == count)).await
    }
}

#[tokio::test]
async fn dead_letter_supports_redelivery() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(500)).await;
    bed.sink("chat", &receiver, json!({"retry": {"maxAttempts": 2}})).await;
    bed.begin("web-1").await;
    bed.end("web-1", RunPhase::Failed).await;
    let ids: Vec<Value> = [receiver.next().await, receiver.next().await, receiver.next().await, receiver.next().await]
        .map(|received| received.event["id"].clone())
        .into();
    assert_eq!((&ids[0], &ids[2]), (&ids[1], &ids[3]));
    bed.until_dead("chat", 2).await;
    assert_eq!(receiver.count_for(Duration::from_millis(300)).await, 0, "it was given up");
    let letters = bed.letters("chat").await;
    let expected = [(&ids[0], "dev.stoa.run.started"), (&ids[2], "dev.stoa.run.failed")];
    assert_eq!(letters.len(), expected.len());
    for (letter, (id, event_type)) in letters.iter().zip(expected) {
        assert_eq!((&letter["id"], &letter["event"]["id"]), (id, id));
        assert_eq!(letter["event"]["type"], event_type);
        assert_eq!(
            (&letter["reason"], &letter["attempts"]),
            (&json!("the endpoint answered 500 Internal Server Error"), &json!(2))
        );
        assert!(letter["time"].is_string() && letter["redeliver"].is_null(), "{letter:#}");
    }
    bed.until_metric("stoa_notification_dead_letters{sink=\"chat\"} 2").await;

    // It fails once more, and stays where it is.
    let id = ids[0].as_str().unwrap();
    assert_eq!(bed.call("chat", "redelivery", &[("id", id)]).await, (202, json!({"redelivering": 1})));
    assert_eq!([receiver.next().await, receiver.next().await].map(|received| received.event["id"].clone()), [id, id]);
    let is_put_back = async {
        while !bed.letters("chat").await[0]["redeliver"].is_null() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_put_back).await.expect("it is given up again");

    // All of them, asked for while nobody delivers.
    receiver.behave(|_| Reply::Code(200));
    bed.crash().await;
    assert_eq!(bed.call("chat", "redelivery", &[]).await, (202, json!({"redelivering": 2})));
    bed.start();
    let mut came = [receiver.next().await, receiver.next().await].map(|received| received.event["id"].clone());
    came.sort_by_key(|id| ids.iter().position(|other| other == id));
    assert_eq!(came, [ids[0].clone(), ids[2].clone()]);
    bed.until_dead("chat", 0).await;
    assert_eq!(bed.letters("chat").await, Vec::<Value>::new());
    assert_eq!(bed.call("chat", "redelivery", &[("id", id)]).await.0, 404);
    assert_eq!(bed.call("nobody", "redelivery", &[]).await.0, 404);
    bed.crash().await;
    bed.start();
    assert_eq!(receiver.count_for(Duration::from_millis(300)).await, 0);
}

#[tokio::test]
async fn user_deletes_dead_letter_during_redelivery() {
    let mut bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(422)).await;
    bed.sink("chat", &receiver, json!({})).await;
    for name in ["a", "b", "c"] {
        bed.begin(name).await;
        receiver.next().await;
    }
    bed.until_dead("chat", 3).await;
    let letters = bed.letters("chat").await;
    let id = |number: usize| letters[number]["id"].as_str().unwrap();
    assert_eq!(bed.delete("chat", &[("id", id(0)), ("id", "unknown")]).await.0, 404);
    assert_eq!(bed.letters("chat").await.len(), 3, "nothing was deleted of what was named wrongly");
    assert_eq!(bed.delete("chat", &[("id", id(0))]).await, (200, json!({"deleted": 1})));
    bed.until_dead("chat", 2).await;
    assert_eq!(bed.letters("chat").await, letters[1..]);

    // It fails once more, and does not come back.
    receiver.behave(|_| Reply::Never);
    bed.call("chat", "redelivery", &[("id", id(1))]).await;
    receiver.next().await;
    receiver.behave(|_| Reply::Code(422));
    assert_eq!(bed.delete("chat", &[("id", id(1))]).await, (200, json!({"deleted": 1})));
    bed.until_dead("chat", 1).await;
    // The next in its lane tells that it was settled.
    bed.end("a", RunPhase::Failed).await;
    assert_eq!(told(&receiver.next().await), "run.failed runs/a");
    bed.until_dead("chat", 2).await;
    let subjects = async || {
        let letters = bed.letters("chat").await;
        letters.iter().map(|it| it["event"]["subject"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(subjects().await, ["runs/c", "runs/a"]);
    assert_eq!(bed.delete("chat", &[]).await, (200, json!({"deleted": 2})));
    bed.until_dead("chat", 0).await;
    bed.crash().await;
    bed.start();
    bed.begin("d").await;
    assert_eq!(told(&receiver.next().await), "run.started runs/d", "nothing of before comes again");
}

#[tokio::test]
async fn dead_letter_reusing_number_survives_earlier_deletion() {
    let bed = Bed::started().await;
    let receiver = Receiver::start(|_| Reply::Code(422)).await;
    bed.sink("chat", &receiver, json!({"timeout": "60s"})).await;
    bed.begin("a").await;
    receiver.next().await;
    bed.until_dead("chat", 1).await;
    let numbers = async || {
        let kept = bed.kept().await.into_iter().map(|(key, _)| key);
        kept.filter(|key| key.contains("/dead/")).collect::<Vec<_>>()
    };
    let before = numbers().await;
    let answer = Arc::new(tokio::sync::Notify::new());
    let held = answer.clone();
    receiver.behave(move |_| Reply::Once(held.clone(), 200));
    bed.call("chat", "redelivery", &[]).await;
    receiver.next().await;
    receiver.behave(|_| Reply::Code(422));
    assert_eq!(bed.delete("chat", &[]).await, (200, json!({"deleted": 1})));
    bed.until_dead("chat", 0).await;
    bed.lose("lost").await;
    assert_eq!(told(&receiver.next().await), "workspace.unavailable workspaces/lost");
    bed.until_dead("chat", 1).await;
    assert_eq!(numbers().await, before, "it has the number of the other");
    let letters = bed.letters("chat").await;
    answer.notify_one();
    bed.until_metric("stoa_notification_attempts_total{outcome=\"delivered\",sink=\"chat\"} 1").await;
    // The next one comes after whatever the delivery led to.
    bed.lose("lost-too").await;
    receiver.next().await;
    bed.until_dead("chat", 2).await;
    assert_eq!(bed.letters("chat").await[..1], letters);
}

#[tokio::test]
async fn old_or_rejected_event_becomes_dead_letter() {
    let bed = Bed::started().await;
    let old = Receiver::start(|_| Reply::Code(503)).await;
    let refusing = Receiver::start(|_| Reply::Code(422)).await;
    bed.sink("old", &old, json!({"retry": {"maxAge": "1h"}})).await;
    bed.sink("refusing", &refusing, json!({})).await;
    bed.begin("web-1").await;
    bed.until_dead("refusing", 1).await;
    assert_eq!(refusing.count_for(Duration::ZERO).await, 1, "it said that it never will take it");
    for _ in 0..2 {
        old.next().await;
    }
    bed.update("old", |sink| sink.spec.retry.max_age = "1s".into()).await;
    bed.until_dead("old", 1).await;
    assert_eq!(bed.letters("refusing").await[0]["reason"], "the endpoint answered 422 Unprocessable Entity");
    let counted = bed.metric("stoa_notification_attempts_total");
    assert!(counted.contains("{outcome=\"dead\",sink=\"refusing\"} 1"), "{counted}");
}

#[tokio::test]
async fn dead_letter_limit_drops_oldest_first() {
    let mut bed = Bed::new().await;
    let receiver = Receiver::start(|_| Reply::Code(422)).await;
    bed.sink("chat", &receiver, json!({})).await;
    // Earlier terms gave up all but one of them.
    let uid = bed.read("chat").await.uid().unwrap();
    let records = records::Records::new(bed.services.log.clone(), &uid, None);
    for number in 1..MOST_DEAD {
        let event = events::Event {
            specversion: "1.0".to_owned(),
            id: number.to_string(),
            source: "/".to_owned(),
            event_type: "dev.stoa.release.created".to_owned(),
            subject: format!("releases/old.{number}"),
            time: Timestamp::UNIX_EPOCH,
            datacontenttype: "application/json".to_owned(),
            data: json!({}),
        };
        let letter = records::DeadLetter::new(event, "lane".to_owned(), "why".to_owned(), 1, Timestamp::UNIX_EPOCH);
        records.write_dead(records.dead_key(u64::try_from(number).unwrap()), &letter).await.unwrap();
    }
    bed.start();
    for revision in 0..3 {
        let spec = json!({"stack": "web", "stackUID": "u", "workspace": "dev", "revision": revision, "run": "r",
            "planDigest": "p", "specDigest": "s", "stateDigest": "t"});
        bed.world.create("Release", &format!("new.{revision}"), spec).await;
    }
    let is_there =
        |sink: &NotificationSink| sink.status.as_ref().is_some_and(|status| status.dropped_dead_letters == 2);
    let sink = bed.until("chat", is_there).await;
    assert_eq!(sink.status.unwrap().dead_letters, i64::try_from(MOST_DEAD).unwrap());
    let letters = bed.letters("chat").await;
    assert_eq!(letters.len(), MOST_DEAD);
    let subject = |letter: &Value| letter["event"]["subject"].as_str().unwrap().to_owned();
    assert_eq!(
        (subject(&letters[0]), subject(&letters[MOST_DEAD - 1])),
        ("releases/old.3".to_owned(), "releases/new.2".to_owned())
    );

    // The count goes on in the next term.
    bed.stop().await;
    bed.start();
    bed.until_ready("chat", reason::DELIVERY_FAILED).await;
    assert_eq!(bed.read("chat").await.status.unwrap().dropped_dead_letters, 2);
    assert_eq!(bed.call("chat", "deadletters", &[]).await.1["dropped"], 2);
}
