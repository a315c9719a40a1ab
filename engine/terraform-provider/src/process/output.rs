//! The output of a provider: read from the first moment, and remembered in part.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How many lines are remembered.
const LINES: usize = 200;
/// Longer lines are not remembered, in bytes: a secret at their cut end would not be recognised.
const LINE: usize = 4096;
/// What is remembered of such a line.
const LONG: &str = "(a line of more than 4 KiB)";
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
    /// The last lines, the oldest first: 200 at most, of 4 KiB each. A longer line is replaced by words about it.
    pub fn last_lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The line by which the runtime of Go says why the program ends, if it did.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    fn push(&self, line: &[u8], is_cut: bool) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let reason = REASONS.into_iter().find(|reason| line.starts_with(reason));
        let line = if is_cut { format!("{}{LONG}", reason.unwrap_or_default()) } else { line.to_owned() };
        if reason.is_some() {
            self.reason.get_or_init(|| line.clone());
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Cuts bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// Whether the line has more bytes.
    is_cut: bool,
}

impl Lines {
    pub(super) fn feed(&mut self, bytes: &[u8], output: &Output) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let space = LINE.saturating_sub(self.line.len());
            self.is_cut |= text.len() > space;
            self.line.extend_from_slice(text.get(..space).unwrap_or(text));
            if part.ends_with(b"\n") {
                output.push(&self.line, self.is_cut);
                *self = Self::default();
            }
        }
    }

    pub(super) fn finish(self, output: &Output) {
        output.push(&self.line, self.is_cut);
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
        text.push_str(&format!("{}\n{}\nend", "x".repeat(LINE), "y".repeat(LINE + 1)));
        drain(text.as_bytes(), output.clone()).await;
        let lines = output.last_lines();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[0], "line 103");
        assert_eq!((lines[LINES - 3].len(), lines[LINES - 2].as_str()), (LINE, LONG));
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
        let output = Arc::new(Output::default());
        drain(format!("panic: {}", "x".repeat(LINE)).as_bytes(), output.clone()).await;
        assert_eq!(output.reason(), Some("panic: (a line of more than 4 KiB)"));
    }

    #[tokio::test]
    async fn the_first_line_leaves_the_rest() {
        let mut stream = &b"1|5\nrest"[..];
        assert_eq!(first_line(&mut stream).await.unwrap().as_deref(), Some("1|5"));
        assert_eq!(stream, b"rest");
        assert_eq!(first_line(&mut stream).await.unwrap(), None);
    }
}
