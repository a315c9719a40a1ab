//! `set-image`: sets the image of all containers with an image of some name.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Failure,
    config::{Config, additional_fields, config, texts},
    fields::FieldSpec,
};
use crate::{files::Limits, resources::Resource, results::Finding};

/// The fields with a pod's specification.
const PODS: [&str; 4] = ["spec", "spec/template/spec", "spec/jobTemplate/spec/template/spec", "template/spec"];

/// The fields of a pod's specification with an image.
const IMAGES: [&str; 4] =
    ["containers[]/image", "initContainers[]/image", "ephemeralContainers[]/image", "volumes[]/image/reference"];

/// The new parts of an image.
struct Image {
    name: String,
    new_name: String,
    new_tag: String,
    digest: String,
}

/// Runs the function.
pub(super) fn run(items: &mut [Resource], source: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    let (parts, mut specs) = match config(source, "SetImage")? {
        Config::Data(data) => (data, Vec::new()),
        Config::Object(object) => (texts(object, "image")?, additional_fields(object, "additionalImageFields")?),
    };
    let image = Image::of(parts)?;
    specs.extend(
        PODS.iter().flat_map(|pod| {
            IMAGES.iter().map(move |image| FieldSpec::of(["", "", "", &format!("{pod}/{image}")], false))
        }),
    );
    let mut count = 0;
    for resource in items.iter_mut() {
        let specs: Vec<&FieldSpec> = specs.iter().filter(|spec| spec.matches(resource)).collect();
        for spec in specs {
            spec.visit(&mut resource.value, &Value::from(""), &mut |field| {
                if let Some(new) = field.as_str().and_then(|current| image.replaced(current)) {
                    *field = new.into();
                    count += 1;
                }
            });
        }
    }
    Ok(vec![Finding::info(format!("summary: updated a total of {count} image(s)"))])
}

impl Image {
    fn of(mut parts: BTreeMap<String, String>) -> Result<Self, Failure> {
        let mut take = |key: &str| parts.remove(key).unwrap_or_default();
        let image =
            Self { name: take("name"), new_name: take("newName"), new_tag: take("newTag"), digest: take("digest") };
        if let Some(key) = parts.keys().next() {
            return Err(Failure::new(format!("unknown field {key:?}; use name, newName, newTag and digest")));
        }
        if image.name.is_empty() {
            return Err(Failure::new("must specify `name`"));
        }
        if image.new_name.is_empty() && image.new_tag.is_empty() && image.digest.is_empty() {
            return Err(Failure::new("must specify one of `newName`, `newTag`, or `digest`"));
        }
        if !image.new_tag.is_empty() && !image.digest.is_empty() {
            return Err(Failure::new("must not specify both `newTag` and `digest`"));
        }
        Ok(image)
    }

    /// The image that replaces another; `None` for one of another name, and for the same.
    fn replaced(&self, current: &str) -> Option<String> {
        let (name, version) = split(current);
        if name != self.name {
            return None;
        }
        let name = if self.new_name.is_empty() { name } else { &self.new_name };
        let new = match (self.new_tag.as_str(), self.digest.as_str()) {
            ("", "") => format!("{name}{version}"),
            ("", digest) => format!("{name}@{digest}"),
            (tag, _) => format!("{name}:{tag}"),
        };
        (new != current).then_some(new)
    }
}

/// The name of an image, and its tag and digest with their separators. The port of a registry is no tag.
fn split(image: &str) -> (&str, &str) {
    let path = image.find('/').unwrap_or(0);
    let at = image[path..].find([':', '@']).map_or(image.len(), |at| path + at);
    image.split_at(at)
}
