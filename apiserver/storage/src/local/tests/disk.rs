//! A disk in memory that does what real ones do at the worst moment, decided by a seed.
//!
//! It keeps what a power cut would leave apart from what the kernel's cache shows:
//!
//! * Written bytes are durable after a sync. A power cut keeps any part of those that were not.
//! * A sync that fails drops some of what was written for good, and the next one succeeds all the same.
//! * Creations, renames and removals are durable after a directory sync; a power cut keeps any of
//!   the others, in order.
//! * Space runs out, or the disk breaks, in the middle of a write: now and then, or once what has a name takes as much
//!   as there is.
//! * Reads fail.
//! * From a chosen operation on, nothing works any more: the machine is down.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use parking_lot::Mutex;

use super::super::disk::{Disk, DiskFile};

/// A small generator of numbers that look random: SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        n != 0 && self.below(n) == 0
    }
}

/// How often what goes wrong: one in so many times, or never for 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub sync: usize,
    /// Writes, by a full disk or a broken one.
    pub write: usize,
    pub directory: usize,
    /// Reads of files and of the directory.
    pub read: usize,
}

#[derive(Clone, Debug, Default)]
struct Content {
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// What of the cache differs from the disk, as far as the kernel knows.
    dirty: Vec<Range<usize>>,
    cut: Option<usize>,
}

#[derive(Clone, Debug)]
enum Entry {
    Create(String, usize),
    /// Which file gets another name is settled when it happens, also when what led there is lost.
    Rename(String, String, usize),
    Remove(String),
}

#[derive(Debug)]
struct State {
    random: Random,
    faults: Faults,
    files: HashMap<usize, Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// What was done to the names since the directory was synced.
    pending: Vec<Entry>,
    next: usize,
    /// The machine goes down at this operation.
    down_at: Option<u64>,
    operations: u64,
    size: Option<Size>,
}

/// How much there is room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// In bytes of files that have a name.
    pub bytes: u64,
    /// Whether it says so; a quota does not.
    pub is_told: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    locked: Arc<AtomicBool>,
}

fn apply(names: &mut BTreeMap<String, usize>, entry: &Entry) {
    match entry {
        Entry::Create(name, file) => {
            names.insert(name.clone(), *file);
        }
        Entry::Rename(from, to, file) => {
            if names.get(from) == Some(file) {
                names.remove(from);
            }
            names.insert(to.clone(), *file);
        }
        Entry::Remove(name) => {
            names.remove(name);
        }
    }
}

fn failure(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "simulated")
}

impl State {
    /// Counts an operation; says whether the machine goes down in it, or fails when it is down.
    fn operation(&mut self) -> io::Result<bool> {
        self.operations += 1;
        match self.down_at {
            Some(at) if self.operations > at => Err(failure(io::ErrorKind::Other)),
            at => Ok(at == Some(self.operations)),
        }
    }

    /// How many bytes the files take that have a name.
    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[file].cached.len() as u64).sum()
    }

    fn room(&self) -> u64 {
        self.size.map_or(u64::MAX, |size| size.bytes.saturating_sub(self.used()))
    }

    fn reading(&mut self) -> io::Result<()> {
        self.operation()?;
        let fails = self.random.one_in(self.faults.read);
        if fails { Err(failure(io::ErrorKind::Other)) } else { Ok(()) }
    }

    fn entry(&mut self, entry: Entry) -> io::Result<()> {
        let down = self.operation()?;
        if self.random.one_in(self.faults.directory) {
            return Err(failure(io::ErrorKind::StorageFull));
        }
        apply(&mut self.names, &entry);
        self.pending.push(entry);
        if down { Err(failure(io::ErrorKind::Other)) } else { Ok(()) }
    }
}

impl SimulatedDisk {
    pub(super) fn new(random: Random) -> Self {
        let state = State {
            random,
            faults: Faults::default(),
            files: HashMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            next: 0,
            down_at: None,
            operations: 0,
            size: None,
        };
        Self { state: Arc::new(Mutex::new(state)), locked: Arc::default() }
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// How much there is room for from now on; `None` for any amount.
    pub(super) fn set_size(&self, size: Option<Size>) {
        self.state.lock().size = size;
    }

    /// How many bytes the files take that have a name.
    pub(super) fn used(&self) -> u64 {
        self.state.lock().used()
    }

    /// The machine goes down at the `n`th operation from now.
    pub(super) fn go_down_in(&self, n: u64) {
        let mut state = self.state.lock();
        state.down_at = Some(state.operations + n);
    }

    /// How many operations there have been.
    pub(super) fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    pub(super) fn is_down(&self) -> bool {
        let state = self.state.lock();
        state.down_at.is_some_and(|at| state.operations >= at)
    }

    /// Lets it work again, its cache as it was: only the process ended, if anything.
    pub(super) fn stay_up(&self) {
        self.state.lock().down_at = None;
    }

    /// Starts the machine again: only the disk is still there, and any part of what was on the way.
    pub(super) fn after_power_cut(&self) {
        let state = &mut *self.state.lock();
        state.down_at = None;
        for entry in std::mem::take(&mut state.pending) {
            if state.random.one_in(2) {
                apply(&mut state.durable_names, &entry);
            }
        }
        state.names = state.durable_names.clone();
        for content in state.files.values_mut() {
            if let Some(cut) = content.cut.take()
                && state.random.one_in(2)
            {
                content.durable.truncate(cut);
            }
            for dirty in std::mem::take(&mut content.dirty) {
                match state.random.below(4) {
                    0 => {}
                    1 => write_through(content, dirty),
                    _ => {
                        // Torn: some beginning of it, and now and then rubbish after that.
                        let kept = dirty.start + state.random.below(dirty.len() + 1);
                        let end = dirty.end;
                        write_through(content, dirty.start..kept);
                        if state.random.one_in(3) && kept < end && content.durable.len() == kept {
                            let rubbish = (kept..end).map(|_| state.random.next() as u8);
                            content.durable.extend(rubbish);
                        }
                    }
                }
            }
            content.cached = content.durable.clone();
        }
    }
}

/// Puts part of the cache on the disk. What lies before it and never got there reads as zeros.
fn write_through(content: &mut Content, range: Range<usize>) {
    let range = range.start..range.end.min(content.cached.len());
    if range.is_empty() {
        return;
    }
    if content.durable.len() < range.end {
        content.durable.resize(range.end, 0);
    }
    content.durable[range.clone()].copy_from_slice(&content.cached[range]);
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        state.reading()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        state.reading()?;
        let file = state.names.get(name).ok_or_else(|| failure(io::ErrorKind::NotFound))?;
        Ok(state.files[file].cached.clone())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        let file = state.next;
        state.next += 1;
        state.files.insert(file, Content::default());
        state.entry(Entry::Create(name.to_owned(), file))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = *state.names.get(from).ok_or_else(|| failure(io::ErrorKind::NotFound))?;
        state.entry(Entry::Rename(from.to_owned(), to.to_owned(), file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state.lock().entry(Entry::Remove(name.to_owned()))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let down = state.operation()?;
        let often = state.faults.directory;
        if down || state.random.one_in(often) {
            return Err(failure(io::ErrorKind::Other));
        }
        state.durable_names = state.names.clone();
        state.pending.clear();
        Ok(())
    }

    fn room(&self) -> io::Result<u64> {
        let state = self.state.lock();
        match state.size {
            Some(Size { is_told: false, .. }) => Err(failure(io::ErrorKind::Unsupported)),
            _ => Ok(state.room()),
        }
    }

    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        if self.locked.swap(true, SeqCst) {
            return Err(failure(io::ErrorKind::WouldBlock));
        }
        Ok(Box::new(Locked(Arc::clone(&self.locked))))
    }
}

struct Locked(Arc<AtomicBool>);

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
}

impl DiskFile for SimulatedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        let down = state.operation()?;
        let fails = state.random.one_in(state.faults.write);
        let kind = if state.random.one_in(2) { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        let room = usize::try_from(state.room()).unwrap_or(usize::MAX);
        let is_full = bytes.len() > room;
        let taken = if down || fails { state.random.below(bytes.len() + 1) } else { bytes.len() };
        let taken = taken.min(room);
        let content = state.files.get_mut(&self.file).expect("an open file exists");
        let start = content.cached.len();
        content.cached.extend_from_slice(&bytes[..taken]);
        content.dirty.push(start..start + taken);
        match (down, fails) {
            (true, _) => Err(failure(io::ErrorKind::Other)),
            (_, true) => Err(failure(kind)),
            _ if is_full => Err(failure(io::ErrorKind::StorageFull)),
            _ => Ok(()),
        }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        let down = state.operation()?;
        let content = state.files.get_mut(&self.file).expect("an open file exists");
        let length = length as usize;
        content.cached.truncate(length);
        content.dirty.iter_mut().for_each(|range| range.end = range.end.min(length));
        content.dirty.retain(|range| !range.is_empty());
        content.cut = Some(content.cut.unwrap_or(length).min(length));
        if down { Err(failure(io::ErrorKind::Other)) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        let down = state.operation()?;
        if down {
            return Err(failure(io::ErrorKind::Other));
        }
        let fails = state.random.one_in(state.faults.sync);
        let content = state.files.get_mut(&self.file).expect("an open file exists");
        if let Some(cut) = content.cut.take() {
            content.durable.truncate(cut);
        }
        for dirty in std::mem::take(&mut content.dirty) {
            // After a failure the kernel calls all of it clean, whatever became of it.
            if !fails || state.random.one_in(2) {
                write_through(content, dirty);
            }
        }
        if fails { Err(failure(io::ErrorKind::Other)) } else { Ok(()) }
    }
}
