//! The spec of a PackageVariant by the template of its set, whose expressions are of CEL.
//!
//! Follows `controllers/packagevariantsets/pkg/controllers/packagevariantset/render.go` of Porch 1.5.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};
use stoa_cel::{Answers, Batch, Declarations, Evaluated, Program};
use stoa_types::porchconfig::{
    Downstream, Function, FunctionTemplate, InjectionSelector, InjectionSelectorTemplate, MapExpr, PackageContext,
    PackageVariantSpec, PackageVariantTemplate, Pipeline, Upstream,
};

/// The variables of Porch.
const DECLARED: Declarations = Declarations {
    variables: &["repoDefault", "packageDefault", "upstream", "repository", "target"],
    constructs: false,
};

/// How many steps an expression may take.
const BUDGET: u64 = 1_000_000;

/// The values of the variables, apart from `repository`.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) repo_default: String,
    pub(super) package_default: String,
    pub(super) upstream: Value,
    pub(super) target: Value,
}

/// An object as expressions see it.
pub(super) fn described(object: &Value) -> Value {
    let metadata = |field: &str| object.pointer(&format!("/metadata/{field}")).cloned();
    json!({
        "name": metadata("name").unwrap_or_default(),
        "namespace": metadata("namespace").unwrap_or_default(),
        "labels": metadata("labels").unwrap_or_else(|| json!({})),
        "annotations": metadata("annotations").unwrap_or_else(|| json!({})),
    })
}

#[derive(Clone, Debug)]
struct Seen {
    repo_default: Value,
    package_default: Value,
    upstream: Value,
    target: Value,
    repository: Option<Value>,
}

impl stoa_cel::Inputs for Seen {
    fn variable(&self, name: &str) -> Option<&Value> {
        match name {
            "repoDefault" => Some(&self.repo_default),
            "packageDefault" => Some(&self.package_default),
            "upstream" => Some(&self.upstream),
            "target" => Some(&self.target),
            "repository" => self.repository.as_ref(),
            _ => None,
        }
    }
}

/// The text that an expression comes to.
async fn text(field: &str, expression: &str, seen: &Arc<Seen>) -> Result<String, String> {
    let programs = Arc::new(vec![Some(Program::compile(expression, &DECLARED))]);
    let batch = Batch { programs, ..Batch::default() };
    let outcomes = stoa_cel::evaluate(&batch, seen, &Answers::new(), BUDGET).await;
    let outcomes =
        outcomes.map_err(|why| format!("{field}: the expression takes too long or goes too deep ({why:?})"))?;
    match outcomes.results.into_iter().next().flatten() {
        Some(Ok(Evaluated::Text(text))) => Ok(text),
        Some(Ok(other)) => Err(format!("{field}: expression returned non-string value of type {}", other.type_name())),
        Some(Err(error)) => Err(format!("{field}: {error}")),
        None => Err(format!("{field}: the expression has no value")),
    }
}

/// The spec of a variant.
///
/// # Errors
///
/// A sentence with the field whose expression fails, or with the repository that does not exist.
pub(super) async fn spec(
    upstream: &Upstream,
    template: Option<&PackageVariantTemplate>,
    context: Context,
    repositories: &BTreeMap<String, Value>,
) -> Result<PackageVariantSpec, String> {
    let Context { repo_default, package_default, upstream: seen_upstream, target } = context;
    let mut downstream = Downstream { repo: repo_default.clone(), package: package_default.clone() };
    let mut spec = PackageVariantSpec { upstream: Some(upstream.clone()), ..PackageVariantSpec::default() };
    let Some(template) = template else {
        return Ok(PackageVariantSpec { downstream: Some(downstream), ..spec });
    };
    let first = Arc::new(Seen {
        repo_default: repo_default.into(),
        package_default: package_default.into(),
        upstream: seen_upstream,
        target,
        repository: None,
    });
    let of_downstream = template.downstream.clone().unwrap_or_default();
    let is_set = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    if let Some(repo) = is_set(&of_downstream.repo) {
        downstream.repo = repo;
    }
    if let Some(expression) = is_set(&of_downstream.repo_expr) {
        downstream.repo = text("template.downstream.repoExpr", &expression, &first).await?;
    }
    let repository = repositories.get(&downstream.repo).cloned();
    let repository = repository.ok_or_else(|| format!("repository {:?} could not be loaded", downstream.repo))?;
    let seen = Arc::new(Seen { repository: Some(repository), ..(*first).clone() });
    if let Some(package) = is_set(&of_downstream.package) {
        downstream.package = package;
    }
    if let Some(expression) = is_set(&of_downstream.package_expr) {
        downstream.package = text("template.downstream.packageExpr", &expression, &seen).await?;
    }
    spec.downstream = Some(downstream);
    spec.adoption_policy = template.adoption_policy.unwrap_or_default();
    spec.deletion_policy = template.deletion_policy.unwrap_or_default();
    spec.labels = entries("template.labelExprs", &template.labels, &template.label_exprs, &seen).await?;
    spec.annotations =
        entries("template.annotationExprs", &template.annotations, &template.annotation_exprs, &seen).await?;
    if let Some(context) = &template.package_context {
        let data = entries("template.packageContext.dataExprs", &context.data, &context.data_exprs, &seen).await?;
        let mut removed: BTreeSet<String> = context.remove_keys.iter().cloned().collect();
        for (at, expression) in context.remove_key_exprs.iter().enumerate() {
            removed.insert(text(&format!("template.packageContext.removeKeyExprs[{at}]"), expression, &seen).await?);
        }
        spec.package_context = Some(PackageContext { data, remove_keys: removed.into_iter().collect() });
    }
    for (at, injector) in template.injectors.iter().enumerate() {
        spec.injectors.push(self::injector(at, injector, &seen).await?);
    }
    if let Some(pipeline) = &template.pipeline {
        let validators = functions("template.pipeline.validators", &pipeline.validators, &seen).await?;
        let mutators = functions("template.pipeline.mutators", &pipeline.mutators, &seen).await?;
        spec.pipeline = Some(Pipeline { mutators, validators }).filter(|pipeline| *pipeline != Pipeline::default());
    }
    Ok(spec)
}

async fn injector(
    at: usize,
    template: &InjectionSelectorTemplate,
    seen: &Arc<Seen>,
) -> Result<InjectionSelector, String> {
    let InjectionSelectorTemplate { point, name, name_expr } = template.clone();
    let name = match name_expr.filter(|expression| !expression.is_empty()) {
        Some(expression) => text(&format!("template.injectors[{at}].nameExpr"), &expression, seen).await?,
        None => name.unwrap_or_default(),
    };
    Ok(InjectionSelector { point, name })
}

/// Plain entries and those of expressions, which override them.
async fn entries(
    field: &str,
    plain: &BTreeMap<String, String>,
    expressions: &[MapExpr],
    seen: &Arc<Seen>,
) -> Result<BTreeMap<String, String>, String> {
    let mut all = plain.clone();
    for (at, MapExpr { key, value, key_expr, value_expr }) in expressions.iter().enumerate() {
        let key = match key_expr {
            Some(expression) => text(&format!("{field}[{at}].keyExpr"), expression, seen).await?,
            None => key.clone().unwrap_or_default(),
        };
        let value = match value_expr {
            Some(expression) => text(&format!("{field}[{at}].valueExpr"), expression, seen).await?,
            None => value.clone().unwrap_or_default(),
        };
        all.insert(key, value);
    }
    Ok(all)
}

async fn functions(field: &str, templates: &[FunctionTemplate], seen: &Arc<Seen>) -> Result<Vec<Function>, String> {
    let mut found = Vec::with_capacity(templates.len());
    for (at, template) in templates.iter().enumerate() {
        let FunctionTemplate { name, image, config_path, config_map, config_map_exprs, selectors, exclude } =
            template.clone();
        let field = format!("{field}[{at}].configMapExprs");
        let config_map = entries(&field, &config_map, &config_map_exprs, seen).await?;
        let exec = String::new();
        found.push(Function { name, image, exec, config_path, config_map, selectors, exclude });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let object = json!({"metadata": {"name": "eu", "namespace": "shop", "labels": {"tier": "gold"}}});
        Context {
            repo_default: "eu".to_owned(),
            package_default: "basens".to_owned(),
            upstream: described(&json!({"metadata": {"name": "blueprints.basens.v1"}})),
            target: described(&object),
        }
    }

    async fn of(template: Value) -> Result<PackageVariantSpec, String> {
        let repositories = BTreeMap::from([
            ("eu".to_owned(), described(&json!({"metadata": {"name": "eu", "labels": {"region": "west"}}}))),
            ("other".to_owned(), described(&json!({"metadata": {"name": "other"}}))),
        ]);
        let template: PackageVariantTemplate = serde_json::from_value(template).unwrap();
        let upstream = Upstream { repo: "blueprints".to_owned(), package: "basens".to_owned(), ..Upstream::default() };
        spec(&upstream, Some(&template), context(), &repositories).await
    }

    #[tokio::test]
    async fn expressions_override_values() {
        let template = json!({
            "downstream": {"packageExpr": "packageDefault + '-' + repository.labels.region"},
            "labels": {"a": "1", "tier": "none"},
            "labelExprs": [{"key": "tier", "valueExpr": "target.labels['tier']"}],
            "annotationExprs": [{"keyExpr": "'from-' + repoDefault", "value": "x"}],
            "packageContext": {"removeKeys": ["b"], "removeKeyExprs": ["'a'"]},
            "injectors": [{"kind": "Network", "nameExpr": "target.name + '-net'"}],
            "pipeline": {"mutators": [{"image": "set-labels:v0.1.5", "configMapExprs": [{"key": "up", "valueExpr": "upstream.name"}]}]},
        });
        let spec = of(template).await.unwrap();
        assert_eq!(spec.downstream.unwrap().package, "basens-west");
        assert_eq!(json!(spec.labels), json!({"a": "1", "tier": "gold"}));
        assert_eq!(json!(spec.annotations), json!({"from-eu": "x"}));
        assert_eq!(spec.package_context.unwrap().remove_keys, ["a", "b"]);
        assert_eq!(spec.injectors[0].name, "eu-net");
        assert_eq!(spec.pipeline.unwrap().mutators[0].config_map["up"], "blueprints.basens.v1");
    }

    #[tokio::test]
    async fn errors_name_their_field() {
        for (template, expected) in [
            (json!({"downstream": {"repoExpr": "'gone'"}}), "repository \"gone\" could not be loaded"),
            (
                json!({"downstream": {"packageExpr": "1"}}),
                "template.downstream.packageExpr: expression returned non-string",
            ),
            (json!({"labelExprs": [{"key": "a", "valueExpr": "nothing"}]}), "template.labelExprs[0].valueExpr: "),
            // The repository is known once its name is.
            (json!({"downstream": {"repoExpr": "repository.name"}}), "template.downstream.repoExpr: "),
        ] {
            let error = of(template).await.unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        let spec = of(json!({"downstream": {"repo": "other"}})).await.unwrap();
        assert_eq!(spec.downstream.unwrap().repo, "other");
    }
}
