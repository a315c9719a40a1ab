//! What goes through the pipes of a worker.
//!
//! To it: the length of a job, a `u32` with the highest byte first, and the job; in the middle of that what it asks for, in the
//! same way. From it: a tag of one byte, a length, and as many bytes.

/// What precedes a job, and what is told in the middle of one.
pub(crate) const JOB_HEAD: usize = 4;
/// What precedes whatever a worker says.
pub(crate) const HEAD: usize = 5;
/// How long the time of the processor is that an answer begins with: a `u64` of nanoseconds.
pub(crate) const USED: usize = 8;

/// What a worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// It takes jobs: what is kept from it, as the byte of [`Restrictions`](crate::sandbox::Restrictions).
    Ready,
    /// Which part of the job it is at: a `u32`, or nothing when it is at no part in particular.
    At,
    /// How much time of the processor it took since it began, and the answer.
    Answer,
    /// Its code panicked, and where. It ends.
    Panicked,
    /// It asks in the middle of a job for what there is to tell by now, and waits for it.
    Asks,
}

impl Tag {
    const ALL: [Self; 5] = [Self::Ready, Self::At, Self::Answer, Self::Panicked, Self::Asks];

    /// The tag and the length of what comes; nothing when it is no tag.
    pub(crate) fn parse(head: [u8; HEAD]) -> Option<(Self, usize)> {
        let [tag, length @ ..] = head;
        let tag = Self::ALL.into_iter().find(|known| known.byte() == tag)?;
        Some((tag, usize::try_from(u32::from_be_bytes(length)).ok()?))
    }

    /// What precedes so many bytes; nothing when these are too many.
    pub(crate) fn head(self, length: usize) -> Option<[u8; HEAD]> {
        let [a, b, c, d] = u32::try_from(length).ok()?.to_be_bytes();
        Some([self.byte(), a, b, c, d])
    }

    fn byte(self) -> u8 {
        match self {
            Self::Ready => 1,
            Self::At => 2,
            Self::Answer => 3,
            Self::Panicked => 4,
            Self::Asks => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_what_comes_and_how_much() {
        for tag in Tag::ALL {
            assert_eq!(Tag::parse(tag.head(70_000).unwrap()), Some((tag, 70_000)));
        }
        assert_eq!(Tag::parse([9, 0, 0, 0, 0]), None);
        assert_eq!(Tag::Answer.head(usize::try_from(u64::from(u32::MAX)).unwrap() + 1), None);
    }
}
