//! The frames in the pipes of a worker.
//!
//! The pool sends the length of a job, a `u32` with the highest byte first, and the job. It sends the answers to a worker's questions in
//! the same way. The worker sends a tag of one byte, a length, and as many bytes.

/// The head of a job, and of the answer to a question.
pub(crate) const JOB_HEAD: usize = 4;
/// The head of a worker's message.
pub(crate) const HEAD: usize = 5;
/// The length of the CPU time at the start of an answer: a `u64` of nanoseconds.
pub(crate) const USED: usize = 8;

/// The messages of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// It is ready: its restrictions, as the byte of [`Restrictions`](crate::sandbox::Restrictions).
    Ready,
    /// The part of the job that it is at: a `u32`, or nothing for no part in particular.
    At,
    /// The CPU time since it began, and the answer.
    Answer,
    /// Its code panicked at this location, and it ends.
    Panicked,
    /// It asks a question in the middle of a job, and waits for the answer.
    Asks,
}

impl Tag {
    const ALL: [Self; 5] = [Self::Ready, Self::At, Self::Answer, Self::Panicked, Self::Asks];

    /// The tag and the length of the message; nothing if the tag is unknown.
    pub(crate) fn parse(head: [u8; HEAD]) -> Option<(Self, usize)> {
        let [tag, length @ ..] = head;
        let tag = Self::ALL.into_iter().find(|known| known.byte() == tag)?;
        Some((tag, usize::try_from(u32::from_be_bytes(length)).ok()?))
    }

    /// The head of a message of so many bytes; nothing if these are too many.
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
    fn head_has_tag_and_length() {
        for tag in Tag::ALL {
            assert_eq!(Tag::parse(tag.head(70_000).unwrap()), Some((tag, 70_000)));
        }
        assert_eq!(Tag::parse([9, 0, 0, 0, 0]), None);
        assert_eq!(Tag::Answer.head(usize::try_from(u64::from(u32::MAX)).unwrap() + 1), None);
    }
}
