//! The kinds whose objects may have their owner in Git.
//!
//! Start at [`Owned`], which has all that such a kind says of itself, and at [`kind`]. The server writes objects of Git from
//! the files of a repository. A write of a client gets 409 with the file to edit, since the next reading of the repository
//! would undo it. Unless it is a dry run, a pull request proposes the write to that file.

use std::{fmt::Debug, marker::PhantomData, sync::Arc};

use async_trait::async_trait;
use kube::{CustomResourceExt, Resource, ResourceExt as _, core::object::HasSpec};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use stoa_machinery::{
    ApiError, Object, RequestContext, ResourceDefinition,
    definition::{Cell, Column},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_pulls::{Address, Provider};
use stoa_types::labels::{FILE_IN_GIT, OWNER_IN_GIT};

use super::{
    environment,
    fleets::{Edit, Fleets},
};
use crate::{
    cluster::{self, Cluster},
    errors,
    kind::{Kind, Surroundings},
    lookup::{require_host, require_secret},
    ready,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, Right, right},
    validation,
};

/// A kind whose objects may have their owner in Git.
pub(super) trait Owned:
    Resource<DynamicType = ()> + CustomResourceExt + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The columns of the kind, before those that all such kinds have.
    const COLUMNS: &'static [Column];

    /// The description of the column `Ready`. A kind without it has no conditions.
    const READY: Option<&'static str> = None;

    /// Finds errors in the object by itself.
    fn check(&self, _errors: &mut Vec<FieldError>) {}

    /// The address of the repository that the object names, to which the server shows the credentials of the namespace.
    fn repository(&self) -> Option<&str> {
        None
    }
}

/// The kind with its columns, its [`OwnedStrategy`], and the rights of readers and owners.
pub(super) const fn kind<K>() -> Kind
where
    K: Owned + HasSpec<Spec: Serialize + DeserializeOwned + 'static>,
{
    const RIGHTS: &[Right] = &[right(READERS, OBJECTS, READ), OWNED];
    const RIGHTS_WITH_STATUS: &[Right] = &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED];

    Kind {
        definition: definition::<K>,
        register: |builder, definition, surroundings| {
            builder.register(definition, OwnedStrategy::<K>::of(&surroundings))
        },
        rights: if K::READY.is_some() { RIGHTS_WITH_STATUS } else { RIGHTS },
        ..Kind::of::<K>()
    }
}

fn definition<K: Owned>() -> ResourceDefinition {
    let mut columns = K::COLUMNS.to_vec();
    columns.extend(K::READY.map(ready::status));
    columns.push(Column::age());
    if K::READY.is_some() {
        columns.extend([ready::reason(), ready::message()]);
    }
    columns.push(file_column());
    ResourceDefinition::of::<K>().columns(&columns)
}

/// The strategy. `K` has conditions or no status at all.
#[derive(Debug)]
pub(super) struct OwnedStrategy<K> {
    cluster: Arc<dyn Cluster>,
    fleets: Fleets,
    kind: PhantomData<fn() -> K>,
}

/// The file that an object is written in, if Git owns it.
fn file<K: Resource>(object: &K) -> Option<&String> {
    object.annotations().get(FILE_IN_GIT)
}

/// The parts of an object that its author decides about.
fn authored<K: Serialize + Resource>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    let metadata = object.meta();
    value["metadata"] = serde_json::json!([metadata.labels, metadata.annotations, metadata.finalizers]);
    value
}

impl<K: Owned> OwnedStrategy<K> {
    /// The strategy in a server.
    pub(super) fn of(surroundings: &Surroundings) -> Self {
        let (cluster, fleets) = (surroundings.cluster.clone(), surroundings.fleets.clone());
        Self { cluster, fleets, kind: PhantomData }
    }

    /// The answer to a write, `None` for a deletion, to an object of Git.
    async fn refuse(&self, context: &RequestContext, old: &K, new: Option<&K>, file: &str) -> ApiError {
        let by_hand = format!("Git owns the object: edit {file}, and the server follows");
        let why = match context.dry_run {
            true => by_hand,
            false => match self.propose(context, old, new).await {
                Ok(pull) => format!("Git owns the object in {file}; {pull} proposes this change"),
                Err(why) => format!("{by_hand}; no pull request was opened: {why}"),
            },
        };
        errors::conflict::<K>(&old.name_any(), why)
    }

    /// Proposes a write to the file of its object; the pull request, or why there is none.
    async fn propose(&self, context: &RequestContext, old: &K, new: Option<&K>) -> Result<String, String> {
        let value = |object: &K| serde_json::to_value(object).map_err(|error| error.to_string());
        let edit = Edit {
            namespace: old.namespace().unwrap_or_default(),
            kind: K::kind(&()).into_owned(),
            name: old.name_any(),
            before: value(old)?,
            after: new.map(value).transpose()?,
            user: context.user.name.clone(),
        };
        let fleets = self.fleets.get().map_err(|error| error.message().to_owned())?;
        fleets.propose(edit).await
    }

    fn refuse_marks(object: &K) -> Result<(), ApiError> {
        let marks = [FILE_IN_GIT, OWNER_IN_GIT].into_iter().filter(|mark| object.annotations().contains_key(*mark));
        let errors: Vec<FieldError> = marks
            .map(|mark| FieldError::forbidden(format!("metadata.annotations[{mark}]"), "the server writes it"))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors::invalid::<K>(&object.name_any(), &errors)) }
    }

    /// Requires leave to have the server show the credentials of the namespace to the repository, and to have it call a server
    /// on its own machine.
    async fn require_repository(&self, context: &RequestContext, object: &K) -> Result<(), ApiError> {
        let Some(repository) = object.repository() else { return Ok(()) };
        let namespace = object.namespace().unwrap_or_default();
        let address = Address::new(Provider::Gitea, repository, None).ok();
        if let Some(host) = address.and_then(|address| address.own_host()) {
            require_host(context, &namespace, &host).await?;
        }
        // Somebody may create the Secret later, and the repository gets it then.
        require_secret(context, &namespace, environment::SECRET).await
    }
}

#[async_trait]
impl<K: Owned> Strategy for OwnedStrategy<K> {
    type Object = K;

    fn validate(&self, object: &K) -> Vec<FieldError> {
        let mut errors = Vec::new();
        object.check(&mut errors);
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, K>) -> Result<(), ApiError> {
        if context.is_internal() {
            return Ok(());
        }
        match change {
            Admission::Create(new) => {
                Self::refuse_marks(new)?;
                self.require_repository(context, new).await
            }
            Admission::Update { new, old, subresource: "" } => {
                if authored(new) == authored(old) {
                    return Ok(());
                }
                if let Some(file) = file(old) {
                    return Err(self.refuse(context, old, Some(new), file).await);
                }
                Self::refuse_marks(new)?;
                self.require_repository(context, new).await
            }
            // Promotions follow from the status of a GitOpsRepo.
            Admission::Update { subresource: "status", new, .. } => {
                validation::part_written_by_server::<K>(context, &new.name_any(), "status is")
            }
            Admission::Update { .. } => Ok(()),
            Admission::Delete(old) => {
                let Some(file) = file(old) else { return Ok(()) };
                // The deletion of a namespace takes all objects in it.
                if cluster::is_emptied(&*self.cluster, &old.namespace().unwrap_or_default()).await? {
                    return Ok(());
                }
                Err(self.refuse(context, old, None, file).await)
            }
        }
    }
}

/// The column with the file in Git.
fn file_column() -> Column {
    let cell = Cell::Compute(|object: &Object| {
        object.get_path(&["metadata", "annotations", FILE_IN_GIT]).cloned().unwrap_or_default()
    });
    Column::new("File", cell, "The file in Git that owns the object; empty for an object that clients write.").wide()
}
