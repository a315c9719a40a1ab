//! ZIP archives for tests.

#![expect(clippy::unwrap_used, reason = "this is for tests, where a panic is how they fail")]

use std::io::Write as _;

/// An entry of an archive for tests.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
    /// Its type and permissions, as systems like Unix have them.
    pub mode: u32,
    /// Whether it is compressed.
    pub deflate: bool,
}

/// An executable file.
pub fn sample(name: &str, content: &str) -> Sample {
    Sample { name: name.to_owned(), content: content.into(), mode: 0o100_755, deflate: true }
}

/// An archive with these entries.
pub fn archive(samples: &[Sample]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for sample in samples {
        let offset = u32::try_from(out.len()).unwrap();
        let data = if sample.deflate {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&sample.content).unwrap();
            encoder.finish().unwrap()
        } else {
            sample.content.clone()
        };
        let mut common = Vec::new();
        common.extend([20, 0, 0, 0, if sample.deflate { 8 } else { 0 }, 0, 0, 0, 0, 0]);
        common.extend(crc32fast::hash(&sample.content).to_le_bytes());
        common.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        common.extend(u32::try_from(sample.content.len()).unwrap().to_le_bytes());
        common.extend(u16::try_from(sample.name.len()).unwrap().to_le_bytes());
        common.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(sample.name.as_bytes());
        out.extend(data);
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend((sample.mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(sample.name.as_bytes());
    }
    let offset = u32::try_from(out.len()).unwrap();
    let count = u16::try_from(samples.len()).unwrap().to_le_bytes();
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count);
    out.extend(count);
    out.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
    out.extend(offset.to_le_bytes());
    out.extend([0, 0]);
    out
}
