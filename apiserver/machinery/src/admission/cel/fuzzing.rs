//! What holds for expressions, whatever they say.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use super::{Batch, Inputs, Interrupted, Limits, Program, SHALLOW, Variable, authorizer::Answers, run};

/// What a fuzzer has patience for.
const BUDGET: u64 = 50_000;

static INPUTS: LazyLock<Inputs> = LazyLock::new(|| Inputs {
    object: json!({
        "metadata": { "name": "web", "labels": { "env": "prod" } },
        "spec": { "replicas": 3, "ratio": 0.5, "names": ["a", "b", "b"], "nothing": null,
                  "ports": [{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }] },
    }),
    request: json!({ "operation": "CREATE", "userInfo": { "username": "ann", "groups": ["dev"] } }),
    params: Arc::new(json!({ "data": { "max": "5" } })),
    ..Inputs::default()
});

/// An expression, and on a second line one that refers to it as `variables.v`: reading and evaluating them ends, never
/// takes more than the budget, and has the same outcome each time.
pub(crate) fn cel(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (first, second) = text.split_once('\n').unwrap_or((&text, "variables.v"));
    let program = |source: &str| {
        let program = Program::compile(source);
        let told = |error: &str| error.starts_with("compilation failed: ") && !error.ends_with("internal error");
        assert!(program.compile_error().is_none_or(told), "{:?}", program.compile_error());
        Some(program)
    };
    let batch = Batch {
        variables: Arc::new(vec![Variable::compile("v", first)]),
        programs: Arc::new(vec![program(first), None, program(second)]),
    };
    let outcome = || match run(&batch, &INPUTS, &Answers::new(), Limits { budget: BUDGET, depth: SHALLOW }) {
        Ok(outcomes) => {
            assert!(outcomes.results.len() == 3 && outcomes.budget <= BUDGET);
            format!("{outcomes:?}")
        }
        Err(Interrupted::OutOfBudget) => "out of budget".to_owned(),
        Err(Interrupted::TooDeep) => "too deep".to_owned(),
        Err(Interrupted::Unanswered(question)) => format!("{question:?}"),
    };
    assert_eq!(outcome(), outcome());
}
