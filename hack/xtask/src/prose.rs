//! `xtask prose`: commit titles, the width of Markdown, the words of names and docs, and the length of ARCHITECTURE.md.
//!
//! Start at [`run`]. Each finding belongs to a check and a subject: a crate or a file. `hack/prose.txt` records how many
//! findings each had, and that number may not grow. `xtask prose --record` writes the file anew.
//!
//! Elsewhere: `docs` and `names` in `words` read Rust.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::paths;

/// What is recorded, from the root of the repository.
const RECORD: &str = "hack/prose.txt";
const RECORD_HEADER: &str = "\
# Findings of `xtask prose` that may stay for now, by check and subject. No number may grow; `xtask prose --record` writes
# this file anew. `base` is the commit after which commit titles are checked.
";
/// The longest commit title, in characters.
const TITLE: usize = 72;
/// The longest line of Markdown, in characters.
const COLUMNS: usize = 100;
/// Markdown with lines of any length: generated documents, and the changelog, whose entries are lines of a list.
const ANY_WIDTH: [&str; 3] = ["CHANGELOG.md", "tests/conformance/RESULTS.md", "docs/coverage.md"];
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES: usize = 350;
const ARCHITECTURE_WORDS: usize = 4500;
/// How many findings of a subject are shown.
const SHOWN: usize = 20;

/// Which commits, lines and names read well.
#[derive(Debug, Args)]
pub(crate) struct Prose {
    /// Record the findings of today in hack/prose.txt
    #[arg(long)]
    record: bool,
}

/// Checks the repository, or records its findings.
///
/// # Errors
///
/// Names each subject with more findings than are recorded.
pub(crate) fn run(args: &Prose) -> Result<()> {
    let root = paths::repository();
    let findings = findings(&root)?;
    let text = fs::read_to_string(root.join(RECORD)).unwrap_or_default();
    let recorded = Record::parse(&text)?;
    if args.record {
        let base = match &recorded.base {
            Some(base) if git(&root, &["merge-base", "--is-ancestor", base, "HEAD"]).is_ok() => base.clone(),
            _ => git(&root, &["rev-parse", "HEAD"])?.trim().to_owned(),
        };
        let record = Record { base: Some(base), counts: counts(&findings) };
        return fs::write(root.join(RECORD), record.write()).with_context(|| format!("writing {RECORD}"));
    }
    compare(&root, &recorded, &findings)
}

/// Checks the repository against what is recorded.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn check() -> Result<()> {
    run(&Prose { record: false })
}

fn compare(root: &Path, recorded: &Record, findings: &[Finding]) -> Result<()> {
    let base = recorded.base.as_deref().with_context(|| format!("{RECORD} names no base: run xtask prose --record"))?;
    let mut faults = wrong_titles(root, base)?;
    let changed = changed_files(root, base);
    faults.extend(grown(&recorded.counts, findings, &changed));
    ensure!(faults.is_empty(), "prose:\n  {}", faults.join("\n  "));
    Ok(())
}

/// A check and its subject.
type Subject = (&'static str, String);

/// Something that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    check: &'static str,
    /// The crate's folder, or the file.
    subject: String,
    file: String,
    line: usize,
    text: String,
}

fn findings(root: &Path) -> Result<Vec<Finding>> {
    let listed = git(root, &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let files: BTreeSet<&str> = listed.lines().collect();
    let crates: Vec<&str> = files.iter().filter_map(|file| file.strip_suffix("/Cargo.toml")).collect();
    let mut found = Vec::new();
    for file in files {
        // A deleted file is still in the index.
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        if file.ends_with(".md") && !ANY_WIDTH.contains(&file) {
            found.extend(wide_lines(&text).map(|(line, text)| finding("columns", file, file, line, text)));
        }
        if file == ARCHITECTURE {
            let (lines, words) = (text.lines().count(), text.split_whitespace().count());
            let excess = |line| finding("lines", file, file, line, format!("more than {ARCHITECTURE_LINES} lines"));
            found.extend((ARCHITECTURE_LINES..lines).map(|line| excess(line + 1)));
            let excess =
                |_| finding("words in all", file, file, lines, format!("more than {ARCHITECTURE_WORDS} words"));
            found.extend((ARCHITECTURE_WORDS..words).map(excess));
        }
        let owner = crates.iter().filter(|folder| file.starts_with(&format!("{folder}/"))).max_by_key(|f| f.len());
        if let Some(owner) = owner.filter(|_| file.ends_with(".rs")) {
            found.extend(words::names(&text).map(|(line, name)| finding("names", owner, file, line, name)));
            found.extend(words::docs(&text).into_iter().map(|(line, text)| finding("docs", owner, file, line, text)));
        }
    }
    Ok(found)
}

fn finding(check: &'static str, subject: &str, file: &str, line: usize, text: impl Into<String>) -> Finding {
    Finding { check, subject: subject.to_owned(), file: file.to_owned(), line, text: text.into() }
}

/// The lines of Markdown that are too wide, but those of tables, of code, and with links.
fn wide_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let start = line.trim_start();
        if start.starts_with("```") {
            in_code = !in_code;
        }
        let may_be_wide = in_code || start.starts_with('|') || line.contains("](") || line.contains("://");
        !may_be_wide && line.chars().count() > COLUMNS
    })
}

fn counts(findings: &[Finding]) -> BTreeMap<Subject, usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry((finding.check, finding.subject.clone())).or_default() += 1;
    }
    counts
}

/// What to say of each subject that has more findings than recorded: those in changed files, since one of them is new.
fn grown(
    recorded: &BTreeMap<(String, String), usize>,
    findings: &[Finding],
    changed: &BTreeSet<String>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for ((check, subject), count) in counts(findings) {
        let limit = recorded.get(&(check.to_owned(), subject.clone())).copied().unwrap_or_default();
        if count <= limit {
            continue;
        }
        faults.push(format!("{check} of {subject}: {count}, and {limit} are recorded in {RECORD}; in changed files:"));
        let of_subject = findings.iter().filter(|it| it.check == check && it.subject == subject);
        let shown = of_subject.filter(|it| changed.contains(&it.file)).take(SHOWN);
        faults.extend(shown.map(|it| format!("  {}:{}: {}", it.file, it.line, it.text.trim())));
    }
    faults
}

/// The commits after `base` whose titles are too long, or not of the form `area: text`.
fn wrong_titles(root: &Path, base: &str) -> Result<Vec<String>> {
    if git(root, &["cat-file", "-e", base]).is_err() {
        eprintln!("skipped: commit titles, since this clone lacks {base}");
        return Ok(Vec::new());
    }
    let log = git(root, &["log", "--no-merges", "--format=%h %s", &format!("{base}..HEAD")])?;
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let wrong = commits.filter_map(|(id, title)| Some(format!("commit {id} \"{title}\": {}", wrong_title(title)?)));
    Ok(wrong.collect())
}

fn wrong_title(title: &str) -> Option<String> {
    let length = title.chars().count();
    if length > TITLE {
        return Some(format!("the title has {length} characters, and at most {TITLE} are allowed"));
    }
    let is_area = |area: &str| !area.is_empty() && !area.contains(|c: char| c.is_whitespace() || c.is_uppercase());
    let are_areas = |areas: &str| areas.split(", ").all(is_area);
    // Git writes the titles of reverts.
    let has_form = title.starts_with("Revert \"")
        || title.split_once(": ").is_some_and(|(areas, text)| are_areas(areas) && !text.trim().is_empty());
    (!has_form).then(|| "the title is not of the form `area: text`".to_owned())
}

/// The files that differ from `base`; none when that is unknown.
fn changed_files(root: &Path, base: &str) -> BTreeSet<String> {
    let listed = git(root, &["diff", "--name-only", base]).unwrap_or_default();
    let untracked = git(root, &["ls-files", "--others", "--exclude-standard"]).unwrap_or_default();
    listed.lines().chain(untracked.lines()).map(str::to_owned).collect()
}

/// What git prints.
pub(crate) fn git(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output().context("running git")?;
    ensure!(
        output.status.success(),
        "git {} failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("git prints no UTF-8")
}

/// What `hack/prose.txt` says: a line for the base, and one for each check, count and subject.
#[derive(Debug, Default, PartialEq, Eq)]
struct Record<Key: Ord = (String, String)> {
    base: Option<String>,
    counts: BTreeMap<Key, usize>,
}

impl Record {
    fn parse(text: &str) -> Result<Self> {
        let mut record = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            match *fields {
                ["base", commit] => record.base = Some(commit.to_owned()),
                [check, count, subject] => {
                    let count = count.parse().with_context(|| format!("{RECORD}: no number in {line:?}"))?;
                    record.counts.insert((check.to_owned(), subject.to_owned()), count);
                }
                _ => bail!("{RECORD}: {line:?} is neither a base nor a count"),
            }
        }
        Ok(record)
    }
}

impl Record<Subject> {
    fn write(&self) -> String {
        let mut text = RECORD_HEADER.to_owned();
        if let Some(base) = &self.base {
            let _ = writeln!(text, "base\t{base}");
        }
        for ((check, subject), count) in &self.counts {
            let _ = writeln!(text, "{check}\t{count}\t{subject}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_has_an_area_and_at_most_72_characters() {
        for title in ["engine: order deletes", "docs/guide: say less", "apiserver,engine: rename"] {
            assert_eq!(wrong_title(title), None, "{title}");
        }
        for title in ["order deletes", "Engine: order", "the engine: order", ": order", "engine: ", "engine:order"] {
            assert!(wrong_title(title).is_some(), "{title}");
        }
        let title = format!("engine: {}", "x".repeat(64));
        assert_eq!(wrong_title(&title), None);
        assert!(wrong_title(&format!("{title}x")).is_some_and(|why| why.contains("73")));
    }

    #[test]
    fn tables_code_and_links_may_be_wide() {
        let wide = "x ".repeat(60);
        let text = format!("{wide}\n| {wide} |\n```sh\n{wide}\n```\n[a](b) {wide}\nhttps://{wide}\nnarrow\n{wide}\n");
        assert_eq!(wide_lines(&text).map(|(line, _)| line).collect::<Vec<_>>(), [1, 9]);
    }

    #[test]
    fn counts_may_shrink_and_not_grow() {
        let of = |subject: &str, file: &str| finding("names", subject, file, 3, "told");
        let recorded = Record::parse("# x\nbase\tabc\nnames\t1\ta\nnames\t1\tb\n").unwrap();
        let changed = BTreeSet::from(["a/new.rs".to_owned()]);
        let check = |findings: &[Finding]| grown(&recorded.counts, findings, &changed).join("\n");
        assert_eq!(check(&[of("a", "a/old.rs")]), "");
        let faults = check(&[of("a", "a/old.rs"), of("a", "a/new.rs"), of("b", "b/old.rs")]);
        assert!(faults.starts_with("names of a: 2, and 1 are recorded"), "{faults}");
        assert!(faults.ends_with("a/new.rs:3: told") && !faults.contains("old.rs"), "{faults}");
        assert!(check(&[of("c", "c/old.rs")]).starts_with("names of c: 1, and 0 are recorded"));
    }

    #[test]
    fn record_reads_what_it_writes() {
        let counts = counts(&[finding("docs", "apiserver/types", "x.rs", 1, "held")]);
        let text = Record { base: Some("abc".to_owned()), counts }.write();
        let read = Record::parse(&text).unwrap();
        assert_eq!(read.base.as_deref(), Some("abc"));
        assert_eq!(read.counts[&("docs".to_owned(), "apiserver/types".to_owned())], 1);
        assert!(Record::parse("nonsense").is_err());
    }
}
