//! Reads the contents of a section.

use serde::Deserialize;

use super::{BlobError, limit};
use crate::tlv::Section;

/// What is left of a section's contents, and where in the blob that is.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    end: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// `what` names the section in errors.
    pub(super) fn new(section: &Section<'a>, what: &'static str) -> Self {
        Self { rest: section.payload, end: section.at + section.payload.len(), what }
    }

    /// The next value.
    pub(super) fn take<T: Deserialize<'a>>(&mut self) -> Result<T, BlobError> {
        match postcard::take_from_bytes(self.rest) {
            Ok((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            Err(_) => Err(self.malformed()),
        }
    }

    /// The next value, which must be the last.
    pub(super) fn only<T: Deserialize<'a>>(mut self) -> Result<T, BlobError> {
        let value = self.take()?;
        self.finish()?;
        Ok(value)
    }

    /// A count of `what`, of which at most `most` are allowed.
    pub(super) fn count(&mut self, what: &'static str, most: usize) -> Result<usize, BlobError> {
        let count = self.take::<u32>()? as usize;
        limit(what, count, most)?;
        Ok(count)
    }

    /// The next `count` values. Allocates as they come, not by the count.
    pub(super) fn many<T: Deserialize<'a>>(&mut self, count: usize) -> Result<Vec<T>, BlobError> {
        (0..count).map(|_| self.take()).collect()
    }

    /// Makes sure that nothing is left.
    pub(super) fn finish(self) -> Result<(), BlobError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed()) }
    }

    /// What was last taken makes no sense.
    pub(super) fn malformed(&self) -> BlobError {
        BlobError::Malformed { at: self.end - self.rest.len(), what: self.what }
    }
}
