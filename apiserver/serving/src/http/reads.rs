//! Get, list and watch.

use futures_util::StreamExt as _;
use http::{Response, StatusCode};
use stoa_log::Version;
use stoa_meta::status::ApiError;
use stoa_registry::{
    cache::deadline,
    registry::{Event, List},
};

use super::{
    body::Body,
    negotiate::{self, Accepted},
    render::{self, Form, RenderedList},
    response,
    router::Call,
    watch::{self, Encoder},
    websocket::{self, Frames},
};

impl Call<'_> {
    /// The form of what a write answers, which is an object. Asked for before the write, unlike upstream: what cannot
    /// be answered is not done.
    pub(crate) fn object_form(&self) -> Result<(Accepted, Form), ApiError> {
        let accepted = negotiate::output(self.headers)?;
        Ok((accepted, self.form_of_object(accepted)?))
    }

    /// The form of what a write answers, which is a list; as for [`object_form`](Self::object_form).
    pub(crate) fn list_form(&self) -> Result<(Accepted, Form), ApiError> {
        let accepted = negotiate::output(self.headers)?;
        Ok((accepted, self.form_of_list(accepted)?))
    }

    /// The form of an object for a client that accepts this. Reads ask for it last: what is not there has no form to be
    /// refused.
    fn form_of_object(&self, accepted: Accepted) -> Result<Form, ApiError> {
        let form = Form::of(accepted, &self.query, (self.now)())?;
        form.check_object(self.written_as().definition)?;
        Ok(form)
    }

    /// The form of a list for a client that accepts this.
    fn form_of_list(&self, accepted: Accepted) -> Result<Form, ApiError> {
        let form = Form::of(accepted, &self.query, (self.now)())?;
        form.check_list(&self.resource.definition)?;
        Ok(form)
    }

    /// The namespace that a list is about; nothing when it is about all, or the resource has none.
    pub(crate) fn list_namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace)
    }

    pub(crate) async fn get(&self) -> Result<Response<Body>, ApiError> {
        let accepted = negotiate::output(self.headers)?;
        if self.query.flag("export") == Some(true) {
            let gone = "the export parameter, deprecated since v1.14, is no longer supported";
            return Err(ApiError::bad_request(gone));
        }
        let version = self.query.first("resourceVersion").filter(|version| !version.is_empty());
        let store = &self.resource.store;
        // Upstream has no such match for one object, and what it does not know it leaves alone; so does this where no
        // version is named that there may have been.
        let matches = store.has_history() && self.query.first("resourceVersionMatch") == Some("Exact");
        let exact = version.and_then(|version| version.parse().ok()).filter(|version| matches && *version > 0);
        let stored = match exact {
            Some(exact) => store.get_at(self.namespace, &self.info.name, Version(exact)).await?,
            None => store.get(self.namespace, &self.info.name, version).await?,
        };
        let read = self.read(stored)?;
        let form = self.form_of_object(accepted)?;
        let pieces = render::object(self.written_as().definition, form, &read);
        response::json(StatusCode::OK, accepted.media, self.headers, pieces)
    }

    pub(crate) async fn list(&self) -> Result<Response<Body>, ApiError> {
        let accepted = negotiate::output(self.headers)?;
        let options = self.query.list()?;
        let list = self.resource.store.list(self.list_namespace(), &options).await?;
        self.answer_list(accepted, self.form_of_list(accepted)?, list)
    }

    /// Answers with a list, as `accepted` and in the form that goes with it.
    pub(crate) fn answer_list(&self, accepted: Accepted, form: Form, list: List) -> Result<Response<Body>, ApiError> {
        let list = RenderedList::new(&self.resource.definition, form, list);
        response::list(accepted.media, self.headers, list, &self.resource.segments)
    }

    pub(crate) async fn watch(&self) -> Result<Response<Body>, ApiError> {
        let accepted = negotiate::output(self.headers)?;
        let mut options = self.query.watch(watch::random_timeout())?;
        options.name = (self.info.parts.len() == 2).then(|| self.info.name.clone());
        if !self.query.flag("watch").unwrap_or(false) {
            // The path alone says that it is one: to upstream its options are those of a list.
            self.resource.store.check_selection(&self.query.list()?)?;
            (options.send_initial_events, options.resource_version_match) = (None, None);
        }
        let events = match self.resource.store.watch(self.list_namespace(), &options).await {
            // A version that does not come is told as an event, since the answer has begun by then upstream.
            Err(error) if error.is("Timeout") && self.query.flag("sendInitialEvents").is_some() => {
                futures_util::stream::once(async { Event::Error(error) }).boxed()
            }
            events => events?,
        };
        let form = Form::of(accepted, &self.query, (self.now)())?;
        negotiate::check_streamed(accepted)?;
        let (definition, zero) = (self.resource.definition.clone(), self.resource.store.zero().clone());
        let encoder = Encoder::new(definition, zero, form, self.now);
        if let Some(upgrade) = self.upgrade.clone().filter(|_| websocket::is_requested(self.headers)) {
            let frames = Frames {
                events,
                encoder,
                end: deadline(options.timeout),
                outlasting: self.context.outlasting().clone(),
            };
            return Ok(frames.answer(self.headers, upgrade));
        }
        let body = watch::body(encoder, events);
        Ok(response::stream(accepted.media, body))
    }
}
