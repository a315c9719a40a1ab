//! Issues of both APIs.

use super::*;
use crate::Issues as _;

const MARKER: &str = "stoa:fleet:dev/web";

fn servers(bed: &Bed) -> [Server; 2] {
    let address = Address::new(Provider::GitLab, "git@x:shop/deploy.git", Some(&bed.forge.url())).unwrap();
    let credentials = Credentials { token: Some("s3cr3t".to_owned()), ..Credentials::default() };
    [bed.server(), Server::new(address, &credentials, Pauses::default()).unwrap()]
}

fn failure(body: &str) -> Text {
    Text { title: "Assignment web cannot be rendered".to_owned(), body: body.to_owned() }
}

#[tokio::test]
async fn issue_is_opened_once_updated_and_closed() {
    for at in 0..2 {
        let bed = Bed::new().await;
        let server = &servers(&bed)[at];
        // Anybody can write a marker.
        bed.forge.raise("shop/deploy", "not yours", &marked("looks fine", MARKER));
        let number = server.report(MARKER, &failure("no schema"), None).await.unwrap();
        assert_eq!(number, 2);
        assert_eq!(server.report(MARKER, &failure("no schema"), None).await.unwrap(), number, "it is found");
        assert_eq!(server.report(MARKER, &failure("no value"), Some(number)).await.unwrap(), number);
        let before = bed.forge.requests().len();
        assert_eq!(server.report(MARKER, &failure("no value"), Some(number)).await.unwrap(), number);
        assert_eq!(bed.forge.requests().len(), before + 1, "it says so already");
        let issues = bed.forge.issues();
        assert_eq!(issues[1]["body"], marked("no value", MARKER));
        assert_eq!(issues[1]["title"], "Assignment web cannot be rendered");
        let other = server.report("stoa:fleet:dev/other", &failure("no schema"), None).await.unwrap();
        assert_eq!(other, 3);

        server.resolve(number, MARKER).await.unwrap();
        server.resolve(number, MARKER).await.unwrap();
        // It is of somebody else, and there is none of the last number.
        server.resolve(other, MARKER).await.unwrap();
        server.resolve(99, MARKER).await.unwrap();
        let states: Vec<_> = bed.forge.issues().iter().map(|issue| issue["state"].clone()).collect();
        assert_eq!(states, ["open", "closed", "open"]);
        let again = server.report(MARKER, &failure("no schema"), Some(number)).await.unwrap();
        assert_eq!(again, 4, "one that is closed stays so");
    }
}
