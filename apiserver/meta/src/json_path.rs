//! Paths into an object as columns of custom resources have them: what `kubectl` calls JSONPath, without its templates.
//!
//! Follows `k8s.io/client-go/util/jsonpath` for keys, indices, `[*]` and comparisons with `==`, and takes the first value
//! found, as columns do.

use serde_json::Value;

/// A path such as `.spec.port`, `.spec.ports[0].name` or `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(i64),
    Any,
    /// Any item of a list that has this value at these keys.
    Where(Vec<String>, Value),
}

/// A path that is of another form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path of keys, indices and conditions such as .status.conditions[?(@.type==\"Ready\")].status")]
pub struct InvalidPath(String);

impl JsonPath {
    /// Reads a path.
    ///
    /// # Errors
    ///
    /// [`InvalidPath`], also for what JSONPath has and columns have no use for, such as `..` and ranges.
    pub fn parse(text: &str) -> Result<Self, InvalidPath> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (step, after) = step(rest).ok_or_else(|| InvalidPath(text.to_owned()))?;
            steps.push(step);
            rest = after;
        }
        if steps.is_empty() { Err(InvalidPath(text.to_owned())) } else { Ok(Self(steps)) }
    }

    /// The keys, when the path is made of nothing else.
    pub fn keys(&self) -> Option<Vec<&str>> {
        self.0.iter().map(|step| if let Step::Key(key) = step { Some(key.as_str()) } else { None }).collect()
    }

    /// The first value that it leads to.
    pub fn first<'a>(&self, root: &'a serde_json::Map<String, Value>) -> Option<&'a Value> {
        let (Step::Key(key), rest) = self.0.split_first()? else { return None };
        find(root.get(key)?, rest)
    }
}

fn find<'a>(value: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Key(key) => find(value.get(key)?, rest),
        Step::Index(index) => {
            let items = value.as_array()?;
            let from_end = index.checked_neg().filter(|back| *back > 0).and_then(|back| usize::try_from(back).ok());
            let at = match from_end {
                Some(back) => items.len().checked_sub(back)?,
                None => usize::try_from(*index).ok()?,
            };
            find(items.get(at)?, rest)
        }
        Step::Any => value.as_array()?.iter().find_map(|item| find(item, rest)),
        Step::Where(keys, wanted) => {
            let has = |item: &&Value| keys.iter().try_fold(*item, |value, key| value.get(key)) == Some(wanted);
            value.as_array()?.iter().filter(has).find_map(|item| find(item, rest))
        }
    }
}

/// The first step of a path, and what comes after.
fn step(text: &str) -> Option<(Step, &str)> {
    if let Some(text) = text.strip_prefix('.') {
        let (key, rest) = key(text)?;
        return Some((Step::Key(key), rest));
    }
    let text = text.strip_prefix('[')?;
    if let Some(text) = text.strip_prefix("?(@") {
        let (mut keys, mut rest) = (Vec::new(), text);
        while let Some(text) = rest.strip_prefix('.') {
            let (key, after) = key(text)?;
            keys.push(key);
            rest = after;
        }
        let (wanted, rest) = literal(rest.trim_start().strip_prefix("==")?.trim_start())?;
        let rest = rest.trim_start().strip_prefix(")]")?;
        return (!keys.is_empty()).then_some((Step::Where(keys, wanted), rest));
    }
    if text.starts_with(['\'', '"']) {
        let (Value::String(key), rest) = literal(text)? else { return None };
        return Some((Step::Key(key), rest.strip_prefix(']')?));
    }
    let (inside, rest) = text.split_once(']')?;
    let step = if inside == "*" { Step::Any } else { Step::Index(inside.parse().ok()?) };
    Some((step, rest))
}

/// A key, in which a backslash stands before what would end it, and what comes after.
fn key(text: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => key.push(chars.next()?.1),
            '.' | '[' | ']' | ' ' | '=' | '!' | '<' | '>' | ')' => return finish(key, &text[at..]),
            '*' | '?' | '@' | '{' | '}' | '(' | ',' | '$' => return None,
            _ => key.push(char),
        }
    }
    finish(key, "")
}

fn finish(key: String, rest: &str) -> Option<(String, &str)> {
    (!key.is_empty()).then_some((key, rest))
}

/// What is compared with, and what comes after: text in quotes, a number, `true` or `false`.
fn literal(text: &str) -> Option<(Value, &str)> {
    if let Some(quote) = text.chars().next().filter(|char| ['\'', '"'].contains(char)) {
        let (inside, rest) = text[1..].split_once(quote)?;
        return Some((inside.into(), rest));
    }
    let (inside, rest) = text.split_at(text.find([')', ' '])?);
    let value: Value = serde_json::from_str(inside).ok()?;
    (value.is_number() || value.is_boolean()).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_path_finds_first_value() {
        let object = json!({
            "metadata": { "labels": { "example.com/tier": "web" } },
            "spec": { "port": 80, "ports": [{ "name": "a" }, { "name": "b", "open": true }] },
            "status": { "conditions": [
                { "type": "Synced", "status": "False" }, { "type": "Ready" }, { "type": "Ready", "status": "True" },
            ] },
        });
        let object = object.as_object().unwrap();
        for (path, expected) in [
            (".spec.port", json!(80)),
            (".spec.ports[0].name", json!("a")),
            (".spec.ports[-1].name", json!("b")),
            (".spec.ports[*].open", json!(true)),
            (".spec['port']", json!(80)),
            (r".metadata.labels.example\.com/tier", json!("web")),
            (r#".metadata.labels["example.com/tier"]"#, json!("web")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type == 'Synced')].status", json!("False")),
            (".spec.ports[?(@.open==true)].name", json!("b")),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap().first(object), Some(&expected), "{path}");
        }
        for path in [".none", ".spec.port.none", ".spec.ports[2]", ".spec.ports[-3]", ".spec[0]", ".spec.ports[*].none"]
        {
            assert_eq!(JsonPath::parse(path).unwrap().first(object), None, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let paths = [
            r".|spec|..name|.a..b|.a.|.a[|.a[]|.a[x]|.a[1:2]|.a['b]|{.a}|.a.*|.a\",
            ".a[?(@.b)]|.a[?(@.b!=1)]|.a[?(@==1)]|.a[?(@.b==x)]|.a[?(@.b==1]",
        ];
        for path in paths.iter().flat_map(|paths| paths.split('|')).chain([""]) {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn keys_alone_are_told() {
        assert_eq!(JsonPath::parse(".spec.port").unwrap().keys(), Some(vec!["spec", "port"]));
        assert_eq!(JsonPath::parse(".spec.ports[0]").unwrap().keys(), None);
    }
}
