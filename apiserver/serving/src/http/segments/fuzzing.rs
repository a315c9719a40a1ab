//! Properties of compressed answers.

use std::{io::Read, sync::Arc};

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::json;
use stoa_log::{Key, Version};
use stoa_meta::fuzzing::{OBJECT, WIDGET, lines};
use stoa_registry::{cache::Prepared, registry::List};

use super::Segments;
use crate::http::{
    body,
    render::{Form, RenderedList},
};

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
        assert_eq!(unpack(&collect(super::body(list(), segments.clone()))), plain);
    }
    assert_eq!(unpack(&collect(body::streamed(Vec::new(), Some(list().pieces()), true))), plain);
    assert_eq!(unpack(&collect(body::streamed(data.to_vec(), None, true))), data);
    let read: Bytes =
        body::read(body::full(data.to_vec())).now_or_never().expect("it never waits").expect("it is small");
    assert_eq!(read, data);
}
