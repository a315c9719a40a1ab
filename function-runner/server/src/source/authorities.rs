//! Certificates of authorities. libgit2 would load all of them at its start, which takes most of the time of a short process. So
//! they are loaded when a process reaches the first server that needs one.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where they are. Nothing where libgit2 has them by itself, as in tests.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Whether libgit2 has read them.
static ARE_READ: AtomicBool = AtomicBool::new(false);

/// Has them read from a file once they are needed, in a process that begins with none.
pub(crate) fn are_in(file: PathBuf) {
    // It is set once, at the start of a process.
    let _ = FILE.set(file);
}

/// The file, for clients other than libgit2.
pub(super) fn file() -> Option<PathBuf> {
    FILE.get().cloned()
}

/// Reads them, if the server at an address, as Git's settings have it, may need one of them.
pub(super) fn ready_for(address: &[u8], has_own: bool) {
    if has_own || !is_vouched_for(address) {
        return;
    }
    let Some(file) = FILE.get().filter(|_| !ARE_READ.swap(true, Ordering::Relaxed)) else { return };
    #[expect(unsafe_code, reason = "libgit2's options are globals")]
    // SAFETY: where there is a file, the process has one thread.
    let read = unsafe { git2::opts::set_ssl_cert_file(file) };
    if let Err(error) = read {
        tracing::warn!(file = %file.display(), %error, "the certificates of authorities cannot be read");
    }
}

/// Whether the server at an address shows a certificate. One that is reached without may lead to one that does.
fn is_vouched_for(address: &[u8]) -> bool {
    let scheme = address.split(|byte| *byte == b':').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_show_no_certificate_need_no_authorities() {
        for (address, expected) in [
            ("https://git.example.com/a.git", true),
            ("HTTP://git.example.com/a.git", true),
            ("ssh://git@git.example.com/a.git", false),
            ("git@https.example.com:a.git", false),
            ("git://git.example.com/a.git", false),
            ("file:///srv/a.git", false),
            ("/srv/http", false),
            ("", false),
        ] {
            assert_eq!(is_vouched_for(address.as_bytes()), expected, "{address}");
        }
    }
}
