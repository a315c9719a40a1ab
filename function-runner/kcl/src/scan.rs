//! Facts of a source that the library does not report: integer literals with too many bits, exported names, and modules whose results
//! change from run to run.
//!
//! This reads tokens, not the language. Texts are skipped, with the expressions in them.

/// The facts of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Integer literals that do not fit 64 bits.
    pub(crate) literals: Vec<Literal>,
    /// The paths of imports, such as `a.b` and `..c`.
    pub(crate) imports: Vec<String>,
    /// Names that are set at the beginning of a line and are exported, with their lines.
    pub(crate) exports: Vec<(String, u32)>,
    /// The options that it reads with a default, with their lines.
    pub(crate) defaults: Vec<(String, u32)>,
    /// Whether it writes a stream of documents.
    pub(crate) has_stream: bool,
    /// Whether it reads a clock or draws random numbers.
    pub(crate) is_volatile: bool,
}

/// An integer literal that does not fit 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    pub(crate) text: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// The number that the library uses for it, if the literal has at most 64 bits.
    pub(crate) wrapped: Option<i64>,
}

/// The function that reads a value from outside.
const OPTION: &str = "option";
/// The function that replaces the result by a stream.
const STREAM: &str = "yaml_stream";
/// The names with results that change.
const VOLATILE: [&str; 2] = ["datetime", "uuid"];
/// Words that begin a line and are no exported names.
const KEYWORDS: [&str; 14] = [
    "import", "schema", "mixin", "protocol", "rule", "check", "if", "elif", "else", "assert", "type", "for", "lambda",
    "all",
];

/// Reads the facts of a source.
pub(crate) fn scan(source: &str) -> Scan {
    let mut scanner = Scanner { rest: source, line: 1, column: 1, depth: 0, previous: None, scan: Scan::default() };
    scanner.run();
    scanner.scan
}

struct Scanner<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
    /// The number of open brackets.
    depth: usize,
    /// The last character that is no space.
    previous: Option<char>,
    scan: Scan,
}

impl<'a> Scanner<'a> {
    fn run(&mut self) {
        while let Some(char) = self.rest.chars().next() {
            match char {
                '#' => self.skip(|char| char != '\n'),
                '"' | '\'' => self.text(char, false),
                '0'..='9' if self.previous != Some('.') => self.number(),
                _ if is_start(char) => self.word(),
                _ => {
                    match char {
                        '(' | '[' | '{' => self.depth += 1,
                        ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                    self.step();
                    if !char.is_whitespace() {
                        self.previous = Some(char);
                    }
                }
            }
        }
    }

    /// Passes one character.
    fn step(&mut self) {
        let mut chars = self.rest.chars();
        match chars.next() {
            Some('\n') => (self.line, self.column) = (self.line.saturating_add(1), 1),
            Some(_) => self.column = self.column.saturating_add(1),
            None => {}
        }
        self.rest = chars.as_str();
    }

    /// Passes characters, and returns them.
    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let all = self.rest;
        while self.rest.chars().next().is_some_and(&is_part) {
            self.step();
        }
        &all[..all.len() - self.rest.len()]
    }

    fn skip(&mut self, is_part: impl Fn(char) -> bool) {
        self.take(is_part);
    }

    /// Passes a text, from its first quote.
    fn text(&mut self, quote: char, is_raw: bool) {
        let triple = [quote; 3].iter().collect::<String>();
        let is_triple = self.rest.starts_with(&triple);
        let end = if is_triple { triple.as_str() } else { &triple[..1] };
        (0..end.len()).for_each(|_| self.step());
        while !self.rest.is_empty() {
            if self.rest.starts_with(end) {
                (0..end.len()).for_each(|_| self.step());
                break;
            }
            // An error of the program, which the library reports.
            if !is_triple && self.rest.starts_with('\n') {
                break;
            }
            if self.rest.starts_with('\\') && !is_raw {
                self.step();
            }
            self.step();
        }
        self.previous = Some(quote);
    }

    fn number(&mut self) {
        let (line, column) = (self.line, self.column);
        let is_negative = self.previous == Some('-');
        let text = self.take(|char| char.is_ascii_alphanumeric() || char == '_' || char == '.');
        self.previous = Some('0');
        let Some(value) = integer(text) else { return };
        let smallest = u128::from(i64::MIN.unsigned_abs());
        let fits = match value {
            Some(value) => value < smallest || is_negative && value == smallest,
            None => false,
        };
        if !fits {
            let wrapped = value.and_then(|value| u64::try_from(value).ok()).map(u64::cast_signed);
            self.scan.literals.push(Literal { text: text.to_owned(), line, column, wrapped });
        }
    }

    fn word(&mut self) {
        let begins_line = self.column == 1 && self.depth == 0;
        let line = self.line;
        let word = self.take(|char| is_start(char) || char.is_ascii_digit());
        let before = self.previous.replace('a');
        if matches!(word, "r" | "R")
            && let Some(quote @ ('"' | '\'')) = self.rest.chars().next()
        {
            return self.text(quote, true);
        }
        if begins_line && word == "import" {
            self.skip(|char| char == ' ' || char == '\t');
            let path = self.take(|char| is_start(char) || char.is_ascii_digit() || char == '.');
            self.scan.imports.push(path.to_owned());
            self.scan.is_volatile |= VOLATILE.contains(&path);
            return;
        }
        if word == OPTION && before != Some('.') {
            let name = default_of_option(self.rest).map(|name| (name.to_owned(), line));
            self.scan.defaults.extend(name);
        }
        self.scan.has_stream |= word == STREAM;
        self.scan.is_volatile |= VOLATILE.contains(&word);
        if begins_line && !word.starts_with('_') && !KEYWORDS.contains(&word) && self.is_set() {
            self.scan.exports.push((word.to_owned(), line));
        }
    }

    /// Whether a value follows, which is no function.
    fn is_set(&self) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t']);
        let value = match rest.strip_prefix('=') {
            Some(value) if !value.starts_with('=') => value,
            Some(_) => return false,
            None if rest.starts_with(':') => return true,
            None => return false,
        };
        !value.trim_start().starts_with("lambda")
    }
}

/// The name of the option in a call that has a default, from its bracket on.
fn default_of_option(call: &str) -> Option<&str> {
    let call = call.trim_start().strip_prefix('(')?.trim_start();
    let quote = call.chars().next().filter(|char| matches!(char, '"' | '\''))?;
    let (name, mut rest) = call[1..].split_once(quote)?;
    let mut depth = 1;
    let mut previous = ',';
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        match char {
            '"' | '\'' => {
                // A quote in a text has a backslash before it.
                let end = after.char_indices().find(|(at, end)| *end == char && !after[..*at].ends_with('\\'))?.0;
                rest = &after[end + 1..];
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ if depth == 1 && previous == ',' && rest.starts_with("default") => {
                let value = rest["default".len()..].trim_start().strip_prefix('=');
                return value.filter(|value| !value.trim_start().starts_with("None")).map(|_| name);
            }
            _ => {}
        }
        if depth == 0 {
            return None;
        }
        if !char.is_whitespace() {
            previous = char;
        }
        rest = after;
    }
    None
}

fn is_start(char: char) -> bool {
    char.is_alphabetic() || char == '_' || char == '$'
}

/// The value of an integer literal; nothing inside if it has more than 128 bits, nothing outside for another number.
fn integer(text: &str) -> Option<Option<u128>> {
    let digits = text.replace('_', "");
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ => (10, lower.as_str()),
    };
    let is_integer = !digits.is_empty() && digits.chars().all(|char| char.is_digit(radix));
    is_integer.then(|| u128::from_str_radix(digits, radix).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(source: &str) -> Vec<(String, u32, u32, Option<i64>)> {
        scan(source).literals.into_iter().map(|it| (it.text, it.line, it.column, it.wrapped)).collect()
    }

    #[test]
    fn options_with_defaults_have_lines() {
        let source = "a = option(\"replicas\", type=\"int\", default=2)\nb = option('b')\n# option(\"c\", default=1)\n\
                      d = option(\n    \"region\",\n    help=\"a \\\"default=\\\" (\",\n    default = {x = [1]},\n)\n\
                      e = option(\"e\", default=None)\nf = other.option(\"f\", default=1)\n\
                      g = option(option(\"h\", default=\"i\"))\ni = option(\"j\", type=(\"default=\"))\n";
        let expected = [("replicas", 1), ("region", 4), ("h", 11)].map(|(name, line)| (name.to_owned(), line));
        assert_eq!(scan(source).defaults, expected);
    }

    #[test]
    fn literals_beyond_64_bits_are_found() {
        let source = "a = 9223372036854775807\nb = -9223372036854775808\nc = 9_223_372_036_854_775_808\nd = [0xFFFFFFFFFFFFFFFF]\n";
        let found = [
            ("9_223_372_036_854_775_808".to_owned(), 3, 5, Some(i64::MIN)),
            ("0xFFFFFFFFFFFFFFFF".to_owned(), 4, 6, Some(-1)),
        ];
        assert_eq!(literals(source), found);
        assert_eq!(literals("é = 1 + 100000000000000000000")[0].1..=1, 1..=1);
        assert_eq!(literals(&format!("a = {}", "9".repeat(60)))[0].3, None);
    }

    #[test]
    fn texts_comments_and_floats_have_no_literals() {
        for source in [
            "a = '18446744073709551615'",
            "a = \"\"\"\n18446744073709551615 \\\"\"\" 18446744073709551615\"\"\"",
            "a = r'\\' # 18446744073709551615",
            "a = 1.8446744073709551615e19",
            "a = x.18446744073709551615",
            "a18446744073709551615 = 1",
            "a = '\\'18446744073709551615'",
        ] {
            assert_eq!(literals(source), [], "{source}");
        }
    }

    #[test]
    fn exported_names_are_those_at_the_beginning_of_a_line() {
        let source = "import a\n_b = 1\nc = 1\nd: int = 2\ne: S {\n  f = 1\n}\ng == 1\nh = lambda x {x}\nschema I:\n    j: int\n\
                      if c == 1:\n    k = 2\nl = [\nm = 1]\nimport datetime\na.yaml_stream([])\n";
        let scan = scan(source);
        let exports = [("c", 3), ("d", 4), ("e", 5), ("l", 14)];
        assert_eq!(scan.exports, exports.map(|(name, line)| (name.to_owned(), line)));
        assert_eq!(scan.imports, ["a", "datetime"]);
        assert!(scan.has_stream && scan.is_volatile);
    }
}
