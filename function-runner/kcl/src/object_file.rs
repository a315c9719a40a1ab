//! The shared object of the Python package, for a process without Python.
//!
//! The object resolves all symbols when it is loaded, and Python's are missing. The C interface uses none of them. As weak symbols,
//! they resolve to nothing, and a call to one would end the process.

use object::Endianness;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM, STB_GLOBAL, STB_WEAK};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};

/// The beginnings of Python's symbols.
const PREFIXES: [&[u8]; 2] = [b"Py", b"_Py"];
/// The position of binding and type in a symbol of 64 bits.
const INFO: usize = 4;

/// A file that is not the library.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The file cannot be parsed.
    #[error("the file is no 64-bit ELF object")]
    Parse(#[from] object::read::Error),
    /// The object has no dynamic symbols.
    #[error("the object has no dynamic symbols")]
    NoSymbols,
}

/// Returns the object with weak symbols in the positions of Python's undefined ones.
///
/// # Errors
///
/// If the bytes are no shared object of 64 bits.
pub fn without_python(mut object: Vec<u8>) -> Result<Vec<u8>, ObjectError> {
    let positions = positions(&object)?;
    for (position, info) in positions {
        let byte = object.get_mut(position).ok_or(ObjectError::NoSymbols)?;
        *byte = STB_WEAK.0 << 4 | info & 0xf;
    }
    Ok(object)
}

/// The positions of the infos of Python's undefined symbols, and the infos.
fn positions(object: &[u8]) -> Result<Vec<(usize, u8)>, ObjectError> {
    let header = FileHeader64::<Endianness>::parse(object)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, object)?;
    let symbols = sections.symbols(endian, object, SHT_DYNSYM)?;
    let section = sections.section(symbols.section())?;
    let start = usize::try_from(section.sh_offset(endian)).map_err(|_| ObjectError::NoSymbols)?;
    let size = usize::try_from(section.sh_entsize(endian)).map_err(|_| ObjectError::NoSymbols)?;
    let mut positions = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        let name = symbols.symbol_name(endian, symbol)?;
        let is_python = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if is_python && symbol.st_shndx(endian) == SHN_UNDEF && symbol.st_bind() == STB_GLOBAL {
            positions.push((start + index.0 * size + INFO, symbol.st_info().0));
        }
    }
    Ok(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_no_object() {
        for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n"] {
            assert!(matches!(without_python(bytes.to_vec()), Err(ObjectError::Parse(_))), "{bytes:?}");
        }
    }

    #[test]
    fn object_without_python_is_unchanged() {
        let this = std::fs::read("/proc/self/exe").unwrap();
        assert!(without_python(this.clone()).unwrap() == this);
    }
}
