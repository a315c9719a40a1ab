//! How large the tree of an expression may become, told from its text.

/// How many operators and brackets an expression has at most; its tree has no more levels than these.
pub(super) fn operators(source: &str) -> usize {
    let code = without_texts(source);
    let code = code.as_deref().unwrap_or(source);
    let signs = code.bytes().filter(|byte| b"+-*/%<>!?.[({".contains(byte)).count();
    let words = code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| *word == "in").count();
    signs + words + code.matches("==").count()
}

/// An expression without its string literals and comments; nothing where it takes more than a glance to tell where one
/// ends, as with escapes.
fn without_texts(source: &str) -> Option<String> {
    if source.contains(['\\', '`', '\r']) || source.contains("\"\"\"") || source.contains("'''") {
        return None;
    }
    let mut code = String::new();
    for line in source.lines() {
        let mut rest = line;
        while let Some(at) = rest.find(['"', '\'', '/']) {
            let (before, found) = rest.split_at(at);
            code.push_str(before);
            let sign = found.chars().next()?;
            rest = &found[1..];
            match sign {
                '/' if rest.starts_with('/') => rest = "",
                '/' => code.push('/'),
                // One that does not end on its line is none.
                quote => rest = rest.split_once(quote)?.1,
            }
        }
        code.push_str(rest);
        code.push('\n');
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: usize) {
        assert_eq!(operators(source), expected, "{source}");
    }

    #[test]
    fn operators_and_brackets_are_counted() {
        check("object.spec.replicas <= 5 && !has(object.x)", 6);
        check("a == b || c != [1, -2][0]", 5);
        check("1 in [1] in inner", 3);
        check("a ? b : {'c': d}", 2);
        check("1 // + + +\n + 2 / 3", 2);
    }

    #[test]
    fn texts_have_none_unless_they_are_hard_to_read() {
        check(r#""a.b.c" == 'x + "y" + // z' + r'.'"#, 2);
        check(r#"'a.b' == "it's""#, 1);
        check(r"'\d.+' + ''", 3);
        check("'''a.b'''", 1);
        check("`a.b`", 1);
        check("'a.b", 1);
        check("1 // it's\n+ 2", 1);
    }
}
