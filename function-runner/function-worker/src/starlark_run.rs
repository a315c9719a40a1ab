//! Starlark: the program in a function's configuration works on the list of objects.
//!
//! Start at [`run`]. As for kpt's function `starlark`, the program finds `ctx.resource_list`, a dictionary that it changes. Nothing
//! can be loaded, and only `json` and `struct` are there beside the language.

use serde_json::Value;
use starlark::environment::{GlobalsBuilder, LibraryExtension, Module};
use starlark::eval::Evaluator;
use starlark::syntax::{AstModule, Dialect};
use starlark::values::structs::AllocStruct;

use crate::Failure;

/// The calls and turns of loops of one program.
const TICKS: u64 = 50_000_000;

/// The limits of a list of objects.
const LIMITS: stoa_yaml::Limits = stoa_yaml::Limits { depth: 102, values: 20_000_000, documents: 1, copied: 64 << 20 };

/// Runs the program of a list, as YAML or JSON, and returns the changed list as JSON.
///
/// # Errors
///
/// [`Failure::Function`] if the list has no program or the program fails, and [`Failure::Fault`] at a limit.
pub(crate) fn run(list: &[u8], memory: usize) -> Result<String, Failure> {
    let wrong = |message: &str| Failure::Function(message.to_owned());
    let text = std::str::from_utf8(list).map_err(|_| wrong("the ResourceList is not UTF-8"))?;
    let documents = stoa_yaml::documents(text, &LIMITS, false)
        .map_err(|error| Failure::Function(format!("the ResourceList is not YAML: {error}")))?;
    let list = documents.into_iter().next().map(|document| document.value).unwrap_or_default();
    if !list.get("items").is_none_or(|items| items.is_array() || items.is_null()) || !list.is_object() {
        return Err(wrong("the input is no ResourceList"));
    }
    let source = source(&list)
        .ok_or_else(|| {
            wrong("the configuration has no program; set `source` of a StarlarkRun or of a ConfigMap's data")
        })?
        .to_owned();
    evaluate(source, list, memory)
}

/// The program of a configuration.
fn source(list: &Value) -> Option<&str> {
    let config = list.get("functionConfig")?;
    let of_config_map = config.get("data").and_then(|data| data.get("source"));
    config.get("source").or(of_config_map)?.as_str()
}

fn evaluate(source: String, mut list: Value, memory: usize) -> Result<String, Failure> {
    let dialect = Dialect { enable_load: false, ..Dialect::Extended };
    let ast = AstModule::parse("source", source, &dialect).map_err(|error| failed(&error))?;
    if list.get("items").is_none_or(Value::is_null) {
        list["items"] = Value::Array(Vec::new());
    }
    let globals =
        GlobalsBuilder::extended_by(&[LibraryExtension::StructType, LibraryExtension::Json, LibraryExtension::Print])
            .build();
    Module::with_temp_heap(|module| {
        let list = module.heap().alloc(list);
        let ctx = module.heap().alloc(AllocStruct([("resource_list", list)]));
        module.set("ctx", ctx);
        // The garbage collector moves values, and updates this one.
        module.set_extra_value(list);
        let mut evaluator = Evaluator::new(&module);
        let limits = evaluator.set_max_tick_count(TICKS).and_then(|()| evaluator.set_max_heap_size(memory / 2));
        limits.map_err(|error| Failure::Fault(format!("the program cannot be limited: {error}")))?;
        evaluator.eval_module(ast, &globals).map_err(|error| failed(&error))?;
        let Some(list) = module.extra_value() else { return Err(Failure::Fault("the list is lost".to_owned())) };
        let changed = list.to_json().map_err(|error| {
            Failure::Function(format!("the changed list is no JSON: {error:#}; use dictionaries, lists and scalars"))
        })?;
        Ok(changed)
    })
}

/// The failure of a program, with its lines.
fn failed(error: &starlark::Error) -> Failure {
    Failure::Function(format!("the Starlark program failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: usize = 256 << 20;

    fn list(source: &str) -> Vec<u8> {
        let list = serde_json::json!({
            "apiVersion": "config.kubernetes.io/v1",
            "kind": "ResourceList",
            "functionConfig": {
                "apiVersion": "fn.kpt.dev/v1alpha1",
                "kind": "StarlarkRun",
                "metadata": {"name": "set"},
                "params": {"namespace": "prod"},
                "source": source,
            },
            "items": [
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
                {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b"}, "spec": {"replicas": 2}},
            ],
        });
        list.to_string().into_bytes()
    }

    fn outcome(source: &str) -> Result<Value, String> {
        match run(&list(source), MEMORY) {
            Ok(list) => Ok(serde_json::from_str(&list).unwrap()),
            Err(Failure::Function(message) | Failure::Fault(message)) => Err(message),
        }
    }

    #[test]
    fn program_changes_its_objects() {
        let changed = outcome(
            "def set(items, namespace):\n  for item in items:\n    item[\"metadata\"][\"namespace\"] = namespace\n\
             set(ctx.resource_list[\"items\"], ctx.resource_list[\"functionConfig\"][\"params\"][\"namespace\"])\n\
             for item in ctx.resource_list[\"items\"]:\n  if item[\"kind\"] == \"Deployment\":\n    \
             item[\"spec\"][\"replicas\"] += 1\n",
        )
        .unwrap();
        assert_eq!(changed["items"][0]["metadata"]["namespace"], "prod");
        assert_eq!(changed["items"][1]["spec"]["replicas"], 3);
        assert_eq!(changed["kind"], "ResourceList");
    }

    #[test]
    fn program_adds_and_removes_objects_and_reports_results() {
        let changed = outcome(
            "chosen = [item for item in ctx.resource_list[\"items\"] if item[\"kind\"] != \"ConfigMap\"]\n\
             chosen.append({\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"s\"}})\n\
             ctx.resource_list[\"items\"] = chosen\n\
             ctx.resource_list[\"results\"] = [{\"message\": \"done\", \"severity\": \"info\"}]\n",
        )
        .unwrap();
        let kinds: Vec<&str> =
            changed["items"].as_array().unwrap().iter().filter_map(|item| item["kind"].as_str()).collect();
        assert_eq!(kinds, ["Deployment", "Secret"]);
        assert_eq!(changed["results"][0]["message"], "done");
    }

    #[test]
    fn failures_name_the_reason() {
        for (source, part) in [
            ("fail(\"no team label\")", "no team label"),
            ("x = (", "the Starlark program failed"),
            ("load(\"other.star\", \"x\")", "the Starlark program failed"),
            ("ctx.resource_list[\"items\"] = len", "the changed list is no JSON"),
            ("open(\"/etc/passwd\")", "open"),
            ("def loop():\n  for a in range(100000):\n    for b in range(100000):\n      pass\nloop()", "failed"),
        ] {
            let failed = outcome(source).unwrap_err();
            assert!(failed.contains(part), "{source}: {failed}");
        }
        let without = run(b"apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\n", MEMORY);
        assert!(matches!(without, Err(Failure::Function(message)) if message.contains("has no program")));
    }
}
