//! Lock files of dependencies: `.terraform.lock.hcl`.
//!
//! Start at [`LockFile::parse`]. Terraform writes these files in a small part of HCL: blocks `provider`, with strings and
//! lists of strings. Everything else is an error.

use std::collections::BTreeMap;

use semver::Version;

use super::{Address, AddressError, Hash, HashError, VersionConstraint, VersionError};

/// The longest file, in bytes.
const LONGEST: usize = 1 << 20;

/// The providers that a directory is locked to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockFile {
    /// The providers by address.
    pub providers: BTreeMap<Address, LockedProvider>,
}

/// The version and the files of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedProvider {
    /// The version.
    pub version: Version,
    /// The constraints that it was chosen by, which nothing depends on.
    pub constraints: Option<VersionConstraint>,
    /// The permitted checksums; none permits any files.
    pub hashes: Vec<Hash>,
}

/// A recorded lock that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordedLockError {
    /// The version is wrong.
    #[error("the version is wrong: {0}")]
    Version(#[from] semver::Error),
    /// A checksum is wrong.
    #[error("a checksum is wrong: {0}")]
    Hash(#[from] HashError),
}

impl LockedProvider {
    /// The lock with this version and these checksums; `None` without a version.
    ///
    /// # Errors
    ///
    /// If one of them has another form.
    pub fn recorded(version: &str, hashes: &[String]) -> Result<Option<Self>, RecordedLockError> {
        if version.is_empty() {
            return Ok(None);
        }
        let hashes = hashes.iter().map(|hash| hash.parse()).collect::<Result<_, HashError>>()?;
        Ok(Some(Self { version: version.parse()?, constraints: None, hashes }))
    }
}

/// A text that is no lock file.
#[derive(Debug, thiserror::Error)]
pub enum LockFileError {
    /// The text has another form.
    #[error("line {line} of the lock file: {expected} is expected")]
    Syntax {
        /// The line, from one.
        line: usize,
        /// What it should have.
        expected: &'static str,
    },
    /// The file is too long.
    #[error("the lock file is larger than {LONGEST} bytes")]
    TooLong,
    /// An address is wrong.
    #[error("the lock file has a wrong address")]
    Address(#[from] AddressError),
    /// A checksum is wrong.
    #[error("the lock file has a wrong checksum of {provider}")]
    Hash {
        /// The provider.
        provider: Address,
        /// The reason.
        source: HashError,
    },
    /// A version is wrong.
    #[error("the lock file has a wrong version of {provider}")]
    Version {
        /// The provider.
        provider: Address,
        /// The reason.
        source: semver::Error,
    },
    /// Constraints are wrong.
    #[error("the lock file has wrong constraints of {provider}")]
    Constraints {
        /// The provider.
        provider: Address,
        /// The reason.
        source: VersionError,
    },
    /// A block has no version, or has two of something.
    #[error("the lock file has {problem} of {provider}")]
    Provider {
        /// The provider.
        provider: Address,
        /// The problem.
        problem: &'static str,
    },
}

impl LockFile {
    /// Parses a file.
    ///
    /// # Errors
    ///
    /// If it has anything else than blocks of providers, each with a version.
    pub fn parse(text: &str) -> Result<Self, LockFileError> {
        if text.len() > LONGEST {
            return Err(LockFileError::TooLong);
        }
        let mut parser = Parser { rest: text, line: 1 };
        let mut file = Self::default();
        while parser.skip_space(true)? {
            parser.word("provider")?;
            let provider: Address = parser.string()?.parse()?;
            let locked = parser.provider(&provider)?;
            if file.providers.insert(provider.clone(), locked).is_some() {
                return Err(LockFileError::Provider { provider, problem: "two blocks" });
            }
        }
        Ok(file)
    }
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Parser<'a> {
    fn expected<T>(&self, expected: &'static str) -> Result<T, LockFileError> {
        Err(LockFileError::Syntax { line: self.line, expected })
    }

    /// Skips spaces and comments, and line breaks where they are permitted. Returns whether anything follows.
    fn skip_space(&mut self, with_lines: bool) -> Result<bool, LockFileError> {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
            if self.rest.starts_with('#') || self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else if let Some(rest) = self.rest.strip_prefix("/*") {
                let Some(end) = rest.find("*/") else { return self.expected("the end of the comment") };
                self.line += rest[..end].matches('\n').count();
                self.rest = &rest[end + 2..];
            } else if let Some(rest) = self.rest.strip_prefix('\n').filter(|_| with_lines) {
                self.line += 1;
                self.rest = rest;
            } else {
                return Ok(!self.rest.is_empty());
            }
        }
    }

    fn word(&mut self, word: &'static str) -> Result<(), LockFileError> {
        match self.name() {
            Some(name) if name == word => Ok(()),
            _ => self.expected("a block \"provider\""),
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    fn sign(&mut self, sign: char, expected: &'static str) -> Result<(), LockFileError> {
        self.skip_space(false)?;
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.expected(expected),
        }
    }

    fn string(&mut self) -> Result<&'a str, LockFileError> {
        self.sign('"', "a string")?;
        let Some(end) = self.rest.find(['"', '\n', '\\']) else { return self.expected("the end of the string") };
        let (text, rest) = self.rest.split_at(end);
        let Some(rest) = rest.strip_prefix('"') else { return self.expected("a string without escapes") };
        // Templates would need a value.
        if text.contains("${") || text.contains("%{") {
            return self.expected("a string without templates");
        }
        self.rest = rest;
        Ok(text)
    }

    fn strings(&mut self) -> Result<Vec<&'a str>, LockFileError> {
        self.sign('[', "a list of strings")?;
        let mut strings = Vec::new();
        loop {
            self.skip_space(true)?;
            if let Some(rest) = self.rest.strip_prefix(']') {
                self.rest = rest;
                return Ok(strings);
            }
            strings.push(self.string()?);
            self.skip_space(true)?;
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None if self.rest.starts_with(']') => {}
                None => return self.expected("a comma or the end of the list"),
            }
        }
    }

    fn provider(&mut self, provider: &Address) -> Result<LockedProvider, LockFileError> {
        let of = || provider.clone();
        let wrong = |problem| LockFileError::Provider { provider: of(), problem };
        self.sign('{', "the block of a provider")?;
        let (mut version, mut constraints, mut hashes) = (None, None, None);
        loop {
            self.skip_space(true)?;
            if let Some(rest) = self.rest.strip_prefix('}') {
                self.rest = rest;
                break;
            }
            let Some(name) = self.name() else { return self.expected("an attribute or the end of the block") };
            self.sign('=', "the value of an attribute")?;
            let is_first = match name {
                "version" => {
                    let text = self.string()?;
                    let parsed = text.parse().map_err(|source| LockFileError::Version { provider: of(), source })?;
                    version.replace(parsed).is_none()
                }
                "constraints" => {
                    let text = self.string()?;
                    let parsed =
                        text.parse().map_err(|source| LockFileError::Constraints { provider: of(), source })?;
                    constraints.replace(parsed).is_none()
                }
                "hashes" => {
                    let texts = self.strings()?.into_iter().map(str::parse);
                    let parsed: Result<Vec<Hash>, _> = texts.collect();
                    let parsed = parsed.map_err(|source| LockFileError::Hash { provider: of(), source })?;
                    if parsed.is_empty() {
                        return Err(wrong("an empty list of checksums"));
                    }
                    hashes.replace(parsed).is_none()
                }
                _ => return self.expected("version, constraints or hashes"),
            };
            if !is_first {
                return Err(wrong("two values of one attribute"));
            }
            self.skip_space(false)?;
            if !self.rest.starts_with(['\n', '}']) {
                return self.expected("the end of the line");
            }
        }
        let version = version.ok_or_else(|| wrong("no version"))?;
        Ok(LockedProvider { version, constraints, hashes: hashes.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zero() -> String {
        format!("zh:{}", "0".repeat(64))
    }

    #[test]
    fn files_of_terraform_are_read() {
        let text = format!(
            "# This file is maintained automatically by \"terraform init\".\n\nprovider \"registry.terraform.io/hashicorp/random\" {{\n  \
             version     = \"3.6.0\"\n  constraints = \"~> 3.1\"\n  hashes = [\n    \"{}\",\n    \"h2:other\",\n  ]\n}}\n\n\
             provider \"stoa/frame\" {{\n  version = \"1.0.0\"\n}}\n",
            zero()
        );
        let file = LockFile::parse(&text).unwrap();
        let random = &file.providers[&"random".parse().unwrap()];
        assert_eq!(random.version, Version::new(3, 6, 0));
        assert_eq!(random.constraints, Some("~> 3.1".parse().unwrap()));
        assert_eq!(random.hashes, [Hash::Archive([0; 32]), Hash::Other("h2:other".to_owned())]);
        assert!(file.providers[&"stoa/frame".parse().unwrap()].hashes.is_empty());
        assert_eq!(LockFile::parse("").unwrap(), LockFile::default());
        assert_eq!(LockFile::parse(" // a\r\n/* b\n */").unwrap(), LockFile::default());
    }

    #[test]
    fn other_texts_name_the_line() {
        let block = |inner: &str| format!("\nprovider \"random\" {{\n{inner}\n}}\n");
        for (text, message) in [
            ("resource \"x\" {}".to_owned(), "line 1 of the lock file: a block \"provider\" is expected"),
            (block("version = 3"), "line 3 of the lock file: a string is expected"),
            (block("version = \"${x}\""), "line 3 of the lock file: a string without templates is expected"),
            (block("version = \"a\\n\""), "line 3 of the lock file: a string without escapes is expected"),
            (block("version = \"x\""), "the lock file has a wrong version of registry.terraform.io/hashicorp/random"),
            (block("other = \"x\""), "line 3 of the lock file: version, constraints or hashes is expected"),
            (
                block("hashes = []"),
                "the lock file has an empty list of checksums of registry.terraform.io/hashicorp/random",
            ),
            (block("hashes = [\"a\" \"b\"]"), "line 3 of the lock file: a comma or the end of the list is expected"),
            (
                block("hashes = [\"zh:1\"]"),
                "the lock file has a wrong checksum of registry.terraform.io/hashicorp/random",
            ),
            (block(""), "the lock file has no version of registry.terraform.io/hashicorp/random"),
            (
                block("version = \"1.0.0\"\nversion = \"1.0.0\""),
                "the lock file has two values of one attribute of registry.terraform.io/hashicorp/random",
            ),
            (block("version = \"1.0.0\" }"), "line 4 of the lock file: a block \"provider\" is expected"),
            (
                "provider \"random\" {".to_owned(),
                "line 1 of the lock file: an attribute or the end of the block is expected",
            ),
            ("/* x".to_owned(), "line 1 of the lock file: the end of the comment is expected"),
            ("provider \"../x\" {\n}".to_owned(), "the lock file has a wrong address"),
            ("x".repeat(LONGEST + 1), "the lock file is larger than 1048576 bytes"),
        ] {
            let error = LockFile::parse(&text).unwrap_err().to_string();
            assert_eq!(error, message, "{}", &text[..text.len().min(100)]);
        }
        let twice = format!("{0}{0}", block("version = \"1.0.0\""));
        assert!(LockFile::parse(&twice).unwrap_err().to_string().contains("two blocks"));
    }
}
