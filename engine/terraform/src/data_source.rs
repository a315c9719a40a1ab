//! One data source of one provider, ready for calls.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};
use stoa_engine::plan::ProviderPlan;
use stoa_engine::{Action, FieldPath, Sensitive};
use stoa_runtime::{Applied, ApplyRequest, RuntimeError};
use stoa_terraform_provider::pool::Lease;
use stoa_terraform_provider::protocol::Diagnostics;
use stoa_terraform_provider::schema::Schema;
use stoa_terraform_provider::value::Value;

use crate::conversion::{configuration, field_paths, plain};
use crate::errors::{accepted, misconfigured, redacted_for, rejected, unanswered, warnings};

/// A leased provider and a type of its data sources.
#[derive(Debug)]
pub(crate) struct DataSource {
    lease: Lease,
    name: String,
}

impl DataSource {
    /// A data source of a type.
    ///
    /// # Errors
    ///
    /// When the provider has no such type.
    pub(crate) fn new(lease: Lease, name: &str) -> Result<Self, RuntimeError> {
        if lease.schemas().data_sources.contains_key(name) {
            return Ok(Self { lease, name: name.to_owned() });
        }
        let message = match lease.schemas().resources.contains_key(name) {
            true => format!("{name} is a resource type and no data source; remove extensions.mode"),
            false => format!("the provider has no data source {name:?}; check the type and the version"),
        };
        Err(RuntimeError::Invalid { message, field: Some("extensions.resourceType".to_owned()) })
    }

    fn schema(&self) -> &Schema {
        &self.lease.schemas().data_sources[&self.name]
    }

    /// The plan: the attributes, read now if the arguments are known and nothing that it depends on changes first.
    pub(crate) async fn plan(&self, request: &ApplyRequest<'_>) -> Result<ProviderPlan, RuntimeError> {
        let no_unknown = BTreeSet::new();
        let unknown = request.unknown.unwrap_or(&no_unknown);
        let config = self.configuration(&request.desired.attributes, unknown)?;
        let validated = self.validated(&config).await.map_err(|error| redacted_for(error, request))?;
        let (state, warned) = if config.is_wholly_known() && !request.read_later {
            self.read(&config).await.map_err(|error| redacted_for(error, request))?
        } else {
            (self.schema().before_read(config), validated)
        };
        let after = plain(&state);
        Ok(ProviderPlan {
            action: Action::Read,
            after: after.attributes,
            unknown: after.unknown,
            replaced_by: Vec::new(),
            sensitive: field_paths(&self.schema().sensitive_paths(&state)),
            config_unknown: unknown.clone(),
            warnings: warnings(&warned),
        })
    }

    /// Reads the attributes for an apply.
    pub(crate) async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let config = self.configuration(&request.desired.attributes, &BTreeSet::new())?;
        let read = async {
            self.validated(&config).await?;
            self.read(&config).await
        };
        let (state, told) = read.await.map_err(|error| redacted_for(error, request))?;
        let mut texts = request.sensitive.cloned().unwrap_or_default();
        let live = plain(&state).attributes;
        texts.extend_texts(&Sensitive::of(&live, &field_paths(&self.schema().sensitive_paths(&state))));
        let warnings = warnings(&told).iter().map(|warning| texts.redact(warning)).collect();
        Ok(Applied { live, warnings, ..Applied::default() })
    }

    fn configuration(
        &self,
        attributes: &Map<String, Json>,
        unknown: &BTreeSet<FieldPath>,
    ) -> Result<Value, RuntimeError> {
        configuration(self.schema(), attributes, unknown).map_err(|errors| misconfigured(&errors))
    }

    async fn validated(&self, config: &Value) -> Result<Diagnostics, RuntimeError> {
        accepted(self.lease.validate_data_source(&self.name, config).await.map_err(|error| unanswered(&error))?)
    }

    async fn read(&self, config: &Value) -> Result<(Value, Diagnostics), RuntimeError> {
        let read = self.lease.read_data_source(&self.name, config).await.map_err(|error| unanswered(&error))?;
        let diagnostics = accepted(read.diagnostics)?;
        if read.state.is_null() || !read.state.is_wholly_known() {
            let message = format!("the provider read {} without a result and reported no error", self.name);
            return Err(rejected(message, None));
        }
        Ok((self.schema().with_empty_blocks(read.state), diagnostics))
    }
}
