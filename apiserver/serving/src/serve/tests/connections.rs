//! Connections whose clients do not read, do not ask, or do not speak as they said.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, pause, resume, sleep, timeout},
};

use super::*;

const STACKS: &str = "/apis/g.io/v1/stacks";
/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn server_selects_cipher_suite_like_go() {
    use rustls::CipherSuite::{TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS13_AES_128_GCM_SHA256};
    let server = Setup::default().start().await;
    let expected = [
        (&rustls::version::TLS13, TLS13_AES_128_GCM_SHA256),
        (&rustls::version::TLS12, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ];
    for (version, expected) in expected {
        // The client names those with longer keys first.
        let stream = server.handshake(Identity::Nobody, &[b"h2"], version).await.unwrap();
        let taken = stream.get_ref().1.negotiated_cipher_suite().unwrap();
        assert_eq!(taken.suite(), expected);
    }
    server.end().await;
}

#[tokio::test]
async fn unread_http2_answer_blocks_no_other_client() {
    let limits = Limits { reading: 1, ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let stream = server.handshake(Identity::Certificate(&ann), &[b"h2"], &rustls::version::TLS13).await.unwrap();
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = http2.initial_stream_window_size(0).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let unread = Client::Http2(sender).send(Method::GET, STACKS, &[]).await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
    drop(unread);
}

#[tokio::test]
async fn timeout_ends_unread_long_http2_answer() {
    const LONGS: &str = "/apis/g.io/v1/longs";
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let (mut client, _ended) = server.connect_h2(Identity::Certificate(&ann)).await;
    let whole = client.get(LONGS).await;
    assert_eq!((whole.text.len(), &whole.headers["content-length"]), (8 << 20, &"8388608".parse().unwrap()));
    let unread = client.send(Method::GET, LONGS, &[]).await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    pause();
    sleep(Duration::from_secs(70)).await;
    resume();
    let broken = unread.into_body().collect().await.expect_err("the rest does not come");
    assert!(format!("{broken:?}").contains("CANCEL"), "{broken:?}");
    // The others of the connection go on.
    assert_eq!(client.get("/livez").await.code, StatusCode::OK);
}

#[tokio::test]
async fn timeout_ends_watch_of_stalled_http1_client() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut stuck = server.connect(Identity::Certificate(&ann)).await;
    let unread = stuck.send(Method::GET, "/apis/g.io/v1/stacks?watch=true", &[]).await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    let events = server.echo.events.lock().take().unwrap();
    // More than all buffers in between take, which they are to have taken before time goes on.
    for _ in 0..256 {
        events.send(Bytes::from_static(&[b' '; 64 * 1024])).unwrap();
    }
    sleep(Duration::from_millis(200)).await;
    pause();
    timeout(Duration::from_secs(70), events.closed()).await.expect("the watch has ended");
    resume();
    assert!(unread.into_body().collect().await.is_err(), "the rest does not come");
    server.end().await;
}

#[tokio::test]
async fn server_speaks_http2_only_after_negotiation() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let protocols: [&[&[u8]]; 2] = [&[b"http/1.1"], &[]];
    for protocols in protocols {
        let identity = Identity::Certificate(&ann);
        let stream = server.handshake(identity, protocols, &rustls::version::TLS13).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut client = Client::Http2(sender);
        let answer = timeout(LONG, client.send(Method::GET, STACKS, &[])).await.expect("it is refused");
        assert!(answer.is_err(), "{answer:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn client_that_asks_nothing_is_not_waited_for() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    for protocol in ["h2", "http/1.1"] {
        let identity = Identity::Certificate(&ann);
        let mut stream = server.handshake(identity, &[protocol.as_bytes()], &rustls::version::TLS13).await.unwrap();
        pause();
        let began = Instant::now();
        // Whether TLS is ended in order makes no difference.
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert_eq!(began.elapsed().as_secs() / 10, 9, "{protocol}");
        resume();
    }
    let (_client, ended) = server.connect_h2(Identity::Certificate(&ann)).await;
    pause();
    let began = Instant::now();
    ended.await.unwrap();
    assert_eq!(began.elapsed().as_secs() / 10, 9);
}

#[tokio::test]
async fn used_http2_connection_stays_open_while_idle() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let (mut client, _ended) = server.connect_h2(Identity::Certificate(&ann)).await;
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
    pause();
    sleep(Duration::from_secs(3600)).await;
    resume();
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
}

#[tokio::test]
async fn plain_http_is_answered_by_how_it_begins() {
    let setup = Setup::default();
    let server = setup.start().await;
    let clients: [(&[&str], bool); 9] = [
        (&["GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"], true),
        (&["GE", "T", " / HTTP/1.1\r\n\r\n"], true),
        (&["HEAD * HTTP/1.1\r\n\r\n"], true),
        (&["POST / HTTP/1.1\r\n\r\n"], true),
        (&["PUT / HTTP/1.1\r\n\r\n"], true),
        (&["OPTIONS * HTTP/1.1\r\n\r\n"], true),
        (&["GET http://localhost/ HTTP/1.1\r\n\r\n"], false),
        (&["PATCH / HTTP/1.1\r\n\r\n"], false),
        (&["nonsense"], false),
    ];
    for (pieces, is_http) in clients {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in pieces {
            stream.write_all(piece.as_bytes()).await.unwrap();
            sleep(Duration::from_millis(10)).await;
        }
        let mut answer = Vec::new();
        // What is refused as TLS may be reset.
        let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
        let told = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        assert_eq!(answer == told, is_http, "{pieces:?}: {:?}", String::from_utf8_lossy(&answer));
    }
    server.end().await;
}

#[tokio::test]
async fn malformed_request_resets_only_its_stream() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let (mut client, _ended) = server.connect_h2(Identity::Certificate(&ann)).await;
    let refused = client.send(Method::GET, &format!("{STACKS}/%zz"), &[]).await.unwrap_err();
    let reason = std::error::Error::source(&refused).and_then(|cause| cause.downcast_ref::<h2::Error>()?.reason());
    assert_eq!(reason, Some(h2::Reason::PROTOCOL_ERROR), "{refused:?}");
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
}

#[tokio::test]
async fn server_accepts_many_short_headers() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let many = vec![("x-many", "x"); 3_900];
    assert_eq!(client.get_with(STACKS, &many).await.code, StatusCode::OK);
    server.end().await;
}

#[tokio::test]
async fn server_rejects_too_many_or_long_headers() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    // What else is in the request has less than a thousand bytes.
    let [fits, too_long] = [3_000, 4_096].map(|more| "x".repeat((1 << 20) + more));
    let too_large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    for (headers, code) in [
        (vec![("x-long", fits.as_str())], StatusCode::OK),
        (vec![("x-long", too_long.as_str())], too_large),
        (vec![("x-many", "x"); 4_100], too_large),
    ] {
        let identity = Identity::Certificate(&ann);
        let (mut client, ended) = server.try_connect(identity, false, &rustls::version::TLS13).await.unwrap();
        assert_eq!(client.get_with(STACKS, &headers).await.code, code, "{} headers", headers.len());
        if code == too_large {
            timeout(LONG, ended).await.expect("the connection is closed").unwrap();
        }
    }
    server.end().await;
}
