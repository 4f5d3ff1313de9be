//! Tracebacks of Python, whose last line is the error and whose frames quote source code.

use std::collections::VecDeque;

use super::prefix::Stripped;

/// Logs of several workers interleave; older open tracebacks than these are given up.
const MOST_OPEN: usize = 32;
/// A traceback without an end is given up after so many lines.
const LONGEST: u32 = 500;

/// What a line is within tracebacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// In none.
    Outside,
    /// The head, a frame, or source code.
    Frame,
    /// A quoted `assert`, all that an `AssertionError` without a text says.
    Assertion,
    /// The error that ends it.
    End,
}

/// The tracebacks that are open, by who writes them.
#[derive(Debug, Default)]
pub(crate) struct Tracebacks {
    open: VecDeque<(u64, u32)>,
}

impl Tracebacks {
    /// Whether each line has to be looked at.
    pub(crate) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes the next line.
    pub(crate) fn take(&mut self, line: &Stripped<'_>) -> Part {
        let text = line.text;
        if is_head(text) {
            self.open.retain(|(writer, _)| *writer != line.writer);
            if self.open.len() == MOST_OPEN {
                self.open.pop_front();
            }
            self.open.push_back((line.writer, 0));
            return Part::Frame;
        }
        let Some(at) = self.open.iter().position(|(writer, _)| *writer == line.writer) else {
            return Part::Outside;
        };
        self.open[at].1 += 1;
        if self.open[at].1 > LONGEST {
            self.open.remove(at);
            return Part::Outside;
        }
        if text.is_empty() || text.starts_with(b" ") || text.starts_with(b"\t") {
            let is_assertion = text.trim_ascii_start().starts_with(b"assert ");
            return if is_assertion { Part::Assertion } else { Part::Frame };
        }
        if text.starts_with(b"During handling of") || text.starts_with(b"The above exception") {
            return Part::Frame;
        }
        self.open.remove(at);
        Part::End
    }
}

/// Whether a traceback begins here, alone or behind words: `Scheduler hit an exception: Traceback …`.
fn is_head(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.starts_with(b"Traceback (most recent call last)")
        || text.ends_with(b"Traceback (most recent call last):")
}
