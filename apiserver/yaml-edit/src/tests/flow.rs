use std::hash::DefaultHasher;

use super::*;

/// What becomes of a collection in brackets or braces.
#[track_caller]
fn turns(collection: &str, after: Value, expected: &str) {
    let file = |collection: &str| format!("# top\na: {collection} # of a\nb: 1\n");
    becomes(&file(collection), json!({"a": after, "b": 1}), &file(expected));
}

const ABOUT: &str = "{ # all
    # on z
    z: 1,  # z
    y: 'two', # y

    # apart

    # on x
    x: [ a,b ] # x
    # end
  }";

#[test]
fn scalars_change_where_they_stand() {
    let object = |z: Value, y: Value, x: Value| json!({"z": z, "y": y, "x": x});
    let items = json!(["a", "b"]);
    turns(ABOUT, object(json!(2), json!("two"), items.clone()), &ABOUT.replace("z: 1", "z: 2"));
    turns(ABOUT, object(json!(1), json!("a, b"), items.clone()), &ABOUT.replace("'two'", "\"a, b\""));
    turns(ABOUT, object(json!("a\nb"), json!("two"), items.clone()), &ABOUT.replace("z: 1", "z: \"a\\nb\""));
    turns(ABOUT, object(json!({"k": [1]}), json!("two"), items), &ABOUT.replace("z: 1", "z: {k: [1]}"));
    turns(ABOUT, object(json!(1), json!("two"), json!(["a", "c"])), &ABOUT.replace("a,b", "a,c"));
    turns(ABOUT, object(json!(1), json!("two"), json!(true)), &ABOUT.replace("[ a,b ]", "true"));
    turns("{z: # why\n  1, y: 2}", json!({"z": 3, "y": 2}), "{z: # why\n  3, y: 2}");
    turns("[1,   2,3 ]", json!([1, 5, 3]), "[1,   5,3 ]");
}

#[test]
fn maps_get_keys_and_other_collections_are_written_anew() {
    turns("{z: 1, y: 2}", json!({"z": 1, "y": 2, "a": {"k": 1}, "b": []}), "{z: 1, y: 2, a: {k: 1}, b: []}");
    turns("{ z: 'a',\n  y: b } # y", json!({"z": "a", "y": "b", "x": "c"}), "{ z: 'a',\n  y: b, x: c } # y");
    turns("{ z: 1, # z\n  y: 2 }", json!({"y": 2}), "{\"y\": 2}");
    turns("{z: 1}", json!({"z": 1, "a: b": 3}), "{z: 1, \"a: b\": 3}");
    turns("{}", json!({"z": 1, "a": 2}), "{a: 2, z: 1}");
    turns("[b, c]", json!(["a", "b", "c"]), "[a, b, c]");
    turns("[{name: ann, kind: User}, {name: bob}]", json!([{"name": "bob"}]), "[{name: bob}]");
    turns("[z: 1, b]", json!([{"z": 1, "a": 2}, "b"]), "[{z: 1, a: 2}, b]");
    turns("{a, b: 1}", json!({"a": 1, "b": 1}), "{a: 1, b: 1}");
    turns("[a: 1, ? b : 2]", json!([{"a": 3}, {"b": 2}]), "[a: 3, ? b : 2]");
}

#[test]
fn json_stays_json() {
    let file = "{\n  \"kind\": \"Stack\",\n  \"count\": 1,\n  \"list\": [\"a\",\"b\"]\n}\n";
    becomes(file, json!({"kind": "x\u{7f}", "count": 1, "list": ["a", "b"]}), &file.replace("Stack", "x\\u007f"));
    becomes(file, json!({"kind": "Stack", "list": ["a", null]}), "{\"kind\": \"Stack\", \"list\": [\"a\", null]}\n");
    turns("[1, 2]", json!([1, "a"]), "[1, a]");
}

#[test]
fn tags_and_aliases_are_written_out() {
    // A tag says what its value has to be.
    let file = "a: {z: !!int 1, v: 2} # of a\nb: 1\n";
    becomes(file, json!({"a": {"z": "one", "v": 2}, "b": 1}), "a:\n  z: one\n  v: 2\nb: 1\n");
    let file = "a: {z: &x 1, # z\n  y: *x}\nb: 1\n";
    becomes(file, json!({"a": {"z": 2, "y": 1}, "b": 1}), "a:\n  z: 2\n  \"y\": 1\nb: 1\n");
}

/// How a random document is spread over lines, which follows from a seed and the path of each part.
#[derive(Clone, Copy, Debug)]
struct Spread(u64);

impl Spread {
    /// Whether something is so at a path, in one case out of some.
    fn is(self, what: &str, path: &str, out_of: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.0, what, path).hash(&mut hasher);
        hasher.finish().is_multiple_of(out_of)
    }

    /// A value in brackets and braces.
    fn write(self, out: &mut String, indent: usize, path: &str, value: &Value) {
        let parts: Vec<(String, String, &Value)> = match value {
            Value::Object(fields) => {
                let mut fields: Vec<_> =
                    fields.iter().map(|(key, value)| (format!("{path}/{key}"), format!("{key}: "), value)).collect();
                fields.sort_by_key(|(path, ..)| self.is("order", path, 2));
                fields
            }
            Value::Array(items) => {
                items.iter().map(|item| (format!("{path}/{}", name(item)), String::new(), item)).collect()
            }
            scalar => return out.push_str(&scalar.to_string()),
        };
        let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
        let in_lines = self.is("lines", path, 2);
        out.push(open);
        let line_break = |out: &mut String, indent: usize| out.push_str(&format!("\n{}", " ".repeat(indent)));
        if in_lines && self.is("head", path, 3) {
            out.push_str(&format!(" # head {path}."));
            line_break(out, indent);
        }
        let count = parts.len();
        for (index, (path, key, value)) in parts.iter().enumerate() {
            let begins = in_lines && self.is("begins", path, 2) || out.ends_with('\n');
            if in_lines && self.is("apart", path, 5) {
                out.push_str(&format!("\n   # apart {path}.\n"));
            }
            if in_lines && self.is("above", path, 3) {
                out.push_str(&format!("\n # above {path}."));
                line_break(out, indent);
            } else if begins || out.ends_with('\n') {
                line_break(out, indent);
            } else if index > 0 || self.is("space", path, 2) {
                out.push(' ');
            }
            out.push_str(key);
            self.write(out, indent + 2, path, value);
            let has_comma = index + 1 < count || self.is("trailing", path, 3);
            if has_comma && !self.is("late", path, 6) {
                out.push(',');
            }
            if in_lines && self.is("beside", path, 3) {
                out.push_str(&format!("  # beside {path}."));
                line_break(out, indent);
            }
            if has_comma && self.is("late", path, 6) {
                out.push(',');
            }
        }
        if in_lines && self.is("end", path, 3) {
            out.push_str(&format!("\n\n  # end {path}.\n"));
        }
        if in_lines && self.is("far", path, 2) {
            line_break(out, indent);
        }
        out.push(close);
    }

    /// A file with a value in brackets or braces for each key.
    fn file(self, fields: &Map<String, Value>) -> String {
        let mut file = String::from("# the top\n");
        for (key, value) in fields {
            file.push_str(&format!("{key}: "));
            self.write(&mut file, 2, &format!("/{key}"), value);
            file.push_str(&format!(" # of {key}.\n"));
        }
        file
    }
}

/// What tells the items of a list apart.
fn name(item: &Value) -> &Value {
    item.get("name").unwrap_or(item)
}

/// Gives some scalars of a value other values.
fn changed(spread: Spread, path: &str, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(key, value)| changed(spread, &format!("{path}/{key}"), value));
        }
        // Items are what they say.
        Value::Array(items) => {
            for item in items.iter_mut().filter(|item| item.is_object()) {
                let path = format!("{path}/{}", name(item));
                let fields = item.as_object_mut().into_iter().flatten().filter(|(key, _)| *key != "name");
                fields.for_each(|(key, value)| changed(spread, &format!("{path}/{key}"), value));
            }
        }
        scalar if spread.is("changed", path, 3) => *scalar = json!(path.len()),
        _ => {}
    }
}

/// What a file becomes when what it says becomes something else.
fn after_edit(file: &str, before: &Value, after: &Value) -> String {
    let render = |value: &Value| serde_saphyr::to_string(value).unwrap();
    updated(Some(file.as_bytes()), Some(&render(before)), &render(after)).unwrap_or_else(|| file.to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Scalars that change are all that changes.
    #[test]
    fn scalar_change_preserves_all_other_text(before in document(), seed: u64) {
        let spread = Spread(seed);
        let file = spread.file(&before);
        let mut after = Value::Object(before.clone());
        changed(spread, "", &mut after);
        prop_assert_eq!(parse(file.as_bytes()), Some(Value::Object(before.clone())), "{}", file);
        let text = after_edit(&file, &Value::Object(before), &after);
        prop_assert_eq!(text, spread.file(after.as_object().unwrap()), "{}", file);
    }
}
