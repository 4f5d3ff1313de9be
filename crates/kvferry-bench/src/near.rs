use std::fmt;

use anyhow::Result;

use crate::conditions::Conditions;
use crate::opposite::{Opposite, Peer};
use crate::options::{BenchOp, BenchPath, Memory, Options};
use crate::pattern::{Pattern, Shape};
use crate::progress::Watch;
use crate::report::{Missing, Report};
use crate::row::{Row, RowOp};

mod bulk;
mod notes;
mod posting;
mod session;
mod single;

use session::Session;

/// Measures everything that the options ask for, one setup of path and memory after the other.
///
/// A row that can't be measured is listed as missing, with its cause, and the others go on.
///
/// # Errors
/// Nothing can be measured with the options.
pub fn run(options: &Options, opposite: &Opposite, watch: &mut dyn Watch) -> Result<Report> {
    options.check()?;
    let mut report = Report { conditions: Conditions::of_this_machine(), ..Report::default() };
    let setups: Vec<_> = options
        .paths
        .iter()
        .flat_map(|&path| options.memories.iter().map(move |&memory| (path, memory)))
        .collect();
    let entries = entries(options);
    watch.begin(setups.len() * entries.len() * steps(options));
    let mut last = None;
    for (path, memory) in setups {
        // Ends the process or connection of the setup before.
        drop(last.take());
        last = opposite
            .meet()
            .and_then(|mut peer| {
                measure_setup(options, (path, memory), &entries, &mut peer, &mut report, watch).map(|()| peer)
            })
            .inspect_err(|error| {
                let cause = format!("{error:#}");
                for entry in &entries {
                    report.miss(entry.missing(path, memory, &cause), watch);
                }
            })
            .ok();
    }
    if let Some(mut peer) = last {
        peer.say_goodbye();
    }
    watch.end();
    report.conditions.finish();
    Ok(report)
}

/// A row to be measured.
#[derive(Clone, Copy, Debug)]
struct Entry {
    pattern: Pattern,
    op: RowOp,
    moved: Option<(BenchOp, Shape)>,
}

impl Entry {
    fn missing(&self, path: BenchPath, memory: Memory, cause: &str) -> Missing {
        Missing {
            pattern: self.pattern,
            blocks: self.blocks(),
            op: self.op,
            path,
            memory,
            cause: cause.to_owned(),
        }
    }

    /// What tells rows of one pattern apart.
    fn blocks(&self) -> Option<u64> {
        let (_, shape) = self.moved.filter(|_| self.pattern == Pattern::P)?;
        Some(shape.count)
    }
}

/// Steps of a row as progress counts them: a warm-up and the counted rounds.
fn steps(options: &Options) -> usize {
    options.rounds as usize + 1
}

fn entries(options: &Options) -> Vec<Entry> {
    let mut entries = Vec::new();
    for &pattern in &options.patterns {
        if pattern == Pattern::G {
            entries.push(Entry { pattern, op: RowOp::Notify, moved: None });
        }
        for &op in &options.ops {
            let shapes = pattern.shapes(options.pool).into_iter();
            entries.extend(shapes.map(|shape| Entry { pattern, op: op.into(), moved: Some((op, shape)) }));
        }
    }
    entries
}

/// Measures all rows of a setup. An error is one of the setup, before its first row.
fn measure_setup(
    options: &Options,
    (path, memory): (BenchPath, Memory),
    entries: &[Entry],
    peer: &mut Peer,
    report: &mut Report,
    watch: &mut dyn Watch,
) -> Result<()> {
    let session = Session::start(options, path, memory, peer)?;
    report.notes.push(session.describe());
    let mut broken: Option<String> = None;
    for (entry, seed) in entries.iter().zip(1..) {
        if let Some(cause) = &broken {
            report.miss(entry.missing(path, memory, cause), watch);
            continue;
        }
        watch.row(&format!("{path} {memory}: {} {}", entry.pattern, entry.op));
        let measured = match entry.moved {
            None => notes::measure(&session, peer, watch),
            Some((op, shape)) => {
                let plan = crate::message::Plan { op, shape, seed };
                match entry.pattern {
                    Pattern::E => single::measure(&session, peer, plan, watch),
                    Pattern::P => posting::measure(&session, peer, plan, watch),
                    _ => bulk::measure(&session, peer, plan, watch),
                }
            }
        };
        match measured {
            Ok(measured) => {
                if let Some(fault) = &measured.fault {
                    report.notes.push(format!("{path} {memory} {} {}: {fault}", entry.pattern, entry.op));
                }
                let row = Row {
                    pattern: entry.pattern,
                    blocks: entry.blocks(),
                    op: entry.op,
                    path: path.name().to_owned(),
                    mechanism: measured.mechanism,
                    memory,
                    measure: measured.measure,
                    limit: measured.limit,
                    limit_median: measured.limit_median,
                    ratio: measured.measure.median() / measured.limit_median.max(f64::MIN_POSITIVE),
                    cpu_s_per_gb: measured.cpu_s_per_gb,
                    verified: measured.fault.is_none(),
                };
                report.add(row, watch);
            }
            Err(error) => {
                if let RowError::Setup(error) = &error {
                    broken = Some(format!("an earlier row broke the setup: {error:#}"));
                }
                report.miss(entry.missing(path, memory, &error.to_string()), watch);
            }
        }
    }
    Ok(())
}

/// What a row comes to.
struct Measured {
    mechanism: String,
    measure: crate::row::Measure,
    limit: crate::row::Limit,
    limit_median: f64,
    cpu_s_per_gb: Option<f64>,
    /// The first wrong byte.
    fault: Option<String>,
}

/// Why a row is missing.
enum RowError {
    /// The engine said no; the next row may fare better.
    Engine(String),
    /// The two sides are out of step, or a raw loop does not work.
    Setup(anyhow::Error),
}

impl From<anyhow::Error> for RowError {
    fn from(error: anyhow::Error) -> Self {
        Self::Setup(error)
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(text) => f.write_str(text),
            Self::Setup(error) => write!(f, "{error:#}"),
        }
    }
}

/// Turns an error of the library into the end of a row: all of them have a code.
macro_rules! engine {
    ($result:expr) => {
        $result.map_err(|error| $crate::near::RowError::Engine($crate::near::explain(&error, error.code())))
    };
}
use engine;

/// An error with its causes and its code.
fn explain(error: &dyn std::error::Error, code: &str) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    if text.contains(code) { text } else { format!("{text} ({code})") }
}
