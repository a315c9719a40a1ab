//! Turns records into commits. Nothing here waits: given the records and what the files were, it
//! says which commits there are to be.

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
    draft::{Draft, Edit, Person},
    history::Step,
    progress,
    reader::{Content, Reader},
    repository::ControlRepository,
};

/// An object that has a file.
#[derive(Clone, Debug)]
struct Projected {
    /// `None` of a value that does not say where it is, until that is [found](Index::find).
    path: Option<Box<str>>,
    value: Bytes,
    /// Whether the file is what the value reads like, letter by letter, as of the index's tip.
    is_canonical: bool,
}

/// The objects that have files, as of some version.
///
/// It takes memory for every object, so that it has each path once: which object a file stands for, the layout says.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    objects: HashMap<Key, Projected>,
    /// The commit as of which it is known which files are canonical.
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

    /// Notes what is at a key now; returns what had a file and what has.
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

    /// Finds the files of objects that do not say where they are among those that there are.
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

    /// Notes what a record says; returns what had a file and what has.
    fn take(&mut self, layout: &dyn Layout, record: &Record) -> (Option<Projected>, Option<Projected>) {
        let value = if let Change::Put(value) = &record.change { Some(value) } else { None };
        self.set(&record.key, value, layout)
    }

    /// Notes what a record says that changes nothing of the file of its object; false of any other, of which nothing is
    /// noted.
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

    /// Begins to write on top of a commit. Which files are canonical is forgotten if others made it, and as long as what
    /// is written is not [published](Self::published).
    fn begin(&mut self, tip: Oid) {
        if self.tip.take() != Some(tip) {
            for object in self.objects.values_mut() {
                object.is_canonical = false;
            }
        }
    }

    /// Notes that what was written last is in the repository.
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

    /// What was authored, by key; `None` of what does not decode.
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

/// What a value reads like in Git; one that cannot be rendered keeps the file it has.
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
    /// What was written from here on top of a pushed commit.
    projected: RefCell<HashMap<Oid, Option<BTreeSet<String>>>>,
}

impl Files<'_> {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, git2::Error> {
        match self.changed.get(path) {
            Some(content) => Ok(content.clone()),
            None => Ok(self.repository.read(self.tip, path)?.map(Content::bytes)),
        }
    }

    /// Whether `record` is a pushed commit that was applied, which has the file or lacks it as `has` says, and nothing but
    /// pushes changed the file since. What it is now is that commit's doing then, or that of a later push whose own record
    /// is still to come.
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

/// The commits for `records` on top of `tip`, and what they changed of what was authored. The index is brought up to the
/// last of them.
///
/// A file that is `invalid` is written anew when its object changes, since nobody knows what is
/// right in it.
pub(super) fn drafts(
    repository: &ControlRepository,
    tip: Oid,
    layout: &dyn Layout,
    index: &mut Index,
    invalid: &BTreeMap<String, InvalidFile>,
    records: &[Record],
) -> Result<(Vec<Draft>, Vec<Step>), GitError> {
    let mut files = Files {
        repository: repository.reader()?,
        tip,
        invalid,
        changed: HashMap::new(),
        projected: RefCell::default(),
    };
    let (mut drafts, mut steps) = (Vec::new(), Vec::new());
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
        drafts.push(Draft {
            edits,
            author: Person::user(&record.origin.user),
            time_ms: record.time_ms,
            message: message(&subject, &record.origin.message, record.version),
        });
    }
    Ok((drafts, steps))
}

/// What one record changed of what was authored, if anything. The index is brought up to it.
pub(super) fn step(layout: &dyn Layout, index: &mut Index, record: &Record) -> Option<Step> {
    if index.take_alike(layout, record) {
        return None;
    }
    let (old, new) = index.take(layout, record);
    Written::of(layout, record, old.as_ref(), new.as_ref()).step()
}

/// What people wrote of an object.
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

/// A record of an object that has or had a file, and what was and is authored of it.
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

    /// What was authored before.
    fn previously(&self) -> Option<&Value> {
        Some(&self.before.as_ref()?.json)
    }

    /// What is authored now.
    fn now(&self) -> Option<&Value> {
        Some(&self.after.as_ref()?.json)
    }

    /// What it changed of what was authored, if anything.
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

    /// What is read like in the file, unless it cannot be written.
    fn yaml(&self, read: &Read) -> Option<String> {
        logged(&self.record.key, read.document.yaml())
    }
}

/// What a record changes in the files, and whether its object's is canonical then.
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
    // Nobody but the projection has written it, so that it need not be read.
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

/// The one commit that makes the files what the index says, wherever they differ. Nobody knows what they were before, so
/// that it goes by what they say now: what has not changed stays as people wrote it.
pub(super) fn reconciliation(
    repository: &ControlRepository,
    tip: Oid,
    layout: &dyn Layout,
    index: &Index,
    keep: &dyn Fn(&str) -> bool,
    version: Version,
    time_ms: i64,
) -> Result<Option<Draft>, GitError> {
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
    Ok(Some(Draft { edits, author: Person::stoa(), time_ms, message }))
}

fn message(subject: &str, body: &str, version: Version) -> String {
    // One line each, so that neither can pass for a trailer.
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
