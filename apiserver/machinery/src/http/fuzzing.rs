//! What holds for requests, whatever is in them: patches, query parameters, headers, frames; and for compressed answers.

use std::io::{self, Read, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{WebSocket, protocol::Role};

use super::{
    RequestInfo, body,
    configuration::Configuration,
    negotiate::{self, Convert, MediaType},
    patch::{Patch, PatchType},
    query::{self, Query},
    render::{Form, RenderedList},
    segments::{self, Segments},
    websocket, writes,
};
use crate::{
    auth::Attributes,
    cache::Prepared,
    fuzzing::{WIDGET, lines},
    log::{Key, Version},
    object::Object,
    registry::List,
    request::FieldValidation,
    schema::{
        MAX_DEPTH,
        fuzzing::{DECODER, has_long_keys, height},
    },
    status::ApiError,
};

/// What patches are applied to when the input brings nothing.
pub(crate) static OBJECT: LazyLock<Object> = LazyLock::new(|| {
    let object = json!({
        "apiVersion": "test.example/v1",
        "kind": "Widget",
        "metadata": { "name": "w", "namespace": "default", "labels": { "a": "b" }, "finalizers": ["x/y"] },
        "spec": {
            "size": 1, "count": 2, "set": ["a", "b"], "list": [1, 2], "parameters": { "k": "v" },
            "parts": [{ "name": "a", "port": 80, "tags": ["x"] }, { "name": "b", "port": "http" }],
            "nested": { "on": true, "deep": { "name": "c" } }, "free": { "x": { "y": [1] } },
        },
    });
    Object(object.as_object().expect("a map").clone())
});

/// Refused as clients may expect it: as a Status with a code that fits and some words.
pub(crate) fn refused(error: &ApiError, codes: &[u16]) {
    assert!(codes.contains(&error.code()) && !error.message().is_empty(), "{error:?}");
}

/// The first line names the kind of patch by a letter and may hold an object as JSON after it; the rest is the patch.
pub(crate) fn patches(data: &[u8]) {
    let (head, patch) = data.iter().position(|byte| *byte == b'\n').map_or((data, &[][..]), |at| data.split_at(at + 1));
    let kind = match head.first() {
        Some(b'j') => PatchType::Json,
        Some(b's') => PatchType::Strategic,
        _ => PatchType::Merge,
    };
    let own = head.get(1..).and_then(|object| {
        Some(DECODER.decode(object, crate::schema::Format::Json, FieldValidation::Ignore).ok()?.object)
    });
    let object = own.as_ref().unwrap_or(&OBJECT);
    let patch = match Patch::parse(kind, patch) {
        Ok(patch) => patch,
        Err(error) => return refused(&error, &[400, 413]),
    };
    let mut patched = match patch.apply(object, &WIDGET.schema) {
        Ok(patched) => patched,
        Err(error) => return refused(&error, &[400, 422, 500]),
    };
    if kind == PatchType::Merge {
        assert_eq!(patch.apply(&patched, &WIDGET.schema).expect("it applied once"), patched, "a merge is repeatable");
    }
    for validation in [FieldValidation::Strict, FieldValidation::Ignore] {
        if let Err(error) = patch.check_strictly(&patched, vec!["x".to_owned()], validation) {
            refused(&error, &[422]);
        }
    }
    match DECODER.settle(&mut patched) {
        Ok(_) => {
            assert!(height(&Value::Object(patched.0.clone())) <= MAX_DEPTH);
            DECODER.structural_errors(&patched);
            // What came of it is an object like any other, once it has its type, which the registry sees to.
            patched.0.insert("apiVersion".to_owned(), WIDGET.api_version().into());
            patched.0.insert("kind".to_owned(), WIDGET.kind.clone().into());
            let json = serde_json::to_vec(&patched.0).expect("an object is written as JSON");
            let decoded = DECODER.decode(&json, crate::schema::Format::Json, FieldValidation::Strict);
            assert_eq!(decoded.unwrap_or_else(|error| panic!("{error:?}")).object, patched);
        }
        Err(misfit) => refused(&patch.refuse_misfit(&patched, &misfit), &[422]),
    }
}

/// A body of what is no object of a kind, in both formats: options of a delete and the configuration of an apply. Read
/// as JSON it is what the same in YAML is.
pub(crate) fn bodies(data: &[u8]) {
    let configuration = match Configuration::parse(data) {
        Ok(configuration) => configuration.object,
        Err(error) => return refused(&error, &[400]),
    };
    if has_long_keys(&Value::Object(configuration.0.clone())) {
        return;
    }
    let json = serde_json::to_vec(&configuration.0).expect("a map is written as JSON");
    let again = Configuration::parse(&json).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(again.object, configuration);
    let options = |body: &[u8], media| writes::parse_delete_options(body, media);
    match (options(&json, MediaType::Json), options(&json, MediaType::Yaml)) {
        (Ok(options), Ok(same)) => {
            assert_eq!(format!("{options:?}"), format!("{same:?}"));
            if let Err(error) = query::is_dry_run(&options) {
                refused(&error, &[400, 422]);
            }
        }
        (Err(error), Err(same)) => {
            refused(&error, &[400]);
            refused(&same, &[400]);
        }
        different => panic!("{different:?}"),
    }
    for media in [MediaType::Json, MediaType::Yaml] {
        if let Err(error) = options(data, media) {
            refused(&error, &[400]);
        }
    }
}

/// The first line is a request's target, the second a query.
pub(crate) fn queries(data: &[u8]) {
    let lines = lines(data);
    let (target, query) = (&lines[0], Query::parse(lines.get(1).map_or("", String::as_str)));
    if let Ok(uri) = target.parse::<Uri>() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            let info = RequestInfo::new(&method, &uri);
            let attributes = Attributes::from(&info);
            assert_eq!(attributes.verb, info.verb);
            // What is authorized is what is served: the parts say the same as the names.
            if info.is_resource_request {
                assert_eq!(info.parts.first(), Some(&info.resource));
                let in_path = info.parts.get(1).filter(|name| !name.is_empty());
                // A field selector for one name names it, too.
                assert!(in_path.is_none_or(|name| *name == info.name), "{info:?}");
            } else {
                assert!(attributes.resource.is_empty() && attributes.name.is_empty());
            }
        }
    }
    let outcomes = [
        query.list().map(drop),
        query.watch(Duration::from_secs(1)).map(drop),
        query.write("CreateOptions").map(drop),
        query.write("PatchOptions").map(drop),
        query.apply().map(drop),
        query.include_object().map(drop),
        query.delete().and_then(|options| query::is_dry_run(&options).map(drop)),
    ];
    for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        refused(error, &[400, 422]);
    }
    query.write_options_sent();
    // A query that is written anew says the same.
    let encode =
        |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    let pairs = query.clone().into_pairs();
    let written: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    assert_eq!(Query::parse(&written.join("&")), query);
}

/// Accept and Content-Type: what is agreed on is something that was named, and refusals are 406 and 415.
pub(crate) fn accept(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let text = value.to_str().unwrap_or("").to_owned();
    let headers = HeaderMap::from_iter([(header::ACCEPT, value.clone()), (header::CONTENT_TYPE, value)]);
    match negotiate::output(&headers) {
        Ok(accepted) => {
            let named = text.is_empty() || text.contains('*') || text.contains(accepted.media.as_str());
            assert!(named || text.contains("application"), "{text:?}: {accepted:?}");
            if let Some((convert, version)) = accepted.convert {
                let kind = match convert {
                    Convert::Table => "Table",
                    Convert::Partial => "PartialObjectMetadata",
                    Convert::PartialList => "PartialObjectMetadataList",
                };
                assert!(text.contains(kind) && text.contains(version), "{text:?}: {accepted:?}");
            }
        }
        Err(error) => refused(&error, &[406]),
    }
    match negotiate::watch_output(&headers) {
        Ok(accepted) => assert_eq!(accepted.media, MediaType::Json),
        Err(error) => refused(&error, &[406]),
    }
    for streams in [false, true] {
        if let Err(error) = negotiate::check_produced(&headers, streams) {
            refused(&error, &[406]);
        }
    }
    negotiate::status_output(&headers);
    negotiate::clauses(&text);
    if let Err(error) = negotiate::input(&headers) {
        refused(&error, &[415]);
    }
    if let Err(error) = PatchType::of(&headers) {
        refused(&error, &[415]);
    }
}

/// Reads what is there, and then is at its end; takes all that is written.
struct Wire<'a>(&'a [u8]);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The first line is a handshake's key and subprotocols; the rest is what a client sends in frames, which ends sometime
/// and is never kept beyond the limit.
pub(crate) fn websocket(data: &[u8]) {
    let (head, frames) =
        data.iter().position(|byte| *byte == b'\n').map_or((data, &[][..]), |at| data.split_at(at + 1));
    if let Ok(value) = HeaderValue::from_bytes(head.trim_ascii()) {
        let headers = HeaderMap::from_iter([
            (header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            (header::SEC_WEBSOCKET_KEY, value.clone()),
            (header::SEC_WEBSOCKET_PROTOCOL, value.clone()),
            (header::UPGRADE, value.clone()),
            (header::CONNECTION, value),
            (header::ORIGIN, HeaderValue::from_static("https://localhost")),
        ]);
        websocket::is_requested(&headers);
        let protocols = websocket::protocols(&headers);
        assert!(protocols.iter().all(|protocol| !protocol.is_empty() && !protocol.contains(',')));
        let code = websocket::handshake(&headers).map_or_else(|refusal| refusal.status(), |answer| answer.status());
        assert!(matches!(code.as_u16(), 101 | 400), "{code}");
    }
    let mut socket = WebSocket::from_raw_socket(Wire(frames), Role::Server, Some(websocket::config()));
    // Every frame takes two bytes at least, and each call ends with a message or an error.
    for _ in 0..=frames.len() {
        match socket.read() {
            Ok(message) => assert!(message.len() <= websocket::MAX_RECEIVED_BYTES),
            Err(_) => return,
        }
    }
    panic!("more messages than bytes");
}

/// Each line is the text of an object; a list of them unpacks to what it is when it is not packed, the second time
/// too, when its segments are known.
pub(crate) fn gzip(data: &[u8]) {
    // What a version of an object is never changes, but does from one input to the next.
    let segments: Arc<Segments> = Arc::default();
    let unpack = |packed: &[u8]| {
        let mut plain = Vec::new();
        // Checks the checksum and the length.
        GzDecoder::new(packed).read_to_end(&mut plain).expect("it is gzip");
        plain
    };
    let collect = |body: body::Body| body.collect().now_or_never().expect("it never waits").expect("a body").to_bytes();
    let items = lines(data).into_iter().enumerate().map(|(number, text)| {
        let mut object = OBJECT.clone();
        object.metadata_mut().insert("name".to_owned(), text.as_str().into());
        object.0.insert("spec".to_owned(), json!({ "parameters": { "text": text } }));
        let prepared = Prepared::new(&object, &[]).expect("it has metadata");
        Arc::new(prepared.stored(Key::new(format!("/w/{number}")), Version(7)))
    });
    let items: Vec<_> = items.collect();
    let list = || {
        let list = List { version: Version(9), items: items.clone(), continue_token: None, remaining_item_count: None };
        RenderedList::new(&WIDGET, Form::Object, list)
    };
    let mut plain = Vec::new();
    let mut pieces = list().pieces();
    while pieces(&mut plain) {}
    for _ in 0..2 {
        assert_eq!(unpack(&collect(segments::body(list(), segments.clone()))), plain);
    }
    assert_eq!(unpack(&collect(body::streamed(Vec::new(), Some(list().pieces()), true))), plain);
    assert_eq!(unpack(&collect(body::streamed(data.to_vec(), None, true))), data);
    let read: Bytes =
        body::read(body::full(data.to_vec())).now_or_never().expect("it never waits").expect("it is small");
    assert_eq!(read, data);
}
