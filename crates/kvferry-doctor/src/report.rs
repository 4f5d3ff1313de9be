//! An explanation for people and for programs.

mod json;
mod text;

pub use self::json::json;
pub use self::text::{record, text};
