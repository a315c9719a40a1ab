//! The router: from a path to the handler of a verb on a resource.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, Request, Response, request::Parts};
use hyper::upgrade::OnUpgrade;
use jiff::Timestamp;
use stoa_meta::{
    content,
    definition::{ResourceDefinition, Scope, Subresource, SubresourceCall, Target},
    request::RequestContext,
    status::{ApiError, quote},
};
use stoa_registry::registry::{self, Registry, Store, Stored, Written};
use tokio::time::Instant;

use super::{
    body::{self, Body},
    negotiate,
    query::Query,
    request_info::RequestInfo,
    response,
    segments::Segments,
};

/// The longest that a write of an object takes, as upstream (`requestTimeoutUpperBound`).
const LONGEST_WRITE: Duration = Duration::from_secs(34);

/// Answers requests that have been let in, for every resource of a [`Registry`].
#[derive(Debug)]
pub struct ApiHandler {
    resources: Vec<Resource>,
    now: fn() -> Timestamp,
}

#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) definition: Arc<ResourceDefinition>,
    pub(crate) store: Arc<Store>,
    pub(crate) segments: Arc<Segments>,
}

/// A request for a resource, as handlers see it.
pub(crate) struct Call<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) info: &'a RequestInfo,
    /// The namespace; empty for cluster-scoped resources, and for lists across all namespaces.
    pub(crate) namespace: &'a str,
    /// What of the object it is for.
    pub(crate) target: Target,
    pub(crate) context: &'a RequestContext,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: Query,
    /// Hands the connection over, when the client asked for another protocol.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// What ages are counted to.
    pub(crate) now: fn() -> Timestamp,
}

impl ApiHandler {
    /// Serves the resources of a registry.
    pub fn new(registry: &Registry) -> Self {
        let resource = |store: &Arc<Store>| Resource {
            definition: Arc::clone(store.definition()),
            store: Arc::clone(store),
            segments: Arc::default(),
        };
        Self { resources: registry.stores().map(resource).collect(), now: Timestamp::now }
    }

    /// The same handler with another clock, for the ages in tables.
    #[must_use]
    pub fn with_clock(mut self, now: fn() -> Timestamp) -> Self {
        self.now = now;
        self
    }

    /// Answers a request. `info` is what [`RequestInfo::new`] made of it, and what the caller was authorized for.
    ///
    /// When the future is dropped, a write has happened whole or not at all.
    pub async fn handle(&self, info: RequestInfo, context: RequestContext, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let mut context = context;
        if matches!(&*info.verb, "create" | "update" | "patch" | "delete") {
            context.end_by(Instant::now() + LONGEST_WRITE);
        }
        context.set_write_options(Query::parse(parts.uri.query().unwrap_or("")).write_options_sent());
        let answer = Box::pin(self.answer(&info, &context, &parts, body));
        let mut response = answer.await.unwrap_or_else(|error| response::error(&error, &parts.headers));
        response::finish(&mut response, parts.headers.get(response::AUDIT_ID).cloned(), &context);
        response
    }

    async fn answer(
        &self,
        info: &RequestInfo,
        context: &RequestContext,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, ApiError> {
        let same_version = |r: &&Resource| r.definition.group == info.group && r.definition.version == info.version;
        if !info.is_resource_request || !self.resources.iter().any(|r| r.definition.group == info.group) {
            return Ok(response::page_not_found());
        }
        let not_found = || ApiError::generic(404);
        let resource = self
            .resources
            .iter()
            .find(|r| same_version(r) && r.definition.plural == info.resource)
            .ok_or_else(not_found)?;
        // A HEAD or OPTIONS is authorized as some verb, but there is nothing that answers it.
        let served = match info.verb_in_path() {
            Some("watch") => parts.method == Method::GET && info.parts.len() < 3,
            // Upstream took proxying away long ago, and left its verb.
            Some(_) => return Err(not_found()),
            None => matches!(parts.method, Method::GET | Method::POST | Method::PUT | Method::PATCH | Method::DELETE),
        };
        if info.parts.len() > 3 || (info.parts.len() == 3 && !has_subresource(&resource.definition, &info.subresource))
        {
            return Err(not_found());
        }
        let call = Call {
            resource,
            info,
            namespace: namespace(&resource.definition, info).ok_or_else(not_found)?,
            target: match &*info.subresource {
                "status" => Target::Status,
                "scale" if resource.definition.scale.is_some() => Target::Scale,
                name => {
                    let part = resource.definition.parts.iter().find(|part| part.name == name);
                    part.map_or(Target::Main, |part| Target::Part(part.name))
                }
            },
            context,
            headers: &parts.headers,
            query: Query::parse(parts.uri.query().unwrap_or("")),
            upgrade: parts.extensions.get::<OnUpgrade>().cloned(),
            now: self.now,
        };
        if served {
            let called = resource.definition.subresources.iter().find(|s| s.name == info.subresource);
            let besides = called.map_or(&[][..], |subresource| subresource.produces);
            negotiate::check_produced(&parts.headers, besides, matches!(&*info.verb, "list" | "watch"))?;
        }
        match info.parts.len() {
            _ if !served => Err(not_allowed()),
            1 => call.collection(body).await,
            2 => call.object(body).await,
            3 => call.subresource(&parts.method, body).await,
            _ => Err(not_found()),
        }
    }
}

/// The namespace to look into; nothing when the path has one too many or too few.
fn namespace<'a>(definition: &ResourceDefinition, info: &'a RequestInfo) -> Option<&'a str> {
    let is_namespaces = definition.group.is_empty() && definition.plural == "namespaces";
    match definition.scope {
        // A namespace is in the path as both itself and the name.
        Scope::Cluster if is_namespaces => Some(""),
        Scope::Cluster => info.namespace.is_empty().then_some(""),
        Scope::Namespaced => {
            // Only lists are of all namespaces.
            (info.parts.len() == 1 || names_namespace(info)).then_some(&info.namespace)
        }
    }
}

/// Whether the path is that of a namespace. One that is empty is in the path all the same, and refused where that matters.
fn names_namespace(info: &RequestInfo) -> bool {
    info.path.contains("/namespaces/")
}

fn has_subresource(definition: &ResourceDefinition, name: &str) -> bool {
    (name == "status" && definition.has_status)
        || (name == "scale" && definition.scale.is_some())
        || definition.parts.iter().any(|part| part.name == name)
        || definition.subresources.iter().any(|subresource| subresource.name == name)
}

/// Waits for a write, which is not made any more when it has taken too long.
/// Fails with 504 `Timeout` then, as upstream's `finisher.FinishRequest` says.
async fn in_time<T>(write: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let late = "request did not complete within requested timeout - context deadline exceeded";
    tokio::time::timeout(LONGEST_WRITE, write).await.unwrap_or_else(|_| Err(ApiError::timeout(late, 0)))
}

/// 405 in the words for a method that a path does not have.
fn not_allowed() -> ApiError {
    ApiError::generic(405)
}

/// Refuses names that cannot be a part of a key, in the words of upstream's generic registry.
pub(super) fn check_path_segment(name: &str) -> Result<(), ApiError> {
    let complaints = content::path_segment(name);
    if complaints.is_empty() {
        return Ok(());
    }
    Err(ApiError::bad_request(format!("Name parameter invalid: {}: {}", quote(name), complaints.join(";"))))
}

impl Call<'_> {
    /// What is read and written: the resource, or a Scale.
    pub(crate) fn written_as(&self) -> Written<'_> {
        self.resource.store.written_as(self.target)
    }

    /// What is answered to a read of an object.
    /// Fails with 500 `InternalError` for the Scale of an object that has no number of replicas.
    pub(crate) fn read(&self, stored: Arc<Stored>) -> Result<Arc<Stored>, ApiError> {
        match self.written_as().scaling {
            Some(scaling) => self.resource.store.scale_of(scaling, &stored),
            None => Ok(stored),
        }
    }

    /// What is answered to a write of an object, which has happened and is no failure any more.
    /// Fails with 500 `InternalError` when it does not encode, which the object did when it was stored.
    pub(crate) fn written(&self, stored: Arc<Stored>) -> Result<Arc<Stored>, ApiError> {
        match self.written_as().scaling {
            Some(scaling) => self.resource.store.written_scale(scaling, &stored),
            None => Ok(stored),
        }
    }

    fn check_verb(&self) -> Result<(), ApiError> {
        let definition = &self.resource.definition;
        let has = |verb: &str| definition.verbs.contains(&verb);
        match &*self.info.verb {
            verb if has(verb) => Ok(()),
            // The path is that of lists, so that only the watch is missing.
            "watch" if has("list") => {
                Err(ApiError::method_not_supported(&definition.group, &definition.plural, "watch"))
            }
            _ => Err(not_allowed()),
        }
    }

    async fn collection(&self, body: Body) -> Result<Response<Body>, ApiError> {
        self.check_verb()?;
        let across_namespaces = self.resource.definition.scope == Scope::Namespaced && !names_namespace(self.info);
        match &*self.info.verb {
            "list" => self.list().await,
            "watch" => self.watch().await,
            "create" if !across_namespaces => in_time(self.create(body)).await,
            "deletecollection" if !across_namespaces => self.delete_collection(body).await,
            _ => Err(not_allowed()),
        }
    }

    fn check_namespace(&self) -> Result<(), ApiError> {
        if self.resource.definition.scope == Scope::Namespaced && self.namespace.is_empty() && self.info.verb != "watch"
        {
            return Err(ApiError::bad_request("Namespace parameter required."));
        }
        Ok(())
    }

    async fn object(&self, body: Body) -> Result<Response<Body>, ApiError> {
        self.check_verb()?;
        if self.info.verb == "create" {
            return Err(not_allowed());
        }
        self.check_namespace()?;
        // Of these the handler looks at what is sent first.
        if !matches!(&*self.info.verb, "update" | "patch") {
            check_path_segment(&self.info.name)?;
        }
        match &*self.info.verb {
            "get" => self.get().await,
            "watch" => self.watch().await,
            "update" => in_time(self.update(body)).await,
            "patch" => in_time(self.patch(body)).await,
            "delete" => in_time(self.delete(body)).await,
            _ => Err(not_allowed()),
        }
    }

    async fn subresource(&self, method: &Method, body: Body) -> Result<Response<Body>, ApiError> {
        let definition = &self.resource.definition;
        self.check_namespace()?;
        if self.info.verb != "patch" {
            check_path_segment(&self.info.name)?;
        }
        let is_of_object = match self.target {
            Target::Main => false,
            Target::Status => definition.has_status,
            Target::Scale | Target::Part(_) => true,
        };
        if is_of_object {
            return match &*self.info.verb {
                "get" => self.get().await,
                "update" => in_time(self.update(body)).await,
                "patch" => in_time(self.patch(body)).await,
                _ => Err(not_allowed()),
            };
        }
        let subresource = definition
            .subresources
            .iter()
            .find(|subresource| subresource.name == self.info.subresource)
            .ok_or_else(|| ApiError::generic(404))?;
        if !subresource.verbs.contains(&&*self.info.verb) {
            return Err(not_allowed());
        }
        self.call(subresource, method, body).await
    }

    async fn call(&self, subresource: &Subresource, method: &Method, body: Body) -> Result<Response<Body>, ApiError> {
        let context = match &*self.info.verb {
            "create" => self.write_context("CreateOptions")?,
            "update" | "patch" => self.write_context("UpdateOptions")?,
            "delete" => {
                let mut context = self.context.clone();
                context.dry_run = registry::check_delete(&self.query.delete()?)?;
                context
            }
            _ => self.context.clone(),
        };
        let call = SubresourceCall {
            context,
            namespace: self.namespace.to_owned(),
            name: self.info.name.clone(),
            method: method.clone(),
            query: self.query.clone().into_pairs(),
            headers: self.headers.clone(),
            body: body::read(body).await?,
        };
        subresource.handler.call(call).await
    }
}
