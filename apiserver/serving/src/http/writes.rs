//! Create, update, patch, delete and deletecollection.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};
use serde_json::Value;
use stoa_meta::{
    definition::{ReadProtobuf, ResourceDefinition},
    object::Object,
    patch::{Patch, PatchType},
    request::{FieldValidation, RequestContext},
    schema::{self, Format, StrictErrors, TypeError},
    status::{self, ApiError, quote},
};
use stoa_registry::registry::{self, AdmissionPhase, Apply, DeleteOptions, Deleted, Stored, UpdateSource};

use super::{
    body::{self, Body},
    configuration::Configuration,
    negotiate::{self, Accepted, MediaType},
    render::{self, Form},
    response,
    router::{Call, check_path_segment},
};

impl MediaType {
    pub(super) fn format(self) -> Format {
        match self {
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
        }
    }
}

enum Input {
    Text(MediaType),
    /// What was sent in protobuf becomes JSON.
    Protobuf(ReadProtobuf),
}

impl Call<'_> {
    /// The context of a write, with the options of its query.
    pub(crate) fn write_context(&self, kind: &str) -> Result<RequestContext, ApiError> {
        Ok(self.query.write(kind)?.context(self.context, &self.user_agent()))
    }

    fn user_agent(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.headers.get(header::USER_AGENT).map_or(&[], HeaderValue::as_bytes))
    }

    pub(crate) async fn create(&self, body: Body) -> Result<Response<Body>, ApiError> {
        let form = self.object_form()?;
        let input = self.input()?;
        let body = self.read_body(body, "create").await?;
        let context = self.write_context("CreateOptions")?;
        let mut object = self.decode(&context, &body, input)?;
        ensure_namespace(self.namespace, &mut object)?;
        let store = &self.resource.store;
        let stored = match &self.resource.definition.ephemeral {
            Some(handler) => store.answer_ephemeral(&context, object, &**handler).await?,
            None => {
                registry::dedup_owners(&context, &mut object, AdmissionPhase::Before);
                store.create(&context, self.namespace, object).await?
            }
        };
        self.answer(StatusCode::CREATED, form, &stored)
    }

    pub(crate) async fn update(&self, body: Body) -> Result<Response<Body>, ApiError> {
        let form = self.object_form()?;
        let body = self.read_body(body, "update").await?;
        let context = self.write_context("UpdateOptions")?;
        let mut object = self.decode(&context, &body, self.input()?)?;
        ensure_namespace(self.namespace, &mut object)?;
        registry::check_name(&object, &self.info.name)?;
        check_path_segment(&self.info.name)?;
        registry::dedup_owners(&context, &mut object, AdmissionPhase::Before);
        let source = UpdateSource::Object(object);
        self.write(&context, source, form).await
    }

    pub(crate) async fn patch(&self, body: Body) -> Result<Response<Body>, ApiError> {
        let kind = PatchType::of(self.headers)?;
        check_path_segment(&self.info.name)?;
        let form = self.object_form()?;
        let body = self.read_body(body, "patch").await?;
        let Some(kind) = kind else { return self.apply(form, &body).await };
        let context = self.write_context("PatchOptions")?;
        self.record_change(&body);
        let patch = match Patch::parse(kind, &body, context.field_validation) {
            Ok(patch) => patch,
            // Upstream reads a patch only once there is something that it changes.
            Err(malformed) => {
                self.resource.store.get(self.namespace, &self.info.name, None).await?;
                return Err(malformed);
            }
        };
        // The store calls this again when another writer came first.
        let transform = |current: &Object| {
            let (mut object, mut unknown) = self.patched(&patch, current)?;
            let mut from = Cow::Borrowed(current);
            if !unknown.is_empty() && context.field_validation != FieldValidation::Ignore {
                // Fields that a later version of the server stored are unknown, too, and nothing that the client sent.
                let mut known = current.clone();
                if self.written_as().decoder.settle(&mut known).is_ok_and(|dropped| !dropped.is_empty()) {
                    (object, unknown) = self.patched(&patch, &known)?;
                    from = Cow::Owned(known);
                }
            }
            // Who is refused is shown what the patch made, with the fields that are unknown.
            let made = || patch.apply(&from, &self.written_as().definition.schema);
            let warnings = patch.check_strictly(made, unknown.warnings(), context.field_validation)?;
            warnings.iter().for_each(|warning| context.warn(warning));
            ensure_namespace(self.namespace, &mut object)?;
            registry::check_name(&object, &self.info.name)?;
            Ok(object)
        };
        let source = UpdateSource::transform(transform);
        self.write(&context, source, form).await
    }

    async fn write(
        &self,
        context: &RequestContext,
        source: UpdateSource<'_>,
        form: (Accepted, Form),
    ) -> Result<Response<Body>, ApiError> {
        let Self { namespace, target, info, .. } = self;
        let (stored, created) = self.resource.store.update(context, namespace, &info.name, *target, source).await?;
        self.answer(if created { StatusCode::CREATED } else { StatusCode::OK }, form, &stored)
    }

    fn record_change(&self, body: &[u8]) {
        if let Some(recorder) = self.context.recorder() {
            // Applied configurations may be YAML, of which JSON is a part.
            recorder.request_change(&mut || schema::parse(body, Format::Yaml).ok().map(|parsed| parsed.value));
        }
    }

    /// What a patch makes of an object, and the unknown fields that were in it.
    fn patched(&self, patch: &Patch, current: &Object) -> Result<(Object, StrictErrors), ApiError> {
        let written = self.written_as();
        let mut patched = patch.apply(current, &written.definition.schema)?;
        // Of no version, upstream reads an object that has no fields.
        let settled = if patch.takes_version(current, &patched) {
            Ok(schema::empty(&mut patched))
        } else {
            written.decoder.settle(&mut patched)
        };
        let unknown = settled.map_err(|type_error| patch.refuse_type_error(&patched, &type_error))?;
        Ok((patched, unknown))
    }

    async fn apply(&self, form: (Accepted, Form), body: &[u8]) -> Result<Response<Body>, ApiError> {
        let (options, force) = self.query.apply()?;
        let context = options.context(self.context, &self.user_agent());
        self.record_change(body);
        let Configuration { object, duplicates } = Configuration::parse(body)?;
        let applied = format!("{}/{}", object.namespace(), object.name());
        let owners = registry::managed_fields_of(&object).cloned();
        let finish = |mut merged: Object| {
            let settled = self.settle_applied(&mut merged, owners.as_ref());
            settled.map_err(|type_error| self.unconverted(&applied, &type_error))?;
            duplicates.check(&context)?;
            ensure_namespace(self.namespace, &mut merged)?;
            registry::check_name(&merged, &self.info.name)?;
            Ok(merged)
        };
        let source =
            UpdateSource::Apply(Apply { configuration: object, force, previous: None, finish: Box::new(finish) });
        self.write(&context, source, form).await
    }

    /// Brings an object that a configuration was merged into to its type. What the configuration says of owners is read with
    /// it, as upstream, though nothing comes of that.
    fn settle_applied(&self, merged: &mut Object, owners: Option<&Value>) -> Result<StrictErrors, TypeError> {
        let decoder = &self.written_as().decoder;
        let Some(owners) = owners else { return decoder.settle(merged) };
        let tracked = merged.metadata_mut().insert(registry::MANAGED_FIELDS.to_owned(), owners.clone());
        let settled = decoder.settle(merged);
        registry::put_managed_fields(merged, tracked);
        settled
    }

    /// 500 with no reason, as upstream, about a value that merging takes and its type does not.
    fn unconverted(&self, applied: &str, type_error: &TypeError) -> ApiError {
        let ResourceDefinition { group, version, kind, .. } = &**self.written_as().definition;
        let kind = format!("{group}/{version}, Kind={kind}");
        let message = format!(
            "failed to convert new object ({applied}; {kind}) to proper version: unable to convert unstructured object \
             to {kind}: {}",
            type_error.converted
        );
        ApiError::new(500, "", message)
    }

    pub(crate) async fn delete(&self, body: Body) -> Result<Response<Body>, ApiError> {
        let accepted = negotiate::output(self.headers)?;
        let form = Form::of(accepted, &self.query, (self.now)())?;
        let (context, options) = self.delete_options(body, "delete").await?;
        let store = &self.resource.store;
        match store.delete(&context, self.namespace, &self.info.name, &options).await? {
            // A Status has no other form than its own.
            Deleted::Gone(stored) => self.answer_status(accepted, Some(stored.uid())),
            Deleted::Undecodable => self.answer_status(accepted, None),
            Deleted::Pending(stored) => {
                form.check_object(self.written_as().definition)?;
                // The code that tells of a deletion going on, where clients of old asked for it.
                let code = match options.orphan_dependents {
                    Some(false) => StatusCode::ACCEPTED,
                    _ => StatusCode::OK,
                };
                self.answer(code, (accepted, form), &stored)
            }
        }
    }

    pub(crate) async fn delete_collection(&self, body: Body) -> Result<Response<Body>, ApiError> {
        let (accepted, form) = self.list_form()?;
        let mut selection = self.query.list()?;
        // Which objects is told first, and then how.
        if self.query.flag("watch").unwrap_or(false) {
            // Upstream looks at the options as those of a watch, and then lists all the same.
            self.resource.store.check_watch(&self.query.watch(Duration::ZERO)?)?;
            (selection.send_initial_events, selection.resource_version_match) = (None, None);
        }
        self.resource.store.check_selection(&selection)?;
        let (context, options) = self.delete_options(body, "delete_collection").await?;
        let list = self.resource.store.delete_collection(&context, self.list_namespace(), &selection, &options).await?;
        self.answer_list(accepted, form, list)
    }

    /// Reads the body, and counts how long it is.
    async fn read_body(&self, body: Body, verb: &'static str) -> Result<Bytes, ApiError> {
        let limit = self.resource.definition.request_bytes.unwrap_or(body::MAX_REQUEST_BYTES);
        let body = body::read_at_most(body, limit).await?;
        let store = &self.resource.store;
        store.metrics().read_body(store.definition(), verb, body.len());
        Ok(body)
    }

    /// How the object in the body is to be read.
    /// Fails with 415 `UnsupportedMediaType` where its format is not taken.
    fn input(&self) -> Result<Input, ApiError> {
        match self.written_as().definition.protobuf {
            Some(read) if negotiate::is_protobuf(self.headers) => Ok(Input::Protobuf(read)),
            _ => negotiate::input(self.headers).map(Input::Text),
        }
    }

    fn decode(&self, context: &RequestContext, body: &[u8], input: Input) -> Result<Object, ApiError> {
        let (body, media) = match input {
            Input::Text(media) => (Cow::Borrowed(body), media),
            Input::Protobuf(read) => (Cow::Owned(read(body)?), MediaType::Json),
        };
        let decoded = self.written_as().decoder.decode(&body, media.format(), context.field_validation)?;
        decoded.warnings.into_iter().for_each(|warning| context.warn(warning));
        if let Some(recorder) = self.context.recorder() {
            recorder.request_object(&decoded.object);
        }
        Ok(decoded.object)
    }

    /// Reads the options from the body, or from the query when there is no body, as upstream does.
    async fn delete_options(
        &self,
        body: Body,
        verb: &'static str,
    ) -> Result<(RequestContext, DeleteOptions), ApiError> {
        let body = self.read_body(body, verb).await?;
        let options = if body.is_empty() {
            self.query.delete()?
        } else {
            let media = negotiate::input(self.headers)?;
            let options = parse_delete_options(&body, media)?;
            if let Some(recorder) = self.context.recorder() {
                recorder.request_change(&mut || recorded_options(&options));
            }
            options
        };
        let mut context = self.context.clone();
        context.dry_run = registry::check_delete(&options)?;
        Ok((context, options))
    }

    fn answer(
        &self,
        code: StatusCode,
        (accepted, form): (Accepted, Form),
        stored: &Arc<Stored>,
    ) -> Result<Response<Body>, ApiError> {
        let pieces = render::object(self.written_as().definition, form, &self.written(stored.clone())?);
        response::json(code, accepted.media, self.headers, pieces)
    }

    fn answer_status(&self, accepted: Accepted, uid: Option<&str>) -> Result<Response<Body>, ApiError> {
        let definition = &self.resource.definition;
        let status = Status {
            status: Some("Success".to_owned()),
            details: Some(StatusDetails {
                name: Some(self.info.name.clone()),
                group: (!definition.group.is_empty()).then(|| definition.group.clone()),
                kind: Some(definition.plural.clone()),
                uid: uid.map(str::to_owned),
                ..StatusDetails::default()
            }),
            ..Status::default()
        };
        response::json(StatusCode::OK, accepted.media, self.headers, body::once(status::encode(&status)))
    }
}

/// Puts the request's namespace into the object, or refuses one that is another.
pub(super) fn ensure_namespace(namespace: &str, object: &mut Object) -> Result<(), ApiError> {
    match (object.namespace(), namespace) {
        (same, namespace) if same == namespace => Ok(()),
        (_, "") => {
            object.metadata_mut().remove("namespace");
            Ok(())
        }
        ("", namespace) => {
            object.metadata_mut().insert("namespace".to_owned(), Value::from(namespace));
            Ok(())
        }
        _ => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            Err(ApiError::bad_request(message))
        }
    }
}

/// Options as upstream's audit has them, which looks at them once they are in their internal version.
fn recorded_options(options: &DeleteOptions) -> Option<Value> {
    let mut recorded = serde_json::to_value(options).ok()?;
    let fields = recorded.as_object_mut()?;
    fields.insert("kind".to_owned(), "DeleteOptions".into());
    fields.insert("apiVersion".to_owned(), "meta.k8s.io/__internal".into());
    Some(recorded)
}

/// Reads `DeleteOptions` of any group and version.
pub(super) fn parse_delete_options(body: &[u8], media: MediaType) -> Result<DeleteOptions, ApiError> {
    let unread = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    };
    let parsed = schema::parse(body, media.format()).map_err(|error| unread(&error))?;
    let options = match &parsed.value {
        Value::Null => return Ok(DeleteOptions::default()),
        Value::Object(options) => options,
        other => return Err(unread(&schema::no_type(other))),
    };
    let text = |field| schema::type_text(options, field).map_err(|problem| unread(&problem));
    // They are registered with every group and version that there is.
    let (version, kind) = (text("apiVersion")?, text("kind")?);
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(ApiError::bad_request(format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(kind),
            quote(if version.is_empty() { "meta.k8s.io/v1" } else { version }),
            quote(schema::SCHEME)
        )));
    }
    schema::delete_options(parsed.value)
}
