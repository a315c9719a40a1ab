//! Turns records into commits. It is synchronous: the same records and files always give the same commits.
//!
//! Start at [`builders`], which gives the commits of records, and [`reconciliation`], which gives the commit that makes the
//! repository agree with the log. Elsewhere: `session` publishes the commits.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
};

use bytes::Bytes;
use git2::Oid;
use serde_json::Value;
use stoa_machinery::log::{Change, Key, Record, Snapshot, Version};
use stoa_yaml_edit as text;

use super::{
    Document, GitError, InvalidFile, Layout, LayoutError, Location,
    commit_builder::{CommitBuilder, Edit, Person},
    history::Step,
    progress,
    reader::{Content, Reader},
    repository::ControlRepository,
};

/// An object that has a file.
#[derive(Clone, Debug)]
struct Projected {
    /// `None` for a value that does not say where its file is, until it is [found](Index::find).
    path: Option<Box<str>>,
    value: Bytes,
    /// Whether the file has exactly the rendered value, as of the index's tip.
    is_canonical: bool,
}

/// The objects that have files, as of some version.
///
/// Each object takes memory, so the index has each path once; the layout maps a path to its object.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    objects: HashMap<Key, Projected>,
    /// The commit for which `is_canonical` is known.
    tip: Option<Oid>,
}

impl Index {
    pub(super) fn of(snapshot: &Snapshot, layout: &dyn Layout) -> Self {
        let mut index = Self::default();
        for entry in &snapshot.entries {
            index.set(&entry.key, Some(&entry.value), layout);
        }
        index
    }

    /// Sets the value of a key; returns the object with a file before and after.
    fn set(&mut self, key: &Key, value: Option<&Bytes>, layout: &dyn Layout) -> (Option<Projected>, Option<Projected>) {
        let new = value.filter(|_| key.as_str() != progress::KEY).and_then(|value| {
            let path = match layout.location(key, value) {
                Location::At(path) => Some(path.into()),
                Location::Nowhere => return None,
                Location::Unknown => self.path(key).map(Box::from),
            };
            Some(Projected { path, value: value.clone(), is_canonical: false })
        });
        let old = match &new {
            Some(new) => self.objects.insert(key.clone(), new.clone()),
            None => self.objects.remove(key),
        };
        (old, new)
    }

    /// Whether the files of some objects have still to be found.
    pub(super) fn is_incomplete(&self) -> bool {
        self.objects.values().any(|object| object.path.is_none())
    }

    /// Finds the files of objects with an unknown path among the existing files.
    pub(super) fn find(&mut self, files: impl IntoIterator<Item = String>, layout: &dyn Layout) {
        for path in files {
            let Some(key) = layout.key(&path) else { continue };
            if let Some(object) = self.objects.get_mut(&key)
                && object.path.is_none()
            {
                object.path = Some(path.into());
            }
        }
    }

    /// Applies a record; returns the object with a file before and after.
    fn take(&mut self, layout: &dyn Layout, record: &Record) -> (Option<Projected>, Option<Projected>) {
        let value = if let Change::Put(value) = &record.change { Some(value) } else { None };
        self.set(&record.key, value, layout)
    }

    /// Applies a record that does not change the file of its object; false for others, which it ignores.
    fn take_alike(&mut self, layout: &dyn Layout, record: &Record) -> bool {
        let (Change::Put(value), Some(object)) = (&record.change, self.objects.get_mut(&record.key)) else {
            return false;
        };
        let is_alike = object.path.is_some() && layout.reads_alike(&record.key, &object.value, value);
        if is_alike {
            object.value = value.clone();
        }
        is_alike
    }

    /// Begins to write on top of a commit. `is_canonical` is reset if others made it, and until the new commits are
    /// [published](Self::published).
    fn begin(&mut self, tip: Oid) {
        if self.tip.take() != Some(tip) {
            for object in self.objects.values_mut() {
                object.is_canonical = false;
            }
        }
    }

    /// Notes that the last commits are in the repository.
    pub(super) fn published(&mut self, commit: Oid) {
        self.tip = Some(commit);
    }

    /// The object whose file this is.
    pub(super) fn key(&self, path: &str, layout: &dyn Layout) -> Option<Key> {
        layout.key(path).filter(|key| self.path(key) == Some(path))
    }

    /// The file of an object.
    pub(super) fn path(&self, key: &Key) -> Option<&str> {
        self.objects.get(key)?.path.as_deref()
    }

    /// The authored fields by key; `None` for objects that do not decode.
    pub(super) fn authored(&self, layout: &dyn Layout) -> BTreeMap<Key, Option<Vec<u8>>> {
        let authored = |(key, object): (&Key, &Projected)| {
            let json = logged(key, layout.read(key, &object.value).and_then(|document| document.json()));
            (key.clone(), json.map(|json| json.to_string().into_bytes()))
        };
        self.objects.iter().map(authored).collect()
    }

    /// The content each file should have.
    fn render(&self, layout: &dyn Layout) -> BTreeMap<String, String> {
        let render = |(key, object): (&Key, &Projected)| {
            Some((object.path.as_deref()?.to_owned(), rendered(layout, key, &object.value)?))
        };
        self.objects.iter().filter_map(render).collect()
    }
}

/// The rendered value; an object that cannot be rendered keeps its file.
pub(super) fn rendered(layout: &dyn Layout, key: &Key, value: &[u8]) -> Option<String> {
    logged(key, layout.read(key, value).and_then(|document| document.yaml()))
}

fn logged<T>(key: &Key, made: Result<T, LayoutError>) -> Option<T> {
    made.inspect_err(|error| tracing::error!(%key, %error, "an object cannot be written to Git")).ok()
}

/// The files as they are at the tip and will be after the commits so far.
struct Files<'a> {
    repository: Reader,
    tip: Oid,
    invalid: &'a BTreeMap<String, InvalidFile>,
    changed: HashMap<String, Option<Vec<u8>>>,
    /// Our paths on top of a pushed commit.
    projected: RefCell<HashMap<Oid, Option<BTreeSet<String>>>>,
}

impl Files<'_> {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, git2::Error> {
        match self.changed.get(path) {
            Some(content) => Ok(content.clone()),
            None => Ok(self.repository.read(self.tip, path)?.map(Content::bytes)),
        }
    }

    /// Whether `record` applied a pushed commit, which has the file or lacks it as `has` says, and only pushes changed the
    /// file since. The current file comes from that commit then, or from a later push with its own record to come.
    fn are_pushed(&self, layout: &dyn Layout, record: &Record, path: &str, has: bool) -> Result<bool, git2::Error> {
        if record.origin.user != layout.ingest_user() {
            return Ok(false);
        }
        let Some(commit) = record.origin.message.strip_prefix("commit ").and_then(|id| Oid::from_str(id).ok()) else {
            return Ok(false);
        };
        let pushed = self.repository.read(commit, path)?.map(Content::bytes);
        if pushed.is_some() != has {
            return Ok(false);
        }
        if pushed == self.read(path)? {
            return Ok(true);
        }
        if self.changed.contains_key(path) {
            return Ok(false);
        }
        let mut projected = self.projected.borrow_mut();
        let since = match projected.entry(commit) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.repository.projected_since(commit, self.tip, layout)?),
        };
        Ok(since.as_ref().is_some_and(|paths| !paths.contains(path)))
    }

    fn apply(&mut self, edits: &[Edit]) {
        for edit in edits {
            self.changed.insert(edit.path.clone(), edit.content.clone().map(String::into_bytes));
        }
    }
}

/// The commits for `records` on top of `tip`, and their changes of authored objects. The index is brought up to the last
/// record.
///
/// An `invalid` file is written anew when its object changes, since its valid parts are unknown.
pub(super) fn builders(
    repository: &ControlRepository,
    tip: Oid,
    layout: &dyn Layout,
    index: &mut Index,
    invalid: &BTreeMap<String, InvalidFile>,
    records: &[Record],
) -> Result<(Vec<CommitBuilder>, Vec<Step>), GitError> {
    let mut files = Files {
        repository: repository.reader()?,
        tip,
        invalid,
        changed: HashMap::new(),
        projected: RefCell::default(),
    };
    let (mut builders, mut steps) = (Vec::new(), Vec::new());
    index.begin(tip);
    for record in records {
        if index.take_alike(layout, record) {
            continue;
        }
        let (old, new) = index.take(layout, record);
        let write = Written::of(layout, record, old.as_ref(), new.as_ref());
        steps.extend(write.step());
        let (edits, is_canonical) = edits(&files, layout, &write)?;
        if let Some(object) = index.objects.get_mut(&record.key) {
            object.is_canonical = is_canonical;
        }
        if edits.is_empty() {
            continue;
        }
        files.apply(&edits);
        let subject = layout.subject(record, write.previously(), write.now());
        builders.push(CommitBuilder {
            edits,
            author: Person::user(&record.origin.user),
            time_ms: record.time_ms,
            message: message(&subject, &record.origin.message, record.version),
        });
    }
    Ok((builders, steps))
}

/// The change of a record to the authored objects, if any. The index is brought up to it.
pub(super) fn step(layout: &dyn Layout, index: &mut Index, record: &Record) -> Option<Step> {
    if index.take_alike(layout, record) {
        return None;
    }
    let (old, new) = index.take(layout, record);
    Written::of(layout, record, old.as_ref(), new.as_ref()).step()
}

/// The authored fields of an object.
struct Read {
    document: Box<dyn Document>,
    json: Value,
}

impl Read {
    fn of(layout: &dyn Layout, key: &Key, object: &Projected) -> Option<Self> {
        let read = |document: Box<dyn Document>| Ok(Self { json: document.json()?, document });
        logged(key, layout.read(key, &object.value).and_then(read))
    }
}

/// A record of an object that has or had a file, with the authored fields before and after.
struct Written<'a> {
    record: &'a Record,
    old: Option<&'a Projected>,
    new: Option<&'a Projected>,
    before: Option<Read>,
    after: Option<Read>,
}

impl<'a> Written<'a> {
    fn of(layout: &dyn Layout, record: &'a Record, old: Option<&'a Projected>, new: Option<&'a Projected>) -> Self {
        let read = |object: &Projected| Read::of(layout, &record.key, object);
        Self { record, old, new, before: old.and_then(read), after: new.and_then(read) }
    }

    /// The authored fields before.
    fn previously(&self) -> Option<&Value> {
        Some(&self.before.as_ref()?.json)
    }

    /// The authored fields now.
    fn now(&self) -> Option<&Value> {
        Some(&self.after.as_ref()?.json)
    }

    /// The change of authored fields, if any.
    fn step(&self) -> Option<Step> {
        let value = match self.new {
            Some(_) if self.now().is_some() && self.previously() != self.now() => {
                Some(self.now()?.to_string().into_bytes())
            }
            None if self.old.is_some() => None,
            _ => return None,
        };
        Some(Step { version: self.record.version, key: self.record.key.clone(), value })
    }

    /// The rendered document, unless it cannot be rendered.
    fn yaml(&self, read: &Read) -> Option<String> {
        logged(&self.record.key, read.document.yaml())
    }
}

/// The edits of a record, and whether the file of its object is canonical then.
fn edits(files: &Files<'_>, layout: &dyn Layout, write: &Written<'_>) -> Result<(Vec<Edit>, bool), GitError> {
    let Written { record, old, new, before, after } = write;
    let was_canonical = old.is_some_and(|old| old.is_canonical);
    let [old, new] = [*old, *new].map(|object| object?.path.as_deref());
    let mut edits = Vec::new();
    if let Some(old) = old
        && new != Some(old)
        && files.read(old)?.is_some()
        && !files.are_pushed(layout, record, old, false)?
    {
        edits.push(Edit { path: old.to_owned(), content: None });
    }
    let (Some(new), Some(after)) = (new, after) else { return Ok((edits, false)) };
    let is_in_place = old == Some(new);
    let before = before.as_ref().filter(|_| is_in_place);
    if before.is_some_and(|before| before.json == after.json) {
        return Ok((edits, was_canonical));
    }
    let Some(content) = write.yaml(after) else { return Ok((edits, false)) };
    // Only the projection wrote the file, so there is no need to read it.
    if was_canonical && is_in_place && before.is_some() && record.origin.user != layout.ingest_user() {
        edits.push(Edit { path: new.to_owned(), content: Some(content) });
        return Ok((edits, true));
    }
    let current = files.read(new)?;
    if files.are_pushed(layout, record, new, true)? {
        return Ok((edits, false));
    }
    let before = before.filter(|_| !files.invalid.contains_key(new)).and_then(|before| write.yaml(before));
    let updated = text::updated(current.as_deref(), before.as_deref(), &content);
    let is_canonical = updated.as_ref().map_or(current.as_deref() == Some(content.as_bytes()), |text| *text == content);
    edits.extend(updated.map(|text| Edit { path: new.to_owned(), content: Some(text) }));
    Ok((edits, is_canonical))
}

/// The commit that makes the files agree with the index. The state before is unknown, so it compares with the current files:
/// unchanged fields stay as people wrote them.
pub(super) fn reconciliation(
    repository: &ControlRepository,
    tip: Oid,
    layout: &dyn Layout,
    index: &Index,
    keep: &dyn Fn(&str) -> bool,
    version: Version,
    time_ms: i64,
) -> Result<Option<CommitBuilder>, GitError> {
    let mut present = repository.files(tip, layout)?;
    let reader = repository.reader()?;
    let mut edits = Vec::new();
    for (path, content) in index.render(layout) {
        let current = present.remove(&path);
        if keep(&path) {
            continue;
        }
        let current = current.map_or(Ok(None), |id| reader.content(id))?.map(Content::bytes);
        let before = current.as_deref().and_then(|current| layout.read_file(&path, current)?.yaml().ok());
        let content = match (&current, before) {
            (Some(_), Some(before)) if before == content => None,
            (Some(current), Some(before)) => text::updated(Some(current), Some(&before), &content),
            (Some(current), None) => text::made_to_say(current, &content),
            (None, _) => Some(content),
        };
        edits.extend(content.map(|content| Edit { path, content: Some(content) }));
    }
    let is_gone = |path: &String| !keep(path) && !layout.outlives_log(path) && index.key(path, layout).is_none();
    let gone = present.into_keys().filter(is_gone);
    edits.extend(gone.map(|path| Edit { path, content: None }));
    if edits.is_empty() {
        return Ok(None);
    }
    let message = message("reconcile with the log", "", version);
    Ok(Some(CommitBuilder { edits, author: Person::stoa(), time_ms, message }))
}

fn message(subject: &str, body: &str, version: Version) -> String {
    // One line each, so that neither passes for a trailer.
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut message = line(subject);
    let body: Vec<String> = body.lines().map(line).filter(|line| !line.is_empty()).collect();
    if !body.is_empty() {
        message.push_str("\n\n");
        message.push_str(&body.join("\n"));
    }
    message.push_str(&format!("\n\nResource-Version: {version}\n"));
    message
}
