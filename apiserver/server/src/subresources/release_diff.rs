//! `releases/diff`: what changed from another release to this one, of the same stack or of another one of its project.
//!
//! Their recorded states are compared. Values that are sensitive are compared by what stands for them in the states, and
//! shown as everywhere; those of another stack or workspace are not compared.

use kube::ResourceExt as _;
use serde::Serialize;
use stoa_controller::memory_budget;
use stoa_engine::{
    Change, Changes, State, document,
    render::{Colour, render_changes},
    spec::FILE,
};
use stoa_kinds::{errors, lookup, release};
use stoa_machinery::{
    ApiError, RequestContext, content,
    definition::{SubresourceCall, SubresourceResponse},
    registry::ListOptions,
    status::FieldError,
};
use stoa_runs::{Services, StepError};
use stoa_types::{Release, labels, reason};

use super::{
    failure,
    format::{Format, PLAIN, bad_parameter, colour},
    non_empty,
    release_documents::{self, Document},
    stored::StoredDocument,
};

/// What it comes in besides JSON and YAML.
pub(super) const PRODUCES: &[&str] = &[PLAIN];
const FORMATS: &[Format<Diff>] = &[Format::Json, Format::Yaml, Format::Text(text, "text", PLAIN)];

/// What changed, and between which releases.
#[derive(Debug, Serialize)]
struct Diff {
    /// The release that is compared with; absent for the first one, in which everything is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Which>,
    to: Which,
    summary: Summary,
    #[serde(flatten)]
    changes: Changes,
    #[serde(skip)]
    colour: Colour,
}

/// A release.
#[derive(Debug, Serialize)]
struct Which {
    name: String,
    revision: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    commit: String,
}

/// How many resources there are of each change.
#[derive(Debug, Serialize)]
struct Summary {
    added: usize,
    changed: usize,
    removed: usize,
}

/// Query parameters: `with` is the other release, by its name or its number, else the one before is meant;
/// `format` is `json`, `yaml` or `text`; `color=true` (or `colour=true`) colours the text for a terminal.
pub(super) async fn release_diff(services: Services, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let colour = colour(&call.query)?;
    let with = non_empty(&call.query, "with").map(With::parse).transpose()?;
    let services = &services;
    let release = services.lookup.api::<Release>()?.get(&call.namespace, &call.name).await?;
    let other = match with {
        Some(with) => Some(with.find(services, &call.context, &release).await?),
        None => before(services, &release).await?,
    };
    let after = release_documents::find(services, &release, Document::State);
    let before = async {
        match &other {
            Some(other) => release_documents::find(services, other, Document::State).await.map(Some),
            None => Ok(None),
        }
    };
    let (after, before) = tokio::try_join!(after, before)?;
    // For both at once: who has room for one and waits for more would keep others waiting who do the same.
    let bytes = after.bytes().saturating_add(before.as_ref().map_or(0, StoredDocument::bytes));
    let room = memory_budget::take(&call.namespace, bytes).await?;
    let (after, room) = after.read_into(room).await?;
    let (before, room) = match before {
        Some(before) => before.read_into(room).await.map(|(before, room)| (Some(before), room))?,
        None => (None, room),
    };
    let is_of_another = other.as_ref().is_some_and(|other| !is_same_deployment(&release, other));
    let (from, to) = (other.as_ref().map(which), which(&release));
    let compare = move || {
        let after = decoded(&after, &to.name)?;
        let before = match (&from, before) {
            (Some(from), Some(before)) => decoded(&before, &from.name)?,
            _ => State::default(),
        };
        let changes = match is_of_another {
            true => Changes::across(&before, &after),
            false => Changes::between(&before, &after),
        };
        let [added, changed, removed] = [Change::Added, Change::Changed, Change::Removed].map(|it| changes.count(it));
        let summary = Summary { added, changed, removed };
        format.write(&call, &Diff { from, to, summary, changes, colour })
    };
    let (answer, room) = room.work(compare).await;
    room.until_sent(answer?).await
}

/// The other release, as a client names it.
#[derive(Debug, PartialEq)]
enum With {
    Revision(i64),
    Name(String),
}

impl With {
    /// # Errors
    ///
    /// 400 for what is neither the number nor the name of a release.
    fn parse(text: &str) -> Result<Self, ApiError> {
        if let Ok(number) = text.parse() {
            return Ok(Self::Revision(number));
        }
        match content::dns_subdomain(text).pop() {
            None => Ok(Self::Name(text.to_owned())),
            Some(wrong) => {
                let detail = format!("must be the number or the name of a release: {wrong}");
                Err(bad_parameter(&FieldError::invalid("with", text, detail)))
            }
        }
    }

    /// # Errors
    ///
    /// 404 when there is none, 422 when it is of another project than `release`, 403 when it is of another stack or workspace
    /// and the requester may not read it.
    async fn find(
        &self,
        services: &Services,
        context: &RequestContext,
        release: &Release,
    ) -> Result<Release, ApiError> {
        let spec = &release.spec;
        let name = match self {
            Self::Revision(number) => release::name(&spec.stack, &spec.workspace, *number),
            Self::Name(name) => name.clone(),
        };
        let releases = services.lookup.api::<Release>()?;
        let namespace = release.namespace().unwrap_or_default();
        // Permission for one deployment says nothing of another. It is asked for first: otherwise the answer says which
        // releases exist.
        let is_own_name = name.strip_prefix(&format!("{}.{}.", spec.stack, spec.workspace));
        if is_own_name.is_none_or(|number| number.parse::<u64>().is_err()) {
            lookup::require::<Release>(context, "get", "diff", &namespace, &name).await?;
        }
        let other = releases.get(&namespace, &name).await?;
        if let Some(why) = incomparable(release, &other) {
            let error = FieldError::invalid("with", &name, why);
            return Err(errors::invalid::<Release>(&release.name_any(), &[error]));
        }
        Ok(other)
    }
}

/// Why two releases are not compared, if they are not: those of a project's stacks are.
fn incomparable(release: &Release, other: &Release) -> Option<String> {
    let project = |of: &Release| of.labels().get(labels::PROJECT).cloned().unwrap_or_default();
    let (this, that) = (project(release), project(other));
    let is_same_stack = release.spec.stack_uid == other.spec.stack_uid;
    (this != that && !is_same_stack)
        .then(|| format!("it is of project {that:?}, and {} is of project {this:?}", release.name_any()))
}

/// Whether two releases are of one stack in one workspace.
fn is_same_deployment(release: &Release, other: &Release) -> bool {
    let of = |release: &Release| (release.spec.stack_uid.clone(), release.spec.workspace.clone());
    of(release) == of(other)
}

/// The release before this one; nothing for the first.
///
/// # Errors
///
/// 404 when the earlier ones are not kept any more.
async fn before(services: &Services, release: &Release) -> Result<Option<Release>, ApiError> {
    let spec = &release.spec;
    if spec.revision <= 1 {
        return Ok(None);
    }
    let selector = Some(format!("spec.stack={},spec.workspace={}", spec.stack, spec.workspace));
    let options = ListOptions { field_selector: selector, ..ListOptions::default() };
    let namespace = release.namespace().unwrap_or_default();
    let releases = services.lookup.api::<Release>()?.list_with(Some(&namespace), &options).await?;
    let earlier = releases.into_iter().filter(|it| it.spec.revision < spec.revision);
    let (own, others): (Vec<Release>, Vec<Release>) = earlier.partition(|it| it.spec.stack_uid == spec.stack_uid);
    if let Some(found) = own.into_iter().max_by_key(|it| it.spec.revision) {
        return Ok(Some(found));
    }
    // The first of a stack follows the last of another one that had its name.
    if others.iter().any(|it| it.spec.revision == spec.revision - 1) {
        return Ok(None);
    }
    let message = format!("no release before {} is recorded; name another one in ?with=", release.name_any());
    Err(ApiError::new(404, "NotFound", message))
}

/// The state after a release of this name, without the files of its manifests: they are not deployed.
fn decoded(kept: &[u8], release: &str) -> Result<State, ApiError> {
    let mut state: State = document::decode(kept).map_err(|error| {
        let message = format!("the state of release {release} cannot be read: {error}; {}", error.advice());
        failure(StepError::failed(reason::UNREADABLE_STATE, message))
    })?;
    for resource in &mut state.resources {
        resource.extensions.remove(FILE);
    }
    Ok(state)
}

fn which(release: &Release) -> Which {
    let spec = &release.spec;
    Which { name: release.name_any(), revision: spec.revision, commit: spec.commit.clone() }
}

fn text(diff: &Diff) -> String {
    let from = diff.from.as_ref().map_or_else(|| "nothing".to_owned(), |from| from.name.clone());
    format!("From {from} to {}:\n\n{}", diff.to.name, render_changes(&diff.changes, diff.colour))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use stoa_machinery::{
        auth::{Attributes, Authorizer, Decision},
        request::UserInfo,
    };
    use stoa_runs::testing::unreachable_runner;

    use super::*;
    use crate::testing::TestServer;

    fn release(stack: &str, uid: &str, workspace: &str, revision: i64) -> Release {
        let spec = json!({"stack": stack, "stackUID": uid, "workspace": workspace, "revision": revision, "run": "r",
            "planDigest": "", "specDigest": "", "stateDigest": ""});
        let name = format!("{stack}.{workspace}.{revision}");
        Release::new(&name, serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn the_other_release_is_a_number_or_a_name() {
        assert_eq!(With::parse("12"), Ok(With::Revision(12)));
        assert_eq!(With::parse("web.dev.1"), Ok(With::Name("web.dev.1".to_owned())));
        for malformed in ["web dev", "../web", "Web.dev.1", "1,2"] {
            let error = With::parse(malformed).unwrap_err();
            assert_eq!(error.code(), 400, "{malformed}");
            assert!(error.message().starts_with("with: Invalid value: "), "{}", error.message());
        }
    }

    fn of_project(project: &str, mut release: Release) -> Release {
        release.labels_mut().insert(labels::PROJECT.to_owned(), project.to_owned());
        release.metadata.namespace = Some("shop".to_owned());
        release
    }

    #[test]
    fn releases_of_one_project_are_compared() {
        let this = of_project("shop", release("web-stage", "u1", "stage", 2));
        for other in [
            of_project("shop", release("web-stage", "u1", "stage", 7)),
            of_project("shop", release("web-stage", "u1", "prod", 1)),
            of_project("shop", release("web-prod", "u2", "prod", 1)),
            of_project("shop", release("web-stage", "u0", "stage", 1)),
            // Somebody took its label away.
            release("web-stage", "u1", "stage", 3),
        ] {
            assert_eq!(incomparable(&this, &other), None, "{}", other.name_any());
        }
        let other = of_project("erp", release("db", "u3", "stage", 1));
        let why = "it is of project \"erp\", and web-stage.stage.2 is of project \"shop\"";
        assert_eq!(incomparable(&this, &other).as_deref(), Some(why));
        assert!(is_same_deployment(&this, &release("web-stage", "u1", "stage", 1)));
        assert!(!is_same_deployment(&this, &release("web-stage", "u1", "prod", 1)), "its digests have other keys");
        assert!(!is_same_deployment(&this, &release("web-stage", "u0", "stage", 1)), "its digests have other keys");
    }

    #[test]
    fn comparison_leaves_out_the_file_of_a_manifest() {
        let state = |folder: &str, wait: &str| {
            let extensions = json!({FILE: format!("apps/api/{folder}/web.yaml"), "stoa.dev/timeout": wait});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "api"}});
            let resource = json!({"id": "v1:ConfigMap:api:web", "type": "Kubernetes", "attributes": map,
                "extensions": extensions});
            let state: State = serde_json::from_value(json!({"resources": [resource]})).unwrap();
            decoded(&document::encode(&state), "web.dev.1").unwrap()
        };
        let stage = state("stage", "1m");
        for (other, changed) in [(state("prod", "1m"), 0), (state("prod", "2m"), 1)] {
            for changes in [Changes::across(&stage, &other), Changes::between(&stage, &other)] {
                assert_eq!((changes.count(Change::Changed), changes.unchanged), (changed, 1 - changed));
            }
        }
        let moved = Changes::across(&stage, &state("prod", "2m"));
        let paths: Vec<&str> = moved.resources[0].settings.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["extensions[stoa.dev/timeout]"]);
    }

    /// Allows nothing but the diff of releases in stage.
    #[derive(Debug)]
    struct Stage;

    #[async_trait::async_trait]
    impl Authorizer for Stage {
        async fn authorize(&self, _: &UserInfo, of: &Attributes) -> Result<Decision, ApiError> {
            let is_asked =
                (of.verb.as_str(), of.resource.as_str(), of.subresource.as_str()) == ("get", "releases", "diff");
            let is_allowed = is_asked && of.namespace == "shop" && of.name.contains(".stage.");
            Ok(if is_allowed { Decision::Allow(String::new()) } else { Decision::Deny("not there".to_owned()) })
        }
    }

    #[tokio::test]
    async fn release_of_another_deployment_needs_permission_first() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let this = of_project("shop", release("web-stage", "u1", "stage", 2));
        let others = [
            release("web-stage", "u1", "stage", 1),
            release("api-stage", "u2", "stage", 1),
            release("web-prod", "u3", "prod", 1),
        ];
        for other in others.into_iter().map(|other| of_project("shop", other)).chain([this.clone()]) {
            world.registry.api::<Release>().create(&other).await.unwrap();
        }
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        let context = RequestContext::new(user, Arc::new(Stage));
        let find = async |with: &str| {
            let found = With::parse(with).unwrap().find(&world.services, &context, &this).await;
            found.map(|found| found.name_any()).map_err(|error| error.code())
        };
        assert_eq!(find("1").await, Ok("web-stage.stage.1".to_owned()));
        assert_eq!(find("web-stage.stage.9").await, Err(404));
        assert_eq!(find("api-stage.stage.1").await, Ok("api-stage.stage.1".to_owned()));
        assert_eq!(find("web-prod.prod.1").await, Err(403));
        assert_eq!(find("web-prod.prod.9").await, Err(403), "nobody learns which releases there are");
    }
}
