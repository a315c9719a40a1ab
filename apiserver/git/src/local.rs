//! Repositories on this machine.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

use percent_encoding::percent_decode_str;

/// The folder that the address of a repository leads to on this machine, with or without `file://`; nothing if the address is a
/// server's. As in libgit2, a path that begins with `file://` is percent-encoded. It may be relative, or empty.
pub fn local_path(address: &str) -> Option<PathBuf> {
    const SCHEME: &str = "file://";
    let (scheme, rest) = address.split_at_checked(SCHEME.len()).unwrap_or(("", address));
    if scheme.eq_ignore_ascii_case(SCHEME) {
        let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
        return Some(OsString::from_vec(percent_decode_str(path).collect()).into());
    }
    // `user@host:path` is a server's.
    (address.starts_with('/') || !address.contains(':')).then(|| PathBuf::from(address))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn folders_are_told_from_servers() {
        for (address, folder) in [
            ("/srv/a.git", "/srv/a.git"),
            ("/srv/a:b.git", "/srv/a:b.git"),
            ("/srv/a%20b", "/srv/a%20b"),
            ("file:///srv/a.git", "/srv/a.git"),
            ("FILE:///srv/a.git", "/srv/a.git"),
            ("file:///srv/a%20b/%2e%2e/c", "/srv/a b/../c"),
            ("file://localhost/srv/a.git", "/srv/a.git"),
            ("file://localhostess/a.git", "localhostess/a.git"),
            ("file://elsewhere/a.git", "elsewhere/a.git"),
            ("../a.git", "../a.git"),
            ("", ""),
        ] {
            assert_eq!(local_path(address).as_deref(), Some(Path::new(folder)), "{address}");
        }
        for address in ["https://git.example.com/a.git", "ssh://git@git.example.com/a.git", "git@git.example.com:a.git"]
        {
            assert_eq!(local_path(address), None, "{address}");
        }
    }
}
