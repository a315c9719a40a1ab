//! The values for the generator of a Run or of `stacks/generate`: decided, permitted, and with the texts of their Secrets.
//!
//! Start at [`StackValues::of`]. Elsewhere: `stoa_kinds::values` decides between the origins of a value.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde_json::{Value, json};
use stoa_engine::{
    digest::digest,
    secret_digest::{DigestKeys, STATE_KEY},
};
use stoa_kinds::{
    text,
    values::{self, Chosen, Given, Origin},
    variable_set,
};
use stoa_machinery::RequestContext;
use stoa_types::{
    SecretKeyReference,
    delivery::{RunValue, RunValues},
    reason,
};

use crate::{
    Services, StepError,
    target::{Secrets, Target},
};

/// The most bytes of all values, as JSON with their names.
const LARGEST: usize = 1 << 20;
/// The most values in the status of a Run.
const RECORDED: usize = 100;

/// The prefix of placeholders for texts of Secrets.
const PLACEHOLDER: &str = "placeholder-of-secret-";

/// The values of a stack in a workspace.
#[derive(Clone, Default)]
pub struct StackValues {
    chosen: Vec<Chosen>,
    /// The texts of secret values, by name.
    secrets: BTreeMap<String, String>,
    /// Whether placeholders replace these texts.
    has_placeholders: bool,
}

/// Never shows a value.
impl fmt::Debug for StackValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.chosen.iter().map(|chosen| chosen.name.as_str()).collect();
        f.debug_struct("StackValues").field("names", &names).finish_non_exhaustive()
    }
}

impl StackValues {
    /// Finds the values of a stack with the parameters of a Run. `context` is of the requester, who needs the permission to
    /// use the VariableSets; nothing for Stoa itself.
    ///
    /// # Errors
    ///
    /// Failed when two origins conflict, when a VariableSet may not be used, or when a Secret or its key does not exist.
    pub async fn of(
        services: &Services,
        target: &Target,
        parameters: &BTreeMap<String, String>,
        context: Option<&RequestContext>,
    ) -> Result<Self, StepError> {
        let of = (&target.stack, &target.workspace);
        let chosen = variable_set::values(&services.lookup, of, parameters).await?.map_err(|conflicts| {
            let conflicts: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
            StepError::failed(reason::INVALID_VALUES, conflicts.join("; "))
        })?;
        if let Some(context) = context {
            variable_set::require_use(context, values::variable_sets(&chosen)).await?;
        }
        let mut secrets = BTreeMap::new();
        let mut read = Secrets::new(services);
        for Chosen { name, given, origin, .. } in &chosen {
            if let Given::Secret(reference) = given {
                secrets.insert(name.clone(), text_of(&mut read, name, origin, reference).await?);
            }
        }
        let values = Self { chosen, secrets, has_placeholders: false };
        let size: usize = values.proto().iter().map(|value| value.name.len() + value.json.len()).sum::<usize>()
            + values.parameters().iter().map(|(name, text)| name.len() + text.len()).sum::<usize>();
        if size > LARGEST {
            let message = format!("the values of the stack have {size} bytes as JSON; the limit is {LARGEST}");
            return Err(StepError::failed(reason::INVALID_VALUES, message));
        }
        Ok(values)
    }

    /// Decided values without the texts of Secrets.
    #[cfg(any(test, feature = "testing"))]
    pub fn decided(chosen: Vec<Chosen>) -> Self {
        Self { chosen, ..Self::default() }
    }

    /// The values with a placeholder for each text of a Secret. Equal texts have equal placeholders. A pull request may have a
    /// generator without a review, which could write a part of a text, or decide by it.
    #[must_use]
    pub(crate) fn with_placeholders(mut self, keys: &DigestKeys) -> Self {
        self.has_placeholders = true;
        for (name, text) in &mut self.secrets {
            let mask = keys.mask(&name.as_str().into(), &json!(text));
            let keyed = mask[STATE_KEY].as_str().and_then(|digest| digest.rsplit(':').next()).unwrap_or_default();
            *text = format!("{PLACEHOLDER}{}", &keyed[..keyed.len().min(32)]);
        }
        self
    }

    /// Whether they are for files without a review, which get no secret.
    pub(crate) fn has_placeholders(&self) -> bool {
        self.has_placeholders
    }

    /// The values, sorted by name.
    pub fn chosen(&self) -> &[Chosen] {
        &self.chosen
    }

    /// The values that the Stack and the Run decide.
    pub fn parameters(&self) -> HashMap<String, String> {
        let text = |chosen: &Chosen| match (&chosen.origin, &chosen.given) {
            (Origin::Stack(_) | Origin::Run, Given::Plain(Value::String(text))) => {
                Some((chosen.name.clone(), text.clone()))
            }
            _ => None,
        };
        self.chosen.iter().filter_map(text).collect()
    }

    /// The values that the platform decides, for a runner.
    pub fn proto(&self) -> Vec<stoa_proto::Value> {
        let value = |chosen: &Chosen| {
            let (json, sensitive) = match (&chosen.origin, &chosen.given) {
                (Origin::Stack(_) | Origin::Run, _) => return None,
                (_, Given::Plain(value)) => (value.to_string(), false),
                (_, Given::Secret(_)) => (json!(self.secrets.get(&chosen.name)).to_string(), true),
            };
            let (name, origin) = (chosen.name.clone(), chosen.origin.to_string());
            Some(stoa_proto::Value { name, json, origin, sensitive, is_final: chosen.is_final })
        };
        self.chosen.iter().filter_map(value).collect()
    }

    /// The names and origins for the log of a Run; nothing if there are no values.
    pub(crate) fn sentence(&self) -> Option<String> {
        let origin = |chosen: &Chosen| format!("{} of {}", chosen.name, chosen.origin);
        let origins: Vec<String> = self.chosen.iter().map(origin).collect();
        (!origins.is_empty()).then(|| format!("values: {}", text::first(&origins, RECORDED, ", ")))
    }

    /// The values as the status of a Run has them; nothing if there are none.
    pub fn recorded(&self) -> Option<RunValues> {
        if self.chosen.is_empty() {
            return None;
        }
        let item = |chosen: &Chosen| RunValue {
            name: chosen.name.clone(),
            kind: chosen.origin.kind().to_owned(),
            object: chosen.origin.object().to_owned(),
        };
        let whole = |chosen: &Chosen| json!([chosen.name, chosen.origin.to_string(), shown(&chosen.given)]);
        Some(RunValues {
            digest: digest(&self.chosen.iter().map(whole).collect::<Vec<Value>>()),
            items: self.chosen.iter().take(RECORDED).map(item).collect(),
            variable_sets: values::variable_sets(&self.chosen).into_iter().map(str::to_owned).collect(),
        })
    }
}

/// A value for people: that of a Secret is its reference.
pub fn shown(given: &Given) -> Value {
    match given {
        Given::Plain(value) => value.clone(),
        Given::Secret(SecretKeyReference { namespace, name, key }) => {
            json!({"secretRef": {"namespace": namespace, "name": name, "key": key}})
        }
    }
}

/// The text that a key of a Secret has.
async fn text_of(
    read: &mut Secrets<'_>,
    name: &str,
    origin: &Origin,
    reference: &SecretKeyReference,
) -> Result<String, StepError> {
    let of = |error: StepError| match error {
        StepError::Failed { reason, message } => {
            StepError::Failed { reason, message: format!("value {name:?} of {origin}: {message}") }
        }
        other => other,
    };
    let bytes = read.key(reference).await.map_err(of)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| {
        let SecretKeyReference { namespace, name, key } = reference;
        let message = format!("key {key:?} of secret {namespace}/{name} is not a text in UTF-8");
        of(StepError::failed(reason::INVALID_VALUES, message))
    })
}

#[cfg(test)]
mod tests {
    use stoa_kinds::values::Level;

    use super::*;

    fn chosen(name: &str, given: Given, origin: Origin) -> Chosen {
        Chosen { name: name.to_owned(), given, origin, is_final: false, overridden: Vec::new() }
    }

    fn values() -> StackValues {
        let reference =
            SecretKeyReference { namespace: "a".to_owned(), name: "db".to_owned(), key: "password".to_owned() };
        let set = Origin::VariableSet { name: "eu".to_owned(), level: Level::Organization };
        StackValues {
            chosen: vec![
                chosen("cell", Given::Plain("c1".into()), Origin::Run),
                chosen("password", Given::Secret(reference), set),
                chosen("replicas", Given::Plain(3.into()), Origin::Workspace("dev".to_owned())),
            ],
            secrets: [("password".to_owned(), "hunter2".to_owned())].into(),
            ..StackValues::default()
        }
    }

    #[test]
    fn runner_receives_parameters_apart_from_values() {
        let values = values();
        assert_eq!(values.parameters(), [("cell".to_owned(), "c1".to_owned())].into());
        let sent: Vec<String> = values
            .proto()
            .iter()
            .map(|value| format!("{} {} {} {}", value.name, value.json, value.origin, value.sensitive))
            .collect();
        assert_eq!(sent, ["password \"hunter2\" VariableSet eu true", "replicas 3 Workspace dev false"]);
    }

    #[test]
    fn placeholder_changes_with_its_text() {
        let keys = DigestKeys::new(&[7; 32], &[]);
        let sent = |text: &str| {
            let mut values = values();
            values.secrets.insert("password".to_owned(), text.to_owned());
            values.with_placeholders(&keys).proto()[0].clone()
        };
        let value = sent("hunter2");
        assert!(value.json.starts_with("\"placeholder-of-secret-") && value.sensitive, "{value:?}");
        assert_eq!(value.json.len(), 2 + PLACEHOLDER.len() + 32);
        assert_eq!(value, sent("hunter2"));
        assert_ne!(value, sent("hunter3"));
    }

    #[test]
    fn record_has_origins_and_no_secret() {
        let recorded = values().recorded().unwrap();
        assert_eq!(recorded.variable_sets, ["eu"]);
        let items: Vec<String> =
            recorded.items.iter().map(|item| format!("{} {} {}", item.name, item.kind, item.object)).collect();
        assert_eq!(items, ["cell Run ", "password VariableSet eu", "replicas Workspace dev"]);
        let mut rotated = values();
        rotated.secrets.insert("password".to_owned(), "hunter3".to_owned());
        assert_eq!(rotated.recorded().unwrap(), recorded, "no guess of a secret meets its digest");
        rotated.chosen[2].given = Given::Plain(4.into());
        assert_ne!(rotated.recorded().unwrap().digest, recorded.digest);
        assert_eq!(StackValues::default().recorded(), None);
        assert!(!format!("{rotated:?}").contains("hunter"));
    }
}
