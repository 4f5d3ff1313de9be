//! Measures kvferry between two processes, each row beside the raw loop of the same mechanism: on the same memory, in
//! the same run, turn by turn. What moved is compared byte for byte, outside of the timed part.
//!
//! The *near* process posts the transfers and runs the raw loops; the *far* one holds the other memory and does what it
//! is asked over a pipe or a socket. `docs/performance.md` says how to read the rows.

mod channel;
mod conditions;
mod content;
mod far;
mod layout;
mod message;
mod near;
mod opposite;
mod options;
mod pattern;
mod plot;
mod pool;
mod progress;
mod raw;
mod report;
mod row;
mod samples;

pub use conditions::Conditions;
pub use far::{listen, serve_pipes};
pub use near::run;
pub use opposite::Opposite;
pub use options::{BenchOp, BenchPath, InvalidOptions, Memory, Options, UnknownName};
pub use pattern::{Pattern, Shape};
pub use plot::{PlotFormat, plot};
pub use progress::{Bar, Quiet, Watch};
pub use report::{Missing, Report};
pub use row::{Limit, Measure, Row, RowOp};
