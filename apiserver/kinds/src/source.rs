//! Source: the address of a Git repository, an artifact or a chart, without credentials.

mod verification;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    object::Object,
    registry::ListOptions,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_pulls::{Address, InvalidAddress};
use stoa_types::{
    Project, Source,
    common::ChangedBy,
    config::{
        ObservedVersion, PlannedPullRequest, PullRequestPlans, SourcePackage, SourceProvider, SourceSpec,
        SourceVerification,
    },
    porchconfig::Repository,
};

use super::{
    changes,
    lookup::{self, Lookup, require_host, require_secret},
    readiness, ready, references, trigger, workspace,
};
use crate::{
    cluster::{self, Cluster},
    errors,
    kind::{InGit, Kind, Surroundings},
    package_names,
    rights::{DEVELOPED, MEMBERS, OBJECTS, OWNED, PUSHED, READ, READERS, right},
    validation,
};

/// The kind Source.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, .. }| {
        builder.register(definition, SourceStrategy { lookup, cluster })
    },
    in_git: Some(InGit {
        removal_waits_for_references: true,
        ..InGit::at("organizations/{namespace}/sources/{name}.yaml")
    }),
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), DEVELOPED, OWNED, PUSHED],
    ..Kind::of::<Source>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Source>()
        .columns(&[
            Column::new("Provider", Cell::Path(&["spec", "provider"]), "The protocol of the repository."),
            Column::new("Remote", Cell::Compute(remote), "The address of the repository, or the package."),
            Column::new("Ref", Cell::Path(&["spec", "ref"]), "The ref that version latest stands for."),
            Column::new(
                "Commit",
                Cell::Compute(|o| short(o.get_path(&["status", "observedCommit"]))),
                "The commit or digest of the ref at the last fetch.",
            ),
            ready::status("Whether the repository is readable."),
            Column::age(),
            ready::reason(),
            ready::message(),
        ])
        .selectable(&[
            SelectableField { name: "spec.remote", path: &["spec", "remote"] },
            SelectableField { name: "spec.package.repository", path: &["spec", "package", "repository"] },
            SelectableField { name: "spec.package.name", path: &["spec", "package", "name"] },
        ])
}

/// The address of the repository; for a package, its Repository and path.
fn remote(source: &Object) -> Value {
    let text = |path: &[&str]| source.get_path(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    match text(&["spec", "package", "name"]) {
        name if name.is_empty() => text(&["spec", "remote"]).into(),
        name => format!("{}/{name}", text(&["spec", "package", "repository"])).into(),
    }
}

/// The first characters of a commit or digest, for a column.
pub fn short(commit: Option<&serde_json::Value>) -> serde_json::Value {
    commit.and_then(|c| c.as_str()).map_or(serde_json::Value::Null, |commit| short_revision(commit).into())
}

/// The first digits of a commit or digest, as people write it.
pub fn short_revision(revision: &str) -> &str {
    let digits = revision.strip_prefix(readiness::DIGEST).unwrap_or(revision);
    digits.get(..8).unwrap_or(digits)
}

/// The page of a commit: `<remote>/commit/<commit>`, as Gitea, Forgejo, GitHub and GitLab have it. None where a browser cannot
/// open the remote, or where its address may hold a credential.
pub fn commit_page(source: &SourceSpec, commit: &str) -> Option<String> {
    let is_web = ["http://", "https://"].iter().any(|scheme| source.remote.starts_with(scheme));
    let is_open = is_web && !source.remote.contains(['@', '?']);
    let is_page = is_open && source.provider == SourceProvider::Git && !commit.is_empty();
    let repository = source.remote.trim_end_matches('/');
    let repository = repository.strip_suffix(".git").unwrap_or(repository);
    is_page.then(|| format!("{repository}/commit/{commit}"))
}

#[derive(Debug)]
pub(crate) struct SourceStrategy {
    pub lookup: Lookup,
    pub cluster: Arc<dyn Cluster>,
}

impl SourceStrategy {
    /// Refuses a second source of the same repository in a namespace.
    async fn refuse_second(&self, source: &Source) -> Result<(), ApiError> {
        let (namespace, name) = (source.namespace().unwrap_or_default(), source.name_any());
        let same = |other: Source| {
            let is_same = repository(&other) == repository(source) && other.name_any() != name;
            let made = other.metadata.creation_timestamp.clone().map(|time| time.0);
            is_same.then(|| (made, other.name_any()))
        };
        let sources = self.lookup.api::<Source>()?;
        let mut same = sources.list_of(Some(&namespace), &ListOptions::default(), same).await?;
        same.sort();
        let Some((_, first)) = same.into_iter().next() else { return Ok(()) };
        let message = format!("source {first:?} has the same repository: refer to that one instead");
        // The value is left out of the message, because it may hold what should not be shown.
        let error = FieldError::forbidden("spec.remote", message);
        Err(errors::invalid::<Source>(&name, &[error]))
    }

    /// Refuses to delete a source that projects refer to, unless their namespace is deleted with all that is in it.
    async fn refuse_while_used(&self, source: &Source) -> Result<(), ApiError> {
        let (namespace, name) = (source.namespace().unwrap_or_default(), source.name_any());
        let Some(users) = references::projects_of_source(&self.lookup, &namespace, &name).await? else {
            return Ok(());
        };
        if cluster::is_emptied(&*self.cluster, &namespace).await? {
            return Ok(());
        }
        let why = format!("it is the source of {users}; delete what refers to it first");
        Err(errors::conflict::<Source>(&name, why))
    }
}

/// The repository of a source, which another source of the namespace may not have.
fn repository(source: &Source) -> (SourceProvider, &str, &str, Option<&SourcePackage>) {
    (source.spec.provider, canonical(&source.spec.remote), &source.spec.chart, source.spec.package.as_ref())
}

/// The address of a repository without what makes no difference: `/` and `.git` at its end.
fn canonical(remote: &str) -> &str {
    let remote = remote.trim_end_matches('/');
    remote.strip_suffix(".git").unwrap_or(remote).trim_end_matches('/')
}

/// Finds what is wrong with the address of an artifact or chart, and with fields that only one provider has.
fn artifact(spec: &SourceSpec, errors: &mut Vec<FieldError>) {
    let SourceSpec { provider, remote, chart, webhook, pull_requests, .. } = spec;
    let is_repository = remote.strip_prefix("oci://").is_some_and(validation::is_oci_repository);
    // The value is left out of the messages, because it may hold credentials.
    let mut refuse_remote = |message: &str| errors.push(FieldError::forbidden("spec.remote", message));
    match provider {
        SourceProvider::Oci if !is_repository => {
            refuse_remote("must be oci://HOST[:PORT]/NAME in lower case, without tag or digest; spec.ref has these");
        }
        SourceProvider::Helm if remote.starts_with("oci://") && !is_repository => {
            refuse_remote("must be oci://HOST[:PORT]/NAME in lower case, to which spec.chart is added");
        }
        SourceProvider::Helm if !remote.starts_with("oci://") => {
            let example = "https://charts.example.com";
            if let Some(uri) = validation::service_url("spec.remote", remote, example, "use secretRef", errors) {
                validation::not_in_clear("spec.remote", remote, &uri, errors);
            }
        }
        SourceProvider::Git | SourceProvider::Oci | SourceProvider::Helm | SourceProvider::Package => {}
    }
    match (provider, chart.as_str()) {
        (SourceProvider::Helm, "") => errors.push(FieldError::required("spec.chart", "must be the name of a chart")),
        (SourceProvider::Helm, chart) => {
            let is_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
            if !chart.starts_with(|it: char| it.is_ascii_alphanumeric()) || !chart.chars().all(is_name) {
                let message = "must be the name of a chart: letters, digits, '.', '_' and '-'";
                errors.push(FieldError::invalid("spec.chart", chart, message));
            }
        }
        (SourceProvider::Git | SourceProvider::Oci | SourceProvider::Package, "") => {}
        (SourceProvider::Git | SourceProvider::Oci | SourceProvider::Package, _) => {
            errors.push(FieldError::forbidden("spec.chart", "may only be set with provider Helm"));
        }
    }
    if *provider != SourceProvider::Git {
        for (path, is_set) in [("spec.webhook", webhook.is_some()), ("spec.pullRequests", pull_requests.is_some())] {
            if is_set {
                errors.push(FieldError::forbidden(path, "may only be set with provider Git"));
            }
        }
    }
}

/// Finds errors in a source that is a package, and in the fields of packages for other providers.
fn package(spec: &SourceSpec, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.package";
    let is_package = spec.provider == SourceProvider::Package;
    match &spec.package {
        None if is_package => errors.push(FieldError::required(PATH, "must name a package of a Repository")),
        Some(_) if !is_package => {
            errors.push(FieldError::forbidden(PATH, "may only be set with provider Package"));
        }
        Some(SourcePackage { repository, name }) => {
            if repository.is_empty() {
                errors.push(FieldError::required(format!("{PATH}.repository"), "must name a Repository"));
            }
            package_names::package(&format!("{PATH}.name"), name, errors);
        }
        None => {}
    }
    if !is_package {
        return;
    }
    for (path, is_set) in [
        ("spec.remote", !spec.remote.is_empty()),
        ("spec.secretRef", spec.secret_ref.is_some()),
        ("spec.verify", spec.verify.is_some()),
    ] {
        if is_set {
            errors
                .push(FieldError::forbidden(path, "may not be set with provider Package; the Repository has its own"));
        }
    }
}

/// Requires that the requester may read the Repository of a package, whose Secret the source uses.
///
/// # Errors
///
/// 403 that names the Repository.
async fn require_package(context: &RequestContext, source: &Source) -> Result<(), ApiError> {
    let Some(package) = &source.spec.package else { return Ok(()) };
    let namespace = source.namespace().unwrap_or_default();
    lookup::require::<Repository>(context, "get", "", &namespace, &package.repository).await
}

/// Where the pull requests of a source's repository are.
///
/// # Errors
///
/// [`InvalidAddress`], which `validate` refuses.
pub fn pull_requests_at(spec: &SourceSpec, plans: &PullRequestPlans) -> Result<Address, InvalidAddress> {
    Address::new(workspace::provider(plans.provider), &spec.remote, Some(&plans.url))
}

/// Finds what is wrong with where the pull requests are.
fn pull_requests(spec: &SourceSpec, plans: &PullRequestPlans, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.pullRequests";
    let url = format!("{PATH}.url");
    // The values are left out of the messages, because they may hold what should not be shown.
    match pull_requests_at(spec, plans) {
        // Whoever writes sources is to reach nothing beside the server by it, unless they may: see `require_host_of_pulls`.
        Ok(_) if plans.url.to_ascii_lowercase().starts_with("http:") => {
            errors.push(FieldError::forbidden(url, "must be https"));
        }
        Ok(_) => {}
        Err(error @ InvalidAddress::Unnamed) => {
            let message = format_args!("{error}, which spec.pullRequests needs");
            errors.push(FieldError::forbidden("spec.remote", message));
        }
        Err(error @ InvalidAddress::NoServer) => errors.push(FieldError::required(url, error.to_string())),
        Err(error @ (InvalidAddress::Url | InvalidAddress::InClear)) => {
            errors.push(FieldError::forbidden(url, error));
        }
    }
    if let Some(secret) = &plans.secret_ref {
        validation::secret_beside(&format!("{PATH}.secretRef"), secret, errors);
    }
}

/// Requires what it takes to have the server ask for pull requests at another host than the repository's, or ask itself: whoever
/// writes sources need not reach what it reaches, least of all what listens on its loopback.
///
/// # Errors
///
/// 403 that names the verb and the host.
async fn require_host_of_pulls(context: &RequestContext, source: &Source) -> Result<(), ApiError> {
    let Some(plans) = &source.spec.pull_requests else { return Ok(()) };
    // One that leads nowhere is refused by `validate`.
    let address = pull_requests_at(&source.spec, plans).ok();
    match address.and_then(|address| address.own_host().or_else(|| address.other_host())) {
        Some(host) => require_host(context, &source.namespace().unwrap_or_default(), &host).await,
        None => Ok(()),
    }
}

/// Whoever decides which server is shown the keys in a Secret could read them there: it takes leave to use it.
///
/// # Errors
///
/// 403 that names the Secret.
async fn require_secrets(context: &RequestContext, source: &Source) -> Result<(), ApiError> {
    let namespace = source.namespace().unwrap_or_default();
    let of_pulls = source.spec.pull_requests.as_ref().and_then(|plans| plans.secret_ref.as_ref());
    let of_keys = source.spec.verify.as_ref().and_then(|verify| verify.secret_ref.as_ref());
    for secret in source.spec.secret_ref.iter().chain(of_pulls).chain(of_keys) {
        require_secret(context, &namespace, &secret.name).await?;
    }
    if let Some(keys) = source.spec.verify.as_ref().and_then(|verify| verify.config_map_ref.as_ref()) {
        lookup::require_get(context, ("", "configmaps"), &namespace, &keys.name).await?;
    }
    Ok(())
}

/// What decides where a source leads.
fn leads(source: &Source) -> Leads<'_> {
    let SourceSpec { provider, remote, chart, reference, pull_requests, verify, package, .. } = &source.spec;
    let (repository, name) = package.as_ref().map_or(("", ""), |package| (&*package.repository, &*package.name));
    (*provider, [remote, chart, reference, repository, name], pull_requests.as_ref(), verify.as_ref())
}

/// The provider, the names of the repository and its package, the server of its pull requests, and the keys of its commits.
type Leads<'s> = (SourceProvider, [&'s str; 5], Option<&'s PullRequestPlans>, Option<&'s SourceVerification>);

/// What was found in a source, and who set where it leads.
#[derive(PartialEq)]
struct Observed<'s> {
    commit: Option<&'s str>,
    merges_known_at: Option<&'s str>,
    versions: &'s [ObservedVersion],
    pull_requests: &'s [PlannedPullRequest],
    set_by: Option<&'s str>,
    changed_by: &'s [ChangedBy],
}

fn observed(source: &Source) -> Observed<'_> {
    let status = source.status.as_ref();
    Observed {
        commit: status.and_then(|status| status.observed_commit.as_deref()),
        merges_known_at: status.and_then(|status| status.merges_known_at.as_deref()),
        versions: status.map_or(&[], |status| &status.versions),
        pull_requests: status.map_or(&[], |status| &status.pull_requests),
        set_by: status.map(|status| status.set_by.as_str()).filter(|set_by| !set_by.is_empty()),
        changed_by: status.map_or(&[], |status| &status.changed_by),
    }
}

#[async_trait]
impl Strategy for SourceStrategy {
    type Object = Source;

    fn prepare_for_create(&self, context: &RequestContext, object: &mut Source) {
        // What is followed already leads elsewhere by now: whoever deletes a source and makes another has that decided.
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        if !self.lookup.cached_keys::<Project>(&namespace, "spec.source.name", &name).is_empty() {
            let status = object.status.get_or_insert_default();
            changes::note(context, &mut status.set_by, &mut status.changed_by);
        }
    }

    fn prepare_for_update(&self, context: &RequestContext, new: &mut Source, old: &Source) {
        if leads(new) != leads(old) {
            let status = new.status.get_or_insert_default();
            changes::note(context, &mut status.set_by, &mut status.changed_by);
        }
    }

    fn validate(&self, object: &Source) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object.spec;
        validation::subjects("spec.owners", &spec.owners, &mut errors);
        if spec.provider != SourceProvider::Package {
            validation::repository_address("spec.remote", &spec.remote, &mut errors);
        }
        package(spec, &mut errors);
        artifact(spec, &mut errors);
        if let Some(secret) = &spec.secret_ref {
            validation::secret_beside("spec.secretRef", secret, &mut errors);
        }
        if let Some(verify) = &spec.verify {
            verification::validate(spec, verify, &mut errors);
        }
        if let Some(webhook) = &spec.webhook {
            validation::secret_beside("spec.webhook.secretRef", &webhook.secret_ref, &mut errors);
        }
        if let Some(plans) = &spec.pull_requests {
            // Their runs have it as a label.
            if object.name_any().len() > 63 {
                let detail = "must be no more than 63 characters where pullRequests is set";
                errors.push(FieldError::invalid("metadata.name", object.name_any(), detail));
            }
            pull_requests(spec, plans, &mut errors);
        }
        validation::duration(
            "spec.pollInterval",
            &spec.poll_interval,
            Duration::from_secs(1)..=Duration::from_secs(24 * 3600),
            &mut errors,
        );
        errors
    }

    fn validate_create(&self, context: &RequestContext, object: &Source) -> Vec<FieldError> {
        let mut errors = Vec::new();
        // The repository is the record: what it has from before this rule is made again of it.
        if !validation::is_pushed(context) {
            validation::new_repository_address("spec.remote", &object.spec.remote, &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Source, old: &Source) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if new.spec.remote != old.spec.remote {
            validation::new_repository_address("spec.remote", &new.spec.remote, &mut errors);
        }
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Source>) -> Result<(), ApiError> {
        match change {
            Admission::Create(source) => {
                require_host_of_pulls(context, source).await?;
                require_secrets(context, source).await?;
                require_package(context, source).await?;
                trigger::require_of_source(&self.lookup, context, source).await?;
                // The repository is the record: what it has from before this rule is made again of it.
                if validation::is_restored(context) { Ok(()) } else { self.refuse_second(source).await }
            }
            Admission::Update { new, old, subresource: "" } => {
                let leads_elsewhere = leads(new) != leads(old);
                if leads_elsewhere || new.spec.secret_ref != old.spec.secret_ref {
                    require_secrets(context, new).await?;
                }
                if leads_elsewhere {
                    require_package(context, new).await?;
                    require_host_of_pulls(context, new).await?;
                    trigger::require_of_source(&self.lookup, context, new).await?;
                }
                // Those that were there before this rule stay as they are.
                if repository(new) != repository(old) { self.refuse_second(new).await } else { Ok(()) }
            }
            Admission::Update { new, old, subresource: "status" } if observed(new) != observed(old) => {
                // What a trigger deploys follows them, and what is told to pull requests.
                let part = "status.observedCommit, status.versions, status.pullRequests, status.mergesKnownAt, \
                            status.setBy and status.changedBy are";
                validation::part_written_by_server::<Source>(context, &new.name_any(), part)
            }
            Admission::Update { .. } => Ok(()),
            Admission::Delete(source) => self.refuse_while_used(source).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commit_page_exists_for_remotes_that_a_browser_opens() {
        let page = |spec: serde_json::Value| commit_page(&serde_json::from_value(spec).unwrap(), "c0ffee");
        for (remote, expected) in [
            ("https://git.example.com/shop/config.git", Some("https://git.example.com/shop/config/commit/c0ffee")),
            ("http://git.example.com/shop/config/", Some("http://git.example.com/shop/config/commit/c0ffee")),
            ("file:///srv/config.git", None),
            ("ssh://git@git.example.com/shop/config.git", None),
            ("git@git.example.com:shop/config.git", None),
            // An earlier version stored such addresses, and the page is sent to others.
            ("https://ann:secret@git.example.com/shop/config.git", None),
            ("https://git.example.com/shop/config.git?token=secret", None),
        ] {
            assert_eq!(page(json!({"remote": remote})).as_deref(), expected, "{remote}");
        }
        assert_eq!(page(json!({"remote": "https://oci.example.com/config", "provider": "OCI"})), None);
    }
}
