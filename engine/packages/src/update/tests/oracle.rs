//! Asks kpt's own library.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::{Value, json};

use super::texts;
use crate::Tree;
use crate::kptfile::UpdateStrategy;

/// Names the program.
const PROGRAM: &str = "STOA_TEST_PACKAGES_ORACLE";

struct Oracle {
    _child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

static ORACLE: LazyLock<Option<Mutex<Oracle>>> = LazyLock::new(|| {
    let Some(program) = env::var_os(PROGRAM) else {
        eprintln!("skipped: {PROGRAM} does not name the oracle");
        return None;
    };
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle starts");
    let questions = child.stdin.take().expect("it is piped");
    let answers = BufReader::new(child.stdout.take().expect("it is piped"));
    Some(Mutex::new(Oracle { _child: child, questions, answers }))
});

/// kpt's files after an update, or its error; `None` without the program.
pub(super) fn ask(
    strategy: UpdateStrategy,
    origin: &Tree,
    upstream: &Tree,
    local: &Tree,
) -> Option<Result<BTreeMap<String, String>, String>> {
    let question = json!({
        "strategy": strategy.name(),
        "origin": texts(origin),
        "upstream": texts(upstream),
        "local": texts(local),
    });
    let mut oracle = ORACLE.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
    oracle.questions.write_all(format!("{question}\n").as_bytes()).expect("the oracle listens");
    let mut line = String::new();
    oracle.answers.read_line(&mut line).expect("the oracle answers");
    let answer: Value = serde_json::from_str(&line).expect("the answer is JSON");
    Some(match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned()),
        None => Ok(serde_json::from_value(answer["files"].clone()).unwrap_or_default()),
    })
}
