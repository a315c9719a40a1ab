//! Media types as Go's `mime.ParseMediaType` reads them.

/// The media type in a header, in lower case and without its parameters; nothing where it is none, or a parameter is malformed
/// or has two values.
pub(super) fn parse(value: &str) -> Option<String> {
    let (media, mut rest) = value.split_at(value.find(';').unwrap_or(value.len()));
    let media = media.trim().to_lowercase();
    let (kind, subtype) = token(&media);
    if kind.is_empty() || !(subtype.is_empty() || is_token(subtype.strip_prefix('/')?)) {
        return None;
    }
    let mut parameters: Vec<(String, String)> = Vec::new();
    while !rest.trim_start().is_empty() {
        let Some((name, value, after)) = parameter(rest) else {
            // Something may end with a semicolon.
            return (rest.trim() == ";").then_some(media);
        };
        if parameters.iter().any(|(other, of_other)| *other == name && *of_other != value) {
            return None;
        }
        parameters.push((name, value));
        rest = after;
    }
    Some(media)
}

/// A token at the beginning, which may be empty, and what follows it.
fn token(text: &str) -> (&str, &str) {
    let is_of_token = |c: char| c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(c);
    text.split_at(text.find(|c| !is_of_token(c)).unwrap_or(text.len()))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && token(text).1.is_empty()
}

/// A parameter at the beginning, with the semicolon before it: name, value and what follows.
fn parameter(text: &str) -> Option<(String, String, &str)> {
    let (name, rest) = token(text.trim_start().strip_prefix(';')?.trim_start());
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let (value, after) = token(rest);
            (Some(value.to_owned()).filter(|value| !value.is_empty())?, after)
        }
    };
    (!name.is_empty()).then(|| (name.to_lowercase(), value, rest))
}

/// What stands before the next quote, and what follows that.
fn unquote(text: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices().peekable());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\r' | '\n' => return None,
            // Others than these stand for themselves: `"C:\dev"` is a path.
            '\\' => match characters.next_if(|(_, next)| "()<>@,;:\\\"/[]?=".contains(*next)) {
                Some((_, escaped)) => value.push(escaped),
                None => value.push(character),
            },
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_read_as_go_reads_them() {
        for value in [
            "application/json",
            " Application/JSON ",
            "application/json;",
            "application/json; charset=utf-8",
            "application/json;charset=\"utf-8\"; a=b",
            "application/json;a=b;a=b",
            "application/json;a=\"x;y\\\"z\" ;",
        ] {
            assert_eq!(parse(value).as_deref(), Some("application/json"), "{value}");
        }
        assert_eq!(parse("json").as_deref(), Some("json"));
        for value in [
            "",
            ";",
            ";;",
            " ; a=b",
            "application/",
            "application/json/x",
            "application/js on",
            "application/json;a",
            "application/json;a=",
            "application/json;=b",
            "application/json;;",
            "application/json;a=b;a=c",
            "application/json;A=b;a=c",
            "application/json;a=\"b",
            "application/json;a=b c",
        ] {
            assert_eq!(parse(value), None, "{value}");
        }
    }
}
