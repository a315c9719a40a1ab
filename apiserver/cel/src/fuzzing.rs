//! What holds for expressions, whatever they say.

use std::sync::{Arc, LazyLock};

use serde_json::{Value as Json, json};

use super::{
    Answers, Batch, Declarations, Evaluated, Inputs, Interrupted, Limits, Program, Question, SHALLOW, Variable, run,
};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this crate.
pub const TARGETS: &[Target] = &[("cel", cel), ("cel_texts", cel_texts)];

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

/// What holds for any text that functions of the library read, each behind what says that they do read it, from where on
/// an error is as wrong as `false`.
const OF_TEXTS: &[(&str, &str)] = &[
    ("true", "isURL(object) == !format.uri().validate(object).hasValue()"),
    // Of those that begin with `//` some are none all the same, upstream too.
    ("url(object) == url(object)", "isURL(object) && url(object).getHost().size() >= url(object).getHostname().size()"),
    ("url(object) == url(object)", "url(object).getQuery().all(key, value, value.size() > 0)"),
    ("isQuantity(object)", "quantity(object) == quantity(object) && quantity(object).compareTo(quantity(object)) == 0"),
    // Sums may be too large.
    ("[quantity(object).add(0)].size() == 1", "quantity(object) == quantity(object).add(0)"),
    ("[quantity(object).add(1)].size() == 1", "quantity(object).compareTo(quantity(object).add(1)) == -1"),
    (
        "[quantity('0').sub(quantity(object))].size() == 1",
        "sign(quantity(object)) == -sign(quantity('0').sub(quantity(object)))",
    ),
    ("isIP(object)", "isIP(string(ip(object))) && ip.isCanonical(string(ip(object)))"),
    ("isIP(object)", "cidr(object + '/' + string(ip(object).family() == 4 ? 32 : 128)).containsIP(ip(object))"),
    (
        "isCIDR(object)",
        "cidr(object).containsCIDR(cidr(object)) && cidr(object).masked().masked() == cidr(object).masked()",
    ),
    ("isSemver(object)", "semver(object).compareTo(semver(object)) == 0 && isSemver(object, false)"),
    // An offset of 24 hours and 60 minutes is read, and not what it is written as.
    (
        "[timestamp(object)].size() == 1 && !object.endsWith('24:60')",
        "timestamp(object) == timestamp(string(timestamp(object)))",
    ),
    ("[duration(object)].size() == 1", "duration(object) == duration(string(duration(object)))"),
    (
        "!format.datetime().validate(object).hasValue()",
        "format.date().validate(object.lowerAscii().split('t')[0]) == optional.none()",
    ),
    (
        "true",
        "['dns1123Label', 'dns1035Label'].all(name, format.named(name).value().validate(object).hasValue() || \
         !format.dns1123Subdomain().validate(object).hasValue() && !format.labelValue().validate(object).hasValue() && \
         !format.qualifiedName().validate(object).hasValue())",
    ),
    (
        "true",
        "['uuid', 'byte', 'labelValue'].all(name, \
         format.named(name).value().validate(object).orValue([]).size() <= 2)",
    ),
    ("true", "object.split('').join() == object && object.lastIndexOf(object) == 0"),
    ("true", "strings.quote(object).size() >= object.size() + 2"),
    ("true", "'%s'.format([[object]]).startsWith('[\"') && '%s'.format([object]) == object"),
    ("!object.contains('%')", "object.format([]) == object"),
    (
        "[object.format([1, 2.5, object, [object], {object: object}])].size() == 1",
        "(object + '%%').format([1, 2.5, object, [object], {object: object}]) == \
         object.format([1, 2.5, object, [object], {object: object}]) + '%'",
    ),
    ("double(object) == double(object)", "double(string(double(object))) == double(object)"),
    ("true", "object.split('').sortBy(part, part).sortBy(part, part).isSorted()"),
];

/// Each of them with what has to hold before, and each for itself: else one that takes all steps hides the others.
static READ: LazyLock<Vec<[Batch; 2]>> = LazyLock::new(|| {
    let batch = |source: &str| {
        let program = Program::compile(source, &DECLARED);
        assert_eq!(program.compile_error(), None);
        Batch { variables: Arc::default(), programs: Arc::new(vec![Some(program)]) }
    };
    OF_TEXTS.iter().map(|(before, holds)| [batch(before), batch(holds)]).collect()
});

/// So many steps for whatever there is.
fn limits(budget: u64) -> Limits {
    Limits { budget, each: budget, here: budget, depth: SHALLOW }
}

/// A text: what the library reads of it fits together.
pub fn cel_texts(data: &[u8]) {
    let object = Json::from(String::from_utf8_lossy(data));
    let inputs = Policy { object, ..Policy::default() };
    let limits = limits(40 * BUDGET);
    let evaluate = |batch: &Batch| run(batch, &inputs, &Answers::new(), limits).map(|mut made| made.results.remove(0));
    for ([before, batch], (_, source)) in READ.iter().zip(OF_TEXTS) {
        if evaluate(before) != Ok(Some(Ok(Evaluated::Bool(true)))) {
            continue;
        }
        match evaluate(batch) {
            Ok(Some(Ok(Evaluated::Bool(true)))) | Err(Interrupted::OutOfBudget) => {}
            outcome => panic!("{source} of {:?}: {outcome:?}", inputs.object),
        }
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
    let outcome = || match run(&batch, &*INPUTS, &Answers::new(), limits(BUDGET)) {
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
