//! Reading logs: in blocks, without the prefixes of loggers, repeats folded.

mod clock;
mod fuzzy;
mod line;
mod prefix;
mod scan;
mod traceback;

pub(crate) use self::clock::Clock;
pub(crate) use self::fuzzy::Fuzzy;
pub(crate) use self::line::{clean, unescape_json};
pub(crate) use self::prefix::{Level, Stripped, strip};
pub(crate) use self::scan::{Finding, Place, Scan, Scanner, Seen, Tier};
pub(crate) use self::traceback::{Part, Tracebacks};
