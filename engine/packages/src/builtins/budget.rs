//! A limit of what one run of a function may write, since a small configuration can copy a value many times.

use crate::files::Limits;

/// The bytes that a run may still write.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    left: usize,
}

impl Budget {
    /// A run may write as much as one file may have.
    pub(super) fn of(limits: &Limits) -> Self {
        Self { limit: limits.file_bytes, left: limits.file_bytes }
    }

    /// Counts bytes before they are written.
    ///
    /// # Errors
    ///
    /// The message when there are too many.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| format!("the function writes more than {} bytes; copy less", self.limit))?;
        Ok(())
    }
}
