use std::fmt;

use serde::{Serialize, Serializer};

use crate::options::{BenchOp, Memory};
use crate::pattern::Pattern;

/// What was measured, beside its raw loop. As JSON the keys are the names of the fields, those of [`Measure`] among
/// them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was moved.
    pub pattern: Pattern,
    /// Blocks a transfer has; only where rows of one pattern differ in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Which way.
    pub op: RowOp,
    /// The path taken.
    pub path: String,
    /// The mechanism that the engine chose.
    pub mechanism: String,
    /// Whose memory the pools were.
    pub memory: Memory,
    /// The result.
    #[serde(flatten)]
    pub measure: Measure,
    /// The raw loop.
    pub limit: Limit,
    /// The raw loop's median, in the unit of the result.
    #[serde(serialize_with = "rounded")]
    pub limit_median: f64,
    /// The result's median by the raw loop's: of rates, the more the better; of times, the less.
    #[serde(serialize_with = "rounded")]
    pub ratio: f64,
    /// CPU seconds, user and system of both processes, for 10^9 bytes; `None` where no bytes are moved.
    #[serde(serialize_with = "rounded_option")]
    pub cpu_s_per_gb: Option<f64>,
    /// Whether all bytes of all counted rounds were where and what they should have been, and none outside changed.
    pub verified: bool,
}

/// Which way the bytes of a row went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOp {
    /// Into the memory of the process that posted.
    Read,
    /// Into its peer's memory.
    Write,
    /// There and back: notifications.
    Notify,
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Measure {
    /// Bytes by time, in 10^9 bytes a second.
    Rate {
        /// Of the counted rounds.
        #[serde(serialize_with = "rounded")]
        gbps_median: f64,
        /// The slowest round.
        #[serde(serialize_with = "rounded")]
        gbps_min: f64,
        /// The fastest round.
        #[serde(serialize_with = "rounded")]
        gbps_max: f64,
    },
    /// The time of a single step, in microseconds.
    Time {
        /// The median.
        #[serde(serialize_with = "rounded")]
        p50_us: f64,
        /// What 99 of 100 stay below.
        #[serde(serialize_with = "rounded")]
        p99_us: f64,
    },
}

/// What a row is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// `process_vm_readv` or `process_vm_writev`, 1,024 vectors a call.
    Cma,
    /// One copy through a shared mapping.
    Copy,
    /// Vectored sends and receives on two streams.
    Tcp,
    /// One bare system call, or one bare copy, of the block.
    Call,
    /// Round trips of a bare socket.
    #[serde(rename = "pingpong")]
    PingPong,
}

impl Measure {
    /// Its median, in its unit.
    pub fn median(&self) -> f64 {
        match *self {
            Self::Rate { gbps_median, .. } => gbps_median,
            Self::Time { p50_us, .. } => p50_us,
        }
    }
}

impl RowOp {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Notify => "notify",
        }
    }
}

impl From<BenchOp> for RowOp {
    fn from(op: BenchOp) -> Self {
        match op {
            BenchOp::Read => Self::Read,
            BenchOp::Write => Self::Write,
        }
    }
}

impl Limit {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cma => "cma",
            Self::Copy => "copy",
            Self::Tcp => "tcp",
            Self::Call => "call",
            Self::PingPong => "pingpong",
        }
    }
}

impl fmt::Display for RowOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Three decimals: more is noise.
fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(round(*value))
}

fn rounded_option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.serialize_some(&round(*value)),
        None => serializer.serialize_none(),
    }
}

fn round(value: f64) -> f64 {
    // A small value keeps its digits.
    let scale = if value.abs() < 0.1 { 1e6 } else { 1e3 };
    (value * scale).round() / scale
}

#[cfg(test)]
pub(crate) mod tests;
