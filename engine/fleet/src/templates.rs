//! Templates, and the seam to the program that executes them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;

use crate::objects::{ClusterType, DeploymentTarget, Labels, Template};

/// Executes templates of Go with the functions of Kalypso.
///
/// The function-runner's renderer is the implementation of the product. Several threads may call it at once.
pub trait Renderer: fmt::Debug + Send + Sync {
    /// Executes a batch. The results have the order of its executions; a bad template fails only its own executions.
    ///
    /// # Errors
    ///
    /// [`RendererError`] when the program gave no answer. Nothing is known about any execution then; the caller tries the whole
    /// comparison or rendering again.
    fn execute(&self, batch: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError>;
}

/// A renderer gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("the renderer of templates gave no answer: {0}")]
pub struct RendererError(pub String);

/// Executions of templates on data.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The templates.
    pub templates: Vec<Arc<Template>>,
    /// The data.
    pub data: Vec<Data>,
    /// The pairs of a template and data.
    pub executions: Vec<Execution>,
}

/// A template and its data, by their positions in a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The position of the template.
    pub template: usize,
    /// The position of the data.
    pub data: usize,
}

/// The data of one assignment.
#[derive(Clone, Debug)]
pub struct Data {
    /// The environment.
    pub environment: String,
    /// The cluster type.
    pub cluster_type: Arc<ClusterType>,
    /// The deployment target.
    pub target: Arc<DeploymentTarget>,
    /// The configuration, a JSON object. Integers have no fraction, and floats have one.
    pub config_data: String,
}

impl Data {
    /// The namespace of the workload on the clusters: `<environment>-<cluster type>-<target>`.
    pub fn namespace(&self) -> String {
        namespace(&self.environment, &self.cluster_type, &self.target)
    }

    /// The labels of the target.
    pub fn labels(&self) -> &Labels {
        &self.target.labels
    }

    /// The location of the manifests of the target.
    pub fn manifests(&self) -> &BTreeMap<String, String> {
        &self.target.spec.manifests
    }
}

pub(crate) fn namespace(environment: &str, cluster_type: &ClusterType, target: &DeploymentTarget) -> String {
    format!("{environment}-{}-{}", cluster_type.name, target.name)
}

/// The result of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// The texts that are not empty.
    pub manifests: Vec<String>,
    /// The called functions that give another value each time, such as `now`.
    pub volatile: Vec<String>,
}

/// A template cannot be executed on its data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TemplateError {
    /// The position of the text in the template.
    pub manifest: usize,
    /// The line in the text, from 1; 0 when it is unknown.
    pub line: usize,
    /// The problem, in the words of Go's library.
    pub message: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manifests[{}]", self.manifest)?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// The part of its data that a template can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Perhaps the configuration too.
    Everything,
    /// Names, labels and manifests only, whatever the configuration is.
    AllButConfig,
}

impl Reach {
    /// The reach of some texts. It errs on the side of [`Reach::Everything`].
    ///
    /// Configuration is out of reach when no text has its name, the whole data, or a way to make another template: the result
    /// of a template with `{{` is a template again.
    pub(crate) fn of(texts: &[String]) -> Self {
        let is_wide = texts.iter().any(|text| text.contains("ConfigData") || actions(text).any(is_wide_action));
        if is_wide { Self::Everything } else { Self::AllButConfig }
    }

    /// The reach on a target, whose texts may be templates themselves.
    pub(crate) fn on(self, target: &DeploymentTarget) -> Self {
        let texts = target.labels.iter().chain(&target.spec.manifests);
        let has_braces = texts.into_iter().any(|(key, text)| key.contains('{') || text.contains('{'));
        if has_braces { Self::Everything } else { self }
    }
}

/// The parts of a text between `{{` and `}}`.
fn actions(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once("{{")?;
        // A text in the action may have the end in it; the rest of it then counts as text, which the next action or the end of
        // the template makes good: without an even number of quotes, everything is in reach.
        let (action, after) = behind.split_once("}}").unwrap_or((behind, ""));
        rest = after;
        Some(action)
    })
}

/// Whether an action may reach the whole data, or make a template.
fn is_wide_action(action: &str) -> bool {
    // Texts in actions: an escape or a brace may become a template, and an odd quote hides the end of the action.
    if action.contains(['\\', '`', '\'', '{', '%']) || !action.matches('"').count().is_multiple_of(2) {
        return true;
    }
    let code: String = action.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    if ["b64dec", "b32dec", "decryptAES"].iter().any(|name| code.contains(name)) {
        return true;
    }
    let is_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let characters: Vec<char> = code.chars().collect();
    characters.iter().enumerate().any(|(at, c)| match c {
        '.' => !is_name(characters.get(at + 1).copied()),
        '$' => !is_name(characters.get(at + 1).copied()) && characters.get(at + 1) != Some(&'.'),
        _ => false,
    })
}

/// The configuration as the JSON of [`Data::config_data`].
pub(crate) fn config_json(values: &BTreeMap<String, Arc<Value>>) -> String {
    let mut out = String::from("{");
    for (key, value) in values {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&Value::from(key.as_str()).to_string());
        out.push(':');
        out.push_str(&value.to_string());
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configuration_is_out_of_reach_of_plain_templates() {
        for (text, expected) in [
            ("name: {{ .Namespace}} \nurl: https://a.b/c.\n", Reach::AllButConfig),
            ("{{ index .Labels \"application\"}}.{{ .Manifests.repo}}", Reach::AllButConfig),
            ("{{- if eq .Manifests.type \"a.b\" -}} x {{ end }}", Reach::AllButConfig),
            ("{{ range $k, $v := .Labels }}{{ $k }}: {{ $v }}{{ end }}", Reach::AllButConfig),
            ("{{ $.Workload }} {{ 1.5 }}", Reach::AllButConfig),
            ("{{ .ConfigData.A }}", Reach::Everything),
            ("# ConfigData\n", Reach::Everything),
            ("{{ toYaml . }}", Reach::Everything),
            ("{{ with $ }}{{ end }}", Reach::Everything),
            ("{{ range .Labels }}{{ . }}{{ end }}", Reach::Everything),
            ("{{ printf \"{{ .%s }}\" \"Config\" }}", Reach::Everything),
            ("{{ printf \"%c\" 123 }}", Reach::Everything),
            ("{{ \"\\x7b\" }}", Reach::Everything),
            ("{{ `{` }}", Reach::Everything),
            ("{{ b64dec \"e3s\" }}", Reach::Everything),
            ("{{ \"}}\" }} {{ toYaml . }}", Reach::Everything),
        ] {
            assert_eq!(Reach::of(&[text.to_owned()]), expected, "{text}");
        }
        let mut target = crate::testing::target("t", &[]);
        assert_eq!(Reach::AllButConfig.on(&target), Reach::AllButConfig);
        target.spec.manifests.insert("path".to_owned(), "{{ .ConfigData.A }}".to_owned());
        assert_eq!(Reach::AllButConfig.on(&target), Reach::Everything);
    }

    #[test]
    fn config_data_keeps_integers_and_floats_apart() {
        let values = [("a\"", json!("x")), ("b", json!({"i": 1, "f": 1.0, "n": null}))];
        let values = values.into_iter().map(|(key, value)| (key.to_owned(), Arc::new(value))).collect();
        assert_eq!(config_json(&values), r#"{"a\"":"x","b":{"f":1.0,"i":1,"n":null}}"#);
        assert_eq!(config_json(&BTreeMap::new()), "{}");
    }
}
