//! Fuzz targets: the answers of providers and the files of mirrors.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::msgpack::{decode, encode};
use crate::package::{Address, ArchiveLimits, Hash, LockFile};
use crate::value::{Json, Type, state};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] =
    &[("terraform_values", values), ("terraform_locks", lock_files), ("terraform_archives", archives)];

/// Fuzz input: a type in JSON, a line break, and msgpack.
///
/// A decoded value has the form of its type, and survives a second round trip. A value without unknown parts survives
/// a state too.
pub fn values(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(ty) = Type::parse(&data[..end]) else { return };
    let Ok(value) = decode(&data[end + 1..], &ty) else { return };
    assert!(value.conforms(&ty), "{value:?} is no {ty}");
    let encoded = encode(&value, &ty).expect("a decoded value has the form of its type");
    assert_eq!(decode(&encoded, &ty).expect("an encoded value is a value"), value);
    if let Ok(json) = state::to_json(&value, &ty) {
        // JSON has a lower limit of depth than msgpack.
        if let Ok(json) = Json::parse(json.to_string().as_bytes()) {
            assert_eq!(state::from_json(&json, &ty).expect("a written state is a state"), value);
        }
    }
}

/// Fuzz input: the text of a lock file. The addresses and checksums in it print and parse to themselves.
pub fn lock_files(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = LockFile::parse(text) else { return };
    for (address, locked) in &file.providers {
        assert_eq!(&address.to_string().parse::<Address>().expect("it was parsed before"), address);
        for hash in &locked.hashes {
            assert_eq!(&hash.to_string().parse::<Hash>().expect("it was parsed before"), hash);
        }
        if let Some(constraints) = &locked.constraints {
            assert_eq!(Ok(constraints), constraints.to_string().parse().as_ref());
        }
    }
}

/// Fuzz input: an archive. Files appear below the folder only, and their checksum is that of the result.
pub fn archives(data: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let root = tempfile::Builder::new().prefix(&format!("archive-{number}-")).tempdir().expect("a folder can be made");
    let (archive, target) = (root.path().join("archive"), root.path().join("target"));
    std::fs::write(&archive, data).expect("a file can be written");
    std::fs::create_dir(&target).expect("a folder can be made");
    let limits = ArchiveLimits { entries: 100, size: 1 << 20 };
    let extracted = stoa_archive::zip::extract(&archive, &target, limits).map(Hash::of_files);
    assert_eq!(std::fs::read_dir(root.path()).expect("the folder is there").count(), 2);
    if let Ok(hash) = extracted {
        assert_eq!(Hash::of_folder(&target).expect("files have a checksum"), hash);
    }
}
