//! The changes that make a package a variant of its upstream: its context, functions before its own, and injected objects.
//!
//! Start at [`apply`]. A change that is there already changes nothing, so that `apply` twice is `apply` once.
//!
//! Follows `controllers/packagevariants` of Porch 1.5.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    clone::{PACKAGE_CONTEXT, PACKAGE_CONTEXT_FILE, context_text},
    files::{KPTFILE, Tree, TreeError},
    kptfile::{Condition, Function, Info, Kptfile, KptfileError, Pipeline, ReadinessGate, Status},
    resources::{self, ReadError, Resource, WriteError},
};

/// The annotation of an object that takes the content of one in the cluster: `required` or `optional`.
pub const CONFIG_INJECTION: &str = "kpt.dev/config-injection";

/// The annotation with the name of the object whose content was taken.
pub const INJECTED_RESOURCE: &str = "kpt.dev/injected-resource";

/// The beginning of the names of a variant's functions.
const FUNCTION_PREFIX: &str = "PackageVariant";

/// The changes of a variant.
#[derive(Clone, Copy, Debug)]
pub struct Variant<'v> {
    /// The name of the variant, which marks its functions.
    pub name: &'v str,
    /// The keys that package-context.yaml has.
    pub context: &'v BTreeMap<String, String>,
    /// The keys that it does not have.
    pub removed_keys: &'v [String],
    /// The functions before those of the package.
    pub pipeline: &'v Pipeline,
    /// The choice of objects for injection points.
    pub injectors: &'v [Injector],
    /// The objects of the cluster for all [injection points](points).
    pub objects: &'v [Value],
}

/// A choice of an object of the cluster. An absent field permits every value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injector {
    /// The group of the injection point.
    pub group: Option<String>,
    /// The version of the injection point.
    pub version: Option<String>,
    /// The kind of the injection point.
    pub kind: Option<String>,
    /// The name of the object.
    pub name: String,
}

/// An object of the package that takes the content of one in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The apiVersion of both.
    pub api_version: String,
    /// The kind of both.
    pub kind: String,
    /// The name of the object in the package.
    pub name: String,
    is_required: bool,
}

/// Why a package cannot become a variant.
#[derive(Debug, thiserror::Error)]
pub enum VariantError {
    /// The objects cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The objects cannot be written.
    #[error("the package cannot be written")]
    Write(#[from] WriteError),
    /// A file cannot be written.
    #[error("the package cannot be written")]
    Tree(#[from] TreeError),
    /// The Kptfile is rejected.
    #[error(transparent)]
    Kptfile(#[from] KptfileError),
    /// An injection point is neither required nor optional.
    #[error("{file}: {object} has {value:?} as annotation {CONFIG_INJECTION}; use required or optional")]
    Annotation {
        /// The file.
        file: String,
        /// The kind and name.
        object: String,
        /// The value.
        value: String,
    },
    /// Two injection points have one kind and name.
    #[error("{first} and {second} have an injection point for {object}; rename one of the objects")]
    Double {
        /// The kind and name.
        object: String,
        /// The file of the first.
        first: String,
        /// The file of the second.
        second: String,
    },
}

impl Point {
    fn of(resource: &Resource) -> Result<Option<Self>, VariantError> {
        let Some(value) = resource.annotation(CONFIG_INJECTION) else { return Ok(None) };
        let is_required = match value {
            "required" => true,
            "optional" => false,
            other => {
                return Err(VariantError::Annotation {
                    file: resource.file(),
                    object: format!("{} {}", resource.kind(), resource.name()),
                    value: other.to_owned(),
                });
            }
        };
        let (api_version, kind) = (resource.api_version().to_owned(), resource.kind().to_owned());
        Ok(Some(Self { api_version, kind, name: resource.name().to_owned(), is_required }))
    }

    /// The type of the condition in the Kptfile.
    fn condition_type(&self) -> String {
        format!("config.injection.{}.{}", self.kind, self.name)
    }

    /// The field that is taken over.
    fn field(&self) -> &'static str {
        if self.api_version == "v1" && self.kind == "ConfigMap" { "data" } else { "spec" }
    }
}

/// The injection points of a package.
///
/// # Errors
///
/// [`VariantError`] for files that cannot be read, and for wrong annotations.
pub fn points(tree: &Tree) -> Result<Vec<Point>, VariantError> {
    Ok(points_of(&resources::read(tree)?)?.into_values().map(|(_, point)| point).collect())
}

/// The injection points, by position among the objects, with the position of the object.
fn points_of(objects: &[Resource]) -> Result<BTreeMap<String, (usize, Point)>, VariantError> {
    let mut found: BTreeMap<String, (usize, Point)> = BTreeMap::new();
    for (position, object) in objects.iter().enumerate() {
        let Some(point) = Point::of(object)? else { continue };
        if let Some((first, _)) = found.get(&point.condition_type()) {
            return Err(VariantError::Double {
                object: format!("{} {}", point.kind, point.name),
                first: objects[*first].file(),
                second: object.file(),
            });
        }
        found.insert(point.condition_type(), (position, point));
    }
    Ok(found)
}

/// The package with the changes of a variant. Comments stay.
///
/// # Errors
///
/// [`VariantError`]; nothing has changed then.
pub fn apply(tree: &Tree, variant: &Variant<'_>) -> Result<Tree, VariantError> {
    let before = resources::read(tree)?;
    let mut after = before.clone();
    let needs_context = !context(&mut after, variant);
    let mut conditions = Vec::new();
    for (condition_type, (position, point)) in points_of(&before)? {
        let outcome = inject(&mut after[position], &point, variant);
        conditions.push((condition_type, point.is_required, outcome));
    }
    let mut tree = resources::write(tree, &before, &after)?;
    if needs_context && !variant.context.is_empty() {
        let data: Value = json!(variant.context);
        tree.write(PACKAGE_CONTEXT_FILE, context_text(&data))?;
    }
    let text = tree.text(KPTFILE).ok_or(KptfileError::Missing)?.to_owned();
    let old = Kptfile::parse(&text)?;
    let mut new = old.clone();
    new.pipeline = pipeline(old.pipeline.clone().unwrap_or_default(), variant);
    note(&mut new, conditions);
    if new != old {
        tree.write(KPTFILE, old.edit(&text, &new))?;
    }
    Ok(tree)
}

/// Changes the context of the package; whether there is one, or none is wanted.
fn context(objects: &mut [Resource], variant: &Variant<'_>) -> bool {
    let is_context = |object: &&mut Resource| {
        object.package.is_empty() && object.kind() == "ConfigMap" && object.name() == PACKAGE_CONTEXT
    };
    let Some(object) = objects.iter_mut().find(is_context) else { return false };
    if variant.context.is_empty() && variant.removed_keys.is_empty() {
        return true;
    }
    if !object.value["data"].is_object() {
        object.value["data"] = json!({});
    }
    if let Some(data) = object.value["data"].as_object_mut() {
        data.extend(variant.context.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
        data.retain(|key, _| !variant.removed_keys.contains(key));
    }
    true
}

/// The functions of the variant, and then those of the package; nothing without any.
fn pipeline(own: Pipeline, variant: &Variant<'_>) -> Option<Pipeline> {
    let begin = format!("{FUNCTION_PREFIX}.{}.", variant.name);
    let is_of_variant = |function: &Function| {
        let rest = function.name.strip_prefix(&begin).and_then(|rest| rest.split_once('.'));
        rest.is_some_and(|(_, position)| position.parse::<u32>().is_ok())
    };
    let all = |of_variant: &[Function], own: Vec<Function>| -> Vec<Function> {
        let named = of_variant.iter().enumerate().map(|(position, function)| Function {
            name: format!("{begin}{}.{position}", function.name),
            ..function.clone()
        });
        named.chain(own.into_iter().filter(|function| !is_of_variant(function))).collect()
    };
    let Pipeline { mutators, validators } = variant.pipeline;
    let all = Pipeline { mutators: all(mutators, own.mutators), validators: all(validators, own.validators) };
    Some(all).filter(|pipeline| !pipeline.mutators.is_empty() || !pipeline.validators.is_empty())
}

/// Takes over the content of the first object that an injector chooses: its name, or else the reason why there is none.
fn inject(object: &mut Resource, point: &Point, variant: &Variant<'_>) -> Result<String, String> {
    if variant.injectors.is_empty() {
        return Err("no injectors defined".to_owned());
    }
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_of_kind =
        |found: &&Value| text(found, "/apiVersion") == point.api_version && text(found, "/kind") == point.kind;
    let of_kind: Vec<&Value> = variant.objects.iter().filter(is_of_kind).collect();
    if of_kind.is_empty() {
        return Err(format!("no in-cluster resources of type {}.{}", point.api_version, point.kind));
    }
    let (group, version) = point.api_version.split_once('/').unwrap_or(("", &point.api_version));
    let is_permitted = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
    let mut fitting = variant.injectors.iter().filter(|injector| {
        is_permitted(&injector.group, group)
            && is_permitted(&injector.version, version)
            && is_permitted(&injector.kind, &point.kind)
    });
    let found =
        fitting.find_map(|injector| of_kind.iter().find(|found| text(found, "/metadata/name") == injector.name));
    let found = found.ok_or("no resource matched any injection selector for this injection point")?;
    let name = text(found, "/metadata/name");
    let field = point.field();
    let content = found.get(field).ok_or_else(|| format!("field {field:?} not found in resource {name:?}"))?;
    object.value[field] = content.clone();
    object.value["metadata"]["annotations"][INJECTED_RESOURCE] = name.as_str().into();
    Ok(name)
}

/// Notes the outcome of each injection point in the Kptfile. A required one is a readiness gate.
fn note(kptfile: &mut Kptfile, outcomes: Vec<(String, bool, Result<String, String>)>) {
    if outcomes.is_empty() {
        return;
    }
    let mut gates: BTreeSet<String> =
        outcomes.iter().filter(|(_, is_required, _)| *is_required).map(|(kind, ..)| kind.clone()).collect();
    let mut info = kptfile.info.take().unwrap_or_default();
    gates.retain(|gate| info.readiness_gates.iter().all(|known| known.condition_type != *gate));
    info.readiness_gates.extend(gates.into_iter().map(|condition_type| ReadinessGate { condition_type }));
    kptfile.info = Some(info).filter(|info| *info != Info::default());
    let status = kptfile.status.get_or_insert_with(Status::default);
    for (kind, _, outcome) in outcomes {
        let condition = match outcome {
            Ok(name) => Condition {
                kind,
                status: "True".to_owned(),
                reason: "ConfigInjected".to_owned(),
                message: format!("injected resource {name:?} from cluster"),
            },
            Err(message) => {
                Condition { kind, status: "False".to_owned(), reason: "NoResourceSelected".to_owned(), message }
            }
        };
        match status.conditions.iter_mut().find(|found| found.kind == condition.kind) {
            Some(found) => *found = condition,
            None => status.conditions.push(condition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\n  annotations:\n    \
                           config.kubernetes.io/local-config: \"true\"\ndata:\n  name: shop # the package\n  old: x\n";
    const POINT: &str = "apiVersion: example.com/v1\nkind: Network\nmetadata:\n  name: net\n  annotations:\n    \
                         kpt.dev/config-injection: required\nspec:\n  cidr: 0.0.0.0/0\n";

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.write(path, text.as_bytes().to_vec()).unwrap();
        }
        tree
    }

    fn kptfile(pipeline: &str) -> String {
        format!("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: shop # ours\n{pipeline}")
    }

    fn function(name: &str, image: &str) -> Function {
        Function { name: name.to_owned(), image: image.to_owned(), ..Function::default() }
    }

    struct Given {
        context: BTreeMap<String, String>,
        removed_keys: Vec<String>,
        pipeline: Pipeline,
        injectors: Vec<Injector>,
        objects: Vec<Value>,
    }

    impl Given {
        fn nothing() -> Self {
            Self {
                context: BTreeMap::new(),
                removed_keys: Vec::new(),
                pipeline: Pipeline::default(),
                injectors: Vec::new(),
                objects: Vec::new(),
            }
        }

        fn variant(&self) -> Variant<'_> {
            Variant {
                name: "web",
                context: &self.context,
                removed_keys: &self.removed_keys,
                pipeline: &self.pipeline,
                injectors: &self.injectors,
                objects: &self.objects,
            }
        }

        #[track_caller]
        fn applied(&self, files: &[(&str, &str)]) -> Tree {
            let once = apply(&tree(files), &self.variant()).unwrap();
            assert_eq!(apply(&once, &self.variant()).unwrap(), once, "twice is once");
            once
        }
    }

    #[test]
    fn empty_variant_changes_nothing() {
        let files = [("Kptfile", kptfile("")), ("package-context.yaml", CONTEXT.to_owned())];
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        assert_eq!(Given::nothing().applied(&files), tree(&files));
    }

    #[test]
    fn context_gains_and_loses_keys() {
        let given = Given {
            context: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
            removed_keys: vec!["old".to_owned()],
            ..Given::nothing()
        };
        let changed = given.applied(&[("Kptfile", &kptfile("")), ("package-context.yaml", CONTEXT)]);
        let text = changed.text("package-context.yaml").unwrap();
        assert!(text.ends_with("data:\n  name: shop # the package\n  region: eu\n"), "{text}");
        let made = given.applied(&[("Kptfile", &kptfile(""))]);
        assert!(made.text("package-context.yaml").unwrap().contains("region: eu"));
    }

    #[test]
    fn functions_of_the_variant_come_first() {
        let own = "pipeline:\n  mutators:\n  - image: set-labels:v0.1.5\n    name: PackageVariant.web.old.0\n  - image: own:v1\n  - \
                   image: other:v1\n    name: PackageVariant.api.x.0\n";
        let pipeline = Pipeline { mutators: vec![function("ns", "set-namespace:v0.4.1")], validators: Vec::new() };
        let given = Given { pipeline, ..Given::nothing() };
        let changed = given.applied(&[("Kptfile", &kptfile(own))]);
        let text = changed.text("Kptfile").unwrap();
        assert!(text.contains("name: shop # ours"), "{text}");
        let found = Kptfile::parse(text).unwrap().pipeline.unwrap();
        let names: Vec<_> = found.mutators.iter().map(|function| (&*function.image, &*function.name)).collect();
        assert_eq!(
            names,
            [
                ("set-namespace:v0.4.1", "PackageVariant.web.ns.0"),
                ("own:v1", ""),
                ("other:v1", "PackageVariant.api.x.0")
            ]
        );
        let without = "pipeline:\n  mutators:\n  - image: set-labels:v0.1.5\n    name: PackageVariant.web.old.0\n";
        let cleared = Given::nothing().applied(&[("Kptfile", &kptfile(without))]);
        assert_eq!(Kptfile::parse(cleared.text("Kptfile").unwrap()).unwrap().pipeline, None);
    }

    #[test]
    fn injected_object_opens_its_gate() {
        let injector =
            |name: &str| Injector { kind: Some("Network".to_owned()), name: name.to_owned(), ..Injector::default() };
        let object = json!({"apiVersion": "example.com/v1", "kind": "Network", "metadata": {"name": "prod"},
            "spec": {"cidr": "10.0.0.0/8"}});
        let files = [("Kptfile", kptfile("")), ("net.yaml", POINT.to_owned())];
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let found = points(&tree(&files)).unwrap();
        assert_eq!((&*found[0].api_version, &*found[0].kind), ("example.com/v1", "Network"));
        let condition = |tree: &Tree| {
            let kptfile = Kptfile::parse(tree.text("Kptfile").unwrap()).unwrap();
            let gates = kptfile.info.unwrap().readiness_gates;
            assert_eq!(gates[0].condition_type, "config.injection.Network.net");
            kptfile.status.unwrap().conditions[0].clone()
        };
        let given = Given { injectors: vec![injector("prod")], objects: vec![object.clone()], ..Given::nothing() };
        let injected = given.applied(&files);
        let text = injected.text("net.yaml").unwrap();
        assert!(text.contains("cidr: 10.0.0.0/8") && text.contains("kpt.dev/injected-resource: prod"), "{text}");
        assert_eq!((&*condition(&injected).status, &*condition(&injected).reason), ("True", "ConfigInjected"));
        for (given, message) in [
            (Given::nothing(), "no injectors defined"),
            (
                Given { injectors: vec![injector("prod")], ..Given::nothing() },
                "no in-cluster resources of type example.com/v1.Network",
            ),
            (
                Given { injectors: vec![injector("dev")], objects: vec![object], ..Given::nothing() },
                "no resource matched any injection selector for this injection point",
            ),
        ] {
            let waiting = given.applied(&files);
            assert!(waiting.text("net.yaml").unwrap().contains("0.0.0.0/0"));
            assert_eq!(condition(&waiting).message, message);
        }
    }

    #[test]
    fn wrong_injection_points_are_named() {
        let wrong = POINT.replace("required", "always");
        let error = points(&tree(&[("Kptfile", &kptfile("")), ("net.yaml", &wrong)])).unwrap_err();
        assert!(error.to_string().contains("use required or optional"), "{error}");
        let error = points(&tree(&[("a.yaml", POINT), ("b.yaml", POINT)])).unwrap_err();
        assert!(error.to_string().starts_with("a.yaml and b.yaml"), "{error}");
    }
}
