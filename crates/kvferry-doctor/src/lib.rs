//! The catalogue of errors around KV-cache transfer, and what explains logs by it.
//!
//! | module | holds |
//! |---|---|
//! | [`record`] | one error in the published schema, version 2: strict reading, formulas, checks |
//! | [`dataset`] | records in files: single, in their envelope, folders, lines |
//! | [`catalogue`] | the records that are built in, what we know beyond the schema, search |
//! | [`kind`] | the causes: whose side, how to mend them in each environment, how to verify |
//! | [`evidence`] | lines that show that a failure is over |
//! | [`versions`] | pairs of releases known to fail together |
//! | [`explain`] | logs in, one primary cause out |
//! | [`report`] | an explanation as text and as JSON |
//!
//! ```
//! let explanation = kvferry_doctor::explain::text("ibv_reg_mr() failed: Cannot allocate memory");
//! let primary = explanation.primary.expect("a known message");
//! assert_eq!(primary.kind.as_deref(), Some("memlock-limit"));
//! ```

pub mod catalogue;
pub mod dataset;
mod errno;
pub mod evidence;
pub mod explain;
pub mod fuzzing;
pub mod kind;
mod log;
pub mod record;
pub mod report;
mod rule;
pub mod side;
pub mod versions;
