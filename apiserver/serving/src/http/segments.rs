//! Compressed lists, put together from segments that were compressed before.
//!
//! A segment is a run of neighbouring objects, compressed by itself and ended on a byte boundary, so that segments can
//! be joined in any order to one deflate stream (RFC 1951), and their checksums combined to that of the gzip member
//! (RFC 1952). Which objects make a segment follows from their keys alone: a write changes one segment, and all others
//! are copied from one list to the next.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status};
use http_body_util::BodyExt;
use hyper::body::Frame;
use parking_lot::Mutex;
use stoa_registry::registry::Stored;

use super::{
    body::{self, Body, FRAME_BYTES},
    render::RenderedList,
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

/// One object in as many begins a segment.
const OBJECTS: u64 = 32;
/// No object is added to a segment that has as many bytes.
const MAX_BYTES: usize = 256 * 1024;
/// How many compressed bytes are kept for each resource.
const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// What is kept may cost more to make: a third less to send than at the lowest level, for two or three times the work.
const LEVEL: u32 = 3;

/// Magic number, deflate, no flags, no time, fastest, unknown system.
const GZIP_HEADER: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// A block that stores one comma as it is.
const COMMA: &[u8] = &[0, 1, 0, 0xfe, 0xff, b','];
/// The last block, which is empty.
const END: &[u8] = &[3, 0];

/// The compressed segments of one resource.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    known: Mutex<SegmentTable>,
    /// Keyed by chance, so that nobody can make two segments that are taken for each other.
    identities: RandomState,
}

#[derive(Debug, Default)]
struct SegmentTable {
    segments: HashMap<u64, CachedSegment>,
    bytes: usize,
}

#[derive(Debug)]
struct CachedSegment {
    segment: Arc<Segment>,
    /// Whether a list had it from here since the last clearing.
    used: bool,
}

#[derive(Debug)]
struct Segment {
    deflated: Vec<u8>,
    checksum: crc32fast::Hasher,
    plain_bytes: usize,
}

impl Segments {
    fn find(&self, identity: u64) -> Option<Arc<Segment>> {
        let mut known = self.known.lock();
        let kept = known.segments.get_mut(&identity)?;
        kept.used = true;
        Some(kept.segment.clone())
    }

    /// Keeps a segment. When there are too many, those go that no list had from here since there last were too many.
    fn keep(&self, identity: u64, segment: Arc<Segment>) {
        let known = &mut *self.known.lock();
        known.bytes += segment.deflated.len();
        if let Some(other) = known.segments.insert(identity, CachedSegment { segment, used: false }) {
            known.bytes -= other.segment.deflated.len();
        }
        // A second time when all were in use.
        for _ in 0..2 {
            if known.bytes <= KEPT_BYTES {
                break;
            }
            known.segments.retain(|_, kept| std::mem::take(&mut kept.used));
            known.bytes = known.segments.values().map(|kept| kept.segment.deflated.len()).sum();
        }
    }
}

pub(crate) fn body(list: RenderedList, segments: Arc<Segments>) -> Body {
    let mut form = segments.identities.build_hasher();
    list.identify_form(&mut form);
    let (deflater, checksum) = (Deflater::default(), crc32fast::Hasher::new());
    CompressedList { list, segments, form, deflater, checksum, plain_bytes: 0, stage: Stage::Head }.boxed_unsync()
}

struct CompressedList {
    list: RenderedList,
    segments: Arc<Segments>,
    /// Has been fed with what all items have in common.
    form: std::hash::DefaultHasher,
    deflater: Deflater,
    /// Of all that was compressed and sent.
    checksum: crc32fast::Hasher,
    plain_bytes: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    /// The next item is that of this index.
    Items(usize),
    End,
}

impl CompressedList {
    fn next(&mut self) -> Vec<u8> {
        let mut out = if self.stage == Stage::End { Vec::new() } else { body::frame() };
        while out.len() < FRAME_BYTES {
            self.stage = match self.stage {
                Stage::Head => {
                    out.extend_from_slice(GZIP_HEADER);
                    let head = std::mem::take(&mut self.list.head);
                    self.count(&head);
                    self.deflater.deflate(&head, &mut out);
                    Stage::Items(0)
                }
                Stage::Items(start) if start < self.list.items.len() => {
                    if start > 0 {
                        self.count(b",");
                        out.extend_from_slice(COMMA);
                    }
                    let (segment, end) = self.segment(start);
                    self.checksum.combine(&segment.checksum);
                    self.plain_bytes += segment.plain_bytes;
                    out.extend_from_slice(&segment.deflated);
                    Stage::Items(end)
                }
                Stage::Items(_) => {
                    let tail = self.list.tail.as_bytes();
                    self.count(tail);
                    self.deflater.deflate(tail, &mut out);
                    out.extend_from_slice(END);
                    out.extend_from_slice(&self.checksum.clone().finalize().to_le_bytes());
                    // The format wants the length modulo 2³².
                    out.extend_from_slice(&self.plain_bytes.to_le_bytes()[..4]);
                    Stage::End
                }
                Stage::End => break,
            };
        }
        out
    }

    fn count(&mut self, plain: &[u8]) {
        self.checksum.update(plain);
        self.plain_bytes += plain.len();
    }

    /// The segment that begins with an item, and the index after its last.
    fn segment(&mut self, start: usize) -> (Arc<Segment>, usize) {
        let Self { list, segments, form, deflater, .. } = self;
        let mut identity = form.clone();
        let mut bytes = 0;
        let mut end = start;
        for item in &list.items[start..] {
            if end > start && (begins_segment(item) || bytes >= MAX_BYTES) {
                break;
            }
            list.identify_item(&mut identity, item);
            bytes += list.item_bytes(item);
            end += 1;
        }
        let identity = identity.finish();
        let segment = segments.find(identity).unwrap_or_else(|| {
            let mut plain = Vec::with_capacity(bytes + bytes / 8);
            for (index, item) in list.items[start..end].iter().enumerate() {
                if index > 0 {
                    plain.push(b',');
                }
                list.write_item(&mut plain, item);
            }
            let segment = Arc::new(Segment::new(&plain, deflater));
            segments.keep(identity, segment.clone());
            segment
        });
        (segment, end)
    }
}

fn begins_segment(stored: &Stored) -> bool {
    stored.key_hash.is_multiple_of(OBJECTS)
}

impl Segment {
    fn new(plain: &[u8], deflater: &mut Deflater) -> Self {
        let mut deflated = Vec::new();
        deflater.deflate(plain, &mut deflated);
        deflated.shrink_to_fit();
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(plain);
        Self { deflated, checksum, plain_bytes: plain.len() }
    }
}

impl hyper::body::Body for CompressedList {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let bytes = self.next();
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.stage == Stage::End
    }
}

/// A compressor, made when it is needed first: it is large, and most lists need none.
#[derive(Default)]
struct Deflater(Option<Compress>);

impl Deflater {
    /// Appends the bytes as deflate blocks of which none is the last, which refer to nothing before them and end on a
    /// byte boundary.
    fn deflate(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let compress = self.0.get_or_insert_with(|| Compress::new(Compression::new(LEVEL), false));
        compress.reset();
        loop {
            let taken = usize::try_from(compress.total_in()).expect("no more than was given");
            out.reserve((plain.len() - taken) / 4 + 64);
            let status = compress.compress_vec(&plain[taken..], out, FlushCompress::Sync);
            debug_assert!(matches!(status, Ok(Status::Ok | Status::BufError)));
            // With room left, all was taken and the blocks are ended.
            if compress.total_in() == plain.len() as u64 && out.len() < out.capacity() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use kube::{CustomResource, CustomResourceExt as _};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;
    use crate::http::{query::IncludeObject, render::Form, table::RowStyle};
    use stoa_log::{Key, Version};
    use stoa_meta::{
        definition::{Column, ResourceDefinition},
        object::Object,
    };
    use stoa_registry::{cache::Prepared, registry::List};

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "test.dev", version = "v1", kind = "Widget")]
    struct WidgetSpec {
        text: String,
    }

    fn definition() -> Arc<ResourceDefinition> {
        let definition = ResourceDefinition::from_crd(&Widget::crd());
        Arc::new(definition.columns(&[Column::age()]))
    }

    fn stored(number: u64, version: u64) -> Arc<Stored> {
        let value = json!({
            "apiVersion": "g/v1",
            "kind": "Widget",
            "metadata": {"name": format!("w{number:04}"), "creationTimestamp": "2026-01-01T00:00:00Z", "uid": "u"},
            "spec": {"text": format!("{}", number * 7919 % 101).repeat(20)},
        });
        let object = Object(value.as_object().expect("a map").clone());
        let key = Key::new(format!("/widgets/w{number:04}"));
        Arc::new(Prepared::new(&object, &[]).expect("encodes").stored(key, Version(version)))
    }

    fn rendered(items: &[Arc<Stored>], form: Form) -> RenderedList {
        let list =
            List { version: Version(9), items: items.to_vec(), continue_token: None, remaining_item_count: None };
        RenderedList::new(&definition(), form, list)
    }

    fn table(now: &str) -> Form {
        Form::Table(RowStyle { version: "v1", include: IncludeObject::Metadata, now: now.parse().expect("a time") })
    }

    async fn unpacked(list: RenderedList, segments: &Arc<Segments>) -> Vec<u8> {
        let compressed = body(list, segments.clone()).collect().await.expect("a body").to_bytes();
        let mut plain = Vec::new();
        // Checks the checksum and the length.
        flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut plain).expect("gzip");
        plain
    }

    fn plain(list: RenderedList) -> Vec<u8> {
        let mut out = Vec::new();
        let mut pieces = list.pieces();
        while pieces(&mut out) {}
        out
    }

    #[tokio::test]
    async fn joined_segments_are_the_list() {
        let segments = Arc::new(Segments::default());
        let mut items: Vec<_> = (0..500).map(|number| stored(number, number + 1)).collect();
        let forms =
            [Form::Object, Form::PartialList("v1"), table("2026-01-01T00:05:00Z"), table("2026-01-01T00:05:01Z")];
        for form in forms {
            for part in [0..500, 0..0, 3..4, 100..333] {
                let list = || rendered(&items[part.clone()], form);
                assert_eq!(unpacked(list(), &segments).await, plain(list()), "{form:?} {part:?}");
            }
        }
        let before = segments.known.lock().segments.len();
        // Which keys begin a segment is up to chance; that there are several in each form is not.
        assert!(before > 2 * forms.len(), "{before}");

        // A write costs one segment.
        items[250] = stored(250, 501);
        let list = || rendered(&items, Form::Object);
        assert_eq!(unpacked(list(), &segments).await, plain(list()));
        assert_eq!(segments.known.lock().segments.len(), before + 1);
        let text: Value = serde_json::from_slice(&unpacked(list(), &segments).await).expect("JSON");
        assert_eq!(text["items"][250]["metadata"]["resourceVersion"], "501");
    }

    #[test]
    fn table_rows_follow_the_definition_and_lists_the_keys() {
        let backwards = Arc::new(ResourceDefinition::clone(&definition()).rows_by_name(|a, b| b.cmp(a)));
        let names = |form| {
            let items = vec![stored(1, 1), stored(2, 2)];
            let list = List { version: Version(9), items, continue_token: None, remaining_item_count: None };
            let list = RenderedList::new(&backwards, form, list);
            list.items.iter().map(|item| item.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(table("2026-01-01T00:05:00Z")), ["w0002", "w0001"]);
        for form in [Form::Object, Form::PartialList("v1")] {
            assert_eq!(names(form), ["w0001", "w0002"], "{form:?}");
        }
    }

    #[test]
    fn segments_that_nobody_wants_are_dropped() {
        let segments = Segments::default();
        let mut deflater = Deflater::default();
        let noise: Vec<u8> = (0..2 << 20).map(|_| rand::random()).collect();
        let segment = Arc::new(Segment::new(&noise, &mut deflater));
        for identity in 0..100 {
            segments.keep(identity, segment.clone());
            assert!(segments.find(0).is_some(), "the one in use stays");
        }
        let known = segments.known.lock();
        assert!(known.bytes <= KEPT_BYTES && known.bytes >= KEPT_BYTES / 4, "{}", known.bytes);
    }
}
