//! The programs and libraries that are mapped to be executed: how their functions are unwound and what they are called.
//!
//! Start at [`Image::all`]. [`Stacks`] makes a list of calls of each sample, by the tables (`.eh_frame`) that compilers write for exceptions and
//! that C and assembly have too; [`Symbols`] knows the functions, files and lines of an image.

use std::{
    borrow::Cow,
    collections::HashMap,
    fs::{self, File},
    io,
    ops::{Deref, Range},
    os::unix::fs::FileExt as _,
};

use addr2line::{
    Context,
    gimli::{Dwarf, EndianSlice, LittleEndian},
};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};
use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind, elf::PF_X};

use super::sampler::Registers;

/// How many calls of a stack are told; where a table is wrong there might be no end.
const MAX_DEPTH: usize = 512;

/// A part of an ELF file that is mapped to be executed.
pub(super) struct Image {
    /// Where it is mapped.
    pub(super) range: Range<u64>,
    /// The place in the file that the range begins with.
    pub(super) offset: u64,
    /// The file.
    pub(super) path: String,
    /// What an address is more than it is in the file.
    bias: u64,
    bytes: Bytes,
}

/// What is in an ELF file.
enum Bytes {
    Mapped(Mmap),
    /// What the kernel maps has no file.
    Read(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Read(bytes) => bytes,
        }
    }
}

impl Image {
    /// All of this process, by address. What cannot be read is left out: there are addresses then rather than names.
    ///
    /// # Errors
    ///
    /// When the kernel does not say what is mapped.
    pub(super) fn all() -> io::Result<Vec<Self>> {
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let maps = fs::read_to_string("/proc/self/maps")?;
        Ok(maps.lines().filter_map(|line| Self::of(line, &program.to_string_lossy())).collect())
    }

    /// The image in a line of `/proc/<pid>/maps`: `<begin>-<end> <permissions> <offset> <device> <inode> <path>`.
    fn of(line: &str, program: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (begin, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let range = number(begin)?..number(end)?;
        if !fields.next()?.contains('x') {
            return None;
        }
        let offset = number(fields.next()?)?;
        let path = fields.nth(2)?.trim_start();
        let bytes = if path == "[vdso]" {
            let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
            File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, range.start).ok()?;
            Bytes::Read(bytes)
        } else if path.starts_with('/') {
            // The program may have been replaced since it was started.
            Bytes::Mapped(map(&File::open(if path == program { "/proc/self/exe" } else { path }).ok()?).ok()?)
        } else {
            return None;
        };
        let file = object::File::parse(&*bytes).ok()?;
        let mapped = offset..offset + (range.end - range.start);
        let bias = file.segments().find_map(|segment| {
            // Pages have the ends of other segments, too.
            let executable = matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
            let (from, size) = segment.file_range();
            let overlaps = from < mapped.end && mapped.start < from + size;
            let bias = range.start.wrapping_sub(offset).wrapping_add(from).wrapping_sub(segment.address());
            (executable && overlaps).then_some(bias)
        })?;
        Some(Self { path: path.to_owned(), offset, bias, bytes, range })
    }

    /// The file of it.
    fn file(&self) -> object::Result<object::File<'_>> {
        object::File::parse(&*self.bytes)
    }

    /// What unwinding takes.
    fn module(&self) -> Option<Module<&[u8]>> {
        let file = self.file().ok()?;
        let section = |name| file.section_by_name(name);
        let range = |name| section(name).map(|section| section.address()..section.address() + section.size());
        let data = |name| section(name).and_then(|section| section.data().ok());
        let sections = ExplicitModuleSectionInfo {
            text_svma: range(".text"),
            text: data(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Module::new(self.path.clone(), self.range.clone(), self.bias, sections))
    }
}

#[expect(unsafe_code, reason = "what is mapped could be changed by others")]
fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: nobody writes to these files, since this process executes them: it could not go on either.
    unsafe { Mmap::map(file) }
}

/// Stacks by how often they were sampled.
pub(super) struct Stacks<'a> {
    unwinder: UnwinderNative<&'a [u8], MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    frames: Vec<u64>,
    counts: HashMap<Vec<u64>, i64>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(images: &'a [Image]) -> Self {
        let mut unwinder = UnwinderNative::new();
        for image in images {
            if let Some(module) = image.module() {
                unwinder.add_module(module);
            }
        }
        Self { unwinder, cache: CacheNative::new(), frames: Vec::new(), counts: HashMap::new() }
    }

    /// Counts a sample, whose `words` are those of the stack from the stack pointer outwards.
    pub(super) fn add(&mut self, registers: Registers, words: &[usize]) {
        let begin = registers.stack & !(size_of::<usize>() - 1);
        let mut read = |address: u64| {
            let offset = usize::try_from(address).ok().and_then(|address| address.checked_sub(begin)).ok_or(())?;
            if !offset.is_multiple_of(size_of::<usize>()) {
                return Err(());
            }
            words.get(offset / size_of::<usize>()).map(|&word| word as u64).ok_or(())
        };
        self.frames.clear();
        let instruction = registers.instruction as u64;
        let registers = unwinding(registers, &self.unwinder);
        let mut calls = self.unwinder.iter_frames(instruction, registers, &mut self.cache, &mut read);
        // The end of a stack is rarely told from one that cannot be unwound further.
        while self.frames.len() < MAX_DEPTH
            && let Ok(Some(frame)) = calls.next()
        {
            self.frames.push(FrameAddress::address_for_lookup(frame));
        }
        match self.counts.get_mut(&self.frames) {
            Some(count) => *count += 1,
            None => drop(self.counts.insert(self.frames.clone(), 1)),
        }
    }

    /// The addresses of the calls of each stack, innermost first, and how often it was sampled. All but the first are of the call, which is before
    /// the address that is returned to.
    pub(super) fn counts(&self) -> &HashMap<Vec<u64>, i64> {
        &self.counts
    }
}

#[cfg(target_arch = "x86_64")]
fn unwinding(registers: Registers, _: &impl framehop::Unwinder) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.instruction as u64, registers.stack as u64, registers.frame as u64)
}

#[cfg(target_arch = "aarch64")]
fn unwinding(registers: Registers, unwinder: &impl framehop::Unwinder) -> UnwindRegsNative {
    // Return addresses may be signed in the bits that addresses leave.
    let mask = framehop::aarch64::PtrAuthMask::from_max_known_address(unwinder.max_known_code_address());
    let [link, stack, frame] = [registers.link, registers.stack, registers.frame].map(|register| register as u64);
    UnwindRegsNative::new_with_ptr_auth_mask(mask, link, stack, frame)
}

/// A place in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The function, as people write it.
    pub(super) function: String,
    /// The function, as linkers know it.
    pub(super) linked: String,
    /// Its file, or empty.
    pub(super) file: String,
    /// The line, or 0.
    pub(super) number: u32,
}

/// What addresses of an image are called.
pub(super) struct Symbols<'a> {
    bias: u64,
    debug: Option<Context<EndianSlice<'a, LittleEndian>>>,
    /// Where functions begin, and their sizes, for what has no debug information.
    functions: Vec<(u64, u64, &'a str)>,
}

impl<'a> Symbols<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        let Ok(file) = image.file() else { return Self { bias: image.bias, debug: None, functions: Vec::new() } };
        let section = |name: &str| {
            let data = file.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default();
            EndianSlice::new(data, LittleEndian)
        };
        let debug = Dwarf::load(|id| Ok::<_, addr2line::gimli::Error>(section(id.name())));
        let mut functions: Vec<_> = file.symbols().filter_map(function).collect();
        if functions.is_empty() {
            functions.extend(file.dynamic_symbols().filter_map(function));
        }
        functions.sort_unstable_by_key(|&(begin, ..)| begin);
        Self { bias: image.bias, debug: debug.and_then(Context::from_dwarf).ok(), functions }
    }

    /// The functions at an address, those that are inlined into others first; none where nothing is known.
    ///
    /// Tables of lines alone say little of functions: only those that are inlined are sure to be in them, by their last names.
    pub(super) fn lines(&self, address: u64) -> Vec<Line> {
        let address = address.wrapping_sub(self.bias);
        let mut lines = Vec::new();
        if let Some(debug) = &self.debug
            && let Ok(mut frames) = debug.find_frames(address).skip_all_loads()
        {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.as_ref();
                let text = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
                let place = frame.location.as_ref();
                lines.push(Line {
                    function: text(name.and_then(|name| name.demangle().ok())),
                    linked: text(name.and_then(|name| name.raw_name().ok())),
                    file: place.and_then(|place| place.file).unwrap_or_default().to_owned(),
                    number: place.and_then(|place| place.line).unwrap_or_default(),
                });
            }
        }
        if let Some(name) = self.function(address) {
            let function = addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned();
            let linked = name.to_owned();
            match lines.last_mut() {
                // What all others are inlined into.
                Some(line) => (line.function, line.linked) = (function, linked),
                None => lines.push(Line { function, linked, file: String::new(), number: 0 }),
            }
        }
        lines.retain(|line| !line.function.is_empty());
        lines
    }

    /// The function at an address, as linkers know it.
    fn function(&self, address: u64) -> Option<&'a str> {
        let before = self.functions.partition_point(|&(begin, ..)| begin <= address);
        let &(begin, size, name) = self.functions[..before].last()?;
        (size == 0 || address < begin + size).then_some(name)
    }
}

fn function<'a>(symbol: impl ObjectSymbol<'a>) -> Option<(u64, u64, &'a str)> {
    (symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .then(|| Some((symbol.address(), symbol.size(), symbol.name().ok()?)))
        .flatten()
}
