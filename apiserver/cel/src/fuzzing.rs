//! What holds for expressions, whatever they say.

use std::sync::{Arc, LazyLock};

use serde_json::{Value as Json, json};

use super::{Answers, Batch, Declarations, Inputs, Interrupted, Limits, Program, Question, SHALLOW, Variable, run};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this crate.
pub const TARGETS: &[Target] = &[("cel", cel)];

/// What a fuzzer has patience for.
const BUDGET: u64 = 50_000;

/// What a policy of admission may use.
const DECLARED: Declarations = Declarations {
    variables: &["object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables"],
    constructs: false,
};

/// What a policy of admission sees.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    pub(crate) object: Json,
    pub(crate) request: Json,
    pub(crate) params: Json,
    pub(crate) nothing: Json,
    pub(crate) resource: Question,
}

impl Inputs for Policy {
    fn variable(&self, name: &str) -> Option<&Json> {
        match name {
            "object" => Some(&self.object),
            "request" => Some(&self.request),
            "params" => Some(&self.params),
            "oldObject" | "namespaceObject" => Some(&self.nothing),
            _ => None,
        }
    }

    fn authorizer(&self) -> Option<&Question> {
        Some(&self.resource)
    }
}

static INPUTS: LazyLock<Policy> = LazyLock::new(|| Policy {
    object: json!({
        "metadata": { "name": "web", "labels": { "env": "prod" } },
        "spec": { "replicas": 3, "ratio": 0.5, "names": ["a", "b", "b"], "nothing": null,
                  "ports": [{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }] },
    }),
    request: json!({ "operation": "CREATE", "userInfo": { "username": "ann", "groups": ["dev"] } }),
    params: json!({ "data": { "max": "5" } }),
    ..Policy::default()
});

/// An expression, and on a second line one that refers to it as `variables.v`: reading and evaluating them ends, never
/// takes more than the budget, and has the same outcome each time.
pub fn cel(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (first, second) = text.split_once('\n').unwrap_or((&text, "variables.v"));
    let program = |source: &str| {
        let program = Program::compile(source, &DECLARED);
        let told = |error: &str| error.starts_with("compilation failed: ") && !error.ends_with("internal error");
        assert!(program.compile_error().is_none_or(told), "{:?}", program.compile_error());
        Some(program)
    };
    let batch = Batch {
        variables: Arc::new(vec![Variable::compile("v", first, &DECLARED)]),
        programs: Arc::new(vec![program(first), None, program(second)]),
    };
    let outcome = || match run(&batch, &*INPUTS, &Answers::new(), Limits { budget: BUDGET, depth: SHALLOW }) {
        Ok(outcomes) => {
            assert!(outcomes.results.len() == 3 && outcomes.budget <= BUDGET);
            format!("{outcomes:?}")
        }
        Err(Interrupted::OutOfBudget) => "out of budget".to_owned(),
        Err(Interrupted::TooDeep) => "too deep".to_owned(),
        Err(Interrupted::Unanswered(question)) => format!("{question:?}"),
        Err(Interrupted::Unexpected) => panic!("something unexpected"),
    };
    assert_eq!(outcome(), outcome());
}
