//! Everything that a run refers to, gathered and checked, in the shape that the runner takes.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_kinds::{
    lookup,
    package_source::path as path_in_package,
    run_status::{is_internal, status, user},
    source::commit_page,
    source_path::path,
    variable_set,
};
use stoa_machinery::RequestContext;
use stoa_proto::StoreCredentials;
use stoa_storage::documents::DocumentStore;
use stoa_types::{
    Backend, Project, Run, SecretKeyReference, SecretReference, Source, Stack, Workspace,
    config::{GeneratorType, SourceProvider},
    labels,
    platform::WorkspaceSpec,
    reason,
};

use super::{
    Services, StepError, modules, package_source, source_keys,
    state::Bodies,
    store_files,
    stored_secrets::{self, StoredSecrets},
    values::StackValues,
};

/// What a run refers to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The Stack of the Run.
    pub stack: Stack,
    /// The Project of the Stack.
    pub project: Project,
    /// Absent when it was deleted: what was deployed from it can still be destroyed or rolled back.
    source: Option<Source>,
    /// The folder of the package that the source is; absent for another provider.
    package_folder: Option<String>,
    /// The Workspace that the Run changes or compares.
    pub workspace: Workspace,
    /// The store of its documents.
    pub documents: Arc<dyn DocumentStore>,
}

impl Target {
    /// Gathers what a run refers to.
    ///
    /// # Errors
    ///
    /// A failure names the object that does not exist.
    pub async fn of_run(services: &Services, run: &Run) -> Result<Self, StepError> {
        let namespace = run.namespace().unwrap_or_default();
        let stack = existing::<Stack>(services, &namespace, &run.spec.stack, "stack").await?;
        Self::of_stack(services, stack, &run.spec.workspace).await
    }

    /// Gathers what a stack refers to, for one workspace.
    pub async fn of_stack(services: &Services, stack: Stack, workspace: &str) -> Result<Self, StepError> {
        let namespace = stack.namespace().unwrap_or_default();
        let project = project_of(services, &stack).await?;
        let source = services.lookup.api::<Source>()?.get_opt(&namespace, &project.spec.source.name).await?;
        let package_folder = package_folder(services, source.as_ref()).await?;
        let workspace = existing::<Workspace>(services, "", workspace, "workspace").await?;
        let documents = services.backends.store(&workspace.spec.backend.name).await?;
        Ok(Self { stack, project, source, package_folder, workspace, documents })
    }

    /// A stack's path in its source.
    ///
    /// # Errors
    ///
    /// A failure names the object that does not exist.
    pub async fn path_of(services: &Services, stack: &Stack) -> Result<String, StepError> {
        let project = project_of(services, stack).await?;
        let namespace = stack.namespace().unwrap_or_default();
        let source = services.lookup.api::<Source>()?.get_opt(&namespace, &project.spec.source.name).await?;
        Ok(path_of(package_folder(services, source.as_ref()).await?.as_deref(), stack, &project))
    }

    /// What to ask for the commit of a version of a project's source, and the source's name.
    ///
    /// # Errors
    ///
    /// A failure names the object that does not exist.
    pub async fn version_of(
        services: &Services,
        namespace: &str,
        project: &str,
        version: &str,
    ) -> Result<(String, stoa_proto::ResolveRequest), StepError> {
        let project = existing::<Project>(services, namespace, project, "project").await?;
        let found = existing::<Source>(services, namespace, &project.spec.source.name, "source").await?;
        let request = resolve_request(services, &found, version).await?;
        Ok((found.name_any(), request))
    }

    /// Where the documents of this stack are: `<organization>/<stack uid>`.
    pub fn scope(&self) -> String {
        format!("{}/{}", self.namespace(), self.stack.uid().unwrap_or_default())
    }

    /// The store and the keys of the documents of this stack.
    pub fn bodies(&self, services: &Services) -> Bodies {
        Bodies { store: self.documents.clone(), scope: self.scope(), encryption: services.encryption.clone() }
    }

    /// The namespace of all of them.
    pub fn namespace(&self) -> String {
        self.stack.namespace().unwrap_or_default()
    }

    /// The name of the lease that a run which changes something holds.
    pub(crate) fn lease(&self) -> String {
        format!("run/{}/{}", self.stack.uid().unwrap_or_default(), self.workspace.name_any())
    }

    /// What labels say of everything that belongs to the deployment.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        [
            (labels::STACK, self.stack.name_any()),
            (labels::WORKSPACE, self.workspace.name_any()),
            (labels::PROJECT, self.project.name_any()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    /// The folder of the Stack in its source.
    pub fn path(&self) -> String {
        path_of(self.package_folder.as_deref(), &self.stack, &self.project)
    }

    /// The source that the stack is rendered from.
    ///
    /// # Errors
    ///
    /// Failed with its name when it does not exist.
    pub fn source(&self) -> Result<&Source, StepError> {
        self.source.as_ref().ok_or_else(|| not_found("source", &self.project.spec.source.name))
    }

    /// The page of a commit of the source, for people.
    pub(crate) fn commit_page(&self, commit: &str) -> Option<String> {
        commit_page(&self.source.as_ref()?.spec, commit)
    }

    /// The question for the commit of a version.
    ///
    /// # Errors
    ///
    /// As `resolve_request`.
    pub async fn resolve_request(
        &self,
        services: &Services,
        version: &str,
    ) -> Result<stoa_proto::ResolveRequest, StepError> {
        resolve_request(services, self.source()?, version).await
    }

    /// The source with its credentials.
    pub async fn proto_source(&self, services: &Services) -> Result<stoa_proto::Source, StepError> {
        source(services, self.source()?).await
    }

    /// The workspace with its credentials.
    pub(crate) async fn proto_workspace(&self, services: &Services) -> Result<stoa_proto::Workspace, StepError> {
        workspace(services, &self.workspace).await
    }

    /// What is to be rendered.
    pub async fn generate_request(
        &self,
        services: &Services,
        commit: &str,
        values: &StackValues,
    ) -> Result<stoa_proto::GenerateRequest, StepError> {
        let source = Some(self.proto_source(services).await?);
        let request = self.generate_request_of(services, values).await?;
        Ok(stoa_proto::GenerateRequest { source, commit: commit.to_owned(), ..request })
    }

    /// The same without files.
    pub(crate) async fn generate_request_of(
        &self,
        services: &Services,
        values: &StackValues,
    ) -> Result<stoa_proto::GenerateRequest, StepError> {
        let mut workspace = self.proto_workspace(services).await?;
        // A template without a review could write a decrypted value in another form.
        let sops = self.workspace.spec.sops.as_ref().filter(|_| !values.has_placeholders());
        let sops = sops.map(|sops| &sops.age_key_secret_ref);
        workspace.age_keys = optional_secret(services, sops).await?;
        modules::resolve(services, &self.workspace, &mut workspace).await?;
        Ok(stoa_proto::GenerateRequest {
            path: self.path(),
            generator: generator(self.stack.spec.generator.kind).to_owned(),
            parameters: values.parameters(),
            values: values.proto(),
            organization: self.namespace(),
            project: self.project.name_any(),
            stack: self.stack.spec.stack_name.clone(),
            workspace: Some(workspace),
            helm: self.stack.spec.generator.helm.clone().map(|release| stoa_proto::HelmOptions {
                release_name: release.name,
                namespace: release.namespace,
                values_files: release.values_files,
            }),
            ..stoa_proto::GenerateRequest::default()
        })
    }

    /// What is worked on.
    pub async fn proto(&self, services: &Services, run: &Run) -> Result<stoa_proto::Target, StepError> {
        let status = status(run);
        let workspace = self.workspace.name_any();
        let digest_keys = services.encryption.digest_keys(&self.scope(), &workspace);
        let source = status.source.unwrap_or_default();
        let pull_request = status.pull_request.map_or(0, |pull| u64::try_from(pull.number).unwrap_or_default());
        Ok(stoa_proto::Target {
            organization: self.namespace(),
            project: self.project.name_any(),
            stack: self.stack.name_any(),
            stack_uid: self.stack.uid().unwrap_or_default(),
            workspace: Some(self.proto_workspace(services).await?),
            run_uid: run.uid().unwrap_or_default(),
            run_name: run.name_any(),
            requester: status.requester.username,
            commit: source.commit,
            spec_digest: source.spec_digest.unwrap_or_default(),
            pull_request,
            digest_keys: digest_keys.iter().map(|key| Bytes::copy_from_slice(key)).collect(),
            stored_secrets: HashMap::new(),
            store_files: HashMap::new(),
        })
    }

    /// The same with the values of secret stores that a Spec names, and that the server reads.
    pub(crate) async fn proto_with_secrets(
        &self,
        services: &Services,
        run: &Run,
        spec: &Bytes,
    ) -> Result<stoa_proto::Target, StepError> {
        let mut target = self.proto(services, run).await?;
        if !stored_secrets::may_be_in(spec) && !stored_secrets::are_in_context(&self.workspace.spec) {
            return Ok(target);
        }
        let StoredSecrets { stores, values } = stored_secrets::read(services, self, run, spec).await?;
        target.stored_secrets = values;
        target.store_files = store_files::read(services, self, &target.commit, &stores).await?;
        if let Some(workspace) = &mut target.workspace {
            let secret = secret_store_secret(&self.workspace.spec);
            workspace.secret_store_credentials = optional_secret(services, secret.as_ref()).await?;
            for store in self.workspace.spec.secret_stores.iter().filter(|store| stores.contains(&store.name)) {
                let values = optional_secret(services, store.secret_ref.as_ref()).await?;
                workspace.named_store_credentials.insert(store.name.clone(), StoreCredentials { values });
            }
        }
        Ok(target)
    }

    /// Checks again that who asked for the run may use what it needs.
    ///
    /// # Errors
    ///
    /// Failed with PermissionDenied and the sentence of the 403.
    pub async fn check_permissions(&self, services: &Services, run: &Run) -> Result<(), StepError> {
        let Some(context) = requester(services, run) else { return Ok(()) };
        let operation = run.spec.operation.permission();
        let namespace = self.namespace();
        let stack = self.stack.name_any();
        lookup::require::<Stack>(&context, "create", operation, &namespace, &stack).await?;
        lookup::require_use::<Workspace>(&context, &self.workspace.name_any()).await?;
        lookup::require_use::<Backend>(&context, &self.workspace.spec.backend.name).await?;
        let drawn_on = status(run).values.map(|values| values.variable_sets).unwrap_or_default();
        variable_set::require_use(&context, drawn_on.iter().map(String::as_str)).await?;
        Ok(())
    }
}

/// The permissions of the requester of a run; nothing for a run that Stoa started for itself, such as the destroy of a
/// deleted stack.
pub(crate) fn requester(services: &Services, run: &Run) -> Option<RequestContext> {
    let requester = status(run).requester;
    (!is_internal(&requester)).then(|| RequestContext::new(user(&requester), services.authorizer.clone()))
}

/// The values files of a Stack of a chart, from its folder.
pub fn values_files(stack: &Stack) -> &[String] {
    stack.spec.generator.helm.as_ref().map(|release| release.values_files.as_slice()).unwrap_or_default()
}

/// A workspace with its credentials.
///
/// # Errors
///
/// A failure names the object that does not exist.
pub async fn workspace(services: &Services, workspace: &Workspace) -> Result<stoa_proto::Workspace, StepError> {
    let spec = &workspace.spec;
    let mut kubeconfigs = HashMap::new();
    for cluster in spec.kubernetes.iter().flat_map(|k| &k.clusters) {
        let Some(reference) = &cluster.kubeconfig_secret_ref else { continue };
        kubeconfigs.insert(cluster.name.clone(), secret_key(services, reference).await?);
    }
    let credentials = optional_secret(services, spec.gitops.as_ref().and_then(|g| g.secret_ref.as_ref())).await?;
    let pulls = spec.gitops.as_ref().and_then(|gitops| gitops.pull_request.as_ref());
    let pull_request_credentials = match pulls.map(|pulls| pulls.secret_ref.as_ref()) {
        None => HashMap::new(),
        Some(None) => credentials.clone(),
        Some(Some(reference)) => referenced_secret(services, "", reference).await?,
    };
    let mirror = spec.terraform.as_ref().map(|terraform| &terraform.mirror);
    Ok(stoa_proto::Workspace {
        name: workspace.name_any(),
        spec: Bytes::from(serde_json::to_vec(spec).expect("a spec serializes")),
        kubeconfigs,
        credentials,
        pull_request_credentials,
        provider_secrets: provider_secrets(services, spec).await?,
        mirror_credentials: optional_secret(services, mirror.and_then(|mirror| mirror.secret_ref.as_ref())).await?,
        // Only a Spec or a context that names values of the store needs them.
        secret_store_credentials: HashMap::new(),
        named_store_credentials: HashMap::new(),
        age_keys: HashMap::new(),
        module_credentials: HashMap::new(),
    })
}

/// The Secret with the credentials of the secret store, whose validation has read it.
fn secret_store_secret(spec: &WorkspaceSpec) -> Option<SecretReference> {
    serde_json::from_value(spec.secret_store.get("secretRef")?.clone()).ok()
}

/// Secrets that are read once each, so that all of their keys are of one version.
pub(crate) struct Secrets<'s> {
    services: &'s Services,
    read: HashMap<(String, String), HashMap<String, Bytes>>,
}

impl<'s> Secrets<'s> {
    pub(crate) fn new(services: &'s Services) -> Self {
        Self { services, read: HashMap::new() }
    }

    /// The value of one key of a Secret.
    ///
    /// # Errors
    ///
    /// Failed when the Secret or its key does not exist.
    pub(crate) async fn key(&mut self, reference: &SecretKeyReference) -> Result<Bytes, StepError> {
        let SecretKeyReference { namespace, name, .. } = reference;
        let keys = match self.read.entry((namespace.clone(), name.clone())) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(secret(self.services, namespace, name).await?),
        };
        key_of(keys, reference)
    }
}

/// The secrets of the Terraform providers of a workspace, by their names there.
async fn provider_secrets(
    services: &Services,
    spec: &WorkspaceSpec,
) -> Result<HashMap<String, stoa_proto::ProviderSecrets>, StepError> {
    let mut secrets = HashMap::new();
    for provider in spec.terraform.iter().flat_map(|terraform| &terraform.providers) {
        let of_provider = stoa_proto::ProviderSecrets {
            environment: optional_secret(services, provider.environment_secret_ref.as_ref()).await?,
            configuration: optional_secret(services, provider.configuration_secret_ref.as_ref()).await?,
        };
        secrets.insert(provider.name.clone(), of_provider);
    }
    Ok(secrets)
}

/// The Source of this name with its credentials.
///
/// # Errors
///
/// Failed with its name when it does not exist.
pub async fn source_at(services: &Services, namespace: &str, name: &str) -> Result<stoa_proto::Source, StepError> {
    let found = existing::<Source>(services, namespace, name, "source").await?;
    source(services, &found).await
}

/// The question for the commit of a version of a source. The version of a package is its commit.
///
/// # Errors
///
/// A failure names the object that does not exist.
async fn resolve_request(
    services: &Services,
    from: &Source,
    version: &str,
) -> Result<stoa_proto::ResolveRequest, StepError> {
    let (version, reference) = match &from.spec.package {
        Some(package) => (package_source::commit(services, from, package, version).await?, String::new()),
        None => (version.to_owned(), from.spec.reference.clone()),
    };
    Ok(stoa_proto::ResolveRequest { source: Some(source(services, from).await?), version, r#ref: reference })
}

/// The folder of the package that a source is; nothing for another provider.
async fn package_folder(services: &Services, source: Option<&Source>) -> Result<Option<String>, StepError> {
    match source {
        Some(source) => package_source::folder_of(services, source).await,
        None => Ok(None),
    }
}

/// The path of a stack's folder from the root of its repository.
fn path_of(package_folder: Option<&str>, stack: &Stack, project: &Project) -> String {
    match package_folder {
        Some(folder) => path_in_package(folder, stack, &project.spec.path),
        None => path(stack, project),
    }
}

/// The source with its credentials.
///
/// # Errors
///
/// A failure names the object that does not exist.
pub async fn source(services: &Services, source: &Source) -> Result<stoa_proto::Source, StepError> {
    if let Some(package) = &source.spec.package {
        return package_source::repository(services, source, package).await;
    }
    let namespace = source.namespace().unwrap_or_default();
    let credentials = match &source.spec.secret_ref {
        None => HashMap::new(),
        Some(reference) => referenced_secret(services, &namespace, reference).await?,
    };
    let provider = match source.spec.provider {
        // A package without `spec.package` is rejected at admission.
        SourceProvider::Git | SourceProvider::Package => "Git",
        SourceProvider::Oci => "OCI",
        SourceProvider::Helm => "Helm",
    };
    Ok(stoa_proto::Source {
        provider: provider.to_owned(),
        remote: source.spec.remote.clone(),
        chart: source.spec.chart.clone(),
        credentials,
        organization: namespace,
        verify: source_keys::of_source(services, source).await?,
    })
}

fn generator(kind: GeneratorType) -> &'static str {
    match kind {
        GeneratorType::Auto => "Auto",
        GeneratorType::Spec => "Spec",
        GeneratorType::Manifests => "Manifests",
        GeneratorType::Kustomize => "Kustomize",
        GeneratorType::Helm => "Helm",
        GeneratorType::Kpt => "Kpt",
        GeneratorType::Kcl => "KCL",
    }
}

async fn existing<K>(services: &Services, namespace: &str, name: &str, noun: &str) -> Result<K, StepError>
where
    K: stoa_controller::object::Kind,
{
    let found = services.lookup.api::<K>()?.get_opt(namespace, name).await?;
    found.ok_or_else(|| not_found(noun, name))
}

/// The project of a stack.
///
/// # Errors
///
/// Failed where it does not exist.
pub async fn project_of(services: &Services, stack: &Stack) -> Result<Project, StepError> {
    existing(services, &stack.namespace().unwrap_or_default(), &stack.spec.project, "project").await
}

fn not_found(noun: &str, name: &str) -> StepError {
    StepError::failed(reason::REFERENCE_NOT_FOUND, format!("{noun} {name:?} does not exist"))
}

/// The values of a Secret, which is in this namespace unless the reference names another.
pub async fn referenced_secret(
    services: &Services,
    namespace: &str,
    reference: &SecretReference,
) -> Result<HashMap<String, Bytes>, StepError> {
    let namespace = reference.namespace.as_deref().unwrap_or(namespace);
    secret(services, namespace, &reference.name).await
}

/// The values of a Secret that a cluster-scoped object refers to; none without a reference.
async fn optional_secret(
    services: &Services,
    reference: Option<&SecretReference>,
) -> Result<HashMap<String, Bytes>, StepError> {
    match reference {
        Some(reference) => referenced_secret(services, "", reference).await,
        None => Ok(HashMap::new()),
    }
}

/// The value of one key of a Secret.
///
/// # Errors
///
/// Failed when the Secret or its key does not exist.
async fn secret_key(services: &Services, reference: &SecretKeyReference) -> Result<Bytes, StepError> {
    key_of(&secret(services, &reference.namespace, &reference.name).await?, reference)
}

fn key_of(keys: &HashMap<String, Bytes>, reference: &SecretKeyReference) -> Result<Bytes, StepError> {
    let SecretKeyReference { namespace, name, key } = reference;
    keys.get(key).cloned().ok_or_else(|| {
        StepError::failed(reason::REFERENCE_NOT_FOUND, format!("secret {namespace}/{name} has no key {key:?}"))
    })
}

async fn secret(services: &Services, namespace: &str, name: &str) -> Result<HashMap<String, Bytes>, StepError> {
    match services.cluster.secret(namespace, name).await? {
        Some(keys) => Ok(keys.into_iter().map(|(key, value)| (key, Bytes::from(value))).collect()),
        None => {
            Err(StepError::failed(reason::REFERENCE_NOT_FOUND, format!("secret {namespace}/{name} does not exist")))
        }
    }
}
