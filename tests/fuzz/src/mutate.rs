//! Changes inputs at random, from a seed.

use std::collections::BTreeSet;

/// Random numbers that depend on the seed alone (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when there is none below it.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }
}

/// The longest input that is made.
const LONGEST: usize = 16 << 10;

/// What parsers look at twice.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    ",",
    ":",
    "\n",
    " ",
    "  ",
    "\t",
    "-",
    "- ",
    "? ",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "!",
    "!!str ",
    "|",
    ">",
    "---\n",
    "...\n",
    "%",
    "null",
    "true",
    "~",
    "0",
    "-1",
    "1e400",
    "1.0",
    "9223372036854775808",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "\u{0}",
    "\u{7f}",
    "é",
    "$patch",
    "$retainKeys",
    "f:",
    "k:{",
    "v:",
    ".",
    "/",
    "~1",
    "..",
    "=",
    "==",
    "!=",
    " in (",
    ")",
    "%2F",
    "%zz",
    ";q=",
    "*/*",
    "${kusion_path.",
    "}",
    "[0]",
];

/// Makes new inputs of those that are there.
#[derive(Debug)]
pub(crate) struct Mutator {
    inputs: Vec<Vec<u8>>,
    /// Runs of letters and digits in the inputs.
    words: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(inputs: Vec<Vec<u8>>) -> Self {
        let word = |byte: &u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'$'));
        let words: BTreeSet<Vec<u8>> = inputs
            .iter()
            .flat_map(|input| input.split(word))
            .filter(|word| (2..40).contains(&word.len()))
            .map(<[u8]>::to_vec)
            .collect();
        Self { inputs, words: words.into_iter().collect() }
    }

    /// A new input, up to five changes away from one that is there.
    pub(crate) fn make(&self, random: &mut Random) -> Vec<u8> {
        let mut input = self.inputs.get(random.below(self.inputs.len())).cloned().unwrap_or_default();
        for _ in 0..=random.below(5) {
            self.change(&mut input, random);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&self, input: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(input.len() + 1);
        let end = at + random.below((input.len() - at).min(64) + 1);
        match random.below(9) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next().to_le_bytes()[0],
            2 => drop(input.drain(at..end)),
            3 => {
                let piece = input[at..end].to_vec();
                // Now and then as often as makes a deep nest or a long list.
                let most = if random.below(8) == 0 { LONGEST } else { 4 };
                let times = 1 + random.below(most);
                let room = LONGEST / piece.len().max(1);
                input.splice(end..end, piece.repeat(times.min(room)));
            }
            4 => input.truncate(at),
            5 => {
                let piece = input[at..end].to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, piece);
            }
            6 => {
                if let Some(other) = self.inputs.get(random.below(self.inputs.len())) {
                    let from = random.below(other.len() + 1);
                    let to = from + random.below((other.len() - from).min(256) + 1);
                    input.splice(at..end, other[from..to].iter().copied());
                }
            }
            7 => {
                if let Some(word) = self.words.get(random.below(self.words.len())) {
                    input.splice(at..end.min(at + word.len()), word.iter().copied());
                }
            }
            _ => {
                let token = TOKENS[random.below(TOKENS.len())];
                input.splice(at..at, token.bytes());
            }
        }
    }
}
