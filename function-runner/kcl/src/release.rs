//! The releases of the library that are known by their checksums.

use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest as _, Sha256};

/// The version of the Python package `kcl_lib`.
pub const VERSION: &str = "0.13.2";

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The Python package, a ZIP archive with the shared object.
    Wheel,
    /// The shared object.
    Object,
}

/// A known file of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version of the Python package.
    pub version: &'static str,
    /// The form of the file.
    pub kind: Kind,
    /// The SHA-256 of the file, in hexadecimal digits.
    pub sha256: &'static str,
}

/// The packages for CPython 3.10 to 3.14 on x86-64, and their shared objects. Their C interfaces are the same.
const KNOWN: [Release; 10] = [
    wheel("b7cdd973c06ed12c56a72694965894871e3947eba80188743df0b881acce7538"),
    wheel("9ce15a503e2abee31c3ad1cbcfd42f2a9e6125cb15171043625385abc19be00b"),
    wheel("e3dcffaa4ed2b04c0587ceaf936db58d6e44e11738648851640b652a5f9adcee"),
    wheel("0cfd84db53838ca814833f29aa3444e5a31087d353a234420276d325653ee2dd"),
    wheel("585d6ca7ed91ca973a2650e351e8b4898ed48cb91fd56b203695ab33edaf8311"),
    object("a4adec123338de41384c4cdb9acd59fced7ada621de451a208402c09fc73fcbc"),
    object("9f66b3fd9fe0320cf64d10bb12b555ff00aaee909d3fc9e7b4a6857b4ad0d2c9"),
    object("9958fe79d86b50f03b81fa55ef826e7b3995f2f2c31e632f522a84e63a12914c"),
    object("e909456bdd17d6e3bcb99aa34506dd8b5f8c2a7ff9f7fabfd09f87d00a465576"),
    object("9891c68166f63fbb62ae4df76e2bc1bbe620992112466376a0e36b591449206a"),
];

const fn wheel(sha256: &'static str) -> Release {
    Release { version: VERSION, kind: Kind::Wheel, sha256 }
}

const fn object(sha256: &'static str) -> Release {
    Release { version: VERSION, kind: Kind::Object, sha256 }
}

/// Finds the release of a file by its SHA-256. Returns the SHA-256 in hexadecimal digits too.
pub fn release(file: &[u8]) -> (String, Option<Release>) {
    let digest: String = Sha256::digest(file).iter().map(|byte| format!("{byte:02x}")).collect();
    let known = KNOWN.into_iter().find(|known| known.sha256 == digest);
    (digest, known)
}

/// Finds the shared object in the folder of an extracted package; nothing if there is none.
///
/// # Errors
///
/// If the folder cannot be read.
pub fn object_in(package: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(package.join("kcl_lib"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "so") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_has_no_release() {
        let (digest, known) = release(b"");
        assert_eq!(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(known, None);
    }
}
