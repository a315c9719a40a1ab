//! PackageRevisionResources: the files of a PackageRevision, as a view of it.
//!
//! Nothing of this kind is stored. `ResourcesView` joins the stored PackageRevision with the document of its files, which
//! [`Packages`] reads and writes.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, Target},
    object::Object,
    registry::{MANAGED_FIELDS, Store, Stored, UpdateSource, View, put_managed_fields},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    names,
    porch::{
        PackageContent, PackageRevision, PackageRevisionResources, PackageRevisionResourcesSpec,
        PackageRevisionResourcesStatus, PackageRevisionSpec, StoredInGit,
    },
};

use crate::{
    errors,
    kind::{Kind, Surroundings},
    lookup::Lookup,
    package_access::{self, RepositoryVerb},
    package_repositories::{Content, Packages},
    package_revision,
    rights::{OBJECTS, READ, READERS, Role, right},
};

/// The most bytes of a request: the limit of Porch, and room for the escapes of JSON.
const REQUEST_BYTES: usize = 8 << 20;

/// The kind PackageRevisionResources.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, packages, .. }| {
        let view = Arc::new(ResourcesView { packages });
        builder.register_view(definition, ResourcesStrategy { lookup }, view)
    },
    rights: &[right(READERS, OBJECTS, READ), right(&[Role::Developer, Role::Owner], OBJECTS, &["update", "patch"])],
    ..Kind::of::<PackageRevisionResources>()
};

fn definition() -> ResourceDefinition {
    let mut definition = ResourceDefinition::of::<PackageRevisionResources>()
        .columns(&[
            Column::name(),
            Column::new("Package", Cell::Path(&["spec", "packageName"]), "The path of the package."),
            Column::new("WorkspaceName", Cell::Path(&["spec", "workspaceName"]), "The workspace of the revision."),
            Column::new("Revision", Cell::Compute(package_revision::revision), "The number of the revision.")
                .kind("integer"),
            Column::new("Repository", Cell::Path(&["spec", "repository"]), "The repository of the package."),
            Column::new("Files", Cell::Compute(files), "The number of files.").kind("integer"),
        ])
        .selectable(&package_revision::FIELDS)
        .limited_to(&["get", "list", "patch", "update", "watch"]);
    definition.request_bytes = Some(REQUEST_BYTES);
    definition
}

fn files(object: &Object) -> Value {
    object.get_path(&["spec", "resources"]).and_then(Value::as_object).map_or(0, serde_json::Map::len).into()
}

/// The parts of a stored PackageRevision that its files follow from, and that PackageRevisionResources shows.
#[derive(Deserialize, PartialEq)]
struct Shown {
    metadata: ShownMetadata,
    spec: ShownSpec,
    #[serde(default)]
    status: ShownStatus,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct ShownMetadata {
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize, PartialEq)]
struct ShownSpec {
    #[serde(default)]
    revision: i64,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(default)]
struct ShownStatus {
    content: Option<PackageContent>,
    git: Option<StoredInGit>,
}

impl ShownStatus {
    /// The name of the content: a digest, or a folder in Git.
    fn content(&self) -> &str {
        let digest = self.content.as_ref().map_or("", |content| content.digest.as_str());
        let tree = self.git.as_ref().map_or("", |git| git.tree.as_str());
        if digest.is_empty() { tree } else { digest }
    }
}

/// Joins package revisions with their files.
#[derive(Debug)]
struct ResourcesView {
    packages: Packages,
}

fn decoded(base: &Stored) -> Result<PackageRevision, ApiError> {
    base.decode().map_err(|error| ApiError::internal(format_args!("{} does not decode: {error}", base.key)))
}

/// The object for a revision and its content.
fn joined(revision: PackageRevision, content: Content) -> Result<Object, ApiError> {
    let Content { resources, render_status, annotations, managed_fields } = content;
    let PackageRevisionSpec { package_name, repository_name, workspace_name, revision: number, .. } = revision.spec;
    let metadata = ObjectMeta {
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        managed_fields: None,
        resource_version: None,
        ..revision.metadata
    };
    let status = (!render_status.is_null()).then_some(PackageRevisionResourcesStatus { render_status });
    let spec =
        PackageRevisionResourcesSpec { package_name, workspace_name, revision: number, repository_name, resources };
    let joined = PackageRevisionResources { metadata, spec, status };
    let mut object =
        Object::from_typed(&joined).map_err(|error| ApiError::internal(format_args!("it does not encode: {error}")))?;
    object.0.insert("apiVersion".to_owned(), PackageRevisionResources::api_version(&()).into_owned().into());
    object.0.insert("kind".to_owned(), names::kind::<PackageRevisionResources>().into());
    put_managed_fields(&mut object, managed_fields);
    Ok(object)
}

#[async_trait]
impl View for ResourcesView {
    fn base(&self) -> (&'static str, &'static str, &'static str) {
        (names::group::<PackageRevision>(), names::version::<PackageRevision>(), names::plural::<PackageRevision>())
    }

    async fn view(&self, base: &Stored) -> Result<Object, ApiError> {
        let revision = decoded(base)?;
        let content = self.packages.get()?.content(&revision).await?;
        joined(revision, content)
    }

    fn view_of_deleted(&self, base: &Stored) -> Object {
        decoded(base).and_then(|revision| joined(revision, Content::default())).unwrap_or_default()
    }

    fn view_of_unreadable(&self, base: &Stored, error: &ApiError) -> Result<Object, ApiError> {
        self.packages.get()?;
        let render_status = json!({ "error": error.message() });
        joined(decoded(base)?, Content { render_status, ..Content::default() })
    }

    fn is_same(&self, one: &Stored, other: &Stored) -> bool {
        match (one.decode_part::<Shown>(), other.decode_part::<Shown>()) {
            (Ok(one), Ok(other)) => {
                one.metadata == other.metadata
                    && one.spec == other.spec
                    && one.status.content() == other.status.content()
            }
            _ => false,
        }
    }

    async fn write(
        &self,
        context: &RequestContext,
        mut object: Object,
        current: &Stored,
        base: &Arc<Store>,
    ) -> Result<Option<Arc<Stored>>, ApiError> {
        let (namespace, name) = (current.namespace(), current.name());
        let stored = base.get(namespace, name, None).await?;
        if stored.version != current.version {
            return Ok(None);
        }
        let managed_fields = object.metadata_mut().remove(MANAGED_FIELDS);
        let sent: PackageRevisionResources = object
            .to_typed()
            .map_err(|error| ApiError::bad_request(format!("PackageRevisionResources cannot be handled: {error}")))?;
        let content = Content {
            resources: sent.spec.resources,
            render_status: Value::Null,
            annotations: sent.metadata.annotations.unwrap_or_default(),
            managed_fields,
        };
        let mut revision = decoded(&stored)?;
        self.packages.get()?.save(context, content, &mut revision).await?;
        package_access::note_author(context, &mut revision);
        let changed = Object::from_typed(&revision)
            .map_err(|error| ApiError::internal(format_args!("object does not encode: {error}")))?;
        let context = context.for_consequences("packages");
        match base.update(&context, namespace, name, Target::Main, UpdateSource::Object(changed)).await {
            Ok((stored, _)) => Ok(Some(stored)),
            Err(error) if error.code() == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug)]
struct ResourcesStrategy {
    lookup: Lookup,
}

#[async_trait]
impl Strategy for ResourcesStrategy {
    type Object = PackageRevisionResources;

    fn prepare_for_update(
        &self,
        _: &RequestContext,
        new: &mut PackageRevisionResources,
        old: &PackageRevisionResources,
    ) {
        // Clients such as porchctl send the files only. Labels are those of the PackageRevision.
        for (new, old) in [
            (&mut new.spec.package_name, &old.spec.package_name),
            (&mut new.spec.workspace_name, &old.spec.workspace_name),
            (&mut new.spec.repository_name, &old.spec.repository_name),
        ] {
            if new.is_empty() {
                new.clone_from(old);
            }
        }
        if new.spec.revision == 0 {
            new.spec.revision = old.spec.revision;
        }
        new.status.clone_from(&old.status);
        new.metadata.labels.clone_from(&old.metadata.labels);
        new.metadata.owner_references.clone_from(&old.metadata.owner_references);
        new.metadata.finalizers.clone_from(&old.metadata.finalizers);
    }

    fn validate_update(&self, new: &PackageRevisionResources, old: &PackageRevisionResources) -> Vec<FieldError> {
        let fields = |object: &PackageRevisionResources| {
            let PackageRevisionResourcesSpec { package_name, workspace_name, revision, repository_name, .. } =
                object.spec.clone();
            [
                ("spec.packageName", package_name),
                ("spec.workspaceName", workspace_name),
                ("spec.repository", repository_name),
                ("spec.revision", revision.to_string()),
            ]
        };
        let changed = fields(new).into_iter().zip(fields(old)).filter(|(new, old)| new != old);
        changed.map(|((path, value), _)| FieldError::invalid(path, value, "field is immutable")).collect()
    }

    async fn admit(
        &self,
        context: &RequestContext,
        change: Admission<'_, PackageRevisionResources>,
    ) -> Result<(), ApiError> {
        let Admission::Update { new, .. } = change else { return Ok(()) };
        let (namespace, name) = (new.namespace().unwrap_or_default(), new.name_any());
        let revision = self.lookup.api::<PackageRevision>()?.get(&namespace, &name).await?;
        package_access::require_change(context, &self.lookup, RepositoryVerb::Edit, &revision).await?;
        let lifecycle = revision.spec.lifecycle;
        if lifecycle == stoa_types::porch::Lifecycle::Draft {
            return Ok(());
        }
        let why = format!("the revision is {}; only the files of a Draft can change", lifecycle.name());
        Err(errors::forbidden::<PackageRevisionResources>(&name, why))
    }
}
