use serde::{Deserialize, Serialize};

/// What the TCP transports at the two ends of a control channel tell each other.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Wire {
    /// Target to initiator: the name of the link for data streams, and the version of their frames.
    Offer { link: [u8; 16], version: u32 },
    /// Target to initiator: all data streams have come.
    Complete,
    /// Initiator to target: stop an attempt; what still comes of it is to be discarded.
    Stop { op: u64, attempt: u32 },
    /// Target to initiator: memory that is being read went away; stop the attempt.
    Spoiled { op: u64, attempt: u32 },
    /// Target to initiator: nothing of the attempt can land any more.
    Stopped { op: u64, attempt: u32 },
}

/// Version of the data frames.
pub(super) const VERSION: u32 = 2;

impl Wire {
    pub(super) fn encode(&self) -> Vec<u8> {
        // Plain numbers always encode.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        postcard::from_bytes(bytes).map_err(|e| format!("transport message: {e}"))
    }
}
