//! Versions of providers, and constraints on them.

use std::fmt;
use std::str::FromStr;

use semver::Version;

/// A text that is no constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version constraint; the form is [=|!=|>|>=|<|<=|~>] VERSION, with commas in between")]
pub struct VersionError(String);

/// Conditions on a version, all of which have to be met: `>= 3.1, < 4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionConstraint(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    operator: Operator,
    version: Version,
    /// How many of major, minor and patch are given.
    parts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    /// The last part may be greater.
    Pessimistic,
}

impl VersionConstraint {
    /// Whether a version meets all conditions. A prerelease does so only where a condition names it exactly.
    pub fn permits(&self, version: &Version) -> bool {
        let is_named = |it: &Condition| it.operator == Operator::Equal && it.version == *version;
        if !version.pre.is_empty() && !self.0.iter().any(is_named) {
            return false;
        }
        self.0.iter().all(|it| it.permits(version))
    }
}

impl Condition {
    fn permits(&self, version: &Version) -> bool {
        match self.operator {
            Operator::Equal => *version == self.version,
            Operator::NotEqual => *version != self.version,
            Operator::Greater => *version > self.version,
            Operator::GreaterOrEqual => *version >= self.version,
            Operator::Less => *version < self.version,
            Operator::LessOrEqual => *version <= self.version,
            Operator::Pessimistic => {
                let same_major = version.major == self.version.major;
                let same_minor = self.parts < 3 || version.minor == self.version.minor;
                // With a major version alone, only that may be greater.
                *version >= self.version && (self.parts < 2 || same_major) && same_minor
            }
        }
    }
}

impl FromStr for VersionConstraint {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let failed = || VersionError(text.to_owned());
        let condition = |text: &str| {
            let text = text.trim();
            let operators = [
                ("~>", Operator::Pessimistic),
                (">=", Operator::GreaterOrEqual),
                ("<=", Operator::LessOrEqual),
                ("!=", Operator::NotEqual),
                (">", Operator::Greater),
                ("<", Operator::Less),
                ("=", Operator::Equal),
            ];
            let found = operators.into_iter().find_map(|(sign, operator)| Some((operator, text.strip_prefix(sign)?)));
            let (operator, version) = found.unwrap_or((Operator::Equal, text));
            let version = version.trim();
            let numbers = version.split(['-', '+']).next().unwrap_or_default();
            let parts = numbers.split('.').count();
            let missing = match parts {
                1 => ".0.0",
                2 => ".0",
                3 => "",
                _ => return Err(failed()),
            };
            let rest = &version[numbers.len()..];
            let version = format!("{numbers}{missing}{rest}").parse().map_err(|_| failed())?;
            Ok(Condition { operator, version, parts })
        };
        Ok(Self(text.split(',').map(condition).collect::<Result<_, _>>()?))
    }
}

/// The newest version that a constraint permits.
pub fn newest<'a>(
    versions: impl IntoIterator<Item = &'a Version>,
    constraint: &VersionConstraint,
) -> Option<&'a Version> {
    versions.into_iter().filter(|version| constraint.permits(version)).max()
}

impl fmt::Display for VersionConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, it) in self.0.iter().enumerate() {
            let sign = match it.operator {
                Operator::Equal => "=",
                Operator::NotEqual => "!=",
                Operator::Greater => ">",
                Operator::GreaterOrEqual => ">=",
                Operator::Less => "<",
                Operator::LessOrEqual => "<=",
                Operator::Pessimistic => "~>",
            };
            let version = it.version.to_string();
            // A pessimistic condition means something else with more parts.
            let shown = match it.parts {
                1 => version.strip_suffix(".0.0").unwrap_or(&version),
                2 => version.strip_suffix(".0").unwrap_or(&version),
                _ => &version,
            };
            write!(f, "{}{sign} {shown}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_permit_versions() {
        for (constraint, permitted, others) in [
            ("3.6.0", &["3.6.0"][..], &["3.6.1", "3.6.0-beta1"][..]),
            ("~> 3.1", &["3.1.0", "3.9.2"], &["4.0.0", "3.0.9"]),
            ("~> 3.1.4", &["3.1.4", "3.1.9"], &["3.2.0", "3.1.3"]),
            ("~> 3", &["3.0.0", "4.1.0"], &["2.9.0"]),
            (">= 1.2, < 2, != 1.5.0", &["1.2.0", "1.9.9"], &["2.0.0", "1.5.0", "1.9.9-rc1"]),
            ("= 2.0.0-rc1", &["2.0.0-rc1"], &["2.0.0", "2.0.0-rc2"]),
        ] {
            let parsed: VersionConstraint = constraint.parse().unwrap();
            for version in permitted {
                assert!(parsed.permits(&version.parse().unwrap()), "{constraint} {version}");
            }
            for version in others {
                assert!(!parsed.permits(&version.parse().unwrap()), "{constraint} {version}");
            }
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
        for text in ["", "x", ">", "1.2.3.4", "~>", ">= 1 <= 2", "v1.0.0", "1,"] {
            assert!(text.parse::<VersionConstraint>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_newest_release_is_chosen() {
        let versions: Vec<Version> = ["3.9.0", "3.10.0", "4.0.0-beta1"].iter().map(|it| it.parse().unwrap()).collect();
        assert_eq!(newest(&versions, &VersionConstraint::default()), Some(&versions[1]));
        assert_eq!(newest(&versions, &"< 3.10".parse().unwrap()), Some(&versions[0]));
        assert_eq!(newest(&versions, &"> 4".parse().unwrap()), None);
    }
}
