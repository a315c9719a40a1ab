//! The words that names and public docs in Rust avoid.
//!
//! A line is read by its first words; no syntax tree is needed for what `rustfmt` lays out.

/// Words that say nothing about the field.
const AVOIDED: [&str; 10] = ["told", "tells", "place", "kept", "look", "held", "gone", "whoever", "nobody", "goes"];
/// What stands before the keyword of an item.
const QUALIFIERS: [&str; 6] = ["pub", "async", "const", "unsafe", "extern", "default"];
/// The keywords of items whose names count.
const ITEMS: [&str; 7] = ["mod", "struct", "enum", "trait", "type", "union", "fn"];

/// The names of modules, types and functions that have one of the words in them, with their lines.
pub(super) fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let named = (1..).zip(text.lines()).filter_map(|(line, text)| Some((line, name(text)?)));
    named.filter(|(_, name)| parts(name).any(|part| AVOIDED.contains(&part.as_str())))
}

/// The lines of module docs, and of docs of public items, that have one of the words in them.
pub(super) fn docs(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut pending = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        if start.starts_with("///") {
            pending.push((number, line));
        } else if start.starts_with("//!") {
            found.push((number, line));
        } else if !start.starts_with("#[") {
            if start.starts_with("pub ") {
                found.append(&mut pending);
            }
            pending.clear();
        }
    }
    found.retain(|(_, line)| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| AVOIDED.contains(&word.to_lowercase().as_str()))
    });
    found
}

/// The name of the item that a line begins.
fn name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| {
        let word = word.split('(').next().unwrap_or_default();
        QUALIFIERS.contains(&word) || word == "\"C\""
    });
    let keyword = words.next()?;
    let rest = words.next().filter(|_| ITEMS.contains(&keyword))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

/// The parts of a name in `snake_case` or `CamelCase`, in small letters.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            parts.push(String::new());
        }
        if c != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(c.to_lowercase());
        }
    }
    parts.into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_items_count_by_their_parts() {
        let check = |line: &str, expected: Option<&str>| assert_eq!(names(line).next().map(|(_, it)| it), expected);
        check("    pub(crate) async fn is_told(&self) -> bool {", Some("is_told"));
        check("pub struct KeptPlaces<'a> {", Some("KeptPlaces"));
        check("pub mod gone;", Some("gone"));
        check("pub const unsafe extern \"C\" fn look<T>() {", Some("look"));
        check("type Held = ();", Some("Held"));
        check("fn replace(placement: Placement) {", None);
        check("let told = fn_of(place);", None);
        check("// the fn told is here", None);
    }

    #[test]
    fn docs_count_where_they_are_public() {
        let text = "//! Nobody reads this.\n/// Told.\n#[derive(Debug)]\npub struct A {\n    /// Kept.\n    b: u8,\n    \
                    /// A placeholder.\n    pub c: u8,\n}\n/// Held.\npub(crate) fn d() {}\n/// Tells\n/// twice.\npub fn e() {}\n";
        assert_eq!(docs(text).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 12]);
    }
}
