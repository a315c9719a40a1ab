//! Reviews (`authentication.k8s.io`, `authorization.k8s.io`), for servers without a kube-apiserver in front of them.
//!
//! Start at [`register_reviews`]. `kubectl auth whoami` and `kubectl auth can-i` ask these. What is permitted is
//! decided by the authorizer of the request, so that the answer is what a request would meet.
//!
//! Follows `pkg/registry/authorization` and `pkg/registry/authentication` of `k8s.io/kubernetes`.

use std::{fmt::Debug, marker::PhantomData, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::{
    api::{
        authentication::v1::{SelfSubjectReview, SelfSubjectReviewStatus, UserInfo as Subject},
        authorization::v1::{
            LocalSubjectAccessReview, NonResourceAttributes, NonResourceRule, ResourceAttributes, ResourceRule,
            SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview, SubjectAccessReviewSpec,
            SubjectAccessReviewStatus, SubjectRulesReviewStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use stoa_meta::{
    authorizer::{Attributes, Decision},
    definition::{CreateHandler, ResourceDefinition},
    object::Object,
    request::{RequestContext, UserInfo},
    status::{ApiError, FieldError, FieldErrors},
};
use stoa_registry::{registry::RegistryBuilder, strategy::DefaultStrategy};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Registers SelfSubjectReview of `authentication.k8s.io/v1`, and the four reviews of `authorization.k8s.io/v1`.
#[must_use]
pub fn register_reviews(mut builder: RegistryBuilder) -> RegistryBuilder {
    macro_rules! register {
        ($($kind:ty),*) => {$(
            let definition = ResourceDefinition::built_in::<$kind>().reads_protobuf::<$kind>();
            let definition = definition.ephemeral(Arc::new(Reviewer::<$kind>(PhantomData)));
            builder = builder.register(definition, DefaultStrategy::<$kind>::default());
        )*};
    }
    register!(
        SelfSubjectReview,
        SelfSubjectAccessReview,
        SelfSubjectRulesReview,
        SubjectAccessReview,
        LocalSubjectAccessReview
    );
    builder
}

/// A question that is its own answer once its status is filled in.
#[async_trait]
trait Review: k8s_openapi::Resource + Serialize + DeserializeOwned + std::fmt::Debug + Send + 'static {
    async fn answer(self, context: &RequestContext) -> Result<Self, ApiError>;
}

#[derive(Debug)]
struct Reviewer<K>(PhantomData<fn() -> K>);

#[async_trait]
impl<K: Review> CreateHandler for Reviewer<K> {
    async fn create(&self, context: &RequestContext, object: Object) -> Result<Object, ApiError> {
        let review: K = object.to_typed().map_err(|error| ApiError::bad_request(error.to_string()))?;
        Object::from_typed(&review.answer(context).await?).map_err(ApiError::internal)
    }
}

#[async_trait]
impl Review for SelfSubjectReview {
    async fn answer(self, context: &RequestContext) -> Result<Self, ApiError> {
        let UserInfo { name, uid, groups, extra } = context.user.clone();
        let some = |text: String| (!text.is_empty()).then_some(text);
        let user_info = Subject {
            username: some(name),
            uid: some(uid),
            groups: (!groups.is_empty()).then_some(groups),
            extra: (!extra.is_empty()).then_some(extra),
        };
        let now = jiff::Timestamp::now();
        let metadata = ObjectMeta { creation_timestamp: Some(Time(now)), ..ObjectMeta::default() };
        Ok(Self { metadata, status: Some(SelfSubjectReviewStatus { user_info: Some(user_info) }) })
    }
}

#[async_trait]
impl Review for SelfSubjectAccessReview {
    async fn answer(mut self, context: &RequestContext) -> Result<Self, ApiError> {
        let asked = ReviewSubject {
            resource: self.spec.resource_attributes.as_ref(),
            path: self.spec.non_resource_attributes.as_ref(),
        };
        let mut errors = FieldErrors::default();
        asked.check(&mut errors);
        errors.extend(not_empty(&self.metadata, "must be empty"));
        refuse(errors)?;
        self.status = Some(asked.decide(context, &context.user).await);
        Ok(self)
    }
}

#[async_trait]
impl Review for SubjectAccessReview {
    async fn answer(mut self, context: &RequestContext) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::default();
        check_spec(&self.spec, &mut errors);
        errors.extend(not_empty(&self.metadata, "must be empty"));
        refuse(errors)?;
        self.status = Some(asked(&self.spec).decide(context, &subject(&self.spec)).await);
        Ok(self)
    }
}

#[async_trait]
impl Review for LocalSubjectAccessReview {
    async fn answer(mut self, context: &RequestContext) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::default();
        check_spec(&self.spec, &mut errors);
        let namespace = self.metadata.namespace.clone().unwrap_or_default();
        let others = ObjectMeta { namespace: None, ..self.metadata.clone() };
        errors.extend(not_empty(&others, "must be empty except for namespace"));
        let asked = asked(&self.spec);
        if let Some(resource) = asked.resource.filter(|resource| text(&resource.namespace) != namespace) {
            let field = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(field, text(&resource.namespace), "must match metadata.namespace"));
        }
        if let Some(path) = asked.path {
            errors.push(wrong_path(path, "disallowed on this kind of request"));
        }
        refuse(errors)?;
        self.status = Some(asked.decide(context, &subject(&self.spec)).await);
        Ok(self)
    }
}

#[async_trait]
impl Review for SelfSubjectRulesReview {
    /// An authorizer decides about one request at a time; whoever may everything is told so, and of others the list is
    /// incomplete.
    async fn answer(self, context: &RequestContext) -> Result<Self, ApiError> {
        let Some(namespace) = self.spec.namespace.clone().filter(|namespace| !namespace.is_empty()) else {
            return Err(ApiError::bad_request("no namespace on request"));
        };
        let any = || "*".to_owned();
        let resources = Attributes {
            verb: any(),
            group: any(),
            version: any(),
            resource: any(),
            namespace,
            ..Attributes::default()
        };
        let paths = Attributes { verb: any(), path: any(), ..Attributes::default() };
        let may = async |attributes: &Attributes| {
            let decision = context.authorizer.authorize(&context.user, attributes).await?;
            Ok::<bool, ApiError>(decision.is_allowed())
        };
        let every = || Some(vec![any()]);
        let resource_rule =
            ResourceRule { verbs: vec![any()], api_groups: every(), resources: every(), resource_names: None };
        let path_rule = NonResourceRule { verbs: vec![any()], non_resource_urls: every() };
        let (resources, paths) = (may(&resources).await?, may(&paths).await?);
        let status = SubjectRulesReviewStatus {
            incomplete: !(resources && paths),
            resource_rules: resources.then_some(resource_rule).into_iter().collect(),
            non_resource_rules: paths.then_some(path_rule).into_iter().collect(),
            evaluation_error: None,
        };
        // Upstream answers with the rules alone.
        Ok(Self { status: Some(status), ..Self::default() })
    }
}

#[derive(Clone, Copy)]
struct ReviewSubject<'a> {
    resource: Option<&'a ResourceAttributes>,
    path: Option<&'a NonResourceAttributes>,
}

fn asked(spec: &SubjectAccessReviewSpec) -> ReviewSubject<'_> {
    ReviewSubject { resource: spec.resource_attributes.as_ref(), path: spec.non_resource_attributes.as_ref() }
}

impl ReviewSubject<'_> {
    /// Something has to be asked about, and nothing else.
    fn check(self, errors: &mut FieldErrors) {
        match (self.resource, self.path) {
            (Some(_), Some(path)) => {
                errors.push(wrong_path(path, "cannot be specified in combination with resourceAttributes"));
            }
            (None, None) => errors.push(FieldError::invalid(
                "spec.resourceAttributes",
                Value::Null,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )),
            (Some(_), None) | (None, Some(_)) => {}
        }
    }

    /// Selectors are left out of the question, which then asks for more.
    async fn decide(self, context: &RequestContext, user: &UserInfo) -> SubjectAccessReviewStatus {
        let attributes = match (self.resource, self.path) {
            (Some(resource), _) => Attributes {
                verb: text(&resource.verb),
                group: text(&resource.group),
                version: resource.version.clone().filter(|version| !version.is_empty()).unwrap_or("*".to_owned()),
                resource: text(&resource.resource),
                subresource: text(&resource.subresource),
                namespace: text(&resource.namespace),
                name: text(&resource.name),
                ..Attributes::default()
            },
            (None, path) => Attributes {
                verb: path.map(|path| text(&path.verb)).unwrap_or_default(),
                path: path.map(|path| text(&path.path)).unwrap_or_default(),
                ..Attributes::default()
            },
        };
        let decided = context.authorizer.authorize(user, &attributes).await;
        let some = |text: String| (!text.is_empty()).then_some(text);
        let mut status = SubjectAccessReviewStatus::default();
        match decided {
            Ok(Decision::Allow(reason)) => (status.allowed, status.reason) = (true, some(reason)),
            Ok(Decision::Deny(reason)) => status.reason = some(reason),
            Err(error) => status.evaluation_error = some(error.to_string()),
        }
        status
    }
}

fn subject(spec: &SubjectAccessReviewSpec) -> UserInfo {
    UserInfo {
        name: text(&spec.user),
        uid: text(&spec.uid),
        groups: spec.groups.clone().unwrap_or_default(),
        extra: spec.extra.clone().unwrap_or_default(),
    }
}

fn check_spec(spec: &SubjectAccessReviewSpec, errors: &mut FieldErrors) {
    asked(spec).check(errors);
    if text(&spec.user).is_empty() && spec.groups.as_ref().is_none_or(Vec::is_empty) {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
}

/// A path that may not be asked about, as upstream's own type shows it.
fn wrong_path(path: &NonResourceAttributes, detail: &str) -> FieldError {
    let shown = json!({ "Path": text(&path.path), "Verb": text(&path.verb) });
    FieldError::invalid("spec.nonResourceAttributes", shown, detail)
}

fn not_empty(metadata: &ObjectMeta, detail: &str) -> Option<FieldError> {
    // Who owns what is tracked of any object that is sent.
    let sent = ObjectMeta { managed_fields: None, ..metadata.clone() };
    (sent != ObjectMeta::default()).then(|| FieldError::invalid("metadata", metadata, detail))
}

/// Upstream has forgotten the kind by then.
fn refuse(errors: FieldErrors) -> Result<(), ApiError> {
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(AUTHORIZATION, "", "", &errors.into_vec())) }
}

fn text(field: &Option<String>) -> String {
    field.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::http::{ApiHandler, RequestInfo, body};
    use stoa_log::MemoryLog;
    use stoa_meta::authorizer::{AllowAll, Authorizer};
    use stoa_registry::registry::Registry;

    /// Members of `dev` may list; everybody may get `/version`.
    #[derive(Debug)]
    struct Listers;

    #[async_trait]
    impl Authorizer for Listers {
        async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
            match (attributes.verb.as_str(), attributes.path.as_str()) {
                ("list", _) if user.in_group("dev") => Ok(Decision::Allow(String::new())),
                ("get", "/version") => Ok(Decision::Allow(String::new())),
                ("fail", _) => Err(ApiError::internal("no decision")),
                _ => Ok(Decision::Deny("not a lister".to_owned())),
            }
        }
    }

    async fn ask<K: Review>(spec: Value) -> Result<Value, ApiError> {
        let user = UserInfo { name: "ann".to_owned(), groups: vec!["dev".to_owned()], ..UserInfo::default() };
        let context = RequestContext::new(user, Arc::new(Listers));
        let object = json!({"metadata": {}, "spec": spec});
        let Value::Object(object) = object else { unreachable!() };
        let answer = Reviewer::<K>(PhantomData).create(&context, Object(object)).await?;
        Ok(answer.0["status"].clone())
    }

    #[tokio::test]
    async fn self_review_matches_request_authorization() {
        let status =
            ask::<SelfSubjectAccessReview>(json!({"resourceAttributes": {"verb": "list", "resource": "x"}})).await;
        assert_eq!(status.unwrap(), json!({"allowed": true}));
        let status =
            ask::<SelfSubjectAccessReview>(json!({"resourceAttributes": {"verb": "get", "resource": "x"}})).await;
        assert_eq!(status.unwrap(), json!({"allowed": false, "reason": "not a lister"}));
        let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}});
        assert_eq!(ask::<SelfSubjectAccessReview>(path).await.unwrap(), json!({"allowed": true}));
        let failing = json!({"resourceAttributes": {"verb": "fail"}});
        let status = ask::<SelfSubjectAccessReview>(failing).await.unwrap();
        assert_eq!(status["allowed"], false);
        assert!(status["evaluationError"].is_string());
    }

    #[tokio::test]
    async fn others_are_asked_about_with_their_groups() {
        let of = |groups: Value| json!({"user": "bob", "groups": groups, "resourceAttributes": {"verb": "list"}});
        assert_eq!(ask::<SubjectAccessReview>(of(json!(["dev"]))).await.unwrap()["allowed"], true);
        assert_eq!(ask::<SubjectAccessReview>(of(json!(["ops"]))).await.unwrap()["allowed"], false);
    }

    #[tokio::test]
    async fn questions_about_nothing_or_nobody_are_refused() {
        let refusal = |outcome: Result<Value, ApiError>| outcome.unwrap_err().message().to_owned();
        let neither = ask::<SelfSubjectAccessReview>(json!({})).await.unwrap_err();
        assert_eq!(
            neither.message(),
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of \
             nonResourceAttributes or resourceAttributes must be specified"
        );
        assert_eq!(neither.0.details.unwrap().kind, None);
        let path = json!({"verb": "get", "path": "/x"});
        let both = json!({"resourceAttributes": {"verb": "list"}, "nonResourceAttributes": path});
        assert!(refusal(ask::<SelfSubjectAccessReview>(both).await).ends_with(
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in \
             combination with resourceAttributes"
        ));
        let nobody = json!({"resourceAttributes": {"verb": "list"}});
        assert!(
            refusal(ask::<SubjectAccessReview>(nobody).await)
                .ends_with("at least one of user or group must be specified")
        );
        let elsewhere = json!({"user": "bob", "resourceAttributes": {"verb": "list", "namespace": "shop"}});
        assert!(refusal(ask::<LocalSubjectAccessReview>(elsewhere).await).ends_with("must match metadata.namespace"));
        assert_eq!(refusal(ask::<SelfSubjectRulesReview>(json!({})).await), "no namespace on request");
    }

    #[tokio::test]
    async fn rules_are_incomplete_where_one_may_not_do_everything() {
        let status = ask::<SelfSubjectRulesReview>(json!({"namespace": "shop"})).await.unwrap();
        assert_eq!(status, json!({"incomplete": true, "nonResourceRules": [], "resourceRules": []}));
    }

    /// What a server answers to a review, or the code and message of its refusal.
    async fn create<K: Review>(plural: &str, review: Value) -> Result<Value, (u16, String)> {
        let registry = register_reviews(Registry::builder(Arc::new(MemoryLog::new()))).build().await.unwrap();
        let (group, version) = (K::GROUP, K::VERSION);
        let store = registry.store(group, version, plural).unwrap();
        let mut context = RequestContext::new(UserInfo::default(), Arc::new(AllowAll));
        context.field_manager = "test".to_owned();
        let Value::Object(review) = review else { unreachable!() };
        let answer = store.answer_ephemeral(&context, Object(review), &Reviewer::<K>(PhantomData)).await;
        answer
            .map(|stored| Value::Object(stored.object().0))
            .map_err(|error| (error.code(), error.message().to_owned()))
    }

    #[tokio::test]
    async fn review_rejects_user_metadata() {
        let review = |metadata: Value| {
            json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": metadata,
                "spec": {"resourceAttributes": {"verb": "list", "resource": "x"}},
            })
        };
        let ask = async |metadata: Value| {
            create::<SelfSubjectAccessReview>("selfsubjectaccessreviews", review(metadata)).await
        };
        for empty in [
            json!({}),
            json!({"name": "", "labels": {}, "finalizers": [], "generation": 0, "namespace": null}),
            json!({"uid": "x", "creationTimestamp": "2026-01-01T00:00:00Z", "selfLink": "x"}),
        ] {
            let answer = ask(empty).await.unwrap();
            assert_eq!(answer["status"], json!({"allowed": true}));
            let fields: Vec<&String> = answer["metadata"].as_object().unwrap().keys().collect();
            assert_eq!(fields, ["managedFields"]);
        }
        for (metadata, shown) in
            [(json!({"name": "x"}), r#""name":"x"}"#), (json!({"labels": {"a": "b"}}), r#""labels":{"a":"b"}"#)]
        {
            let (code, message) = ask(metadata).await.unwrap_err();
            let said = message.contains("metadata: Invalid value: {") && message.ends_with("}: must be empty");
            assert!(code == 422 && said && message.contains(shown), "{message}");
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_told_by_the_review_itself() {
        let neither = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        for review in [json!({}), json!({"spec": null}), json!({"spec": {}})] {
            let (code, message) =
                create::<SelfSubjectAccessReview>("selfsubjectaccessreviews", review.clone()).await.unwrap_err();
            assert!(code == 422 && message.ends_with(neither), "{review}: {message}");
            let (code, message) = create::<SubjectAccessReview>("subjectaccessreviews", review).await.unwrap_err();
            assert!(code == 422 && message.contains(neither) && message.contains("spec.user"), "{message}");
        }
        let answer = create::<SelfSubjectRulesReview>("selfsubjectrulesreviews", json!({})).await;
        assert_eq!(answer, Err((400, "no namespace on request".to_owned())));
    }

    #[tokio::test]
    async fn an_answer_may_have_no_metadata_at_all() {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {},
            "spec": {"namespace": "shop"},
        });
        let answer = create::<SelfSubjectRulesReview>("selfsubjectrulesreviews", review).await.unwrap();
        assert_eq!(answer["metadata"], json!({}));
        assert_eq!(answer["status"]["incomplete"], false);
    }

    #[tokio::test]
    async fn server_rejects_unknown_media_type_before_reading() {
        let registry = register_reviews(Registry::builder(Arc::new(MemoryLog::new()))).build().await.unwrap();
        let handler = ApiHandler::new(&registry);
        let send = async |media: &str| {
            let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                .header("content-type", media)
                .body(body::full(vec![0; body::MAX_REQUEST_BYTES + 1]))
                .unwrap();
            let info = RequestInfo::new(request.method(), request.uri());
            let context = RequestContext::new(UserInfo::default(), Arc::new(AllowAll));
            handler.handle(info, context, request).await.status().as_u16()
        };
        assert_eq!(send("application/cbor").await, 415);
        assert_eq!(send("application/vnd.kubernetes.protobuf").await, 413);
    }

    /// Says which selectors it is asked with.
    #[derive(Debug)]
    struct Selecting;

    #[async_trait]
    impl Authorizer for Selecting {
        async fn authorize(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
            Ok(Decision::Deny(format!("{}; {}", attributes.field_selector, attributes.label_selector)))
        }
    }

    #[tokio::test]
    async fn selectors_are_left_out_of_the_question() {
        let requirements = json!({"requirements": [{"key": "env", "operator": "In", "values": ["a", "b"]}]});
        let fields = json!({"rawSelector": "spec.a=b"});
        let attributes = json!({"verb": "list", "fieldSelector": fields, "labelSelector": requirements});
        let review = json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
        let context = RequestContext::new(UserInfo::default(), Arc::new(Selecting));
        let Value::Object(review) = review else { unreachable!() };
        let answer = Reviewer::<SelfSubjectAccessReview>(PhantomData).create(&context, Object(review)).await.unwrap();
        assert_eq!(answer.0["status"], json!({"allowed": false, "reason": "; "}));
    }
}
