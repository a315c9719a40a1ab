//! The output of a provider: read from the first moment, and remembered in part.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How many lines are remembered.
const LINES: usize = 200;
/// How many bytes of a line are remembered.
const LINE: usize = 4096;
/// How many lines an error quotes.
const QUOTED: usize = 10;

/// The last lines of a provider's output. They may contain secrets of the configuration.
#[derive(Debug, Default)]
pub struct Output {
    lines: Mutex<VecDeque<String>>,
    /// The line by which the runtime of Go says why the program ends. Hundreds of others may follow it.
    reason: OnceLock<String>,
}

/// The beginnings of such a line.
const REASONS: [&str; 3] = ["panic: ", "fatal error: ", "runtime: out of memory"];

impl Output {
    /// The last lines, the oldest first: 200 at most, of 4 KiB each.
    pub fn last_lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The line by which the runtime of Go says why the program ends, if it did.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    fn push(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        if REASONS.iter().any(|reason| line.starts_with(reason)) {
            self.reason.get_or_init(|| line.to_owned());
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn feed(&mut self, bytes: &[u8], output: &Output) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let space = LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(part.get(..space).unwrap_or(part));
            if part.ends_with(b"\n") {
                output.push(&self.line);
                self.line.clear();
            }
        }
    }

    pub(super) fn finish(self, output: &Output) {
        output.push(&self.line);
    }
}

/// Reads everything until the end.
pub(super) async fn drain(mut stream: impl AsyncRead + Unpin, output: Arc<Output>) {
    let mut buffer = vec![0; 16 * 1024];
    let mut lines = Lines::default();
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        lines.feed(&buffer[..count], &output);
    }
    lines.finish(&output);
}

/// The first line, without reading more; nothing at the end of the stream.
pub(super) async fn first_line(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    while line.len() < LINE {
        let byte = match stream.read_u8().await {
            Ok(byte) => byte,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        if byte == b'\n' {
            break;
        }
        line.push(byte);
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// The last lines as the end of an error's message.
pub(super) fn quoted(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let last = &lines[lines.len().saturating_sub(QUOTED)..];
    format!("; its last output is:\n{}", last.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_remembered() {
        let output = Arc::new(Output::default());
        let mut text: String = (0..300).map(|number| format!("line {number}\r\n\n")).collect();
        text.push_str(&"x".repeat(10_000));
        text.push_str("\nend");
        drain(text.as_bytes(), output.clone()).await;
        let lines = output.last_lines();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[0], "line 102");
        assert_eq!(lines[LINES - 2].len(), LINE);
        assert_eq!(lines[LINES - 1], "end");
    }

    #[tokio::test]
    async fn reason_of_an_end_outlives_its_stack() {
        let output = Arc::new(Output::default());
        let stack: String = (0..300).map(|number| format!("frame {number}\n")).collect();
        let text = format!("fatal error: out of memory\n{stack}panic: later\n");
        drain(text.as_bytes(), output.clone()).await;
        assert_eq!(output.reason(), Some("fatal error: out of memory"));
        assert_eq!(Output::default().reason(), None);
    }

    #[tokio::test]
    async fn the_first_line_leaves_the_rest() {
        let mut stream = &b"1|5\nrest"[..];
        assert_eq!(first_line(&mut stream).await.unwrap().as_deref(), Some("1|5"));
        assert_eq!(stream, b"rest");
        assert_eq!(first_line(&mut stream).await.unwrap(), None);
    }
}
