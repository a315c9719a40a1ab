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
fn keys_are_added_at_the_end_and_in_the_style_of_those_before() {
    turns("{z: 1, y: 2}", json!({"z": 1, "y": 2, "a": {"k": 1}, "b": []}), "{z: 1, y: 2, a: {k: 1}, b: []}");
    turns("{ z: 1,y: 2, }", json!({"z": 1, "y": 2, "a": 3}), "{ z: 1,y: 2,a: 3, }");
    turns("{z: 1,}", json!({"z": 1, "a: b": 3}), "{z: 1, \"a: b\": 3,}");
    turns("{\n  z: 1\n  }", json!({"z": 1, "a": 2, "b": 3}), "{\n  z: 1,\n  a: 2,\n  b: 3\n  }");
    turns("{\n    z: 1, # z\n  }", json!({"z": 1, "a": 2}), "{\n    z: 1, # z\n    a: 2,\n  }");
    turns("{\n    z: 1 # z\n    # end\n}", json!({"z": 1, "a": 2}), "{\n    z: 1, # z\n    a: 2\n    # end\n}");
    turns("{z: 1,\n    y: 2}", json!({"z": 1, "y": 2, "a": 3}), "{z: 1,\n    y: 2,\n    a: 3}");
    turns("{z: 1 # z\n  }", json!({"z": 1, "a": 2}), "{z: 1, # z\n  a: 2\n  }");
    turns(
        "{\n  z: 1, y: 2,\n  x: 3, w: 4\n}",
        json!({"z": 1, "y": 2, "x": 3, "w": 4, "a": 5}),
        "{\n  z: 1, y: 2,\n  x: 3, w: 4, a: 5\n}",
    );
    turns("{ z: 1\n  , y: 2\n  }", json!({"z": 1, "y": 2, "a": 3}), "{ z: 1\n  , y: 2, a: 3\n  }");
    turns("{\r\n  z: 1\r\n}", json!({"z": 1, "a": 2}), "{\r\n  z: 1,\r\n  a: 2\r\n}");
}

#[test]
fn what_was_empty_is_filled() {
    turns("{}", json!({"z": 1, "a": 2}), "{a: 2, z: 1}");
    turns("[ ]", json!([1, 2]), "[ 1, 2 ]");
    turns("[\n]", json!([1, 2]), "[\n  1,\n  2\n]");
    turns("{ # all\n  # end\n  }", json!({"a": 1}), "{ # all\n  # end\n    a: 1\n  }");
    turns("[{}, []]", json!([{"a": 1}, [2]]), "[{a: 1}, [2]]");
    turns(
        "{a, b: , \"c\":, d: &x , e }",
        json!({"a": 1, "b": 2, "c": "3", "d": [], "e": {}}),
        "{a: 1, b: 2 , \"c\": \"3\", d: &x [] , e: {} }",
    );
}

#[test]
fn what_goes_takes_its_comma_and_its_comments_along() {
    let without = |gone: &[&str]| gone.iter().fold(ABOUT.to_owned(), |text, gone| text.replace(gone, ""));
    let (z, y) = ("\n    # on z\n    z: 1,  # z", "\n    y: 'two', # y");
    let x = "\n    # on x\n    x: [ a,b ] # x";
    let items = json!(["a", "b"]);
    turns(ABOUT, json!({"y": "two", "x": items}), &without(&[z]));
    turns(ABOUT, json!({"z": 1, "x": items}), &without(&[y]));
    turns(ABOUT, json!({"x": items}), &without(&[z, y]));
    turns(ABOUT, json!({"z": 1, "y": "two"}), &without(&[x]).replace("'two',", "'two'"));
    turns(ABOUT, json!({"z": 1}), &without(&[x, y]).replace("z: 1,", "z: 1"));
    turns(ABOUT, json!({}), &without(&[x, y, z]));
    turns(ABOUT, json!({"a": 1}), &without(&[x, y, z]).replace("{ # all", "{ # all\n    a: 1"));

    turns("{ z: 1, y: 2, x: 3 }", json!({"y": 2, "x": 3}), "{ y: 2, x: 3 }");
    turns("{ z: 1, y: 2, x: 3 }", json!({"z": 1, "x": 3}), "{ z: 1, x: 3 }");
    turns("{ z: 1, y: 2, x: 3 }", json!({"z": 1, "y": 2}), "{ z: 1, y: 2 }");
    turns("{ z: 1, y: 2, x: 3 }", json!({"x": 3}), "{ x: 3 }");
    turns("{ z: 1, y: 2, x: 3 }", json!({"z": 1}), "{ z: 1 }");
    turns("{ z: 1, y: 2, x: 3 }", json!({}), "{}");
    turns("{ z: 1, y: 2, }", json!({"z": 1}), "{ z: 1, }");
    turns("{ z: 1 }", json!({"a": 1}), "{ a: 1 }");
    turns("{z: 1, # z\n  y: 2}", json!({"z": 1}), "{z: 1 # z\n  }");
    turns("{z: 1, # z\n  y: 2}", json!({"y": 2}), "{\n  y: 2}");
    turns("{z: 1,\n  y: 2 }", json!({"z": 1}), "{z: 1 }");
    turns("{z: 1, # z\n  y: 2,\n  x: 3}", json!({"z": 1}), "{z: 1 # z\n  }");
    turns("{\n  z: 1, y: 2,\n  x: 3\n}", json!({"y": 2, "x": 3}), "{\n  y: 2,\n  x: 3\n}");
    turns("{\n  z: 1, y: 2,\n  x: 3\n}", json!({"x": 3}), "{\n  x: 3\n}");
    turns("{\n  z: 1, y: 2,\n  x: 3\n}", json!({"z": 1}), "{\n  z: 1\n}");
    turns("{ z: 1 # z\n  , y: 2 # y\n  , x: 3\n  }", json!({"z": 1, "x": 3}), "{ z: 1 # z\n  , x: 3\n  }");
}

#[test]
fn items_come_and_go_at_their_place() {
    turns("[b, c]", json!(["a", "b", "d", "c"]), "[a, b, d, c]");
    turns("[b,c]", json!(["c", "b"]), "[c,b]");
    turns("[ a, b, c, d ]", json!(["b", "c", "d", "a"]), "[ b, c, d, a ]");
    turns("[ a, b, c ]", json!(["c", "d"]), "[ c, d ]");
    turns("[ a, b, c ]", json!([]), "[]");
    turns("[a, b]", json!(["x", "v", "z"]), "[x, v, z]");
    turns("[a,\n  b]", json!(["a", "c"]), "[a,\n  c]");
    turns("[a, a, b]", json!(["a", "b", "a"]), "[a, b, a]");
    let names = "[
    # ann
    {name: ann, kind: User}, # since May
    # apart

    {name: bob,
      # his kind
      kind: User} # for now
    # nobody else
  ]";
    turns(
        names,
        json!([{"name": "ann", "kind": "User"}, {"name": "bob", "kind": "Group"}]),
        &names.replace("kind: User} # for", "kind: Group} # for"),
    );
    turns(
        names,
        json!([{"name": "bob", "kind": "User"}, {"name": "ann", "kind": "Group"}, {"name": "cy"}]),
        "[
    {name: bob,
      # his kind
      kind: User}, # for now
    # ann
    {name: ann, kind: Group}, # since May
    {name: cy}
    # apart

    # nobody else
  ]",
    );
    turns(
        names,
        json!([{"name": "cy"}, {"name": "bob", "kind": "User"}]),
        "[
    # apart

    {name: cy},
    {name: bob,
      # his kind
      kind: User} # for now
    # nobody else
  ]",
    );
    turns("[a, # a\n  b, c]", json!(["b", "a", "c"]), "[b, a, # a\n  c]");
    turns("[\n  b, # b\n  a,\n  c]", json!(["a", "b"]), "[\n  a,\n  b # b\n  ]");
    turns("[a, b, # b\n  c]", json!(["b", "a", "c"]), "[\n  b, # b\n  a,\n  c]");
}

#[test]
fn pairs_without_braces_are_changed_too() {
    turns("[a: 1, ? b : 2, c: ]", json!([{"a": 3}, {"b": 2}, {"c": 4}]), "[a: 3, ? b : 2, c: 4 ]");
    turns("[z: 1, b]", json!([{"z": 1, "a": 2}, "b"]), "[{z: 1, a: 2}, b]");
    turns("[a: 1, b: 2 ]", json!([{"b": 2}]), "[b: 2 ]");
}

#[test]
fn json_stays_json() {
    let file = "{\n  \"kind\": \"Stack\",\n  \"count\": 1,\n  \"list\": [\"a\",\"b\"]\n}\n";
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    let expected =
        "{\n  \"kind\": \"x\\u007f\",\n  \"list\": [\"a\",\"b\",\"c\"],\n  \"a\": {\"k\": [\"l\", null]}\n}\n";
    assert!(is_json(file) && is_json(expected));
    becomes(file, json!({"kind": "x\u{7f}", "list": ["a", "b", "c"], "a": {"k": ["l", null]}}), expected);
    turns("[1, 2]", json!([1, "a"]), "[1, a]");
}

#[test]
fn what_cannot_be_changed_in_place_is_written_anew_where_it_is() {
    // A tag says what its value has to be.
    turns("{z: !!int 1, v: 2} ", json!({"z": "one", "v": 2}), "{z: one, v: 2} ");
    let file = "a: {z: &x 1, # z\n  y: *x}\nb: 1\n";
    becomes(file, json!({"a": {"z": 2, "y": 1}, "b": 1}), "a: {z: &x 2, # z\n  y: 1}\nb: 1\n");
    turns("{z: 1,\r  v: 2}", json!({"z": 1, "v": 2, "a": 3}), "{z: 1, v: 2, a: 3}");
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

    /// The comments of what is in both.
    fn kept(self, path: &str, before: &Value, after: &Value, text: &str, comments: &mut Vec<String>) {
        let comment = |what: &str, path: &str| {
            let comment = format!("# {what} {path}.");
            text.contains(&comment).then_some(comment)
        };
        let parts: Vec<(String, &Value, Option<&Value>)> = match (before, after) {
            (Value::Object(old), Value::Object(new)) => {
                old.iter().map(|(key, value)| (format!("{path}/{key}"), value, new.get(key))).collect()
            }
            (Value::Array(old), Value::Array(new)) => {
                let is_same =
                    |one: &Value, other: &Value| name(one) == name(other) && one.is_object() == other.is_object();
                let pair = |item| (format!("{path}/{}", name(item)), item, new.iter().find(|new| is_same(new, item)));
                old.iter().map(pair).collect()
            }
            _ => return,
        };
        comments.extend(comment("head", path).into_iter().chain(comment("end", path)));
        comments.extend(parts.iter().filter_map(|(path, ..)| comment("apart", path)));
        for (path, old, new) in parts.iter().filter_map(|(path, old, new)| Some((path, old, (*new)?))) {
            comments.extend(comment("above", path).into_iter().chain(comment("beside", path)));
            self.kept(path, old, new, text, comments);
        }
    }
}

/// What tells the items of a list apart.
fn name(item: &Value) -> &Value {
    item.get("name").unwrap_or(item)
}

/// The keys of mappings, in the order of a text.
fn orders(node: &outline::Node, path: &str, found: &mut HashMap<String, Vec<String>>) {
    if let outline::Kind::Mapping(entries) = &node.kind {
        for entry in entries {
            orders(&entry.value, &format!("{path}/{}", entry.key), found);
        }
        found.insert(path.to_owned(), entries.iter().map(|entry| entry.key.clone()).collect());
    }
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
    fn a_change_of_scalars_leaves_all_else_as_it_is(before in document(), seed: u64) {
        let spread = Spread(seed);
        let file = spread.file(&before);
        let mut after = Value::Object(before.clone());
        changed(spread, "", &mut after);
        prop_assert_eq!(parse(file.as_bytes()), Some(Value::Object(before.clone())), "{}", file);
        let text = after_edit(&file, &Value::Object(before), &after);
        prop_assert_eq!(text, spread.file(after.as_object().unwrap()), "{}", file);
    }

    /// Whatever changes, comments of what stays are there once, and its keys in their order before others.
    #[test]
    fn comments_and_order_of_what_stays_stay(
        before in document(),
        mut after in document(),
        keep in any::<[bool; 5]>(),
        seed: u64,
    ) {
        let spread = Spread(seed);
        let file = spread.file(&before);
        for ((key, value), _) in before.iter().zip(keep).filter(|(_, keep)| *keep) {
            let mut value = value.clone();
            changed(Spread(!seed), key, &mut value);
            after.insert(key.clone(), value);
        }
        let (before, after) = (Value::Object(before), Value::Object(after));
        prop_assert_eq!(parse(file.as_bytes()), Some(before.clone()), "{}", file);
        let text = after_edit(&file, &before, &after);
        prop_assert_eq!(parse(text.as_bytes()), Some(after.clone()), "{}\nfrom\n{}", text, file);
        let mut comments = Vec::new();
        spread.kept("", &before, &after, &file, &mut comments);
        if !comments.is_empty() {
            comments.push("# the top\n".to_owned());
        }
        for comment in comments {
            prop_assert_eq!(text.matches(&comment).count(), 1, "{}\nof\n{}\nin\n{}", comment, file, text);
        }
        let found = [&file, &text].map(|text| {
            let mut found = HashMap::new();
            orders(&outline::outline(text).unwrap(), "", &mut found);
            found
        });
        for (path, old) in &found[0] {
            let Some(new) = found[1].get(path) else { continue };
            let old: Vec<_> = old.iter().filter(|key| new.contains(key)).collect();
            prop_assert!(new.iter().take(old.len()).eq(old), "{}: {}\nin\n{}", path, file, text);
        }
    }

    /// Within brackets and braces there is nothing that cannot be changed in its place.
    #[test]
    fn nothing_is_written_anew(before in document(), after in document(), seed: u64) {
        let spread = Spread(seed);
        let (before, after) = (Value::Object(before), Value::Object(after));
        let mut file = String::new();
        spread.write(&mut file, 0, "", &before);
        if spread.is("returns", "", 3) {
            file = file.replace('\n', "\r\n");
        }
        let text = edit::edited(&file, &before, &after, Flow::InPlace).unwrap();
        prop_assert_eq!(parse(text.as_bytes()), Some(after), "{}\nfrom\n{}", text, file);
    }
}

/// On one line, on many, and with comments.
#[test]
fn collections_of_many_items_are_changed() {
    let list = |items: &mut dyn Iterator<Item = u32>, between: &str, note: &str| {
        let items: Vec<String> = items.map(|item| format!("{{name: n{item}, v: {item}}}")).collect();
        format!("[{between}{}{note}]", items.join(&format!(",{note}{between}")))
    };
    for (between, note) in [(" ", ""), ("\n  ", ""), ("\n  ", " # x\n")] {
        let before = list(&mut (0..5_000), between, note);
        let after = list(&mut (0..5_000).rev().filter(|item| item % 7 > 0).chain(9_000..9_500), between, note);
        let (old, new) = (parse(before.as_bytes()).unwrap(), parse(after.as_bytes()).unwrap());
        let text = edit::edited(&before, &old, &new, Flow::InPlace).unwrap();
        assert!(parse(text.as_bytes()) == Some(new));
    }
}
