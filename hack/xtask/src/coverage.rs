//! Keeps `docs/coverage.md` true: every requirement names a test that exists, or says `later`.
//!
//! A row is a table row whose first cell is a number. Its last cell is `later`, or one or more tests in backquotes,
//! `path/from/the/root.rs::name`: a test function of a Rust or Go file, or a line with that text in any other file.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::paths;

const TABLE: &str = "docs/coverage.md";

/// Checks the table of the repository.
///
/// # Errors
///
/// Names every row that is wrong, and how.
pub(crate) fn check() -> Result<()> {
    let root = paths::repository();
    let text = fs::read_to_string(root.join(TABLE)).with_context(|| format!("reading {TABLE}"))?;
    let summary = check_table(&text, &|test| exists(&root, test))?;
    eprintln!(
        "{TABLE}: {} requirements, {} tested, {} later",
        summary.rows,
        summary.tested,
        summary.rows - summary.tested
    );
    Ok(())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    rows: usize,
    tested: usize,
}

/// `exists` says what is wrong with a test's name, if anything is.
fn check_table(text: &str, exists: &dyn Fn(&str) -> Result<(), String>) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut faults = Vec::new();
    let mut numbers = Vec::new();
    for line in text.lines() {
        let Some(cells) = cells(line) else { continue };
        let Ok(number) = cells[0].parse::<u32>() else { continue };
        summary.rows += 1;
        if numbers.contains(&number) {
            faults.push(format!("row {number} is there twice"));
        }
        numbers.push(number);
        let proof = *cells.last().expect("a row has a first cell");
        let tests: Vec<&str> = proof.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains("::")).collect();
        if tests.is_empty() {
            if proof != "later" {
                faults.push(format!("row {number} names no test and does not say `later`"));
            }
            continue;
        }
        summary.tested += 1;
        faults.extend(tests.iter().filter_map(|test| exists(test).err()).map(|why| format!("row {number}: {why}")));
    }
    if summary.rows == 0 {
        faults.push("there is no numbered row".to_owned());
    }
    if !faults.is_empty() {
        bail!("{TABLE} is not true:\n  {}", faults.join("\n  "));
    }
    Ok(summary)
}

/// The cells of a table row, trimmed. A vertical bar in a cell is written `\|`.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = Vec::new();
    let mut start = 0;
    for (at, _) in inner.match_indices('|') {
        if !inner[..at].ends_with('\\') {
            cells.push(inner[start..at].trim());
            start = at + 1;
        }
    }
    cells.push(inner[start..].trim());
    Some(cells)
}

fn exists(root: &Path, test: &str) -> Result<(), String> {
    let (path, name) = test.rsplit_once("::").ok_or_else(|| format!("`{test}` is not path::name"))?;
    let text = fs::read_to_string(root.join(path)).map_err(|_| format!("there is no file {path}"))?;
    let found = match Path::new(path).extension().and_then(|extension| extension.to_str()) {
        Some("rs") => has_rust_test(&text, name),
        Some("go") => name.starts_with("Test") && text.contains(&format!("\nfunc {name}(t *testing.T)")),
        _ => text.lines().any(|line| line.contains(name)),
    };
    found.then_some(()).ok_or_else(|| format!("{path} has no test {name}"))
}

/// Whether `text` has a function `name` marked as a test, or a public one, as conformance suites are made of.
fn has_rust_test(text: &str, name: &str) -> bool {
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") && line.contains("test") {
            marked = true;
        } else if let Some((qualifiers, rest)) = line.split_once("fn ") {
            let is_it = rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<']));
            if is_it && (marked || qualifiers.starts_with("pub")) {
                return true;
            }
            marked = false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(table: &str) -> String {
        let known = |test: &str| if test == "a.rs::good" { Ok(()) } else { Err(format!("no {test}")) };
        check_table(table, &known).map_or_else(|error| error.to_string(), |summary| format!("{summary:?}"))
    }

    #[test]
    fn rows_are_proved_by_tests_or_put_off() {
        let table =
            "| # | what | test |\n|---|---|---|\n| 1 | a \\| b | `a.rs::good`, `a.rs::good` |\n| 2 | c | later |\n";
        assert_eq!(faults(table), "Summary { rows: 2, tested: 1 }");
    }

    #[test]
    fn every_wrong_row_is_named() {
        let found = faults("| 1 | a | `a.rs::gone` |\n| 2 | b | soon |\n| 2 | c | later |\n");
        for wanted in ["row 1: no a.rs::gone", "row 2 names no test", "row 2 is there twice"] {
            assert!(found.contains(wanted), "{found}");
        }
        assert!(faults("nothing").contains("no numbered row"));
    }

    #[test]
    fn marked_or_public_function_counts_as_test() {
        let text = "#[test]\nfn one() {}\nfn helper() {}\n#[tokio::test]\nasync fn two() {}\npub async fn suite(log: &dyn Log) {}\n";
        let names = ["one", "helper", "two", "suite", "on"];
        assert_eq!(names.map(|name| has_rust_test(text, name)), [true, false, true, true, false]);
    }
}
