//! The words for everything that fails: of which provider, and what to do.

use std::error::Error;

use stoa_artifacts::FetchError;
use stoa_engine::Sensitive;
use stoa_outbound::causes;
use stoa_runtime::RuntimeError;
use stoa_terraform_provider::package::{InstallError, MirrorError, NetworkError};
use stoa_terraform_provider::pool::PoolError;
use stoa_terraform_provider::process::{HandshakeError, StartError};
use stoa_terraform_provider::protocol::{Diagnostic, ProviderError};
use stoa_terraform_provider::value::convert::{ConvertError, Problem};
use stoa_terraform_provider::value::{Path, Step};

use super::registry_mirror::RegistryError;

/// How many lines of a provider's output a message quotes.
const LINES: usize = 10;

/// A provider that is not available. Those who waited for one installation share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    message: String,
    field: Option<String>,
    /// Whether a later retry may succeed.
    passes: bool,
}

impl Failed {
    /// A failure that waiting does not end.
    pub(super) fn lasting(message: String) -> Self {
        Self { message, field: None, passes: false }
    }

    /// A failure that may end by itself.
    pub(super) fn passing(message: String) -> Self {
        Self { message, field: None, passes: true }
    }

    /// The field of the resource that it concerns.
    pub(super) fn at(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// The same without secrets.
    pub(super) fn redacted(self, secrets: &Sensitive) -> Self {
        Self { message: secrets.redact(&self.message), ..self }
    }
}

impl From<Failed> for RuntimeError {
    fn from(Failed { message, field, passes }: Failed) -> Self {
        if passes { Self::Unread { message } } else { Self::Invalid { message, field } }
    }
}

/// The sources of a configuration's arguments.
pub(super) struct Arguments<'a> {
    /// Whether the resource itself sets an argument.
    pub(super) of_resource: &'a dyn Fn(&str) -> bool,
    /// The name of the workspace's entry for the provider.
    pub(super) entry: Option<&'a str>,
}

impl Arguments<'_> {
    /// The field of an argument, and whether it is one of the resource.
    fn field(&self, path: &Path, argument: Option<&str>) -> (String, bool) {
        let first = path.0.first().and_then(|step| match step {
            Step::Attribute(name) | Step::Key(name) => Some(name.as_str()),
            Step::Index(_) => None,
        });
        let full = match (path.is_root(), argument) {
            (true, Some(argument)) => argument.to_owned(),
            (_, _) => path.to_string(),
        };
        let of_resource = first.or(argument).is_some_and(self.of_resource);
        let dot = if full.is_empty() { "" } else { "." };
        let field = match (of_resource, self.entry) {
            (true, _) => format!("extensions.providerMeta{dot}{full}"),
            (false, Some(name)) => format!("spec.terraform.providers[name={name}].configuration{dot}{full}"),
            (false, None) => format!("spec.terraform.providers{dot}{full}"),
        };
        (field, of_resource)
    }

    /// A problem of arguments: the first that the resource sets gives the field.
    fn failed<'p>(
        &self,
        provider: &str,
        says: &str,
        problems: impl Iterator<Item = (Option<&'p Path>, Option<&'p str>, String)>,
    ) -> Failed {
        let root = Path::default();
        let (mut messages, mut own) = (Vec::new(), None);
        for (path, argument, text) in problems {
            let (field, of_resource) = self.field(path.unwrap_or(&root), argument);
            own = own.or(of_resource.then(|| field.clone()));
            let is_named = path.is_some_and(|path| !path.is_root()) || argument.is_some();
            messages.push(if is_named { format!("{field}: {text}") } else { text });
        }
        let failed = Failed::lasting(format!("{provider} {says}: {}", messages.join("; ")));
        match own {
            Some(field) => failed.at(field),
            None => failed,
        }
    }
}

/// A provider that did not start, or is not configured.
pub(super) fn of_pool(provider: &str, error: &PoolError, arguments: &Arguments<'_>) -> Failed {
    match error {
        PoolError::Start(error) => match &**error {
            ProviderError::Start(error) => of_start(provider, error),
            ProviderError::Call(error) => {
                Failed::lasting(format!("{provider} does not work: {}; use another version of it", causes(error)))
            }
        },
        PoolError::Changed(_) => Failed::passing(format!("{provider}: {error}; it is installed again")),
        PoolError::Configuration(errors) => {
            let problem = |error: &ConvertError| error.problem.to_string();
            let argument = |error: &ConvertError| match &error.problem {
                Problem::UnknownArgument(name) | Problem::Required(name) | Problem::Missing(name) => Some(name.clone()),
                _ => None,
            };
            let names: Vec<Option<String>> = errors.iter().map(argument).collect();
            let problems =
                errors.iter().zip(&names).map(|(error, name)| (Some(&error.path), name.as_deref(), problem(error)));
            arguments.failed(provider, "cannot be configured", problems)
        }
        PoolError::Rejected(diagnostics) => {
            let text = |it: &Diagnostic| {
                if it.detail.is_empty() { it.summary.clone() } else { format!("{}: {}", it.summary, it.detail) }
            };
            let problems = diagnostics.errors().map(|it| (it.path.as_ref(), None, text(it)));
            arguments.failed(provider, "rejects its configuration", problems)
        }
        PoolError::TimedOut(time) => Failed::lasting(format!(
            "{provider} was not ready within {} s; check that it reaches its API with this configuration and \
             spec.terraform.network",
            time.as_secs()
        )),
        PoolError::Full(_) => Failed::passing(format!("{provider} waits for a process: {error}")),
        PoolError::Ends => Failed::lasting(format!("{provider} ends after each start; use another version of it")),
        PoolError::Interrupted | PoolError::Closed => {
            Failed::passing(format!("{provider} did not start: the function-runner is shutting down"))
        }
    }
}

fn of_start(provider: &str, error: &StartError) -> Failed {
    match error {
        StartError::Folder { .. } | StartError::Spawn { .. } | StartError::Certificate(_) => {
            Failed::passing(format!("{provider} did not start: {}", causes(error)))
        }
        StartError::LongPath(_) => Failed::lasting(format!(
            "{provider} did not start: the path of --cache-dir of the function-runner is too long for its socket; choose \
             a shorter one"
        )),
        StartError::Ended { exit, last_lines, .. } => Failed::lasting(format!(
            "{provider} ended before it accepted calls ({exit}){}; check that the package is for this platform, and its \
             environment",
            quoted(last_lines)
        )),
        StartError::TimedOut { time_limit, last_lines, .. } => Failed::lasting(format!(
            "{provider} accepted no calls within {} s{}; use another version of it",
            time_limit.as_secs(),
            quoted(last_lines)
        )),
        StartError::Handshake { source, .. } => {
            let remedy = match source {
                HandshakeError::Certificate => "use another version of it",
                HandshakeError::Form(_) | HandshakeError::Version(..) | HandshakeError::Address(_) => {
                    "use a version of it for Terraform 1.0 or later"
                }
            };
            Failed::lasting(format!("{provider} speaks no known protocol: {source}; {remedy}"))
        }
        StartError::Connect { .. } | StartError::Tls { .. } => {
            Failed::lasting(format!("{provider} accepts no connection: {}; use another version of it", causes(error)))
        }
    }
}

/// The last lines of its output.
fn quoted(lines: &[String]) -> String {
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { String::new() } else { format!(", and its last output is {:?}", last.join("\n")) }
}

/// A package that a folder does not have.
pub(super) fn of_mirror(provider: &str, error: &MirrorError) -> Failed {
    let remedy = match error {
        MirrorError::Read { .. } => "the function-runner needs to read this folder",
        MirrorError::NoVersion { .. } => "add the package to the mirror",
        MirrorError::NoPlatform { .. } => "add the package of this platform to the mirror",
    };
    Failed::lasting(format!("{provider} cannot be installed: {}; {remedy}", causes(error)))
}

/// A package that a network mirror does not send.
pub(super) fn of_network(provider: &str, error: &NetworkError) -> Failed {
    let said = |remedy: &str| format!("{provider} cannot be installed: {}; {remedy}", causes(error));
    match error {
        NetworkError::Missing(error) => of_mirror(provider, error),
        NetworkError::Request { source, .. } if is_too_large(&**source) => {
            Failed::lasting(said("the package is larger than packages may be"))
        }
        NetworkError::Request { .. } => Failed::passing(said("the mirror is tried again")),
        NetworkError::Status { status: 408 | 429 | 500.., .. } => Failed::passing(said("the mirror is tried again")),
        NetworkError::Status { status: 401 | 403, .. } => {
            Failed::lasting(said("check the Secret in spec.terraform.mirror.secretRef"))
        }
        NetworkError::Status { status: 404, .. } => Failed::lasting(said("add the package to the mirror")),
        NetworkError::Status { status: 300..=399, .. } => Failed::lasting(said("redirects are not followed")),
        NetworkError::Url(_) | NetworkError::Status { .. } => Failed::lasting(said("check spec.terraform.mirror.url")),
        NetworkError::Document { .. } | NetworkError::Hash { .. } => {
            Failed::lasting(said("the mirror does not follow the provider network mirror protocol"))
        }
    }
}

/// A package that a registry does not send.
pub(super) fn of_registry(provider: &str, error: &RegistryError) -> Failed {
    let said = |remedy: &str| format!("{provider} cannot be installed: {}; {remedy}", causes(error));
    let secret = "check the Secret in spec.terraform.mirror.secretRef";
    match error {
        RegistryError::Login(_)
        | RegistryError::Fetch(FetchError::Unauthorized { .. } | FetchError::Authorities(_)) => {
            Failed::lasting(said(secret))
        }
        RegistryError::Repository(_) => Failed::lasting(said("check spec.terraform.mirror.repositoryTemplate")),
        RegistryError::NoPlatform { .. } => Failed::lasting(said("push the package of this platform")),
        RegistryError::Layout { .. } => Failed::lasting(said("push it in the layout of OpenTofu's OCI mirrors")),
        RegistryError::Fetch(error) => match error {
            FetchError::NotFound { .. } => Failed::lasting(said("push the package to the registry")),
            FetchError::Unreachable { .. } | FetchError::Status { status: 408 | 429 | 500.., .. } => {
                Failed::passing(said("the registry is tried again"))
            }
            FetchError::Io { .. } => Failed::passing(said("check the disk of --cache-dir")),
            FetchError::Mismatch { .. } => Failed::lasting(said("push the package again")),
            FetchError::Wrong { .. }
            | FetchError::Status { .. }
            | FetchError::Unauthorized { .. }
            | FetchError::Authorities(_) => Failed::lasting(said("check spec.terraform.mirror.repositoryTemplate")),
        },
    }
}

fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    error.is::<super::mirror::TooLarge>()
}

/// A package that is not the expected one, or cannot be stored.
pub(super) fn of_install(provider: &str, error: &InstallError) -> Failed {
    let said = |remedy: &str| {
        let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
        format!("{provider} cannot be installed: {}{remedy}", causes(error))
    };
    match error {
        InstallError::Io { .. } => Failed::passing(said("check the disk of --cache-dir")),
        InstallError::Mismatch { .. } => {
            Failed::lasting(said("compare the mirror with the lock file, and lock only a package that you trust"))
        }
        InstallError::NotRecorded { .. } => Failed::lasting(said("")),
        InstallError::Archive { .. } | InstallError::Hash { .. } | InstallError::NoExecutable { .. } => {
            Failed::lasting(said("replace the package in the mirror"))
        }
        InstallError::Changed(_) => Failed::passing(said("")),
    }
}
