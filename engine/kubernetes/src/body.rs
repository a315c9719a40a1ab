//! Reads what a cluster answers, as far as there is room for it: a server that is broken or hostile must not take the
//! memory of all runs.

use futures_util::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;

use crate::error::CallError;

/// The most that one answer, or one event of a watch, may have, in bytes. Objects have few megabytes at most, and what
/// describes many kinds at once has some ten.
pub(crate) const LARGEST: usize = 32 << 20;

/// Reads a body to its end.
///
/// # Errors
///
/// [`CallError::TooLarge`] when it is larger than [`LARGEST`], and what breaks it off.
pub(crate) async fn read(body: Body) -> Result<Vec<u8>, CallError> {
    match Limited::new(body, LARGEST).collect().await {
        Ok(whole) => Ok(whole.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => Err(CallError::TooLarge),
        Err(error) => Err(match error.downcast::<kube::Error>() {
            Ok(error) => CallError::from(*error),
            Err(error) => CallError::Unreachable(error.to_string()),
        }),
    }
}

/// A body that comes line by line, however many there are.
pub(crate) fn lines(body: Body) -> impl AsyncBufRead + Unpin {
    body.into_data_stream().map_err(std::io::Error::other).into_async_read()
}

/// The next line; nothing once there is none, or no whole one.
///
/// # Errors
///
/// [`CallError::TooLarge`] when it is larger than [`LARGEST`].
pub(crate) async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, CallError> {
    let mut line = Vec::new();
    let read = lines.take(LARGEST as u64).read_until(b'\n', &mut line).await;
    let is_whole = line.last() == Some(&b'\n');
    match read {
        Ok(LARGEST) if !is_whole => Err(CallError::TooLarge),
        Ok(_) if is_whole => Ok(Some(line)),
        Ok(_) | Err(_) => Ok(None),
    }
}
