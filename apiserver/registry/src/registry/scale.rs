//! The subresource `scale`: how many replicas an object is to have and has, as `autoscaling/v1 Scale`.
//!
//! What is written is a Scale: it is patched, tracked and admitted as one, and then its number becomes the object's.
//! Follows `ScaleREST` in `k8s.io/apiextensions-apiserver/pkg/registry/customresource`.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use stoa_meta::{
    definition::{ResourceDefinition, ScalePaths, Target},
    managed_fields::{FieldManagers, Replicas},
    object::Object,
    request::RequestContext,
    scale::scale_definition,
    schema::Decoder,
    status::{ApiError, FieldError},
};

use super::{
    Store, Stored, UpdateSource,
    admit::{Admitted, MANAGED_FIELDS, put_managed_fields},
    metadata,
    update::Changed,
};

/// The number of a scale whose object has none; Go's smallest `int32`.
const UNSET: i64 = i32::MIN as i64;

/// What a resource has a `scale` by.
#[derive(Debug)]
pub struct Scaling {
    /// Of the Scale, as it is served for the resource.
    pub(super) definition: Arc<ResourceDefinition>,
    pub(super) decoder: Decoder,
    pub(super) fields: FieldManagers,
    paths: ScalePaths,
}

impl Scaling {
    pub(crate) fn new(parent: &ResourceDefinition) -> Option<Self> {
        let (definition, paths) = (scale_definition(parent)?, parent.scale.clone()?);
        Some(Self {
            decoder: Decoder::new(&definition).expect("a derived schema is complete"),
            fields: FieldManagers::of_subresource(&definition, "scale"),
            definition: Arc::new(definition),
            paths,
        })
    }

    /// The Scale of an object; nobody owns its fields. Without a number of replicas, its own is that of `missing`.
    fn of(&self, object: &Object, missing: i64) -> Object {
        let number = |path: &[String]| at(object, path).and_then(Value::as_i64);
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object.metadata().and_then(|metadata| metadata.get(field)) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let mut spec = Map::new();
        let replicas = number(&self.paths.spec_replicas).unwrap_or(missing);
        if replicas != 0 {
            spec.insert("replicas".to_owned(), replicas.into());
        }
        let mut status = json!({"replicas": number(&self.paths.status_replicas).unwrap_or(0)});
        let selector = self.paths.label_selector.as_deref().and_then(|path| at(object, path)?.as_str());
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            status["selector"] = selector.into();
        }
        let scale = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status,
        });
        match scale {
            Value::Object(scale) => Object(scale),
            _ => unreachable!("made as an object above"),
        }
    }

    /// The Scale of an object, as admission sees it.
    pub(super) fn seen(&self, object: &Object) -> Object {
        self.of(object, 0)
    }

    pub(super) fn errors(&self, object: &Object, target: Target) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let ScalePaths { spec_replicas, status_replicas, .. } = &self.paths;
        let both = [(spec_replicas, target != Target::Status), (status_replicas, true)];
        for (path, _) in both.into_iter().filter(|(_, looked_at)| *looked_at) {
            let Some(number) = at(object, path).and_then(Value::as_i64) else { continue };
            let wrong = |detail: String| FieldError::invalid(shown(path), number, detail);
            if number < 0 {
                errors.push(wrong("should be a non-negative integer".to_owned()));
            } else if number > i64::from(i32::MAX) {
                errors.push(wrong(format!("should be less than or equal to {}", i32::MAX)));
            }
        }
        errors
    }

    fn replicas<'a>(&'a self, api_version: &'a str) -> Replicas<'a> {
        Replicas { api_version, path: &self.paths.spec_replicas }
    }
}

/// `.spec.replicas`.
fn shown(path: &[String]) -> String {
    format!(".{}", path.join("."))
}

fn at<'a>(object: &'a Object, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(object.0.get(first)?, |value, key| value.get(key))
}

/// Puts a number at a path, making the maps on the way.
fn put(object: &mut Object, path: &[String], number: i64) -> Result<(), ApiError> {
    let Some((last, parents)) = path.split_last() else { return Ok(()) };
    let mut map = &mut object.0;
    for key in parents {
        let value = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
        map = value.as_object_mut().ok_or_else(|| ApiError::internal(format_args!("{key:?} is no map")))?;
    }
    map.insert(last.clone(), number.into());
    Ok(())
}

impl Store {
    /// The Scale of an object, as it is answered to a read. Fails with 500 `InternalError` when the object has no
    /// number of replicas.
    pub fn scale_of(&self, scaling: &Scaling, stored: &Stored) -> Result<Arc<Stored>, ApiError> {
        if at(&stored.object(), &scaling.paths.spec_replicas).and_then(Value::as_i64).is_none() {
            let path = shown(&scaling.paths.spec_replicas);
            return Err(ApiError::internal(format_args!("the spec replicas field {path:?} does not exist")));
        }
        self.written_scale(scaling, stored)
    }

    /// The same as it is answered to a write: a kind that leaves out a number of 0 has it all the same. Fails with 500
    /// `InternalError` when it does not encode.
    pub fn written_scale(&self, scaling: &Scaling, stored: &Stored) -> Result<Arc<Stored>, ApiError> {
        let mut scale = scaling.of(&stored.object(), 0);
        scale.metadata_mut().remove("resourceVersion");
        Ok(Arc::new(self.prepare(scale)?.stored(stored.key.clone(), stored.version)))
    }

    /// What a change of its Scale makes of an object.
    pub(super) async fn scaled(
        &self,
        write: Admitted<'_>,
        scaling: &Scaling,
        change: &mut UpdateSource<'_>,
        (old, current): (&Object, &Arc<Stored>),
    ) -> Result<Changed, ApiError> {
        let context: &RequestContext = write.context;
        let api_version = self.definition.api_version();
        let replicas = scaling.replicas(&api_version);
        let broken = |error: String| ApiError::new(500, "", error);
        let of_object = old.metadata().and_then(|metadata| metadata.get(MANAGED_FIELDS));
        let of_scale = replicas.to_scale(of_object).map_err(broken)?;
        let mut live = scaling.of(old, UNSET);
        let mut seen = live.clone();
        put_managed_fields(&mut seen, of_scale.clone());
        let (mut new, verb) = match change {
            UpdateSource::Object(object) => {
                self.check_uid(object, current)?;
                (object.clone(), "update")
            }
            UpdateSource::Transform(transform) => (transform(&seen)?, "patch"),
            UpdateSource::Apply(apply) => {
                let options = apply.options(context);
                let merged = scaling.fields.of(Target::Scale).apply(Some(&seen), &apply.configuration, options)?;
                ((apply.finish)(merged)?, "patch")
            }
        };
        let based_on = new.meta_str("resourceVersion").to_owned();
        let written = new.metadata_mut().remove(MANAGED_FIELDS);
        let tracked = match change {
            UpdateSource::Apply(_) => written,
            UpdateSource::Object(_) | UpdateSource::Transform(_) => {
                live.metadata_mut().remove("resourceVersion");
                let live = Some((&live, of_scale.as_ref()));
                let now = metadata::seconds_now();
                scaling.fields.of(Target::Scale).update(live, (&new, written.as_ref()), &context.field_manager, now)
            }
        };
        put_managed_fields(&mut new, tracked);
        self.admit_change(write, &mut new).await?;
        let number = new.get_path(&["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(0);
        if number == UNSET {
            let path = shown(&scaling.paths.spec_replicas);
            return Err(ApiError::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
        }
        let of_scale = new.metadata_mut().remove(MANAGED_FIELDS);
        let managed_fields = replicas.to_object(of_object, of_scale.as_ref()).map_err(broken)?;
        let mut object = old.clone();
        put(&mut object, &scaling.paths.spec_replicas, number)?;
        object.metadata_mut().remove(MANAGED_FIELDS);
        object.metadata_mut().remove("resourceVersion");
        // One that says nothing of a version is based on the current one.
        let based_on = if based_on.is_empty() { current.version.to_string() } else { based_on };
        Ok(Changed { object, managed_fields, based_on, verb })
    }
}
