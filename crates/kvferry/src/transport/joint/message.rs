use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The first byte of what is not for the near transport, whose own messages begin with small numbers.
const MARK: u8 = 0xff;

/// What the two ends of a joint link tell each other, beside the messages of the near transport.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wire {
    /// Initiator to target: the near way is enough, or all there is.
    Enough,
    /// Initiator to target: some memory cannot be reached the near way.
    Ask,
    /// Target to initiator: data streams are met here.
    Open { address: SocketAddr },
    /// Target to initiator: no data streams.
    Declined { reason: String },
    /// A message between the two far ends.
    Far(Vec<u8>),
}

impl Wire {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![MARK];
        // Plain numbers, strings and bytes always encode.
        bytes.extend(postcard::to_stdvec(self).unwrap_or_default());
        bytes
    }

    /// `None` for a message of the near transport.
    pub(super) fn decode(bytes: &[u8]) -> Option<Result<Self, String>> {
        let (mark, rest) = bytes.split_first()?;
        (*mark == MARK).then(|| postcard::from_bytes(rest).map_err(|e| format!("transport message: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let address = "[::1]:7000".parse().unwrap();
        for wire in [
            Wire::Enough,
            Wire::Ask,
            Wire::Open { address },
            Wire::Declined { reason: "no".into() },
            Wire::Far(vec![0, MARK, 7]),
        ] {
            assert_eq!(Wire::decode(&wire.encode()), Some(Ok(wire)));
        }
        // What begins otherwise is for the near transport, what does not decode is refused.
        assert_eq!(Wire::decode(&[]), None);
        assert_eq!(Wire::decode(&[0, 1, 2]), None);
        assert!(Wire::decode(&[MARK, 99]).unwrap().is_err());
        assert!(Wire::decode(&[MARK]).unwrap().is_err());
    }
}
