//! Regular expressions as Go's `regexp/syntax` reads them, for the crate `regex`.

use std::mem;

use regex::Error;

/// The classes of characters that have a name, all of ASCII.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];
/// How often something may repeat, counted with what it repeats in.
const MOST_REPEATS: u32 = 1_000;

/// Rewrites a regular expression of Go's so that the crate `regex` reads it in the same way: `\d`, `\s`, `\w` and `\b`
/// are of ASCII, `\12` is an octal number, a brace that repeats nothing is one, and in a class there are neither classes
/// nor operators.
///
/// # Errors
///
/// [`Error::Syntax`] when it has what `regex` would take and Go does not: other flags, escapes and named classes, and
/// repetitions of repetitions or of more than a thousand times. Whatever else is wrong is there for `regex` to tell.
pub fn pattern(source: &str) -> Result<String, Error> {
    translate(source).map(|translated| translated.pattern)
}

/// A regular expression for the crate `regex`, and what it takes to read it.
#[derive(Debug)]
pub(crate) struct Translated {
    pub(crate) pattern: String,
    /// How many classes there are that may have most characters in them, each for itself or in another.
    pub(crate) wide: usize,
    /// Whether case does not count in some of it.
    pub(crate) folds: bool,
}

/// The same as [`pattern`], with what it takes to read it.
pub(crate) fn translate(source: &str) -> Result<Translated, Error> {
    let mut translation = Translation::new(source);
    // From where the operator begins that stands next before.
    let mut operator: Option<&str> = None;
    loop {
        let before = translation.rest;
        let Some(c) = translation.next() else { break };
        let counts = match c {
            '*' | '+' | '?' => Some(("0", "")),
            '{' => counts(translation.rest),
            _ => None,
        };
        let Some((least, most)) = counts else {
            operator = None;
            translation.item(c)?;
            continue;
        };
        translation.made.push(c);
        if c == '{' {
            translation.copy_to('}');
        }
        if translation.skip("?") {
            translation.made.push('?');
        }
        let after = translation.rest.len();
        let from = |start: &str| start[..start.len() - after].to_owned();
        if let Some(first) = operator {
            return Err(wrong("invalid nested repetition operator", &from(first)));
        }
        if !translation.repeat(least, most) {
            return Err(wrong("invalid repeat count", &from(before)));
        }
        operator = Some(before);
    }
    Ok(Translated { pattern: translation.made, wide: translation.wide, folds: translation.folds })
}

/// What is wrong, in Go's words.
fn wrong(problem: &str, text: &str) -> Error {
    Error::Syntax(format!("{problem}: `{text}`"))
}

/// What this, after a brace, says of how often something repeats, at least and at most: `3}`, `3,}` or `3,5}`.
fn counts(rest: &str) -> Option<(&str, &str)> {
    let number = |digits: &str| {
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits.len() < 2 || !digits.starts_with('0'))
    };
    // No further than it can be one: there may be many braces.
    let (inner, rest) = rest.split_at(rest.find(|c: char| !(c.is_ascii_digit() || c == ',')).unwrap_or(rest.len()));
    let (least, most) = inner.split_once(',').unwrap_or((inner, inner));
    let repeats = rest.starts_with('}') && !least.is_empty() && number(least) && number(most);
    repeats.then_some((least, most))
}

/// The characters of a Perl class, and whether it is all others that are in it.
fn perl(name: char) -> Option<(&'static str, bool)> {
    let characters = match name.to_ascii_lowercase() {
        'd' => "0-9",
        's' => r"\t\n\f\r ",
        'w' => "0-9A-Za-z_",
        _ => return None,
    };
    Some((characters, name.is_ascii_uppercase()))
}

struct Translation<'s> {
    rest: &'s str,
    made: String,
    /// Whether the rest may have the end of a named class; one that is looked for in vain is not looked for again.
    may_name: bool,
    /// How often something repeats in the last item.
    last: u32,
    /// How often something repeats in an item of this group before the last one, at most.
    most: u32,
    /// The same for the groups that this one is in.
    outer: Vec<u32>,
    wide: usize,
    folds: bool,
}

impl<'s> Translation<'s> {
    fn new(source: &'s str) -> Self {
        let made = String::with_capacity(source.len());
        Self { rest: source, made, may_name: true, last: 1, most: 1, outer: Vec::new(), wide: 0, folds: false }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Goes on behind this text, if it is what comes next.
    fn skip(&mut self, text: &str) -> bool {
        self.rest.strip_prefix(text).inspect(|rest| self.rest = *rest).is_some()
    }

    /// Takes as many bytes as they are.
    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.rest.split_at(bytes);
        self.made.push_str(copied);
        self.rest = rest;
    }

    /// Takes everything to where this stands, and that too.
    fn copy_to(&mut self, end: char) {
        self.copy(self.rest.find(end).map_or(self.rest.len(), |at| at + end.len_utf8()));
    }

    fn literal(&mut self, text: &str) {
        self.made.push_str(&regex::escape(text));
    }

    /// Whatever is no operator that repeats.
    fn item(&mut self, c: char) -> Result<(), Error> {
        if c == ')' {
            self.made.push(c);
            // What is in the group is one item now.
            self.last = self.last.max(self.most);
            self.most = self.outer.pop().unwrap_or(1);
            return Ok(());
        }
        self.most = self.most.max(mem::replace(&mut self.last, 1));
        match c {
            '\\' => self.escape()?,
            '[' => self.class()?,
            '(' => self.group()?,
            '{' => self.made.push_str(r"\{"),
            c => self.made.push(c),
        }
        Ok(())
    }

    /// Counts that the last item repeats; `false` if that is too often, or at least more often than at most.
    fn repeat(&mut self, least: &str, most: &str) -> bool {
        let number = |digits: &str| digits.parse().unwrap_or(u32::MAX);
        let (least, most) = (number(least), (!most.is_empty()).then(|| number(most)));
        let times = most.unwrap_or(least.max(1));
        // What is never there may repeat as often as it likes.
        self.last = if times == 0 { 1 } else { self.last.saturating_mul(times) };
        self.last <= MOST_REPEATS && most.is_none_or(|most| least <= most)
    }

    /// What follows a parenthesis, to where its group begins; or flags that are no group.
    fn group(&mut self) -> Result<(), Error> {
        self.made.push('(');
        let flags = self.rest.strip_prefix('?').filter(|rest| !rest.starts_with('<') && !rest.starts_with("P<"));
        if let Some(flags) = flags {
            let end = flags.find(|c: char| !"imsU-".contains(c)).unwrap_or(flags.len());
            let (flags, rest) = flags.split_at(end);
            if !rest.starts_with([':', ')']) {
                let text = rest.chars().next().map_or(format!("(?{flags}"), |c| format!("(?{flags}{c}"));
                return Err(wrong("invalid or unsupported Perl syntax", &text));
            }
            self.folds |= flags.contains('i');
            self.copy("?:".len() + end);
            if rest.starts_with(')') {
                return Ok(());
            }
        } else if self.rest.starts_with('?') {
            // Its name comes after that.
            self.copy_to('<');
        }
        self.outer.push(mem::replace(&mut self.most, 1));
        Ok(())
    }

    /// What follows a backslash outside of classes.
    fn escape(&mut self) -> Result<(), Error> {
        match self.next() {
            Some(c @ ('b' | 'B')) => {
                self.made.push_str(r"(?-u:\");
                self.made.push(c);
                self.made.push(')');
            }
            Some(c @ ('A' | 'z')) => self.made.extend(['\\', c]),
            Some('Q') => {
                let (quoted, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
                self.literal(quoted);
                self.rest = rest;
            }
            Some(c @ ('p' | 'P')) => self.property(c),
            Some(c) => match perl(c) {
                Some((characters, others)) => {
                    self.made.push_str(if others { "[^" } else { "[" });
                    self.made.push_str(characters);
                    self.made.push(']');
                }
                None => self.escaped(c)?,
            },
            None => self.made.push('\\'),
        }
        Ok(())
    }

    /// A class by its property, after `\p` or `\P`.
    fn property(&mut self, c: char) {
        self.wide += 1;
        let others = self.skip("{^");
        self.made.push_str(if (c == 'P') == others { r"\p" } else { r"\P" });
        if others {
            self.made.push('{');
        }
        if others || self.rest.starts_with('{') {
            self.copy_to('}');
        } else {
            self.copy(self.rest.chars().next().map_or(0, char::len_utf8));
        }
    }

    /// An escaped character, of which the first letter is this.
    fn escaped(&mut self, c: char) -> Result<(), Error> {
        let digits = |rest: &str, is_one: fn(&u8) -> bool| rest.bytes().take(2).take_while(is_one).count();
        match c {
            // A single digit that is not zero would refer back to a group.
            '0'..='7' if c == '0' || digits(self.rest, is_octal) > 0 => {
                let (more, rest) = self.rest.split_at(digits(self.rest, is_octal));
                let first = c.to_digit(8).unwrap_or(0);
                let code = more.bytes().fold(first, |code, digit| code * 8 + u32::from(digit - b'0'));
                self.made.push_str(&format!(r"\x{{{code:x}}}"));
                self.rest = rest;
            }
            'x' => {
                self.made.push_str(r"\x");
                if self.rest.starts_with('{') {
                    self.copy_to('}');
                } else {
                    self.copy(digits(self.rest, u8::is_ascii_hexdigit));
                }
            }
            'a' | 'f' | 'n' | 'r' | 't' | 'v' => self.made.extend(['\\', c]),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.literal(c.encode_utf8(&mut [0; 4])),
            c => return Err(wrong("invalid escape sequence", &format!(r"\{c}"))),
        }
        Ok(())
    }

    /// What follows a bracket, to the one that closes it.
    fn class(&mut self) -> Result<(), Error> {
        self.made.push('[');
        if self.skip("^") {
            self.made.push('^');
        }
        // The first is a character even if it is a bracket.
        self.member()?;
        while !self.rest.is_empty() {
            if self.skip("]") {
                self.made.push(']');
                return Ok(());
            }
            self.member()?;
        }
        Ok(())
    }

    /// A class in a class, a range or a character.
    fn member(&mut self) -> Result<(), Error> {
        if let Some(named) = self.rest.strip_prefix("[:").filter(|_| self.may_name) {
            if let Some((name, _)) = named.split_once(":]") {
                if !NAMED.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return Err(wrong("invalid character class range", &format!("[:{name}:]")));
                }
                self.wide += usize::from(name.starts_with('^'));
                self.copy("[:".len() + name.len() + ":]".len());
                return Ok(());
            }
            self.may_name = false;
        }
        let mut ahead = self.rest.chars();
        if let (Some('\\'), Some(c)) = (ahead.next(), ahead.next()) {
            if let Some((characters, others)) = perl(c) {
                self.rest = ahead.as_str();
                self.wide += usize::from(others);
                self.made.push_str(&if others { format!("[^{characters}]") } else { characters.to_owned() });
                return Ok(());
            }
            if matches!(c, 'p' | 'P') {
                self.rest = ahead.as_str();
                self.property(c);
                return Ok(());
            }
        }
        self.character()?;
        if self.rest.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(']')) {
            self.copy(1);
            self.wide += usize::from(!self.rest.starts_with(|c: char| c.is_ascii()) || self.rest.starts_with(r"\x{"));
            self.character()?;
        }
        Ok(())
    }

    /// A character of a class.
    fn character(&mut self) -> Result<(), Error> {
        match self.next() {
            Some('\\') => match self.next() {
                Some(c) => self.escaped(c)?,
                None => self.made.push('\\'),
            },
            Some(c) => self.literal(c.encode_utf8(&mut [0; 4])),
            None => {}
        }
        Ok(())
    }
}

fn is_octal(byte: &u8) -> bool {
    (b'0'..=b'7').contains(byte)
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[track_caller]
    fn check(source: &str, matches: &[&str], others: &[&str]) {
        let made = pattern(source).unwrap();
        let compiled = Regex::new(&made).unwrap_or_else(|error| panic!("{source} is {made}: {error}"));
        for text in matches {
            assert!(compiled.is_match(text), "{source}, as {made}, is to match {text:?}");
        }
        for text in others {
            assert!(!compiled.is_match(text), "{source}, as {made}, is not to match {text:?}");
        }
    }

    #[test]
    fn classes_of_perl_are_of_ascii() {
        check(r"^\w+$", &["a_9"], &["größe", "-", "٣"]);
        check(r"^\d+$", &["09"], &["٣", "a"]);
        check(r"^\s$", &["\t", "\n", "\u{c}", "\r", " "], &["\u{b}", "\u{a0}"]);
        check(r"^\W\D\S$", &["ööö"], &["aöö", "ö1ö", "öö "]);
        check(r"^[\w-]{1,63}$", &["a-b"], &["", "ö", &"a".repeat(64)]);
        check(r"^[^\w\s]$", &["ö", "-"], &["a", " "]);
        check(r"^[\W_]$", &["ö", "_"], &["a"]);
        check(r"o\b", &["no", "noö"], &["now"]);
        check(r"o\B", &["now"], &["no", "noö"]);
    }

    #[test]
    fn in_a_class_there_are_neither_classes_nor_operators() {
        check("^[[]$", &["["], &["]"]);
        check("^[^[]$", &["]"], &["["]);
        check("^[]a]$", &["]", "a"], &["b"]);
        check("^[^]a]$", &["b"], &["]", "a"]);
        check("^[a-z&&b]$", &["a", "b", "&"], &["A"]);
        check("^[a~~b]$", &["a", "~"], &["c"]);
        check("^[+--]$", &["+", ",", "-"], &["."]);
        check(r"^[\w-.]$", &["-", ".", "a"], &["/"]);
        check(r"^[\]\-\\a-c]$", &["]", "-", "\\", "b"], &["d"]);
        check("^[[:alpha:][:^word:]-]$", &["a", "-", "ö"], &["1"]);
        check(r"^[\pL\p{Nd}-]$", &["ö", "٣", "-"], &["+"]);
        check(r"^[\x41-\x{43}]$", &["B"], &["D", "x"]);
        assert!(pattern("[[:alfa:]]").is_err());
    }

    #[test]
    fn braces_that_repeat_nothing_are_braces() {
        check("^{$", &["{"], &[]);
        check("^{{a}}$", &["{{a}}"], &["a"]);
        check("^a{,2}$", &["a{,2}"], &["aa"]);
        check("^a{2}b{1,}c{0,1}$", &["aab", "aabbc"], &["ab"]);
        check(r"^\x{41}{2}\p{^Lu}\P{^Lu}$", &["AAaA"], &["AAAA"]);
    }

    /// To look for the end of each would take minutes.
    #[test]
    fn pattern_parser_reads_unclosed_openings_once() {
        for opening in ["[[:", "{", "{1", "(?<", r"\p{", r"\x{"] {
            assert!(pattern(&opening.repeat(1 << 18)).is_ok(), "{opening}");
        }
    }

    #[test]
    fn the_rest_is_as_it_is() {
        check("^.[^a]$", &["öö"], &["öa"]);
        check(r"^\Qa.b\E+$", &["a.bb"], &["axb"]);
        check(r"^\<\>\.\_\/$", &["<>._/"], &[]);
        check("^(?P<name>a)(?:b)(?i)C$", &["abc"], &[]);
        check(r"^(?s-i:a.)(?U:b+?)c??d*?e{1}?$", &["a\nbbe"], &["A\nbbe"]);
        for wrong in ["(", "[", "[a", "[]", r"\", r"[\", "*", "(*)", "a|+", "[z-a]", r"\x4", "(?i"] {
            assert!(pattern(wrong).and_then(|made| Regex::new(&made)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn escaped_digits_are_octal() {
        check(r"^\0\12\1234\08$", &["\0\nS4\08"], &["0"]);
        check(r"^[\101-\103\60]$", &["B", "0"], &["D", "1"]);
        check(r"^\56\x41\x{42}\a\f\v$", &[".AB\u{7}\u{c}\u{b}"], &["xAB\u{7}\u{c}\u{b}"]);
    }

    #[test]
    fn what_go_refuses_is_refused_in_its_words() {
        for (source, problem) in [
            ("(?x) a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?iu:a)", "invalid or unsupported Perl syntax: `(?iu`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            (r"\u{41}", r"invalid escape sequence: `\u`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            (r"\ö", r"invalid escape sequence: `\ö`"),
            (r"[\b]", r"invalid escape sequence: `\b`"),
            (r"[a-\d]", r"invalid escape sequence: `\d`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a+??", "invalid nested repetition operator: `+??`"),
            ("a{2}*?b", "invalid nested repetition operator: `{2}*?`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{1001,}?", "invalid repeat count: `{1001,}?`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("a{99999999999}", "invalid repeat count: `{99999999999}`"),
            ("((a{50}b?){10}|c){3}", "invalid repeat count: `{3}`"),
        ] {
            assert_eq!(pattern(source), Err(Error::Syntax(problem.to_owned())), "{source}");
        }
        let most = "a".repeat(1_000);
        check("^(a{100}){10}$", &[&most], &["a"]);
        check("^(a{500}b{500})?a{1000}$", &[&most], &["a"]);
    }
}
