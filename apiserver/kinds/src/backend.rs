//! Backend: exactly one kind of document store, which never changes.
//!
//! Write-only fields may have the keys of a bucket. `take_keys` takes them out before validation. They are in
//! a Secret before the Backend that names it is written.

use std::{net::IpAddr, sync::Arc};

use async_trait::async_trait;
use http::Uri;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    Backend, SecretReference, labels,
    platform::{BackendType, BucketAddressing, S3Backend},
};

use super::{lookup::Lookup, ready, references};
use crate::{
    cluster::Cluster,
    errors,
    kind::{InGit, Kind, Surroundings},
    rights::PUSHED,
    validation,
};

/// Where Stoa keeps Secrets of its own.
const SYSTEM: &str = "stoa-system";
/// Where `kubectl apply` keeps all that it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The key of a Backend's Secret that has the id of the access key.
pub const ACCESS_KEY: &str = "accessKey";
/// The key of a Backend's Secret that has the secret access key.
pub const SECRET_KEY: &str = "secretKey";

/// The kind Backend.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, .. }| {
        builder.register(definition, BackendStrategy { lookup, cluster })
    },
    in_git: Some(InGit { removal_waits_for_references: true, ..InGit::at("platform/backends/{name}.yaml") }),
    rights: &[PUSHED],
    ..Kind::of::<Backend>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Backend>()
        .columns(&[
            Column::new("Type", Cell::Path(&["spec", "type"]), "The kind of the store."),
            ready::status("Whether the store is writable and readable."),
            Column::age(),
            ready::reason(),
            ready::message(),
        ])
        .selectable(&[SelectableField { name: "spec.type", path: &["spec", "type"] }])
}

#[derive(Debug)]
pub(crate) struct BackendStrategy {
    pub lookup: Lookup,
    pub cluster: Arc<dyn Cluster>,
}

#[async_trait]
impl Strategy for BackendStrategy {
    type Object = Backend;

    fn prepare_for_create(&self, context: &RequestContext, object: &mut Backend) {
        take_keys(context, object);
    }

    fn prepare_for_update(&self, context: &RequestContext, new: &mut Backend, _: &Backend) {
        take_keys(context, new);
    }

    /// Keeps keys that came along, which has an effect before the write is decided: whoever may write the Backend
    /// exchanged its keys, also where the write itself then loses a race.
    async fn admit(&self, context: &RequestContext, change: Admission<'_, Backend>) -> Result<(), ApiError> {
        let backend = match change {
            Admission::Create(new) => {
                // It will be refused for its name, and the keys of the one that is there are not for its client to exchange.
                let is_taken = || async {
                    Ok::<_, ApiError>(self.lookup.api::<Backend>()?.get_opt("", &new.name_any()).await?.is_some())
                };
                if new.spec.taken.is_none() || is_taken().await? {
                    return Ok(());
                }
                new
            }
            Admission::Update { new, .. } => new,
            Admission::Delete(backend) => return self.refuse_while_used(&backend.name_any()).await,
        };
        match &backend.spec.taken {
            Some((id, key)) if !context.dry_run => {
                self.cluster.write_secret(&secret_of(&backend.name_any(), &id.0, &key.0)).await
            }
            _ => Ok(()),
        }
    }

    fn validate(&self, object: &Backend) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::label_name(&object.name_any(), &mut errors);
        let spec = &object.spec;
        validation::subjects("spec.owners", &spec.owners, &mut errors);
        keys(object, &mut errors);
        if spec.kind == BackendType::Local {
            if spec.s3.is_some() {
                errors.push(FieldError::forbidden("spec.s3", "may only be set when type is S3 or OSS"));
            }
        } else {
            match &spec.s3 {
                Some(bucket) => self::bucket(bucket, spec.kind, &mut errors),
                None => errors.push(FieldError::required("spec.s3", "must be set when type is S3 or OSS")),
            }
        }
        if let Some(local) = &spec.local {
            if spec.kind != BackendType::Local {
                errors.push(FieldError::forbidden("spec.local", "may only be set when type is Local"));
            }
            if local.directory.split('/').any(|part| part == "..") {
                errors.push(FieldError::invalid("spec.local.directory", &local.directory, "must not contain '..'"));
            }
        }
        errors
    }

    fn validate_update(&self, new: &Backend, old: &Backend) -> Vec<FieldError> {
        let mut errors = Vec::new();
        // Documents are found by digest in the store that they were put in.
        validation::immutable("spec.type", &new.spec.kind, &old.spec.kind, &mut errors);
        validation::immutable("spec.local", &new.spec.local, &old.spec.local, &mut errors);
        if let (Some(new), Some(old)) = (&new.spec.s3, &old.spec.s3) {
            validation::immutable("spec.s3.bucket", &new.bucket, &old.bucket, &mut errors);
            validation::immutable("spec.s3.prefix", &new.prefix, &old.prefix, &mut errors);
            validation::immutable("spec.s3.endpoint", &new.endpoint, &old.endpoint, &mut errors);
        }
        errors
    }
}

impl BackendStrategy {
    /// Refuses to delete a backend that workspaces refer to.
    async fn refuse_while_used(&self, name: &str) -> Result<(), ApiError> {
        match references::workspaces_of_backend(&self.lookup, name).await? {
            None => Ok(()),
            Some(users) => {
                let why = format!("it is the backend of {users}; delete what refers to it first");
                Err(errors::conflict::<Backend>(name, why))
            }
        }
    }
}

/// The Secret that the keys of a Backend are moved to.
fn reference_of(name: &str) -> SecretReference {
    SecretReference { namespace: Some(SYSTEM.to_owned()), name: format!("backend-{name}") }
}

fn secret_of(name: &str, id: &str, key: &str) -> Secret {
    let reference = reference_of(name);
    let mut secret = Secret::default();
    secret.metadata.namespace = reference.namespace;
    secret.metadata.name = Some(reference.name);
    secret.labels_mut().insert(labels::BACKEND.to_owned(), name.to_owned());
    let data = [(ACCESS_KEY, id), (SECRET_KEY, key)];
    secret.data = Some(data.map(|(name, text)| (name.to_owned(), ByteString(text.as_bytes().to_vec()))).into());
    secret
}

/// Takes keys out of the fields that they came in, if they have a place to go, and names that place.
fn take_keys(context: &RequestContext, object: &mut Backend) {
    let reference = reference_of(&object.name_any());
    let spec = &mut object.spec;
    let (Some(bucket), Some(_), Some(_)) = (&mut spec.s3, &spec.access_key, &spec.secret_key) else { return };
    let is_other = bucket.credentials_secret_ref.as_ref().is_some_and(|other| *other != reference);
    // What is in a file is in Git already, for good. That is no way for keys.
    if is_other || validation::is_pushed(context) {
        return;
    }
    bucket.credentials_secret_ref = Some(reference);
    spec.taken = spec.access_key.take().zip(spec.secret_key.take());
}

/// Finds what is wrong with keys that were not taken, and where copies of keys are.
fn keys(object: &Backend, errors: &mut Vec<FieldError>) {
    let spec = &object.spec;
    match (&spec.access_key, &spec.secret_key, &spec.s3) {
        (None, None, _) => {}
        (Some(_), None, _) => {
            errors.push(FieldError::required("spec.secretKey", "must be set together with accessKey"))
        }
        (None, Some(_), _) => {
            errors.push(FieldError::required("spec.accessKey", "must be set together with secretKey"))
        }
        (Some(_), Some(_), None) => {
            errors.push(FieldError::forbidden("spec.accessKey", "may only be set when type is S3 or OSS"));
        }
        (Some(_), Some(_), Some(bucket)) => errors.push(FieldError::forbidden(
            "spec.accessKey",
            if bucket.credentials_secret_ref.is_some() {
                "may not be set together with spec.s3.credentialsSecretRef"
            } else {
                "keys must not be in Git: rotate them, and name a Secret in spec.s3.credentialsSecretRef"
            },
        )),
    }
    let in_configuration = |text: &String| {
        let configuration = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        ["accessKey", "secretKey"].iter().any(|key| configuration["spec"].get(key).is_some_and(|v| !v.is_null()))
    };
    if object.annotations().get(LAST_APPLIED).is_some_and(in_configuration) {
        errors.push(FieldError::forbidden(
            format!("metadata.annotations[{LAST_APPLIED}]"),
            "kubectl apply copies spec.accessKey and spec.secretKey to this annotation; name a Secret in \
             spec.s3.credentialsSecretRef, or use kubectl apply --server-side or kubectl create",
        ));
    }
}

/// Finds what is wrong with a bucket.
fn bucket(bucket: &S3Backend, kind: BackendType, errors: &mut Vec<FieldError>) {
    let S3Backend { bucket: name, prefix, region, endpoint, addressing, credentials_secret_ref } = bucket;
    let is_end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let fits = (3..=63).contains(&name.len())
        && name.bytes().all(|byte| is_end(Some(byte)) || b"-.".contains(&byte))
        && is_end(name.bytes().next())
        && is_end(name.bytes().last())
        && !name.contains("..");
    if name.is_empty() {
        errors.push(FieldError::required("spec.s3.bucket", ""));
    } else if !fits {
        let what = "must be 3 to 63 characters of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit";
        errors.push(FieldError::invalid("spec.s3.bucket", name, what));
    }
    let is_segment = |segment: &str| {
        !segment.is_empty()
            && !segment.starts_with('.')
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if !prefix.is_empty() && (prefix.len() > 512 || !prefix.split('/').all(is_segment)) {
        let what = "must be segments of letters, digits, '-', '_' and '.' with '/' in between, none beginning with '.'";
        errors.push(FieldError::invalid("spec.s3.prefix", prefix, what));
    }
    if !region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        errors.push(FieldError::invalid("spec.s3.region", region, "must consist of a-z, 0-9 and '-'"));
    }
    if endpoint.is_empty() && region.is_empty() {
        errors.push(FieldError::required("spec.s3.region", "region or endpoint must be set"));
    }
    if !endpoint.is_empty() {
        self::endpoint(endpoint, errors);
    }
    if kind == BackendType::Oss && name.contains('.') {
        errors.push(FieldError::invalid("spec.s3.bucket", name, "must not contain '.' when type is OSS"));
    }
    match (addressing, kind) {
        (Some(BucketAddressing::Path), BackendType::Oss) => {
            let what = "must not be Path when type is OSS, which accepts the bucket only in the host name";
            errors.push(FieldError::invalid("spec.s3.addressing", "Path", what));
        }
        (Some(BucketAddressing::CustomDomain), _) if endpoint.is_empty() => {
            errors.push(FieldError::required(
                "spec.s3.endpoint",
                "must be the bucket's domain when addressing is CustomDomain",
            ));
        }
        (Some(BucketAddressing::VirtualHosted), _) | (None, BackendType::Oss) => in_host(name, endpoint, errors),
        _ => {}
    }
    match credentials_secret_ref {
        Some(reference) => validation::secret_anywhere("spec.s3.credentialsSecretRef", reference, errors),
        // The credentials of the machine would be there for every bucket that somebody may name.
        None => errors.push(FieldError::required("spec.s3.credentialsSecretRef", "")),
    }
}

/// Finds what is wrong with an endpoint whose host the bucket goes before.
fn in_host(bucket: &str, endpoint: &str, errors: &mut Vec<FieldError>) {
    let uri = endpoint.parse::<Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default();
    let has_bucket = host.strip_prefix(bucket).is_some_and(|rest| !bucket.is_empty() && rest.starts_with('.'));
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let what = match (has_bucket, is_address) {
        (true, _) => "must not contain the bucket, which precedes the host unless addressing is CustomDomain",
        (_, true) => {
            "must not be an IP address, because the bucket precedes the host unless addressing is CustomDomain"
        }
        _ => return,
    };
    errors.push(FieldError::invalid("spec.s3.endpoint", endpoint, what));
}

/// Finds what is wrong with the URL of a service.
fn endpoint(text: &str, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.s3.endpoint";
    let Some(uri) = validation::service_url(PATH, text, "https://s3.example.com", "use credentialsSecretRef", errors)
    else {
        return;
    };
    if uri.path() != "/" || uri.query().is_some() || text.contains('#') {
        errors.push(FieldError::invalid(
            PATH,
            text,
            "must not have a path; set spec.s3.bucket and spec.s3.prefix instead",
        ));
    }
    validation::not_in_clear(PATH, text, &uri, errors);
}
