use kvferry_proto::{BlobError, RegionId};

use crate::codes;

/// Why metadata was not given out or not taken in. Nothing has changed then.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The bytes are no metadata of this kind.
    #[error("metadata refused whole: {source} ({})", blob_code(source))]
    Blob {
        /// What is wrong with them.
        #[source]
        source: BlobError,
    },
    /// The metadata is our own.
    #[error("this metadata is our own: transfers to the agent itself use its own name (metadata.self)")]
    Own,
    /// The metadata is of an incarnation that is dead or not there.
    #[error("metadata of peer {peer:?} is stale: {detail} (metadata.stale)")]
    Stale {
        /// The peer.
        peer: String,
        /// Why it is thought so.
        detail: String,
    },
    /// A region that is not registered cannot be part of partial metadata.
    #[error("region {0:?} is not registered (metadata.unknown_region)")]
    UnknownRegion(RegionId),
    /// The process forked.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
}

impl MetadataError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Blob { source } => blob_code(source),
            Self::Own => "metadata.self",
            Self::Stale { .. } => "metadata.stale",
            Self::UnknownRegion(_) => "metadata.unknown_region",
            Self::Forked => "agent.forked",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

fn blob_code(error: &BlobError) -> &'static str {
    match error {
        BlobError::Checksum => "metadata.checksum",
        BlobError::Version { .. } => "metadata.version",
        BlobError::CriticalSection { .. } => "metadata.critical_section",
        BlobError::TooLarge { .. } => "metadata.too_large",
        _ => "metadata.malformed",
    }
}
