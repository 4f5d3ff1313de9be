//! Why metadata is refused.

use crate::peers::MAX_AGENT_NAME;
use crate::region::{RegionError, RegionId};

/// Why a blob can't be read, or not be written. Nothing of it was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// The bytes don't have the form of a blob.
    #[error("malformed at byte {at}: {what}")]
    Malformed {
        /// Offset in the blob.
        at: usize,
        /// The part that can't be read, or what is wrong.
        what: &'static str,
    },
    /// The bytes changed on their way.
    #[error("checksum does not match: the bytes were damaged on their way")]
    Checksum,
    /// The blob has another version of the format.
    #[error("format version {got}, this version reads {supported}")]
    Version {
        /// Its version.
        got: u16,
        /// The version that can be read.
        supported: u16,
    },
    /// The blob has a section that this version doesn't know and may not pass over.
    #[error("section {id} ({}) must be understood, and this version does not", name.unwrap_or("unknown"))]
    CriticalSection {
        /// The section's number.
        id: u16,
        /// Its name, where the number is set aside for something.
        name: Option<&'static str>,
    },
    /// A section comes twice.
    #[error("section {name} comes twice")]
    DuplicateSection {
        /// Name of the section.
        name: &'static str,
    },
    /// A section that must be there is not.
    #[error("section {name} is missing")]
    MissingSection {
        /// Name of the section.
        name: &'static str,
    },
    /// There is more of something than is allowed.
    #[error("{size} {what}, {limit} are allowed")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        size: usize,
        /// How many there may be.
        limit: usize,
    },
    /// No agent can have this name.
    #[error("name of {len} bytes, 1 to {MAX_AGENT_NAME} are allowed")]
    Name {
        /// Its length.
        len: usize,
    },
    /// An endpoint breaks the limits of its kind.
    #[error("endpoint {index} has an empty, too long or invalid address")]
    Endpoint {
        /// Which one.
        index: usize,
    },
    /// A region can't be one.
    #[error("region {id} (entry {index}): {source}")]
    Region {
        /// Which one.
        index: usize,
        /// Its number.
        id: RegionId,
        /// What is wrong.
        source: RegionError,
    },
    /// Two regions have one number.
    #[error("region {id} comes twice")]
    DuplicateRegion {
        /// The number.
        id: RegionId,
    },
    /// The encoder gave up; no value of these types makes it do so.
    #[error("metadata can't be encoded")]
    Unwritable,
}
