use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Missing;
use crate::row::Row;

/// Is told how a run goes.
pub trait Watch {
    /// It begins, and has that many steps.
    fn begin(&mut self, _steps: usize) {}
    /// A row begins.
    fn row(&mut self, _label: &str) {}
    /// A step is done.
    fn step(&mut self) {}
    /// A row is there.
    fn measured(&mut self, _row: &Row) {}
    /// A row is missing.
    fn missed(&mut self, _missing: &Missing) {}
    /// It is over.
    fn end(&mut self) {}
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Watch for Quiet {}

/// A bar on standard error, if that is a terminal.
#[derive(Clone, Debug)]
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar that shows when the run begins.
    pub fn new() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// Does something that writes to the terminal, with the bar out of the way.
    pub fn aside<R>(&self, write: impl FnOnce() -> R) -> R {
        self.bar.suspend(write)
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch for Bar {
    fn begin(&mut self, steps: usize) {
        self.bar = ProgressBar::new(steps as u64);
        // The template is a constant that the library takes.
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {elapsed} {msg:32}") {
            self.bar.set_style(style);
        }
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn row(&mut self, label: &str) {
        self.bar.set_message(label.to_owned());
    }

    fn step(&mut self) {
        self.bar.inc(1);
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}
