//! The properties of edits of people's files, for any content.

use serde_json::{Map, Value};

use super::{
    parse, updated,
    write::{Ordered, Style},
};

/// What separates the parts of an input.
const SEPARATOR: &str = "%%";

/// A file, and an object before and after a write: the file then says what it said, changed as the object was.
pub fn edits(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split(SEPARATOR);
    let (Some(file), Some(after)) = (parts.next(), parts.next()) else { return };
    let before = parts.next();
    let render = |text: &str| {
        let object = parse(text.as_bytes()).filter(Value::is_object)?;
        serde_saphyr::to_string(&object).ok()
    };
    let Some(after) = render(after) else { return };
    let before = match before {
        Some(before) => render(before),
        None => render(file),
    };
    let outcome = updated(Some(file.as_bytes()), before.as_deref(), &after);
    let result = outcome.as_deref().unwrap_or(file);
    let said = parse(result.as_bytes()).unwrap_or_else(|| panic!("{result}"));
    let expected = |text: &str| parse(text.as_bytes()).expect("it was written here");
    if before.is_none() || before.as_deref() == render(file).as_deref() {
        assert_eq!(said, expected(&after), "{result}");
    }
    // The same write once more changes nothing.
    let again = updated(Some(result.as_bytes()), Some(&after), &after);
    assert!(again.is_none() || parse(again.unwrap_or_default().as_bytes()) == Some(expected(&after)), "{result}");
}

/// The comments of a plain file, line by line, whose values come from the input, stay when one of them changes, in
/// braces and without.
pub fn comments(data: &[u8]) {
    let words = String::from_utf8_lossy(data);
    let words: Vec<&str> = words.split('\n').take(16).collect();
    let (mut object, mut block, mut flow) = (Map::new(), String::from("# the head\n"), String::from("{ # the head\n"));
    for (number, word) in words.iter().enumerate() {
        let Ok(value) = serde_saphyr::to_string(word) else { return };
        let value = value.trim_end_matches('\n');
        // Values of several lines are blocks, which are another matter.
        if value.contains('\n') {
            return;
        }
        let word = Value::from(*word);
        let Some(item) = Style::Plain.item(Ordered::new(&word)) else { return };
        block.push_str(&format!("# above {number}\nk{number}: {value} # beside {number}\n"));
        flow.push_str(&format!("# above {number}\nk{number}: {item}, # beside {number}\n"));
        object.insert(format!("k{number}"), word);
    }
    flow.push_str("# the end\n}\n");
    let before = Value::Object(object.clone());
    let changed = words.len() / 2;
    object.insert(format!("k{changed}"), words.concat().into());
    let render = |value: &Value| serde_saphyr::to_string(value).expect("it is written as YAML");
    let after = Value::Object(object);
    for (file, is_flow) in [(block, false), (flow, true)] {
        assert_eq!(parse(file.as_bytes()), Some(before.clone()), "{file}");
        let result = updated(Some(file.as_bytes()), Some(&render(&before)), &render(&after)).unwrap_or(file);
        assert_eq!(parse(result.as_bytes()), Some(after.clone()), "{result}");
        assert!(result.contains("# the head\n") && result.contains("# the end\n") == is_flow, "{result}");
        for number in 0..words.len() {
            assert!(result.contains(&format!("# above {number}\n")), "{result}");
            // Without braces, a value that becomes one of many lines is a block.
            let may_go = number == changed && !is_flow;
            assert!(may_go || result.contains(&format!("# beside {number}\n")), "{result}");
        }
    }
}
