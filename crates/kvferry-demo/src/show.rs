//! What a person sees: lines, text as it comes, a bar while there is a terminal.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// Standard output, and a progress bar on standard error where both are terminals.
pub(crate) struct Show {
    terminal: bool,
    bar: Option<ProgressBar>,
    /// A piece of text stands on the last line without its end.
    open: bool,
}

impl Show {
    /// Finds out whether anyone watches.
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stdout().is_terminal() && std::io::stderr().is_terminal(),
            bar: None,
            open: false,
        }
    }

    /// Prints a line of its own.
    pub(crate) fn line(&mut self, line: &str) -> Result<()> {
        let end = if std::mem::take(&mut self.open) { "\n" } else { "" };
        self.write(&format!("{end}{line}\n"))
    }

    /// Prints a piece of a text that goes on.
    pub(crate) fn text(&mut self, piece: &str) -> Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        self.open = !piece.ends_with('\n');
        self.write(piece)
    }

    /// Shows a bar of `total` tokens, if anyone watches.
    pub(crate) fn start_bar(&mut self, label: &str, total: usize) -> Result<()> {
        self.end_bar();
        // A bar takes the line that the cursor is in.
        if std::mem::take(&mut self.open) {
            self.write("\n")?;
        }
        if self.terminal {
            let style =
                ProgressStyle::with_template("{prefix:>8} {bar:40} {human_pos}/{human_len} tokens  {msg}");
            let bar = ProgressBar::new(total as u64).with_prefix(label.to_owned());
            self.bar = Some(match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            });
        }
        Ok(())
    }

    /// Moves the bar by `tokens`.
    pub(crate) fn advance_bar(&self, tokens: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(tokens as u64);
        }
    }

    /// Says something beside the bar.
    pub(crate) fn say_on_bar(&self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(message);
        }
    }

    /// Takes the bar away.
    pub(crate) fn end_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn write(&self, text: &str) -> Result<()> {
        let write = || {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }?;
        Ok(())
    }
}
