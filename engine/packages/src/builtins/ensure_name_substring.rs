//! `ensure-name-substring`: gives names of objects a prefix or a suffix that they lack, and changes references to them.
//!
//! CustomResourceDefinitions, Namespaces, APIServices and Kptfiles keep their names. The references are in `references`.

mod references;

use std::collections::BTreeMap;

use serde_json::Value;

use self::references::rename_references;
use super::{
    Failure,
    config::{Config, additional_fields, config},
    fields::FieldSpec,
};
use crate::{
    files::Limits,
    resources::Resource,
    results::{Finding, scalar_text},
};

/// The groups and kinds of objects that keep their names; an empty group is any.
const UNCHANGED: [(&str, &str); 4] = [
    ("", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("", "Namespace"),
    ("kpt.dev", "Kptfile"),
];

/// The new names of objects by group, kind, namespace and old name.
pub(super) type Renames = BTreeMap<[String; 4], String>;

/// The side of a name that gets the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Prepend,
    Append,
}

struct Substring {
    text: String,
    side: Side,
}

impl Substring {
    /// A name with the text; `None` if it has it.
    fn added(&self, name: &str) -> Option<String> {
        let added = match self.side {
            Side::Prepend => format!("{}{name}", self.text),
            Side::Append => format!("{name}{}", self.text),
        };
        (!name.contains(&self.text)).then_some(added)
    }
}

/// Runs the function.
pub(super) fn run(items: &mut [Resource], source: Option<&Resource>, _: &Limits) -> Result<Vec<Finding>, Failure> {
    let (substring, additional) = settings(source)?;
    let mut renames = Renames::new();
    for resource in items.iter_mut() {
        if UNCHANGED
            .iter()
            .any(|(group, kind)| (group.is_empty() || *group == resource.group()) && *kind == resource.kind())
        {
            continue;
        }
        if let Some(name) = substring.added(resource.name()) {
            let old = [resource.group(), resource.kind(), resource.namespace(), resource.name()].map(str::to_owned);
            renames.insert(old, name.clone());
            resource.value["metadata"]["name"] = name.into();
        }
        let specs: Vec<&FieldSpec> = additional.iter().filter(|spec| spec.matches(resource)).collect();
        for spec in specs {
            spec.visit(&mut resource.value, &Value::from(""), &mut |field| {
                if let Some(new) = field.as_str().and_then(|current| substring.added(current)) {
                    *field = new.into();
                }
            });
        }
    }
    let references: usize = items.iter_mut().map(|resource| rename_references(resource, &renames)).sum();
    let message = format!("renamed {} object(s), and {references} reference(s) to them", renames.len());
    Ok(vec![Finding::info(message)])
}

fn settings(source: Option<&Resource>) -> Result<(Substring, Vec<FieldSpec>), Failure> {
    let (text, side, additional) = match config(source, "EnsureNameSubstring") {
        Ok(Config::Data(data)) => match data.into_iter().collect::<Vec<_>>().as_slice() {
            [(side, text)] => (text.clone(), side.clone(), Vec::new()),
            entries => {
                let message = format!("only 1 entry is allowed in the ConfigMap, but got: {}", entries.len());
                return Err(Failure::new(message));
            }
        },
        Ok(Config::Object(object)) => of_object(object)?,
        // The documents have the kind in the core group, too.
        Err(error) => match source.filter(|it| it.kind() == "EnsureNameSubstring") {
            Some(object) => of_object(object)?,
            None => return Err(error),
        },
    };
    let side = match side.as_str() {
        "prepend" | "" => Side::Prepend,
        "append" => Side::Append,
        other => return Err(Failure::new(format!("unknown editMode: {other}, only prepend and append are allowed"))),
    };
    if text.is_empty() {
        return Err(Failure::new("substring must not be empty"));
    }
    Ok((Substring { text, side }, additional))
}

fn of_object(object: &Resource) -> Result<(String, String, Vec<FieldSpec>), Failure> {
    let text = |name: &str| object.value.get(name).map(scalar_text).unwrap_or_default();
    Ok((text("substring"), text("editMode"), additional_fields(object, "additionalNameFields")?))
}
