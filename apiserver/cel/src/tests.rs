use serde_json::json;

use super::{fuzzing::Policy, *};

mod upstream;

/// How many steps the evaluations here may take.
const BUDGET: u64 = 10_000_000;

/// What a policy of admission may use.
const TELLING: Declarations = Declarations {
    variables: &["object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables"],
    constructs: false,
};
const MUTATING: Declarations = Declarations { constructs: true, ..TELLING };

fn compile(source: &str) -> Program {
    Program::compile(source, &TELLING)
}

fn variable(name: &str, source: &str) -> Variable {
    Variable::compile(name, source, &TELLING)
}

fn inputs() -> Policy {
    Policy {
        object: json!({
            "metadata": {"name": "web", "labels": {"env": "prod"}},
            "spec": {"replicas": 3, "ratio": 0.5, "names": ["a", "b", "b"], "nothing": null,
                     "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]},
        }),
        request: json!({"operation": "CREATE", "userInfo": {"username": "ann", "groups": ["dev"]}}),
        params: json!({"data": {"max": "5"}}),
        ..Policy::default()
    }
}

/// The limits of an evaluation, of which one expression may take all.
const WHOLE: Limits = Limits { budget: BUDGET, each: BUDGET, here: BUDGET, depth: SHALLOW };

/// An expression of loops in loops: ten times as many steps with each.
fn nested(loops: usize) -> String {
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    (0..loops).fold("true".to_owned(), |inner, depth| format!("{ten}.all(x{depth}, {inner})"))
}

/// The outcome, once it is known, of an expression that took more steps than one may.
fn over_limit(source: &str) -> Option<Result<Evaluated, String>> {
    let limit = "operation cancelled: actual cost limit exceeded";
    Some(Err(format!("expression '{source}' resulted in error: {limit}")))
}

fn outcome_of(source: &str) -> Result<Evaluated, String> {
    let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(source))]) };
    match run(&batch, &inputs(), &Answers::new(), WHOLE) {
        Ok(mut outcomes) => outcomes.results.remove(0).expect("a program was given"),
        Err(_) => Err("interrupted".to_owned()),
    }
}

/// Expressions that hold.
#[track_caller]
fn hold(sources: &[&str]) {
    for source in sources {
        assert_eq!(outcome_of(source), Ok(Evaluated::Bool(true)), "{source}");
    }
}

/// The error of an expression, without the expression.
#[track_caller]
fn fails(source: &str, expected: &str) {
    let error = outcome_of(source).expect_err(source);
    let error = error.strip_prefix(&format!("expression '{source}' resulted in error: ")).unwrap_or(&error);
    assert_eq!(error, expected, "{source}");
}

#[test]
fn operators_and_fields() {
    hold(&[
        "object.spec.replicas <= 5 && object.spec.replicas + 2 == 5",
        "object.spec.replicas == 3.0 && object.spec.ratio < 1",
        "object.metadata.labels['env'] == 'prod'",
        "has(object.metadata.labels) && !has(object.metadata.annotations)",
        "object.spec.names[1] == 'b' && 'a' in object.spec.names && 'env' in object.metadata.labels",
        "object.spec.names + ['c'] == ['a', 'b', 'b', 'c']",
        "7 / 2 == 3 && -7 % 3 == -1 && 1.5 * 2.0 == 3.0 && 2u + 3u == 5u",
        "(object.spec.replicas > 2 ? 'many' : 'few') == 'many'",
        "oldObject == null && object.spec.nothing == null",
        "int(params.data.max) > object.spec.replicas",
        "request.operation in ['CREATE', 'UPDATE'] && 'dev' in request.userInfo.groups",
        "{'a': 1, 'b': 2}['b'] == 2 && size({'a': 1}) == 1",
        "type(1) == int && type('a') == string && 1 != 'a'",
        "b'ab' + b'c' == b'abc'",
    ]);
}

#[test]
fn macros() {
    hold(&[
        "object.spec.ports.all(p, p.port > 0)",
        "object.spec.ports.exists(p, p.name == 'https')",
        "object.spec.ports.exists_one(p, p.port == 80)",
        "object.spec.ports.map(p, p.port) == [80, 443]",
        "object.spec.ports.filter(p, p.port > 100).size() == 1",
        "object.spec.names.map(n, n == 'b', n + '!') == ['b!', 'b!']",
        "object.metadata.labels.all(key, key.size() < 10)",
        "object.spec.ports.all(p, object.spec.names.exists(n, n != p.name))",
        "cel.bind(x, object.spec.replicas, x * x == 9)",
    ]);
}

#[test]
fn errors_do_not_count_where_the_rest_decides() {
    hold(&[
        "object.spec.missing == 1 || true",
        "true || object.spec.missing == 1",
        "!(object.spec.missing == 1 && false)",
        "[1, 0].exists(x, 2 / x > 1)",
    ]);
    fails("object.spec.missing == 1 || false", "no such key: missing");
    fails("[1, 0].all(x, 2 / x > 1)", "division by zero");
}

#[test]
fn optional_values() {
    hold(&[
        "object.?spec.?replicas.orValue(1) == 3",
        "object.?status.?phase.orValue('none') == 'none'",
        "!object.spec.?missing.hasValue()",
        "object.spec.names[?7].orValue('z') == 'z'",
        "optional.of(2).optMap(x, x + 1).value() == 3",
        "optional.none().or(optional.of(1)).value() == 1",
        "[?optional.none(), 1] == [1] && {?'a': optional.none()} == {}",
        "!optional.ofNonZeroValue('').hasValue()",
    ]);
    fails("optional.none().value()", "optional.none() dereference");
}

#[test]
fn functions_of_strings() {
    hold(&[
        "'hello'.startsWith('he') && 'hello'.endsWith('lo') && 'hello'.contains('ell')",
        "'abc-123'.matches('^[a-z]+-[0-9]+$') && 'abc-123'.find('[0-9]+') == '123'",
        "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('[0-9]', 1) == ['1']",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && ['a', 'b'].join('/') == 'a/b'",
        "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a,b'.split(',', 0) == [] && 'a,b'.split(',', -1) == ['a', 'b']",
        "'aöc'.split('') == ['a', 'ö', 'c'] && 'aöc'.split('', 2) == ['a', 'öc'] && 'aöc'.split('', 3).size() == 3",
        "'aöc'.split('', 9) == ['a', 'ö', 'c'] && 'aö'.split('', 1) == ['aö'] && ''.split('') == []",
        "'hello'.substring(1, 3) == 'el' && 'hello'.charAt(4) == 'o' && 'hello'.indexOf('l') == 2",
        "jsonpatch.escapeKey('k8s.io/my~label') == 'k8s.io~1my~0label'",
        "'hello'.lastIndexOf('l') == 3 && ' x '.trim() == 'x' && 'Ab'.lowerAscii() + 'Ab'.upperAscii() == 'abAB'",
        "'aaa'.replace('a', 'b') == 'bbb' && 'aaa'.replace('a', 'b', 1) == 'baa'",
        "'%s has %d of %.2f'.format(['web', 3, 1.5]) == 'web has 3 of 1.50'",
        "!'größe'.matches('^\\\\w+$') && 'a-b'.matches('^[\\\\w-]{1,63}$') && '['.matches('^[[]$')",
        "size('größe') == 5 && string(1.5) == '1.5' && string(true) == 'true'",
    ]);
    fails("'abc'.substring(2, 9)", "index out of range: 9");
    fails("int('x')", "type conversion error from 'string' to 'int'");
    fails("duration('--5s' + '')", "type conversion error from 'string' to 'google.protobuf.Duration'");
}

#[test]
fn functions_of_lists_and_sets() {
    hold(&[
        "[1, 2, 3].isSorted() && ![3, 1].isSorted() && [1, 2].sum() == 3 && [2, 1].min() == 1 && [2, 1].max() == 2",
        "object.spec.names.indexOf('b') == 1 && object.spec.names.lastIndexOf('b') == 2",
        "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])",
        "object.spec.names.distinct() == ['a', 'b'] && [[1], [2]].flatten() == [1, 2]",
    ]);
    fails("[].min()", "min called on empty list");
}

/// What is no number has no order, and sorting by none can panic.
#[test]
fn what_is_no_number_is_sorted_to_an_end() {
    let numbers = ["0.0 / 0.0", "2.0", "1.0"].repeat(33).join(", ");
    hold(&[
        &format!("[{numbers}].sort().filter(n, n == n).isSorted() && [{numbers}].sort().size() == 99"),
        "[duration('2s'), duration('1s')].sort()[0] == duration('1s')",
        "[3, 2].sortBy(e, 0.0 / 0.0) == [3, 2] && [0.0 / 0.0].sort().size() == 1",
    ]);
    for none in ["[1]", "{}", "quantity('1')", "optional.of(1)"] {
        fails(&format!("[{none}].sort()"), "list elements must be comparable");
    }
    // As both are equal to the float, the integers could be in any order.
    fails("[9007199254740993, 9007199254740992.0, 9007199254740992].sort()", "list elements must have the same type");
}

#[test]
fn types_of_kubernetes() {
    hold(&[
        "quantity('1Gi').isGreaterThan(quantity('500Mi')) && quantity('1').add(quantity('1')).asInteger() == 2",
        "isQuantity('100m') && !isQuantity('x') && quantity('50k').compareTo(quantity('50000')) == 0",
        "url('https://u@example.com:8080/a%20b?k=v&k=w').getHost() == 'example.com:8080'",
        "url('https://example.com/a?k=v&k=w').getQuery()['k'] == ['v', 'w'] && isURL('/a') && !isURL('a b')",
        "ip('127.0.0.1').isLoopback() && ip('::1').family() == 6 && !isIP('300.1.1.1')",
        "cidr('10.0.0.0/8').containsIP('10.2.3.4') && !cidr('10.0.0.0/8').containsCIDR('11.0.0.0/16')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && isCIDR('::/0')",
        "timestamp('2026-01-02T03:04:05Z').getMonth() == 0 && timestamp('2026-01-02T23:04:05Z').getHours('+02:00') == 1",
        "duration('1h30m') > duration('80m') && timestamp('2026-01-01T01:00:00Z') - timestamp('2026-01-01T00:00:00Z') \
         == duration('1h')",
    ]);
}

#[test]
fn versions_are_read_and_put_in_order() {
    hold(&[
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))",
        "semver('1.0.0-alpha').compareTo(semver('1.0.0-beta')) == -1 && semver('1.0.0+a') == semver('1.0.0+b')",
        "isSemver('1.2.3-rc.1+build') && !isSemver('v1.2.3') && !isSemver('1.2') && !isSemver('01.2.3') && !isSemver('')",
        "isSemver('v01.02', true) && semver('v01.02', true) == semver('1.2.0') && semver('v1', true).patch() == 0",
        "!isSemver('1.2-rc.1', true) && !isSemver('one', true) && semver('0.00.0', true) == semver('0.0.0')",
        "type(semver('1.2.3')) == type(semver('2.0.0'))",
    ]);
    fails("semver('one')", "No Major.Minor.Patch elements found");
}

#[test]
fn two_variable_macros_bind_index_and_element() {
    hold(&[
        "[1, 2].all(i, v, v > i) && ![1, 0].all(i, v, v > i) && {'a': 1}.all(k, v, k == 'a' && v == 1)",
        "[5, 1].exists(i, v, i == v) && ![5, 5].exists(i, v, i == v) && [0, 5].existsOne(i, v, i == v)",
        "![0, 1].exists_one(i, v, i == v) && [].all(i, v, false) && ![].exists(i, v, true)",
        // A later one decides in spite of an error.
        "![0, 1].all(i, v, 1 / v > 1) && [0, 1].exists(i, v, 1 / v == 1)",
        "[1, 2].transformList(i, v, v * 2 + i) == [2, 5] && [3, 4].transformList(i, v, i > 0, v) == [4]",
        "{'a': 1, 'b': 2}.transformList(k, v, k) == ['a', 'b']",
        "{'a': 1, 'b': 2}.transformMap(k, v, v + 1) == {'a': 2, 'b': 3}",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, k) == {'b': 'b'} && ['x'].transformMap(i, v, v) == {0: 'x'}",
        "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'} && ['x'].transformMapEntry(i, v, false, {v: i}) == {}",
        "lists.range(3) == [0, 1, 2] && lists.range(0) == [] && lists.range(3).all(i, v, i == v)",
        "object.spec.names.transformList(i, name, name + string(i)).size() == 3",
    ]);
    fails("[0].all(i, v, 1 / v > 0)", "division by zero");
    fails("[0].existsOne(i, v, 1 / v > 0)", "division by zero");
    fails("{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k})", "insert failed: key 1 already exists");
    fails("1.all(i, v, true)", "no such overload");
    fails("[1].transformMapEntry(i, v, v)", "no such overload");
    fails("[1].transformMapEntry(i, v, [v])", "no such overload");
    let error = |source: &str| compile(source).compile_error().map(str::to_owned);
    assert!(error("[1].all(i, v, w)").unwrap().contains("undeclared reference to 'w'"));
    assert!(error("[1].all(1, v, true)").unwrap().contains("argument must be a simple name"));
    assert!(error("[1].transformList(i, v)").unwrap().contains("undeclared reference to 'transformList'"));
}

#[test]
fn evaluator_reports_cel_go_error_messages() {
    fails("object.spec.missing", "no such key: missing");
    fails("object.metadata.labels['x']", "no such key: x");
    fails("object.spec.names[3]", "index out of bounds: 3");
    fails("object.spec.replicas + 'a'", "no such overload");
    fails("object.spec.replicas.foo", "no such key: foo");
    fails("9223372036854775807 + 1", "integer overflow");
    fails("1 / 0", "division by zero");
    fails("true ? 1 / 0 : 2", "division by zero");
}

#[test]
fn compiler_rejects_undeclared_names() {
    let error = |source: &str| compile(source).compile_error().map(str::to_owned);
    let undeclared = |source: &str, column: usize, name: &str| {
        let problem = format!("ERROR: <input>:1:{column}: undeclared reference to '{name}' (in container '')");
        Some(format!("compilation failed: {problem}\n | {source}\n | {:.>column$}", "^"))
    };
    for (source, column, name) in [
        ("objekt.spec == 1", 1, "objekt"),
        ("object.spec.frobnicate()", 23, "frobnicate"),
        ("object.spec.ports.all(p, q > 1)", 26, "q"),
    ] {
        assert_eq!(error(source), undeclared(source, column, name));
    }
    assert!(error("object.spec ==").is_some_and(|error| error.starts_with("compilation failed: ERROR: <input>:1:")));
    assert_eq!(error("object.spec.ports.all(p, p.port > 1)"), None);
}

/// To read a policy must not take as long as to compile whatever patterns have room in it.
#[test]
fn compiler_checks_limited_number_of_patterns() {
    for (before, is_refused) in [(10, true), (20, false)] {
        let source = "''.matches('a') || ".repeat(before) + "''.matches('(')";
        assert_eq!(compile(&source).compile_error().is_some(), is_refused, "{before}");
    }
}

#[test]
fn variables_are_evaluated_once_and_see_those_before_them() {
    let variables = vec![
        variable("three", "object.spec.replicas"),
        variable("six", "variables.three * 2"),
        variable("early", "variables.late"),
        variable("late", "1"),
    ];
    let programs = ["variables.six == 6", "variables.early == 1", "[1].all(x, variables.three == 3)"];
    let batch = Batch {
        variables: Arc::new(variables),
        programs: Arc::new(programs.iter().map(|source| Some(compile(source))).collect()),
    };
    let Ok(outcomes) = run(&batch, &inputs(), &Answers::new(), WHOLE) else { panic!("interrupted") };
    assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))));
    let error = outcomes.results[1].clone().unwrap().unwrap_err();
    assert!(error.ends_with("composited variable \"early\" fails to evaluate: no such key: late"), "{error}");
    assert_eq!(outcomes.results[2], Some(Ok(Evaluated::Bool(true))));
}

#[test]
fn deep_expressions_are_refused_and_never_end_the_process() {
    let deep = "compilation failed: ERROR: <input>:1:1: expression recursion limit exceeded: 250";
    let long = "compilation failed: the expression is too long";
    for (begin, more) in [("1", "+1"), ("object", ".a"), ("object", "[0]"), ("1", " < 1"), ("1", " in [1]")] {
        let error =
            |count: usize| compile(&format!("{begin}{}", more.repeat(count))).compile_error().map(str::to_owned);
        let most = MOST_OPERATORS / if more == " in [1]" { 2 } else { 1 };
        assert_eq!((error(most).as_deref(), error(most + 1).as_deref()), (Some(deep), Some(long)), "{more}");
    }
    for (begin, middle, end) in
        [("(", "1", ")"), ("[", "1", "]"), ("-", "1", ""), ("!", "true", ""), ("size(", "[]", ")")]
    {
        let deep = |count: usize| format!("{}{middle}{}", begin.repeat(count), end.repeat(count));
        // Two of the same sign are none.
        assert_eq!(compile(&deep(40)).compile_error(), None, "{begin}");
        let _ = compile(&deep(MOST_OPERATORS - 1));
        assert_eq!(compile(&deep(20_000)).compile_error(), Some(long), "{begin}");
    }
    hold(&[&format!("1{} == 201", "+1".repeat(200)), &format!("true{}", " && true".repeat(200))]);
    // What stands in texts is no operator.
    hold(&[&format!("'{}'.size() == 10000", "+".repeat(10_000))]);
}

/// A batch of variables that each refer to the one before, and of programs.
fn chain(next: impl Fn(usize) -> String, count: usize, programs: &[String]) -> Batch {
    let mut variables = vec![variable("v0", "1")];
    variables.extend((1..count).map(|n| variable(&format!("v{n}"), &next(n - 1))));
    let programs = programs.iter().map(|source| Some(compile(source))).collect();
    Batch { variables: Arc::new(variables), programs: Arc::new(programs) }
}

#[tokio::test]
async fn deep_variable_chain_reports_error() {
    for (last, expected) in [(50, Ok(())), (1_000, Ok(())), (2_000, Err(Interrupted::TooDeep))] {
        let program = format!("variables.v{last} == {}", last + 1);
        let batch = chain(|n| format!("variables.v{n} + 1"), last + 1, &[program]);
        let outcomes = evaluate(&batch, &Arc::new(inputs()), &Answers::new(), BUDGET).await;
        let results = outcomes.map(|outcomes| assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true)))));
        assert_eq!(results, expected, "{last}");
    }
}

/// Dropping a value that is nested without end would end the process.
#[tokio::test]
async fn variables_that_are_known_nest_no_deeper_than_others() {
    for (last, expected) in [(1_000, Ok(())), (5_000, Err(Interrupted::TooDeep))] {
        // One after the other, so that each finds the one before it evaluated.
        let programs: Vec<String> = (0..=last).map(|n| format!("variables.v{n} != 7")).collect();
        let batch = chain(|n| format!("[variables.v{n}]"), last + 1, &programs);
        let outcomes = evaluate(&batch, &Arc::new(inputs()), &Answers::new(), BUDGET).await;
        assert_eq!(outcomes.map(drop), expected, "{last}");
    }
}

#[tokio::test]
async fn evaluator_rejects_deeply_nested_constructed_value() {
    for (last, fits) in [(200, true), (900, false)] {
        let program = Program::compile(&format!("[JSONPatch{{op: 'add', value: variables.v{last}}}]"), &MUTATING);
        let batch =
            Batch { programs: Arc::new(vec![Some(program)]), ..chain(|n| format!("[variables.v{n}]"), last + 1, &[]) };
        let outcomes = evaluate(&batch, &Arc::new(inputs()), &Answers::new(), BUDGET).await.unwrap();
        let made = outcomes.results[0].clone().unwrap();
        assert_eq!(made.is_ok(), fits, "{made:?}");
        assert!(fits || made.unwrap_err().ends_with("the value is nested too deeply"));
    }
}

#[test]
fn each_item_with_each_is_paid_for() {
    let object = json!({ "many": (0..1_000).collect::<Vec<_>>() });
    let inputs = Policy { object, ..Policy::default() };
    for (source, least) in [
        ("sets.contains(object.many, object.many)", 1_000_000),
        ("sets.intersects([1], object.many)", 1_000),
        ("sets.equivalent(object.many, object.many)", 2_000_000),
        ("object.many.distinct() == object.many", 1_000_000),
    ] {
        let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(source))]) };
        let outcomes = run(&batch, &inputs, &Answers::new(), WHOLE).unwrap();
        assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))), "{source}");
        let cost = BUDGET - outcomes.budget;
        assert!((least..least + 2_000).contains(&cost), "{source} costs {cost}");
        let spent = run(&batch, &inputs, &Answers::new(), Limits { budget: least - 1, ..WHOLE });
        assert_eq!(spent.unwrap_err(), Interrupted::OutOfBudget, "{source}");
    }
}

#[test]
fn ordering_cost_counts_value_length() {
    let names: Vec<String> = (0..1_000).map(|n| format!("{n:0100}")).collect();
    let map: serde_json::Map<String, serde_json::Value> = names.iter().map(|name| (name.clone(), json!(1))).collect();
    let inputs = Policy { object: json!({ "names": names, "map": map }), ..Policy::default() };
    for source in ["object.names.sort() == object.names", "'%s'.format([object.map]) != ''"] {
        let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(source))]) };
        let Ok(outcomes) = run(&batch, &inputs, &Answers::new(), WHOLE) else { panic!("{source}") };
        assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))), "{source}");
        let cost = BUDGET - outcomes.budget;
        assert!((101_000..140_000).contains(&cost), "{source} costs {cost}");
    }
}

#[tokio::test]
async fn an_evaluation_ends_when_its_budget_is_spent() {
    let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(&nested(8)))]) };
    let outcome = evaluate(&batch, &Arc::new(inputs()), &Answers::new(), 200_000).await;
    assert_eq!(outcome.unwrap_err(), Interrupted::OutOfBudget);
}

#[tokio::test]
async fn step_limit_ends_only_its_expression() {
    let long = nested(6);
    let variables = vec![variable("long", &long), variable("short", &nested(2))];
    // To what refers to it a variable is an error like another; the expression itself decides nothing any more.
    let either = format!("{long} || true");
    let sources = [long.as_str(), &either, "variables.long || true", "variables.long", "variables.short"];
    let programs = Vec::from(sources.map(|source| Some(compile(source))));
    let batch = Batch { variables: Arc::new(variables), programs: Arc::new(programs) };
    let outcomes = evaluate(&batch, &Arc::new(inputs()), &Answers::new(), BUDGET).await.unwrap();
    let [first, second, third, fourth, fifth] = outcomes.results.try_into().unwrap();
    assert_eq!((first, second), (over_limit(&long), over_limit(&either)));
    assert_eq!(third, Some(Ok(Evaluated::Bool(true))));
    let error = fourth.unwrap().unwrap_err();
    let told = "composited variable \"long\" fails to evaluate: operation cancelled: actual cost limit exceeded";
    assert_eq!(error, format!("expression 'variables.long' resulted in error: {told}"));
    assert_eq!(fifth, Some(Ok(Evaluated::Bool(true))));
    // Three times as many steps as one may take are gone.
    let cost = BUDGET - outcomes.budget;
    assert!((3 * EACH..3 * EACH + 5_000).contains(&cost), "{cost}");
}

#[tokio::test]
async fn an_expression_may_put_two_questions() {
    let question = "authorizer.path('/x').check('get').allowed()";
    let asked = Question { verb: "get".to_owned(), path: "/x".to_owned(), ..Question::default() };
    let inquiry = Inquiry { question: asked, service_account: None };
    let answers = Answers::from([(inquiry, Answer::Allowed(String::new()))]);
    let sources = [2, 3].map(|times| vec![question; times].join(" && "));
    let programs = sources.iter().map(|source| Some(compile(source))).collect();
    let batch = Batch { variables: Arc::default(), programs: Arc::new(programs) };
    let outcomes = evaluate(&batch, &Arc::new(inputs()), &answers, BUDGET).await.unwrap();
    assert_eq!(outcomes.results, [Some(Ok(Evaluated::Bool(true))), over_limit(&sources[1])]);
    // They are as many steps as upstream counts, but take no time here.
    let cost = BUDGET - outcomes.budget;
    assert!((5 * 350_000..5 * 350_000 + 100).contains(&cost), "{cost}");
    let quick = run(&batch, &inputs(), &answers, Limits { each: EACH, here: 100, ..WHOLE }).unwrap();
    assert_eq!(quick.budget, outcomes.budget);
}

#[tokio::test]
async fn step_limit_admits_cheap_upstream_loops() {
    let object = json!({ "many": (0..20_000).collect::<Vec<_>>(), "map": { "key": "x".repeat(10_000) } });
    let inputs = Arc::new(Policy { object, ..Policy::default() });
    for source in [
        "object.many.map(i, i + 1).size() == 20000",
        "object.many.map(i, i % 2 == 0, i / 2)[9999] == 9999",
        "object.many.filter(i, i % 2 == 1).size() == 10000",
        "object.many.all(i, object.many[i] == i)",
        "object.many.all(i, 'key' in object.map && object.map.key != '')",
    ] {
        let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(source))]) };
        let outcomes = evaluate(&batch, &inputs, &Answers::new(), BUDGET).await.unwrap();
        assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))), "{source}");
    }
    // Each item put into a list is paid for all the same.
    fails("[0].map(i, 1 / i)", "division by zero");
    fails("[0, 1].filter(i, i == 0 ? 1 / i > 0 : object.missing)", "no such key: missing");
    fails("[1].filter(i, i)", "no such overload");
    is_held_up("lists.range(1000).map(i, lists.range(1000).map(j, i * j)).size() == 1000", 1_000_000);
}

#[tokio::test]
async fn what_is_large_costs_wherever_it_comes_from() {
    let text = "a".repeat(2_000);
    let many = vec!["s"; 100].join(", ");
    let source = format!("cel.bind(s, '{text}'.replace('a', '{text}'), [{many}].join('') != '')");
    let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(&source))]) };
    let outcome = evaluate(&batch, &Arc::new(inputs()), &Answers::new(), 1_000_000).await;
    assert_eq!(outcome.unwrap_err(), Interrupted::OutOfBudget);
}

const TOO_MANY: &str = "there are too many values in lists and maps";

/// An evaluation that would go on for ever, or take all memory, has an end within its steps.
#[track_caller]
fn is_held_up(source: &str, budget: u64) {
    let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(source))]) };
    match run(&batch, &inputs(), &Answers::new(), Limits { budget, ..WHOLE }) {
        Err(interrupted) => assert_eq!(interrupted, Interrupted::OutOfBudget, "{source}"),
        Ok(outcomes) => {
            let error = outcomes.results[0].as_ref().unwrap().as_ref().expect_err(source);
            let told = ["the string is too long", TOO_MANY];
            assert!(told.iter().any(|told| error.ends_with(told)), "{source}: {error}");
        }
    }
}

#[test]
fn comparison_cost_counts_every_shared_element() {
    for (twice, times) in [("[a, a]", 60), ("{'a': a, 'b': a}", 60), ("optional.of([a, a])", 60)] {
        let many = format!("[1]{}", format!(".map(a, {twice})").repeat(times));
        for telling in [
            "a == a",
            "a != a",
            "a in [a]",
            "[a].indexOf(a) == 0",
            "[a].lastIndexOf(a) == 0",
            "[a, a].distinct().size() == 1",
            "sets.contains([a], [a])",
            "sets.equivalent([a], [a])",
            "sets.intersects([a], [a])",
            "'%s'.format([a]) == ''",
        ] {
            // An optional value has no form in a text.
            if !(twice.starts_with("optional") && telling.starts_with("'%s'")) {
                is_held_up(&format!("{many}.exists(a, {telling})"), 50_000);
            }
        }
    }
}

/// Expressions that make a text which is too long.
#[track_caller]
fn is_too_long(source: &str) {
    let error = outcome_of(source).expect_err(source);
    assert!(error.ends_with("resulted in error: the string is too long"), "{error}");
}

#[test]
fn no_text_is_made_that_is_too_long() {
    let long = "'x'".to_owned() + &".replace('x', 'xxxxxxxxxx')".repeat(6);
    for telling in [
        "(l + l + l + l + l + l + l + l + l) == ''",
        "[l, l, l, l, l, l, l, l, l].join('') == ''",
        "['', '', '', '', '', '', '', '', '', ''].join(l) == ''",
        "'%s%s%s%s%s%s%s%s%s'.format([l, l, l, l, l, l, l, l, l]) == ''",
        "'%s'.format([[l, l, l, l, l, l, l, l, l]]) == ''",
        "strings.quote((l + l + l + l + l).replace('x', '\\n')) == ''",
        "jsonpatch.escapeKey((l + l + l + l + l).replace('x', '~')) == ''",
    ] {
        is_too_long(&format!("cel.bind(l, {long}, {telling})"));
    }
    let many = "[['x'.replace('x', 'xxxxxxxxxxxxxxxxxxxx')]]".to_owned() + &".map(l, l + l)".repeat(19);
    is_too_long(&format!("{many}.exists(l, l.join('') == '')"));
    is_held_up(&format!("{many}.exists(l, [l, l, l].flatten().size() == 0)"), 1_000_000);
}

/// Of lists that are not too long there may be too many.
#[test]
fn there_is_room_for_so_many_values_at_once() {
    let many = "[[1]]".to_owned() + &".map(l, l + l)".repeat(18);
    // Those of an evaluation are gone after it.
    hold(&[format!("{many}.exists(l, l.size() == 262144 && (l + l).size() == 524288)").as_str(); 8]);
    for telling in [
        "l + l + l + l == []",
        "[l + l, l + l] == []",
        "[l, l, l, l].flatten() == []",
        "[l.reverse(), l.sort(), l.slice(0, 262144), l + []] == []",
        "{'a': l + l, 'b': l + l} == {}",
        "optional.of(l + l).optMap(m, m + l).hasValue()",
        "cel.bind(m, l + l, (m + l).size() > 0)",
    ] {
        let error = outcome_of(&format!("{many}.exists(l, {telling})")).expect_err(telling);
        assert!(error.ends_with(TOO_MANY), "{telling}: {error}");
    }
    let long = "'x'".to_owned() + &".replace('x', 'xxxxxxxxxx')".repeat(6);
    for (times, fits) in [(1, true), (2, false)] {
        let parts = vec![long.as_str(); times].join(" + ");
        assert_eq!(outcome_of(&format!("({parts}).split('').size() > 0")).is_ok(), fits, "{times}");
    }
    let maps = "[[1]]".to_owned() + &".map(l, l + l)".repeat(10);
    let map = (0..1_100).map(|n| format!("{n}: 0")).collect::<Vec<_>>().join(", ");
    let error = outcome_of(&format!("{maps}.exists(l, l.map(i, {{{map}}}) == [])")).unwrap_err();
    assert!(error.ends_with(TOO_MANY), "{error}");
}

#[test]
fn evaluator_avoids_copying_long_values() {
    let long = "'x'".to_owned() + &".replace('x', 'xxxxxxxxxx')".repeat(6);
    let many = "[[s]]".to_owned() + &".map(l, l + l)".repeat(16);
    hold(&[
        &format!("cel.bind(s, {long}, {many}.exists(l, l.size() == 65536))"),
        &format!("cel.bind(s, {long}, s.lastIndexOf(s.substring(500000) + 'y') == -1)"),
        "'größe größe'.lastIndexOf('ö') == 8 && 'größe größe'.lastIndexOf('größe', 5) == 0",
        "'größe'.lastIndexOf('', 3) == 3 && 'größe'.lastIndexOf('e', 4) == 4 && 'ab'.lastIndexOf('b', 0) == -1",
    ]);
    is_held_up(&format!("cel.bind(s, {long}, {many}.exists(l, l.sort() == []))"), 1_000_000);
    is_held_up(&format!("cel.bind(s, {long}, {many}.exists(l, l.min() == ''))"), 1_000_000);
    let error = outcome_of(&format!("cel.bind(s, {long}, {{}}[s])")).unwrap_err();
    assert!(error.len() < 8 << 10, "{} bytes", error.len());
}

#[tokio::test]
async fn a_pattern_is_compiled_once_and_paid_for() {
    let object = json!({ "many": (0..1_000).collect::<Vec<_>>() });
    let inputs = Arc::new(Policy { object, ..Policy::default() });
    for (telling, ends) in [
        ("'abc'.matches('^[a-c]+$')", true),
        ("'abc'.find('[a-c]') == 'a' && 'ab'.findAll('[a-c]') == ['a', 'b']", true),
        ("'x'.matches('(' + '') || true", true),
        // No more are kept than these.
        ("'x'.matches(string(i % 32)) || true", true),
        ("'x'.matches(string(i % 33)) || true", false),
        ("string(i).matches('^' + string(i) + '$')", false),
        ("string(i).find(string(i)) != ''", false),
        ("string(i).findAll(string(i)) != []", false),
    ] {
        let source = format!("object.many.all(i, {telling})");
        let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(&source))]) };
        match evaluate(&batch, &inputs, &Answers::new(), 1_000_000).await {
            Ok(outcomes) => {
                assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))), "{source}");
                assert!(ends && outcomes.budget > 900_000, "{source} leaves {}", outcomes.budget);
            }
            Err(interrupted) => assert!(!ends && interrupted == Interrupted::OutOfBudget, "{source}: {interrupted:?}"),
        }
    }
    let long = "'x'".to_owned() + &".replace('x', 'xxxxxxxxxx')".repeat(5);
    is_held_up(&format!("{long}.findAll('.*y|x').size() == 0"), 1_000_000);
    let error = outcome_of(&format!("'x'.matches({long})")).unwrap_err();
    assert!(error.ends_with("error parsing regexp: the pattern is too long"), "{error}");
}

#[test]
fn a_pattern_costs_what_it_takes_to_compile() {
    let long = "x".repeat(60_000);
    for (pattern, costs) in [
        ("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", 1_000..1_200),
        (r"(?i)^[a-z]\\S+$", 1_000..1_200),
        (r"\\p{Lu}{2}", 1_200..1_300),
        (r"[\\pL\\pN]{15}", 21_000..24_000),
        // It becomes too large.
        (r"[\\pL\\pN]{60}", 21_000..24_000),
        (r"(?i)[!-\\x{10ffff}][\\Wa]", 41_000..120_000),
        (&long, 900_000..1_000_000),
    ] {
        let source = format!("''.matches('{pattern}') || true");
        let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(&source))]) };
        let Ok(outcomes) = run(&batch, &inputs(), &Answers::new(), WHOLE) else { panic!("{pattern}") };
        assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))), "{pattern}");
        let cost = BUDGET - outcomes.budget;
        assert!(costs.contains(&cost), "{pattern} costs {cost}");
    }
}

#[tokio::test]
async fn evaluation_reports_authorizer_questions_and_uses_answers() {
    let sources = [
        "authorizer.group('apps').resource('deployments').check('create').allowed() || \
         authorizer.path('/x').check('get').reason() == 'no'",
        "authorizer.path('/y').check('put').reason() == 'RBAC'",
    ];
    let programs = Vec::from(sources.map(|source| Some(compile(source))));
    let batch = Batch { variables: Arc::default(), programs: Arc::new(programs) };
    let mut answers = Answers::new();
    let answers_to = [
        ("create", Answer::Errored("away".to_owned())),
        ("get", Answer::Denied("no".to_owned())),
        ("put", Answer::Allowed("RBAC".to_owned())),
    ];
    for (verb, answer) in answers_to {
        let asked = evaluate(&batch, &Arc::new(inputs()), &answers, BUDGET).await.unwrap_err();
        let Interrupted::Unanswered(inquiry) = asked else { panic!("{asked:?}") };
        assert_eq!((inquiry.question.verb.as_str(), &inquiry.service_account), (verb, &None));
        answers.insert(*inquiry, answer);
    }
    let outcomes = evaluate(&batch, &Arc::new(inputs()), &answers, BUDGET).await.unwrap();
    assert!(outcomes.results.iter().all(|result| *result == Some(Ok(Evaluated::Bool(true)))), "{outcomes:?}");
}

#[tokio::test]
async fn the_authorizer_is_asked_about_a_service_account() {
    let source = "authorizer.serviceAccount('shop', 'deployer').group('').resource('pods').check('get').allowed() && \
                  !authorizer.group('').resource('pods').check('get').allowed()";
    let batch = Batch { variables: Arc::default(), programs: Arc::new(vec![Some(compile(source))]) };
    let mut answers = Answers::new();
    let account = ServiceAccount { namespace: "shop".to_owned(), name: "deployer".to_owned() };
    for (account, answer) in [(Some(account), Answer::Allowed(String::new())), (None, Answer::Denied(String::new()))] {
        let asked = evaluate(&batch, &Arc::new(inputs()), &answers, BUDGET).await.unwrap_err();
        let Interrupted::Unanswered(inquiry) = asked else { panic!("{asked:?}") };
        assert_eq!(inquiry.service_account, account);
        answers.insert(*inquiry, answer);
    }
    let outcomes = evaluate(&batch, &Arc::new(inputs()), &answers, BUDGET).await.unwrap();
    assert_eq!(outcomes.results[0], Some(Ok(Evaluated::Bool(true))));
}

#[test]
fn missing_declared_variable_fails_on_use() {
    fails("params.x", "no such key: x");
    let nothing = Declarations { variables: &["status"], constructs: false };
    let programs = ["status.phase == 'Ready'", "has(status.phase)", "status.phase == 'Ready' || true"];
    let programs = programs.iter().map(|source| Some(Program::compile(source, &nothing))).collect();
    let batch = Batch { variables: Arc::default(), programs: Arc::new(programs) };
    let Ok(outcomes) = run(&batch, &inputs(), &Answers::new(), WHOLE) else { panic!("interrupted") };
    let told: Vec<_> = outcomes.results.into_iter().flatten().collect();
    for error in &told[..2] {
        assert!(error.as_ref().is_err_and(|error| error.ends_with("error: no such attribute(s): status")), "{error:?}");
    }
    assert_eq!(told[2], Ok(Evaluated::Bool(true)));
}
