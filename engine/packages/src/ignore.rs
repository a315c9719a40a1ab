//! The rules of a `.krmignore`, which are those of a `.gitignore`.

/// The number of braces in a pattern that are alternatives.
const MAX_BRACES: usize = 4;

/// The patterns of one file, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    /// The segments of the pattern.
    segments: Vec<Vec<char>>,
    /// Whether the pattern counts from the folder of the file, and not from any folder below.
    is_anchored: bool,
    /// Whether only folders match.
    is_folder: bool,
    /// Whether a match is not ignored after all.
    is_negated: bool,
}

impl Rules {
    /// Reads the text of a file.
    pub(crate) fn parse(text: &str) -> Self {
        Self { rules: text.trim_start_matches('\u{feff}').lines().filter_map(Rule::parse).collect() }
    }

    /// Whether a file is ignored, or a folder that it is in. The path is relative to the folder of the rules.
    pub(crate) fn ignores(&self, path: &str) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let segments: Vec<Vec<char>> = path.split('/').map(|segment| segment.chars().collect()).collect();
        // A file in an ignored folder is ignored, whatever other patterns say.
        (1..=segments.len()).any(|end| self.matches(&segments[..end], end < segments.len()))
    }

    fn matches(&self, path: &[Vec<char>], is_folder: bool) -> bool {
        let last = self.rules.iter().rev().find(|rule| (is_folder || !rule.is_folder) && rule.matches(path));
        last.is_some_and(|rule| !rule.is_negated)
    }
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let line = without_trailing_spaces(line.strip_suffix('\r').unwrap_or(line));
        if line.starts_with('#') {
            return None;
        }
        let (is_negated, pattern) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (is_folder, pattern) = pattern.strip_suffix('/').map_or((false, pattern), |rest| (true, rest));
        if pattern.is_empty() {
            return None;
        }
        let is_anchored = pattern.contains('/');
        let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
        let segments = pattern.split('/').map(|segment| segment.chars().collect()).collect();
        Some(Self { segments, is_anchored, is_folder, is_negated })
    }

    fn matches(&self, path: &[Vec<char>]) -> bool {
        if self.is_anchored {
            return match_segments(&self.segments, path);
        }
        path.last().is_some_and(|name| match_segments(&self.segments, std::slice::from_ref(name)))
    }
}

/// Whether a path matches a pattern with `*`, `?`, classes, `**` for folders, and alternatives in braces.
pub(crate) fn glob(pattern: &str, path: &str) -> bool {
    let characters = |text: &str| text.split('/').map(|segment| segment.chars().collect()).collect::<Vec<Vec<char>>>();
    alternatives(pattern).iter().any(|pattern| match_segments(&characters(pattern), &characters(path)))
}

/// The patterns that a pattern with `{a,b}` stands for; itself if they are too many.
fn alternatives(pattern: &str) -> Vec<String> {
    if pattern.matches('{').count() > MAX_BRACES {
        return vec![pattern.to_owned()];
    }
    let braces = pattern.find('{').and_then(|start| Some((start, start + pattern[start..].find('}')?)));
    let Some((start, end)) = braces else { return vec![pattern.to_owned()] };
    let behind = alternatives(&pattern[end + 1..]);
    let inside = pattern[start + 1..end].split(',');
    inside
        .flat_map(|inside| behind.iter().map(move |behind| format!("{}{inside}{behind}", &pattern[..start])))
        .collect()
}

/// Spaces at the end count only behind a backslash.
fn without_trailing_spaces(line: &str) -> &str {
    let trimmed = line.trim_end_matches(' ');
    let backslashes = trimmed.len() - trimmed.trim_end_matches('\\').len();
    if backslashes % 2 == 1 && trimmed.len() < line.len() { &line[..=trimmed.len()] } else { trimmed }
}

/// Whether the segments of a path match those of a pattern. `**` stands for any number of them.
fn match_segments(pattern: &[Vec<char>], path: &[Vec<char>]) -> bool {
    // For each length of the path's beginning: whether the pattern so far matches it.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for (position, segment) in pattern.iter().enumerate() {
        let is_last = position + 1 == pattern.len();
        let mut next = vec![false; path.len() + 1];
        for at in 0..=path.len() {
            if segment.len() > 1 && segment.iter().all(|character| *character == '*') {
                // At the end it stands for what is inside, at least one segment.
                let from = if is_last { at.checked_sub(1) } else { Some(at) };
                next[at] = from.is_some_and(|from| reached[..=from].contains(&true));
            } else if at > 0 && reached[at - 1] {
                next[at] = match_name(segment, &path[at - 1]);
            }
        }
        reached = next;
    }
    reached[path.len()]
}

/// Whether a name matches a pattern with `*`, `?`, `[a-z]` and backslashes.
fn match_name(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The last star, and the end of the text that it stands for.
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, read));
                at += 1;
                continue;
            }
            Some('?') => Some(at + 1),
            Some('[') => match_class(&pattern[at..], name[read]).map(|length| at + length),
            Some('\\') => (pattern.get(at + 1) == Some(&name[read])).then_some(at + 2),
            Some(character) => (*character == name[read]).then_some(at + 1),
            None => None,
        };
        match (step, star) {
            (Some(next), _) => (at, read) = (next, read + 1),
            (None, Some((behind, end))) => {
                star = Some((behind, end + 1));
                (at, read) = (behind, end + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|character| *character == '*')
}

/// The length of the class at the beginning of a pattern, if the character is in it. A class without an end matches nothing.
fn match_class(pattern: &[char], character: char) -> Option<usize> {
    let mut at = 1;
    let is_negated = matches!(pattern.get(at), Some('!' | '^'));
    at += usize::from(is_negated);
    let (first, mut is_in) = (at, false);
    loop {
        let low = match pattern.get(at)? {
            ']' if at > first => break,
            '\\' => {
                at += 1;
                *pattern.get(at)?
            }
            other => *other,
        };
        at += 1;
        let mut high = low;
        if pattern.get(at) == Some(&'-') && pattern.get(at + 1).is_some_and(|end| *end != ']') {
            at += 1 + usize::from(pattern[at + 1] == '\\');
            high = *pattern.get(at)?;
            at += 1;
        }
        is_in |= (low..=high).contains(&character);
    }
    (is_in != is_negated).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_ignore_files_and_folders() {
        for (rules, path, expected) in [
            ("", "a", false),
            ("*.yaml", "x/a.yaml", true),
            ("/a.yaml", "x/a.yaml", false),
            ("x/a.yaml", "x/a.yaml", true),
            ("x/a.yaml", "y/x/a.yaml", false),
            ("x/", "x", false),
            ("x/", "y/x/a.yaml", true),
            ("*.yaml\n!b.yaml", "b.yaml", false),
            ("x/\n!x/b.yaml", "x/b.yaml", true),
            ("# a\n\\#a", "#a", true),
            ("\\!a", "!a", true),
            ("a\\ ", "a ", true),
            ("a  ", "a", true),
            ("**/b", "x/y/b", true),
            ("**/b", "b", true),
            ("a/**", "a", false),
            ("a/**", "a/b/c", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a?[b-d!]", "aXc", true),
            ("[!a]", "a", false),
            ("[]a]", "]", true),
            ("[a", "[a", false),
        ] {
            assert_eq!(Rules::parse(rules).ignores(path), expected, "{rules:?} {path}");
        }
    }

    #[test]
    fn globs_match_whole_paths() {
        for (pattern, path, expected) in [
            ("**/baz.yaml", "foo/bar/baz.yaml", true),
            ("**/baz.yaml", "baz.yaml", true),
            ("foo/**/baz.yaml", "foo/bar/bor/baz.yaml", true),
            ("foo/**/baz.yaml", "bar/baz.yaml", false),
            ("foo/*/baz.yaml", "foo/bar/bor/bat.yaml", false),
            ("foo/{bar,bor}/*.{yaml,yml}", "foo/bor/a.yml", true),
            ("foo/{bar,bor}/*.yaml", "foo/ba/a.yaml", false),
            ("baz.yaml", "a/baz.yaml", false),
        ] {
            assert_eq!(glob(pattern, path), expected, "{pattern} {path}");
        }
    }

    /// The files of these paths that Git ignores.
    fn ignored_by_git(rules: &str, paths: &[String]) -> Vec<bool> {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| Command::new("git").current_dir(&folder).args(arguments).output().unwrap();
        git(&["init", "-q"]);
        fs::write(folder.path().join(".gitignore"), rules).unwrap();
        for path in paths {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let listed = git(&["-c", "core.quotePath=false", "ls-files", "-z", "--others", "--exclude-standard"]);
        let listed = String::from_utf8(listed.stdout).unwrap();
        paths.iter().map(|path| !listed.split('\0').any(|line| line == path)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn rules_equal_those_of_git(
            // Two stars in a name are not among them: in `a**/**` Git cuts the `a` off first, and then sees a `**/`.
            rules in proptest::collection::vec("!?(/|\\*\\*/)?(a|b|f|a?\\*|\\?|\\[a-b\\]b?)(/\\*\\*)?(/[ab*?])?/?", 1..4),
        ) {
            let rules = rules.join("\n");
            let paths: Vec<String> =
                ["f", "a/f", "b/a", "a/b/a", "a/b/b", "b/b/f/a", "aa/ab", "ab/a/b"].map(str::to_owned).into();
            let ours: Vec<bool> = paths.iter().map(|path| Rules::parse(&rules).ignores(path)).collect();
            prop_assert_eq!(ours, ignored_by_git(&rules, &paths), "{:?}", rules);
        }
    }
}
