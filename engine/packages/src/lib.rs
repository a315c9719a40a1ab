//! Packages of kpt: trees of files in, trees of files out.
