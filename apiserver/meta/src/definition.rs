//! The definition of a resource: names, scope, schema, columns, selectable fields, subresources.
//!
//! Start at [`ResourceDefinition::of`], which takes everything that a type with kube's derive `CustomResource` knows, names,
//! columns and subresources too. The builder methods add the rest.

use std::{any::TypeId, cmp::Ordering, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use kube_core::CustomResourceExt;
use schemars::JsonSchema;
use serde_json::Value;

pub use crate::{
    json_path::{InvalidPath, JsonPath},
    protobuf::FromProtobuf,
};
use crate::{object::Object, protobuf, request::RequestContext, status::ApiError};

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// They do not.
    Cluster,
    /// They do.
    #[default]
    Namespaced,
}

/// What upstream says of the column of every table that has the name.
const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// What a table cell shows.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// The object's name. Without such a column it comes before all others.
    Name,
    /// The value at a path of map keys.
    Path(&'static [&'static str]),
    /// The time since the RFC 3339 timestamp at a path, as kubectl prints ages (`5d3h`).
    Age(&'static [&'static str]),
    /// The same since the timestamp that the function finds.
    Since(fn(&Object) -> Option<&str>),
    /// The first value at a path, as far as it is of the column's type; of a `date` the time since then. This is the cell
    /// of a custom resource's column.
    JsonPath(&'static JsonPath),
    /// Whatever the function finds.
    Compute(fn(&Object) -> Value),
}

/// A column of the resource's table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The heading, such as `Ready`; kubectl prints it in capitals.
    pub name: &'static str,
    /// `string`, `integer`, `boolean`, `number` or `date`.
    pub kind: &'static str,
    /// What OpenAPI calls the type more closely, such as `int32`, or empty.
    pub format: &'static str,
    /// What it shows.
    pub description: &'static str,
    /// 0 is always shown, more only with `-o wide`.
    pub priority: i32,
    /// Where the value comes from.
    pub cell: Cell,
}

impl Column {
    /// A string column that is always shown.
    pub const fn new(name: &'static str, cell: Cell, description: &'static str) -> Self {
        Self { name, kind: "string", format: "", description, priority: 0, cell }
    }

    /// The same column, shown only with `-o wide`.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// The same column with another type.
    #[must_use]
    pub const fn kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    /// `Name`, where it does not come first.
    pub const fn name() -> Self {
        Self { format: "name", ..Self::new("Name", Cell::Name, NAME_DESCRIPTION) }
    }

    /// `Age`, from the creation timestamp.
    pub const fn age() -> Self {
        Self::new("Age", Cell::Age(&["metadata", "creationTimestamp"]), "Time since the object was created.")
            .kind("date")
    }
}

/// A field that field selectors may name, besides `metadata.name` and `metadata.namespace`.
#[derive(Clone, Copy, Debug)]
pub struct SelectableField {
    /// As written in a selector, such as `spec.project`. For the entries of a map of strings, with `[*]` at the end, which a
    /// selector replaces by `[KEY]`.
    pub name: &'static str,
    /// Where the value is; strings, numbers and booleans compare by their text, absent as empty.
    pub path: &'static [&'static str],
}

impl SelectableField {
    /// Whether selectors name the entries of a map.
    pub fn is_map(&self) -> bool {
        self.name.ends_with(ENTRY)
    }

    /// The key of an entry that a selector names, if it is one of this map.
    pub fn entry<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(self.name.strip_suffix(ENTRY)?)?.strip_prefix('[')?.strip_suffix(']')
    }
}

/// The end of the name of a field with entries.
const ENTRY: &str = "[*]";

/// A call to a subresource other than `status`.
#[derive(Clone, Debug)]
pub struct SubresourceCall {
    /// Who calls, and how.
    pub context: RequestContext,
    /// The parent's namespace, or empty.
    pub namespace: String,
    /// The parent's name.
    pub name: String,
    /// `GET`, `POST`, `PUT` or `PATCH`.
    pub method: Method,
    /// The query parameters, decoded, in order.
    pub query: Vec<(String, String)>,
    /// The request's headers.
    pub headers: HeaderMap,
    /// The body as sent, at most 3 MiB.
    pub body: Bytes,
}

/// The response of a subresource; the body may stream.
pub type SubresourceResponse = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>>;

/// Serves a subresource. The caller has been authorized for it when this is called.
#[async_trait]
pub trait SubresourceHandler: std::fmt::Debug + Send + Sync + 'static {
    /// Answers one call.
    ///
    /// # Errors
    ///
    /// Any [`ApiError`]; 404 `NotFound` when the parent does not exist.
    async fn call(&self, call: SubresourceCall) -> Result<SubresourceResponse, ApiError>;
}

/// A subresource other than `status`.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// Its path segment, such as `apply`.
    pub name: &'static str,
    /// The verbs it takes: `get`, `create`, `update`, `patch`.
    pub verbs: &'static [&'static str],
    /// Group, version and kind of the body, as discovery tells.
    pub kind: (&'static str, &'static str, &'static str),
    /// What it does, for OpenAPI.
    pub description: &'static str,
    /// The media types that it may answer with besides those of objects, such as `text/plain`.
    pub produces: &'static [&'static str],
    /// What answers.
    pub handler: Arc<dyn SubresourceHandler>,
}

/// A part of an object that is written through a subresource of its own and by nothing else of it, such as `approval`.
///
/// The subresource takes and answers with the whole object, as `status` does. What a write of the part means is up to the
/// strategy: `Strategy::prepare_for_part` in `stoa-registry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The subresource, such as `approval`.
    pub name: &'static str,
    /// Where the part is: map keys, such as `status`, `approval`.
    pub path: &'static [&'static str],
}

/// Which part of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything but the status, when there is a status subresource.
    Main,
    /// Nothing but the status.
    Status,
    /// The number of replicas, as a Scale.
    Scale,
    /// Nothing but the [`Part`] whose subresource this is.
    Part(&'static str),
}

impl Target {
    /// The subresource that writes it, or nothing.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Part(name) => name,
        }
    }
}

/// Answers creates of a resource of which nothing is kept, such as a review.
#[async_trait]
pub trait CreateHandler: std::fmt::Debug + Send + Sync + 'static {
    /// Makes the answer to an object that was sent. Its schema takes the values that are there; what is missing, required
    /// or not, is for the handler to refuse.
    ///
    /// # Errors
    ///
    /// Any [`ApiError`]; 422 `Invalid` for what makes no sense.
    async fn create(&self, context: &RequestContext, object: Object) -> Result<Object, ApiError>;
}

/// Where objects say how many replicas they are to have and have, for the subresource `scale`: paths of map keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// How many there are to be, such as `spec`, `replicas`. A type has to write it also when it is 0: an object without
    /// the number has no Scale to read.
    pub spec_replicas: Vec<String>,
    /// How many there are.
    pub status_replicas: Vec<String>,
    /// A selector of what is counted, as text.
    pub label_selector: Option<Vec<String>>,
}

/// One resource as it is served.
#[derive(Clone, Debug, Default)]
pub struct ResourceDefinition {
    /// The API group; empty for core.
    pub group: String,
    /// The version, such as `v1alpha1`.
    pub version: String,
    /// The kind, such as `Stack`.
    pub kind: String,
    /// The URL noun, such as `stacks`.
    pub plural: String,
    /// The singular noun, such as `stack`.
    pub singular: String,
    /// Short names for kubectl.
    pub short_names: Vec<String>,
    /// Categories for kubectl.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub scope: Scope,
    /// The structural OpenAPI v3 schema of the whole object, `metadata` left as a plain object;
    /// with `description`, `default`, `enum`, `x-kubernetes-list-type` and `-list-map-keys`.
    pub schema: Arc<Value>,
    /// The table's columns, after the name if none of them is that.
    pub columns: Vec<Column>,
    /// How the rows of a table follow each other within a namespace, by two objects' names; absent: as in lists. This orders the
    /// rows of one page. Lists, watches and pages follow the keys in any case.
    pub row_order: Option<fn(&str, &str) -> Ordering>,
    /// The fields that selectors may name.
    pub selectable_fields: Vec<SelectableField>,
    /// Whether there is a `status` subresource: main verbs then never write status.
    pub has_status: bool,
    /// Where the numbers of the `scale` subresource are, if there is one.
    pub scale: Option<ScalePaths>,
    /// The parts that have subresources of their own.
    pub parts: Vec<Part>,
    /// The other subresources.
    pub subresources: Vec<Subresource>,
    /// The verbs that clients may use, of [`ALL_VERBS`]; without those that write, only the server itself does.
    pub verbs: Vec<&'static str>,
    /// What answers creates, when nothing of this kind is kept.
    pub ephemeral: Option<Arc<dyn CreateHandler>>,
    /// The most bytes of a request's body, if they are other than [`MAX_REQUEST_BYTES`](crate::request::MAX_REQUEST_BYTES).
    pub request_bytes: Option<usize>,
    /// Reads objects that clients send in protobuf (`application/vnd.kubernetes.protobuf`), where they may.
    pub protobuf: Option<ReadProtobuf>,
}

/// Makes JSON of an object in protobuf; 400 `BadRequest` for what is no message of the kind.
pub type ReadProtobuf = fn(&[u8]) -> Result<Vec<u8>, ApiError>;

/// Every verb that a resource can have.
pub const ALL_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl ResourceDefinition {
    /// The definition of a type with the derive `kube::CustomResource`, which says all of it: see
    /// [`from_crd`](Self::from_crd).
    ///
    /// # Panics
    ///
    /// As [`from_crd`](Self::from_crd).
    pub fn of<K: CustomResourceExt>() -> Self {
        Self::from_crd(&K::crd())
    }

    /// The definition of a type of Kubernetes' own, such as those of `k8s_openapi`: its names from [`kube_core::Resource`], its
    /// schema from [`JsonSchema`]. No status subresource, no short names, and the age as the only column.
    pub fn built_in<K>() -> Self
    where
        K: kube_core::Resource<DynamicType = ()> + JsonSchema,
        K::Scope: 'static,
    {
        // Definitions are inlined, so that the schema is structural.
        let generator = schemars::generate::SchemaSettings::openapi3()
            .with(|settings| settings.inline_subschemas = true)
            .into_generator();
        let namespaced = TypeId::of::<K::Scope>() == TypeId::of::<k8s_openapi::NamespaceResourceScope>();
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            singular: K::kind(&()).to_lowercase(),
            scope: if namespaced { Scope::Namespaced } else { Scope::Cluster },
            schema: Arc::new(generator.into_root_schema_for::<K>().to_value()),
            columns: vec![Column::age()],
            verbs: ALL_VERBS.to_vec(),
            ..Self::default()
        }
    }

    /// The definition that a CustomResourceDefinition has: names, schema, columns, selectable fields, `status` and `scale`
    /// of its first version. Without columns there is the age.
    ///
    /// What it says of columns and fields is kept until the process ends, since a kind is defined once.
    ///
    /// # Panics
    ///
    /// When there is no version or no schema, which kube's derive never makes; when the path of a column is not a
    /// [`JsonPath`], or that of a selectable field has more than keys.
    pub fn from_crd(crd: &CustomResourceDefinition) -> Self {
        let spec = &crd.spec;
        let version = spec.versions.first().expect("a derived definition has one version");
        let schema = version
            .schema
            .as_ref()
            .and_then(|s| s.open_api_v3_schema.as_ref())
            .expect("a derived definition has a schema");
        let mut columns: Vec<Column> = version.additional_printer_columns.iter().flatten().map(column).collect();
        if columns.is_empty() {
            columns.push(Column::age());
        }
        let fields = version.selectable_fields.iter().flatten().map(|field| selectable_field(&field.json_path));
        Self {
            group: spec.group.clone(),
            version: version.name.clone(),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
            singular: spec.names.singular.clone().unwrap_or_else(|| spec.names.kind.to_lowercase()),
            short_names: spec.names.short_names.clone().unwrap_or_default(),
            categories: spec.names.categories.clone().unwrap_or_default(),
            scope: if spec.scope == "Namespaced" { Scope::Namespaced } else { Scope::Cluster },
            schema: Arc::new(with_patch_strategies(serde_json::to_value(schema).expect("a schema serializes"))),
            columns,
            selectable_fields: fields.collect(),
            has_status: version.subresources.as_ref().is_some_and(|s| s.status.is_some()),
            scale: version.subresources.as_ref().and_then(|s| s.scale.as_ref()).map(|scale| ScalePaths {
                spec_replicas: keys(&scale.spec_replicas_path),
                status_replicas: keys(&scale.status_replicas_path),
                label_selector: scale.label_selector_path.as_deref().map(keys),
            }),
            verbs: ALL_VERBS.to_vec(),
            ..Self::default()
        }
    }

    /// Sets the short names for kubectl.
    #[must_use]
    pub fn short_names(mut self, names: &[&str]) -> Self {
        self.short_names = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Adds the status subresource: main verbs then never write status.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.has_status = true;
        self
    }

    /// Limits clients to these verbs, of [`ALL_VERBS`], and removes the status subresource: the server makes the objects.
    #[must_use]
    pub fn limited_to(mut self, verbs: &[&'static str]) -> Self {
        self.has_status = false;
        self.verbs = verbs.to_vec();
        self
    }

    /// Sets how the rows of a table follow each other within a namespace, by two objects' names.
    #[must_use]
    pub fn rows_by_name(mut self, order: fn(&str, &str) -> Ordering) -> Self {
        self.row_order = Some(order);
        self
    }

    /// Sets the table's columns; the name comes first in any case.
    #[must_use]
    pub fn columns(mut self, columns: &[Column]) -> Self {
        self.columns = columns.to_vec();
        self
    }

    /// Sets the fields that selectors may name.
    #[must_use]
    pub fn selectable(mut self, fields: &[SelectableField]) -> Self {
        self.selectable_fields = fields.to_vec();
        self
    }

    /// Adds a subresource through which a part of the object is written.
    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Adds a subresource.
    #[must_use]
    pub fn subresource(mut self, subresource: Subresource) -> Self {
        self.subresources.push(subresource);
        self
    }

    /// Keeps nothing of this kind: creates, which are all that it takes then, are answered by `handler`.
    #[must_use]
    pub fn ephemeral(mut self, handler: Arc<dyn CreateHandler>) -> Self {
        self.verbs = vec!["create"];
        self.ephemeral = Some(handler);
        self
    }

    /// Takes objects in protobuf, too, as typed Go clients such as kubectl send those of Kubernetes' own kinds.
    #[must_use]
    pub fn reads_protobuf<K: FromProtobuf>(mut self) -> Self {
        self.protobuf = Some(protobuf::to_json::<K>);
        self
    }

    /// `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The prefix of all keys of this resource: `/registry/<group>/<resource>/`.
    pub fn key_prefix(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        format!("/registry/{group}/{}/", self.plural)
    }
}

fn column(declared: &CustomResourceColumnDefinition) -> Column {
    let path = JsonPath::parse(&declared.json_path).unwrap_or_else(|error| panic!("column {}: {error}", declared.name));
    let description = declared.description.clone().filter(|text| !text.is_empty()).unwrap_or_else(|| {
        // Upstream's words.
        format!("Custom resource definition column (in JSONPath format): {}", declared.json_path)
    });
    Column {
        name: kept(&declared.name),
        kind: kept(&declared.type_),
        format: kept(declared.format.as_deref().unwrap_or_default()),
        description: kept(&description),
        priority: declared.priority.unwrap_or_default(),
        cell: Cell::JsonPath(Box::leak(Box::new(path))),
    }
}

fn selectable_field(path: &str) -> SelectableField {
    let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("selectable field: {error}"));
    let keys = parsed.keys().unwrap_or_else(|| panic!("selectable field: {path:?} has more than keys"));
    let keys: Vec<&str> = keys.into_iter().map(kept).collect();
    SelectableField { name: kept(path.trim_start_matches('.')), path: Vec::leak(keys) }
}

/// A text that lasts as long as the process, as definitions do.
fn kept(text: &str) -> &'static str {
    Box::leak(Box::from(text))
}

fn keys(path: &str) -> Vec<String> {
    path.trim_start_matches('.').split('.').map(str::to_owned).collect()
}

/// Says of sets and of lists with one key that patches merge them. The form in which a CRD has its schema does not
/// know of strategic merge patches.
fn with_patch_strategies(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(map) => {
            map.values_mut().for_each(|value| *value = with_patch_strategies(value.take()));
            let keys: Vec<Value> =
                map.get("x-kubernetes-list-map-keys").and_then(Value::as_array).cloned().unwrap_or_default();
            match (map.get("x-kubernetes-list-type").and_then(Value::as_str), keys.as_slice()) {
                (Some("set"), _) => {
                    map.entry("x-kubernetes-patch-strategy").or_insert_with(|| "merge".into());
                }
                (Some("map"), [key]) => {
                    map.entry("x-kubernetes-patch-strategy").or_insert_with(|| "merge".into());
                    map.entry("x-kubernetes-patch-merge-key").or_insert_with(|| key.clone());
                }
                _ => {}
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = with_patch_strategies(value.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use kube::CustomResource;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "fleet.example.com", version = "v1", kind = "Trawler", namespaced, status = "TrawlerStatus")]
    #[kube(shortname = "tr", category = "fleet", selectable = ".spec.port")]
    #[kube(printcolumn(name = "Port", type_ = "string", json_path = ".spec.port"))]
    #[kube(printcolumn(
        name = "Ready",
        type_ = "boolean",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether it may leave.",
        priority = 1
    ))]
    #[kube(scale(spec_replicas_path = ".spec.nets", status_replicas_path = ".status.nets"))]
    struct TrawlerSpec {
        port: String,
        nets: i32,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    struct TrawlerStatus {
        nets: i32,
    }

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "fleet.example.com", version = "v1", kind = "Harbour", plural = "harbours", no_spec)]
    struct HarbourSpec {
        berths: i32,
    }

    #[test]
    fn a_derived_type_says_all_of_its_definition() {
        let trawlers = ResourceDefinition::of::<Trawler>();
        assert_eq!(
            (trawlers.api_version().as_str(), trawlers.plural.as_str(), trawlers.scope, trawlers.has_status),
            ("fleet.example.com/v1", "trawlers", Scope::Namespaced, true)
        );
        assert_eq!((trawlers.short_names, trawlers.categories), (vec!["tr".to_owned()], vec!["fleet".to_owned()]));
        assert_eq!(trawlers.scale.unwrap().spec_replicas, ["spec", "nets"]);
        let [field] = &trawlers.selectable_fields[..] else { panic!("one field is declared") };
        assert_eq!((field.name, field.path), ("spec.port", &["spec", "port"][..]));
        let columns: Vec<_> = trawlers.columns.iter().map(|c| (c.name, c.kind, c.description, c.priority)).collect();
        let undescribed = "Custom resource definition column (in JSONPath format): .spec.port";
        assert_eq!(columns, [("Port", "string", undescribed, 0), ("Ready", "boolean", "Whether it may leave.", 1)]);
    }

    #[test]
    fn derived_type_has_fields_and_age_column() {
        let harbours = ResourceDefinition::of::<Harbour>();
        assert_eq!((harbours.scope, harbours.has_status), (Scope::Cluster, false));
        assert_eq!(harbours.schema["properties"]["berths"]["type"], json!("integer"));
        assert_eq!(harbours.columns.iter().map(|column| column.name).collect::<Vec<_>>(), ["Age"]);
    }

    #[test]
    #[should_panic(expected = "column Port: \"$.spec.port\" is no path")]
    fn definition_rejects_column_with_unknown_path() {
        let mut crd = Trawler::crd();
        crd.spec.versions[0].additional_printer_columns.as_mut().unwrap()[0].json_path = "$.spec.port".to_owned();
        ResourceDefinition::from_crd(&crd);
    }
}
