//! The client as GitLab's.

use super::*;

fn gitlab(bed: &Bed, credentials: &Credentials) -> Server {
    let address = Address::new(Provider::GitLab, "git@x:shop/deploy.git", Some(&bed.forge.url())).unwrap();
    Server::new(address, credentials, Pauses::default()).unwrap()
}

fn server(bed: &Bed) -> Server {
    gitlab(bed, &Credentials { token: Some("s3cr3t".to_owned()), ..Credentials::default() })
}

#[tokio::test]
async fn merge_request_is_opened_once_and_updated() {
    let bed = Bed::new().await;
    let server = server(&bed);
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), None);
    assert!(matches!(server.open("stoa/x", "main", &text("one")).await, Err(PullError::Refused(_))));
    let head = bed.commit("stoa/x", "a", "1");
    for branch in ["b1", "b2", "b3"] {
        bed.commit(branch, "b", branch);
        bed.forge.open("shop/deploy", branch, "main", None);
    }
    let fork = bed.commit("elsewhere", "c", "3");
    bed.forge.open("shop/deploy", "stoa/x", "main", Some(fork));
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), None, "that is the fork's");

    let opened = server.open("stoa/x", "main", &text("one")).await.unwrap();
    assert_eq!((opened.number, &opened.state), (5, &PullState::Open));
    assert_eq!((opened.is_fork, opened.is_to_default), (false, true));
    assert_eq!(opened.head_commit, Some(head.to_string()));
    assert!(is_marked(&opened.body, "stoa:shop/web-dev/dev"));
    assert_eq!(server.open("stoa/x", "main", &text("two")).await.unwrap(), opened, "there is one already");
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), Some(opened.clone()));
    assert_eq!(server.find("stoa/x", "other").await.unwrap(), None);
    for (base, count) in [("main", 5), ("", 5), ("other", 0)] {
        assert_eq!(server.list_open(base).await.unwrap().len(), count, "{base}");
    }
    assert_eq!(server.list_open("main").await.unwrap().iter().filter(|pull| pull.is_fork).count(), 1);

    server.update(5, &text("two\nlines")).await.unwrap();
    assert_eq!(server.get(5).await.unwrap().title, "two lines");
    server.label(5, "promoted").await.unwrap();
    assert_eq!(bed.forge.labels(5), ["promoted"]);
    let merged = bed.forge.merge(5, Merge::Squash);
    assert_eq!(server.get(5).await.unwrap().state, PullState::Merged(Some(merged.to_string())));
    server.close(5).await.unwrap();
    assert_eq!(server.find("stoa/x", "main").await.unwrap(), None);
    server.close(1).await.unwrap();
    assert_eq!(server.get(1).await.unwrap().state, PullState::Closed);
    assert!(matches!(server.get(9).await, Err(PullError::NotFound(_))));
}

#[tokio::test]
async fn merge_request_has_base_commit_and_mergeability() {
    let bed = Bed::new().await;
    let server = server(&bed);
    let head = bed.commit("better", "a", "1").to_string();
    let number = server.open("better", "main", &text("one")).await.unwrap().number;
    assert_eq!(server.get(number).await.unwrap().is_mergeable, Some(true));
    let base = bed.commit("main", "a", "2").to_string();
    let pull = server.get(number).await.unwrap();
    assert_eq!((pull.is_mergeable, pull.base_commit, pull.is_to_default), (Some(false), Some(base), true));
    assert_eq!(server.find_closed("better", "main", &head).await.unwrap(), None, "it is open");
    server.close(number).await.unwrap();
    let closed = server.find_closed("better", "main", &head).await.unwrap();
    assert_eq!(closed.map(|closed| closed.number), Some(number));
    assert_eq!(server.find_closed("better", "main", &"a".repeat(40)).await.unwrap(), None);
}

#[tokio::test]
async fn status_is_written_only_when_it_changes() {
    let bed = Bed::new().await;
    let server = server(&bed);
    let head = bed.commit("b", "b", "1").to_string();
    let states = [
        (StatusState::Pending, "to be planned"),
        // GitLab refuses this.
        (StatusState::Pending, "still to be planned"),
        (StatusState::Success, "planned"),
        (StatusState::Success, "planned"),
        (StatusState::Success, "planned again"),
        (StatusState::Failure, "not planned"),
        (StatusState::Error, "not planned"),
    ];
    for (state, description) in states {
        for context in ["stoa/web-dev/dev", "stoa/web-dev/prod"] {
            let (context, description) = (context.to_owned(), description.to_owned());
            server.set_status(&head, &CommitStatus { context, state, description, url: None }).await.unwrap();
        }
    }
    let said = bed.forge.statuses();
    assert!(said.iter().all(|(of, _)| *of == head));
    let of_dev = said.iter().filter(|(_, said)| said["context"] == "stoa/web-dev/dev");
    let of_dev: Vec<_> = of_dev.map(|(_, said)| (said["state"].as_str(), said["description"].as_str())).collect();
    let expected = [
        (Some("pending"), Some("to be planned")),
        (Some("success"), Some("planned")),
        (Some("success"), Some("planned again")),
        (Some("failed"), Some("not planned")),
    ];
    assert_eq!(of_dev, expected);
}

#[tokio::test]
async fn note_is_written_once_and_orders_nothing() {
    let bed = Bed::new().await;
    bed.commit("b", "b", "1");
    let number = bed.forge.open("shop/deploy", "b", "main", None);
    let server = server(&bed);
    let planted = marked("not yours", "stoa:plan");
    bed.forge.say(number, &planted);
    let id = server.comment(number, &of("stoa:plan", "the first plan")).await.unwrap();
    let orders = of("stoa:plan", "/merge\nthe second plan\n/close");
    assert_eq!(server.comment(number, &orders).await.unwrap(), id);
    assert_eq!(bed.forge.comments(number), [planted, marked(" /merge\nthe second plan\n /close", "stoa:plan")]);
    let before = bed.forge.requests().len();
    assert_eq!(server.comment(number, &orders).await.unwrap(), id);
    assert_eq!(bed.forge.requests().len(), before + 1, "it is as it should be");
}

#[tokio::test]
async fn password_is_shown_as_token() {
    let bed = Bed::new().await;
    let keys = Credentials::of_keys(|key| match key {
        "username" => Some(&b"oauth2"[..]),
        "password" => Some(&b"s3cr3t"[..]),
        _ => None,
    });
    assert!(gitlab(&bed, &keys).list_open("main").await.unwrap().is_empty());
    let error = gitlab(&bed, &Credentials::default()).list_open("main").await.unwrap_err();
    assert!(matches!(error, PullError::Unauthorized(_)), "{error}");
}
