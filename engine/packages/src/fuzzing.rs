//! Fuzz targets: answers of functions, Kptfiles, and descriptions of functions.

use crate::{
    Limits,
    evaluate::{evaluate, failure_message},
    files::Tree,
    function_metadata,
    kptfile::Kptfile,
    resource_list::{Input, Request, encode},
};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] =
    &[("resource_lists", resource_lists), ("kptfiles", kptfiles), ("function_descriptions", descriptions)];

/// The functions that read any configuration.
const FUNCTIONS: [&str; 4] = ["set-namespace", "search-replace", "kubeconform", "validate-cel"];

/// The longest input, in bytes: built-in functions compile expressions.
const LONGEST: usize = 16 << 10;

/// Fuzz input: a ResourceList. One that is read is read again as it is written; built-in functions and errors work on any.
pub fn resource_lists(data: &[u8]) {
    let data = &data[..data.len().min(LONGEST)];
    assert!(failure_message("f", data, "", 1).starts_with("function \"f\" failed: exit code 1"));
    let Ok(Input { items, config }) = Input::read(data) else { return };
    let written = encode(&items, config.as_ref());
    let again = Input::read(written.as_bytes()).expect("it was written here");
    assert_eq!(again.items.len(), items.len());
    let tree = Tree::default();
    let request = Request { tree: &tree, package: "", folder: "", items: &items, is_read_only: true };
    if let Ok(answer) = request.decode(data) {
        assert_eq!(answer.items.len(), items.len());
    }
    for function in FUNCTIONS {
        if let Ok(evaluated) = evaluate(function, data, &Limits::default()) {
            let after = Input::read(evaluated.resource_list.as_bytes()).expect("it was written here");
            assert_eq!(after.items.len(), items.len(), "{function}");
        }
    }
}

/// Fuzz input: a Kptfile. Either it is read, or its error has words.
pub fn kptfiles(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Kptfile::parse(text) {
        Ok(kptfile) => drop(kptfile.check(&Tree::default(), "")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Fuzz input: a file that describes functions. Each has an image.
pub fn descriptions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match function_metadata::parse(text) {
        Ok(found) => assert!(found.iter().all(|function| !function.image.is_empty())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
