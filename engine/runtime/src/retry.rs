//! Whether a retry helps after an error of a runtime.

use std::time::Duration;

use stoa_backoff::{Classify, Verdict};

use crate::RuntimeError;

impl Classify for RuntimeError {
    fn classify(&self) -> Verdict {
        match self {
            Self::Unavailable { .. } | Self::Limited { .. } => Verdict::Unknown,
            Self::Unread { .. } => Verdict::Retry,
            // A retry helps, but not soon: other calls would wait for their turn meanwhile.
            Self::Suspended { .. } => Verdict::Refuse,
            Self::Rejected { .. }
            | Self::Conflict(_)
            | Self::Owned(_)
            | Self::ForeignContents(_)
            | Self::Stale(_)
            | Self::Terminating(_)
            | Self::Lost { .. }
            | Self::Partial { .. }
            | Self::UnknownKind(_)
            | Self::Invalid { .. } => Verdict::Refuse,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        if let Self::Limited { wait, .. } = self { Some(*wait) } else { None }
    }
}
