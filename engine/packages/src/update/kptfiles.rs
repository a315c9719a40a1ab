//! Merges the Kptfiles of a package.
//!
//! Labels, annotations, info, pipeline, inventory and status are merged. The name is the local one, and so is the upstream of
//! the root. A function is found again by its name, or else by its image without the tag.

use serde_json::{Map, Value};

use super::{Side, UpdateError, kptfile_error};
use crate::kptfile::{Kptfile, KptfileError};
use crate::merge::{Conflict, ListTypes, Sides, merge, revise};
use crate::text;

/// A Kptfile and its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'t> {
    pub(super) kptfile: &'t Kptfile,
    pub(super) text: &'t str,
}

/// The text of a merged Kptfile.
pub(super) fn merged(
    package: &str,
    sides: Sides<Option<Source<'_>>>,
    local: Source<'_>,
) -> Result<(String, Vec<Conflict>), UpdateError> {
    let lists = ListTypes::of_kptfile();
    let parts = sides.map(|side| side.map(|side| mergeable(side.kptfile)).unwrap_or_else(|| Value::Object(Map::new())));
    let merged = merge(
        &lists,
        Sides { origin: Some(&parts.origin), upstream: Some(&parts.upstream), local: Some(&parts.local) },
    );
    let mut value = merged.value.unwrap_or_default();
    put_back(&mut value, &local.kptfile.to_value());
    let mut kptfile: Kptfile = serde_json::from_value(value)
        .map_err(|error| KptfileError::Field { field: "Kptfile".to_owned(), problem: error.to_string() })
        .map_err(|error| kptfile_error(Side::Local, package, error))?;
    if let Some(upstream) = sides.upstream.filter(|_| !package.is_empty()) {
        kptfile.upstream = upstream.kptfile.upstream.clone().or(kptfile.upstream);
        kptfile.upstream_lock = upstream.kptfile.upstream_lock.clone().or(kptfile.upstream_lock);
    }
    let text = match kptfile == *local.kptfile {
        true => local.text.to_owned(),
        false => written(local, &kptfile, &lists, sides.upstream),
    };
    Ok((text, merged.conflicts))
}

/// The local text with the fields of the merged Kptfile. New parts bring upstream's comments.
fn written(local: Source<'_>, merged: &Kptfile, lists: &ListTypes, upstream: Option<Source<'_>>) -> String {
    let documents = stoa_yaml_edit::documents(local.text);
    let (old, new) = (local.kptfile.to_value(), merged.to_value());
    match documents.as_slice() {
        // Texts that read as they are written: no number stands for a text.
        [range] if text::read(&local.text[range.clone()]).as_ref() == Ok(&old) => {
            let from = upstream.map(|upstream| (upstream.text, upstream.kptfile.to_value()));
            let from = from.as_ref().map(|(text, value)| (*text, value));
            let revised = revise(&local.text[range.clone()], (&old, &new), lists, from);
            format!("{}{revised}{}", &local.text[..range.start], &local.text[range.end..])
        }
        _ => local.kptfile.edit(local.text, merged),
    }
}

/// The fields that a merge changes.
fn mergeable(kptfile: &Kptfile) -> Value {
    let mut value = kptfile.to_value();
    for path in LOCAL {
        if let Some((last, parent)) = path.split_last()
            && let Some(map) =
                parent.iter().try_fold(&mut value, |value, key| value.get_mut(key)).and_then(Value::as_object_mut)
        {
            map.remove(*last);
        }
    }
    value
}

/// The fields of the local Kptfile that stay.
const LOCAL: &[&[&str]] =
    &[&["apiVersion"], &["kind"], &["metadata", "name"], &["metadata", "namespace"], &["upstream"], &["upstreamLock"]];

fn put_back(merged: &mut Value, local: &Value) {
    for path in LOCAL {
        let found = path.iter().try_fold(local, |value, key| value.get(key));
        if let (Some(found), Some((last, parent))) = (found, path.split_last()) {
            let mut at = &mut *merged;
            for key in parent {
                let Some(map) = at.as_object_mut() else { return };
                at = map.entry(*key).or_insert_with(|| Value::Object(Map::new()));
            }
            if let Some(map) = at.as_object_mut() {
                map.insert((*last).to_owned(), found.clone());
            }
        }
    }
}

/// Whether two Kptfiles are the same, whatever their name and upstream.
pub(super) fn same(one: &Kptfile, other: &Kptfile) -> bool {
    mergeable(one) == mergeable(other)
}
