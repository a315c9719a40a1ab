//! The label selector grammar of `k8s.io/apimachinery/pkg/labels`:
//! `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.

use std::{collections::BTreeSet, fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1;

use super::LabelBits;
use crate::{
    content,
    status::{ApiError, FieldError},
};

/// Matches objects by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    condition: Condition,
    /// An object that it holds of has all bits of one of these.
    bits: Vec<LabelBits>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Exists,
    DoesNotExist,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Parses a `labelSelector` parameter; empty matches everything. Fails with 400 `BadRequest` that says what was
    /// found and expected.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        // As in Go's lexer, a null ends the text.
        let text = text.split('\0').next().unwrap_or("");
        let mut parser = Parser { tokens: scan(text), at: 0 };
        parser.selector().map(Self).map_err(ApiError::bad_request)
    }

    /// The selector that a structured one means.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in the words of upstream's `LabelSelectorAsSelector`.
    pub fn structured(selector: &v1::LabelSelector) -> Result<Self, String> {
        let mut terms: Vec<String> = Vec::new();
        terms.extend(selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}")));
        for requirement in selector.match_expressions.iter().flatten() {
            let key = &requirement.key;
            let values = requirement.values.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(",");
            terms.push(match requirement.operator.as_str() {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.clone(),
                "DoesNotExist" => format!("!{key}"),
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            });
        }
        Self::parse(&terms.join(",")).map_err(|error| error.message().to_owned())
    }

    /// Finds what is wrong with a structured selector at a path of an object, such as `spec.selector`.
    ///
    /// Follows `ValidateLabelSelector` in `k8s.io/apimachinery/pkg/apis/meta/v1/validation`. What passes has a
    /// [`structured`](Self::structured) form, and means there what it says.
    pub fn validate(path: &str, selector: &v1::LabelSelector) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let complain = |errors: &mut Vec<FieldError>, field: &str, value: &str, complaints: Vec<String>| {
            errors.extend(complaints.iter().map(|complaint| FieldError::invalid(field, value, complaint)));
        };
        for (key, value) in selector.match_labels.iter().flatten() {
            let field = format!("{path}.matchLabels");
            complain(&mut errors, &field, key, content::label_key(key));
            complain(&mut errors, &field, value, content::label_value(value));
        }
        for (i, requirement) in selector.match_expressions.iter().flatten().enumerate() {
            let at = |field: &str| format!("{path}.matchExpressions[{i}].{field}");
            let values = requirement.values.as_deref().unwrap_or_default();
            match (requirement.operator.as_str(), values.is_empty()) {
                ("In" | "NotIn", true) => {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(FieldError::required(at("values"), detail));
                }
                ("Exists" | "DoesNotExist", false) => {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(FieldError::forbidden(at("values"), detail));
                }
                ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
                (other, _) => {
                    errors.push(FieldError::invalid(at("operator"), other, "not a valid selector operator"));
                }
            }
            complain(&mut errors, &at("key"), &requirement.key, content::label_key(&requirement.key));
            for (j, value) in values.iter().enumerate() {
                complain(&mut errors, &format!("{}[{j}]", at("values")), value, content::label_value(value));
            }
        }
        errors
    }

    /// Whether it may match an object whose labels have these bits. When it says no, that is so.
    pub fn may_match(&self, bits: LabelBits) -> bool {
        self.0.iter().all(|requirement| requirement.bits.iter().any(|needed| bits.has(*needed)))
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it matches an object whose labels `get` looks up.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.condition.holds(get(&requirement.key)))
    }
}

impl FromStr for LabelSelector {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Self, ApiError> {
        Self::parse(text)
    }
}

impl Requirement {
    fn new(key: String, condition: Condition) -> Self {
        let bits = match &condition {
            Condition::In(values) => values.iter().map(|value| LabelBits::label(&key, value)).collect(),
            Condition::Exists | Condition::GreaterThan(_) | Condition::LessThan(_) => vec![LabelBits::key(&key)],
            Condition::DoesNotExist | Condition::NotIn(_) => vec![LabelBits::default()],
        };
        Self { key, condition, bits }
    }
}

impl Condition {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        for (i, Requirement { key, condition, .. }) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match condition {
                Condition::Exists => f.write_str(key)?,
                Condition::DoesNotExist => write!(f, "!{key}")?,
                Condition::In(values) if values.len() == 1 => write!(f, "{key}={}", list(values))?,
                Condition::In(values) => write!(f, "{key} in ({})", list(values))?,
                Condition::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", list(values))?,
                Condition::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
                Condition::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Condition::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, or the word of an operator: which one it is depends on where it stands.
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Token::Word(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }

    fn is(self, symbol: &str) -> bool {
        matches!(self, Token::Symbol(text) if text == symbol)
    }
}

fn scan(text: &str) -> Vec<Token<'_>> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            tokens.push(Token::End);
            return tokens;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(&rest[..symbol.len()]));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find(['=', '!', '(', ')', ',', '>', '<', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..end]));
            rest = &rest[end..];
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        // The last token is the end, and stays.
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.peek() == Token::End {
            return Ok(requirements);
        }
        loop {
            let token = self.peek();
            if !(matches!(token, Token::Word(_)) || token.is("!")) {
                let found = token.text();
                return Err(if requirements.is_empty() {
                    format!("found '{found}', expected: !, identifier, or 'end of string'")
                } else {
                    format!("found '{found}', expected: identifier after ','")
                });
            }
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|message| format!("unable to parse requirement: {message}"))?);
            match self.next() {
                Token::End => {
                    requirements.sort_by(|a, b| a.key.cmp(&b.key));
                    return Ok(requirements);
                }
                token if token.is(",") => {}
                token => return Err(format!("found '{}', expected: ',' or 'end of string'", token.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek().is("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word.to_owned(),
            token => return Err(format!("found '{}', expected: identifier", token.text())),
        };
        let complaints = content::label_key(&key);
        if !complaints.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", complaints.join("; ")));
        }
        if absent {
            return Ok(Requirement::new(key, Condition::DoesNotExist));
        }
        if self.peek() == Token::End || self.peek().is(",") {
            return Ok(Requirement::new(key, Condition::Exists));
        }
        let operator = self.next();
        let condition = match operator {
            Token::Word("in") => Condition::In(self.values(&key)?),
            Token::Word("notin") => Condition::NotIn(self.values(&key)?),
            Token::Symbol("=" | "==") => Condition::In(self.value(&key)?),
            Token::Symbol("!=") => Condition::NotIn(self.value(&key)?),
            Token::Symbol(">") => Condition::GreaterThan(self.number(&key)?),
            Token::Symbol("<") => Condition::LessThan(self.number(&key)?),
            token => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", token.text()));
            }
        };
        Ok(Requirement::new(key, condition))
    }

    /// `(a,b,)`; what is missing between commas is the empty value.
    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        if !self.peek().is("(") {
            return Err(format!("found '{}' expected: '('", self.peek().text()));
        }
        self.next();
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Word(word) => {
                    self.next();
                    word
                }
                token if token.is(",") || token.is(")") => "",
                token if values.is_empty() => {
                    return Err(format!("found '{}', expected: ',', ')' or identifier", token.text()));
                }
                token => return Err(format!("found '{}', expected: ',', or identifier", token.text())),
            };
            values.insert(value.to_owned());
            match self.next() {
                token if token.is(")") => return valid(key, values),
                token if token.is(",") => {}
                token => return Err(format!("found '{}', expected: ',' or ')'", token.text())),
            }
        }
    }

    fn value(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        valid(key, BTreeSet::from([self.word()?.to_owned()]))
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let word = self.word()?;
        let number = word.parse().map_err(|_| {
            format!("values[0]: Invalid value: {word:?}: for 'Gt', 'Lt' operators, the value must be an integer")
        });
        let errors = number.as_ref().err().cloned().into_iter().chain(complaint(key, 0, word)).collect();
        together(errors)?;
        number
    }

    fn word(&mut self) -> Result<&'a str, String> {
        match self.peek() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            Token::End => Ok(""),
            token if token.is(",") => Ok(""),
            token => Err(format!("found '{}', expected: identifier", token.text())),
        }
    }
}

/// The values, or what is wrong with them.
fn valid(key: &str, values: BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    together(values.iter().enumerate().filter_map(|(index, value)| complaint(key, index, value)).collect())?;
    Ok(values)
}

fn complaint(key: &str, index: usize, value: &str) -> Option<String> {
    let complaints = content::label_value(value);
    (!complaints.is_empty())
        .then(|| format!("values[{index}][{key}]: Invalid value: {value:?}: {}", complaints.join("; ")))
}

/// All that is wrong, in the words of Go's aggregates.
fn together(errors: Vec<String>) -> Result<(), String> {
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).expect("good");
        let bits = LabelBits::of(labels.iter().copied());
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let matches = selector.matches(|key| labels.get(key).copied());
        assert!(selector.may_match(bits) || !matches, "{selector} is said not to match {labels:?}");
        matches
    }

    #[test]
    fn most_objects_need_no_look_at_their_labels() {
        let objects = (0..1000).map(|n| (format!("app-{n}"), format!("team-{}", n % 7)));
        let objects = objects.map(|(app, team)| LabelBits::of([("app", &*app), ("team", &*team)].into_iter()));
        let objects: Vec<LabelBits> = objects.collect();
        let looked_at = |selector: &str| {
            let selector = LabelSelector::parse(selector).expect("good");
            objects.iter().filter(|bits| selector.may_match(**bits)).count()
        };
        assert!(looked_at("app=app-1") < 100 && looked_at("app in (app-1,app-2)") < 150);
        assert!(looked_at("none") < 200);
        assert_eq!((looked_at("app"), looked_at("app!=app-1"), looked_at("!app")), (1000, 1000, 1000));
    }

    #[test]
    fn structured_selectors_are_refused_in_the_words_of_kubernetes() {
        let check = |selector: serde_json::Value, expected: &[(&str, &str)]| {
            let selector: v1::LabelSelector = serde_json::from_value(selector).expect("a selector");
            let errors = LabelSelector::validate("spec.selector", &selector);
            let found: Vec<(&str, &str)> = errors
                .iter()
                .map(|error| (error.field.as_str(), error.message.split("part").next().expect("some text")))
                .collect();
            assert_eq!(found, expected, "{selector:?}");
            if found.is_empty() {
                LabelSelector::structured(&selector).expect("what is valid means something");
            }
        };
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({"matchLabels": {"example.com/tier": ""}}), &[]);
        check(expression("tier", "In", &["one", ""]), &[]);
        check(expression("tier", "DoesNotExist", &[]), &[]);
        check(
            expression("tier", "", &["one"]),
            &[("spec.selector.matchExpressions[0].operator", "Invalid value: \"\": not a valid selector operator")],
        );
        check(
            expression("tier", "NotIn", &[]),
            &[(
                "spec.selector.matchExpressions[0].values",
                "Required value: must be specified when `operator` is 'In' or 'NotIn'",
            )],
        );
        check(
            expression("tier", "Exists", &["one"]),
            &[(
                "spec.selector.matchExpressions[0].values",
                "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )],
        );
        let key = "spec.selector.matchExpressions[0].key";
        check(
            expression("", "In", &["one"]),
            &[(key, "Invalid value: \"\": name "), (key, "Invalid value: \"\": name ")],
        );
        // As text these would say something else.
        check(expression("a in (b),c", "Exists", &[]), &[(key, "Invalid value: \"a in (b),c\": name ")]);
        let errors = LabelSelector::validate(
            "spec.selector",
            &serde_json::from_value(json!({"matchLabels": {"a": "b,c"}})).expect("a selector"),
        );
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), ["spec.selector.matchLabels"]);
    }

    #[test]
    fn every_operator_matches_as_documented() {
        let labels = [("env", "dev"), ("tier", ""), ("n", "5"), ("example.com/x", "1")];
        for good in [
            "",
            " ",
            "env",
            "env=dev",
            "env==dev",
            "env = dev , n",
            "env!=prod",
            "none!=prod",
            "!none",
            "! none",
            "env in (dev,prod)",
            "env in (in,dev)",
            "env notin (prod)",
            "none notin (prod)",
            "tier=",
            "tier=,env",
            "tier in ()",
            "tier in (a,,b)",
            "n>4",
            "n<6",
            "n > 4,n < 6",
            "example.com/x=1",
        ] {
            assert!(matches(good, &labels), "{good:?}");
        }
        for bad in [
            "none",
            "env=prod",
            "env!=dev",
            "!env",
            "env in (prod)",
            "none in (prod)",
            "env notin (dev)",
            "tier in (a)",
            "n>5",
            "n<5",
            "env>1",
            "none<5",
            "env=dev,n=6",
        ] {
            assert!(!matches(bad, &labels), "{bad:?}");
        }
    }

    #[test]
    fn words_of_operators_are_values_and_keys_too() {
        assert!(matches("in in (notin)", &[("in", "notin")]));
        assert!(matches("notin=in", &[("notin", "in")]));
    }

    #[test]
    fn nonsense_is_a_bad_request() {
        for bad in [
            ",",
            "a,",
            "a,,b",
            "a=b=c",
            "a b",
            "a in b",
            "a in (b",
            "a in (b c)",
            "a in",
            "=b",
            "!",
            "!a=b",
            "a!b",
            "a=-",
            "-a",
            "a/b/c",
            "a>x",
            "a>",
            "(a)",
            "a=(b)",
            "a===b",
            "ä=b",
            "a in (!)",
        ] {
            let error = LabelSelector::parse(bad).expect_err(bad);
            assert_eq!((error.code(), error.reason()), (400, "BadRequest"), "{bad:?}");
        }
        assert_eq!(
            LabelSelector::parse("a b").expect_err("bad").message(),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        // Values are looked at once all of them are read.
        for (bad, expected) in [
            ("a in ((", "found '(', expected: ',', ')' or identifier"),
            ("a in (x,(y))", "found '(', expected: ',', or identifier"),
            ("a in (,", "found '', expected: ',', or identifier"),
            ("a in (-x, b c)", "found 'c', expected: ',' or ')'"),
        ] {
            let message = LabelSelector::parse(bad).expect_err(bad).message().to_owned();
            assert_eq!(message, format!("unable to parse requirement: {expected}"));
        }
        for (bad, first, second) in [
            (
                "a in (-y,-x)",
                r#"[values[0][a]: Invalid value: "-x": a valid"#,
                r#", values[1][a]: Invalid value: "-y": a valid"#,
            ),
            (
                "a>-b",
                r#"[values[0]: Invalid value: "-b": for 'Gt', 'Lt' operators, the value must be an integer, "#,
                r#"values[0][a]: Invalid value: "-b": a valid"#,
            ),
        ] {
            let message = LabelSelector::parse(bad).expect_err(bad).message().to_owned();
            assert!(message.contains(first) && message.contains(second) && message.ends_with(']'), "{message}");
        }
    }

    fn requirement() -> impl Strategy<Value = (String, Condition)> {
        let word = "[a-z][a-z0-9]{0,3}";
        let values = || proptest::collection::btree_set(word, 1..4);
        let condition = prop_oneof![
            Just(Condition::Exists),
            Just(Condition::DoesNotExist),
            values().prop_map(Condition::In),
            values().prop_map(Condition::NotIn),
            any::<i64>()
                .prop_filter("label values do not begin with a dash", |n| *n >= 0)
                .prop_map(Condition::GreaterThan),
            (0..1000_i64).prop_map(Condition::LessThan),
        ];
        (word, condition)
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same(requirements in proptest::collection::vec(requirement(), 0..5)) {
            let mut requirements: Vec<_> =
                requirements.into_iter().map(|(key, condition)| Requirement::new(key, condition)).collect();
            requirements.sort_by(|a, b| a.key.cmp(&b.key));
            let selector = LabelSelector(requirements);
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).expect("printed"), selector);
        }

        #[test]
        fn any_text_parses_or_is_refused(text in "[a-c=!(), <>in\t/.-]{0,24}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()).expect("printed"), selector);
            }
        }
    }
}
