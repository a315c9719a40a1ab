//! A limited list of warnings.

/// The maximum size of one warning, in bytes: a name in it may be as long as a file.
const LONGEST: usize = 1024;

/// A list of warnings with a maximum.
#[derive(Debug)]
pub struct Warnings {
    most: usize,
    told: Vec<String>,
    untold: usize,
}

impl Warnings {
    /// A list with at most this number of warnings; the rest is counted.
    pub fn at_most(most: usize) -> Self {
        Self { most, told: Vec::new(), untold: 0 }
    }

    /// Adds a warning; its text is computed only if it is listed.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        if self.told.len() >= self.most {
            self.untold += 1;
            return;
        }
        let mut text = text();
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            text.push('…');
        }
        self.told.push(text);
    }

    /// The warnings, and how many more there were.
    pub fn into_lines(self) -> Vec<String> {
        let Self { mut told, untold, .. } = self;
        if untold > 0 {
            told.push(format!("and {untold} more such warnings"));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(count: usize) -> Vec<String> {
        let mut warnings = Warnings::at_most(3);
        (0..count).for_each(|number| warnings.add(|| number.to_string()));
        warnings.into_lines()
    }

    #[test]
    fn warnings_over_limit_are_counted() {
        assert_eq!(told(0), [""; 0]);
        assert_eq!(told(3), ["0", "1", "2"]);
        assert_eq!(told(5), ["0", "1", "2", "and 2 more such warnings"]);
    }

    #[test]
    fn one_is_as_long_as_anybody_reads() {
        let mut warnings = Warnings::at_most(1);
        warnings.add(|| "ä".repeat(LONGEST));
        let told = warnings.into_lines();
        assert_eq!(told[0], format!("{}…", "ä".repeat(LONGEST / 2)));
    }
}
