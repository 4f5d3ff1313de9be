//! The ways in which a region can be reached from outside its process.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most ways that one region may list.
pub const MAX_REACH: usize = 16;

/// The longest key that one way may carry, in bytes.
pub const MAX_REACH_KEY: usize = 4096;

const CMA: u8 = 1;
const MAP: u8 = 2;

/// One way to reach a region, besides asking its agent over a wire.
///
/// On the wire each is a mechanism number and a byte string, so that a version which doesn't
/// know a mechanism, or a new form of its key, keeps it as [`Reach::Other`] and goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// Private memory of the process, by the kernel's copy between two processes.
    Cma {
        /// Whether the owner vouches that the memory can't vanish under a load or a store. What
        /// isn't stable is touched only by system calls that answer with an error.
        stable: bool,
    },
    /// Shared memory that the peer may map.
    Map {
        /// Which of the owner's memory files, as numbered on the control channel.
        memfd: u64,
        /// Where in the file the region begins, in bytes.
        offset: u64,
    },
    /// A mechanism that this version doesn't know, kept as it came.
    Other {
        /// The mechanism's number.
        mechanism: u8,
        /// Its key; at most [`MAX_REACH_KEY`] bytes.
        key: Box<[u8]>,
    },
}

impl Reach {
    /// The length of the key on the wire, in bytes.
    pub(crate) fn key_len(&self) -> usize {
        self.wire().1.len()
    }

    fn wire(&self) -> (u8, Cow<'_, [u8]>) {
        match self {
            Self::Cma { stable } => (CMA, Cow::Borrowed(if *stable { &[1] } else { &[0] })),
            Self::Map { memfd, offset } => {
                let mut key = Vec::with_capacity(20);
                push_varint(&mut key, *memfd);
                push_varint(&mut key, *offset);
                (MAP, Cow::Owned(key))
            }
            Self::Other { mechanism, key } => (*mechanism, Cow::Borrowed(key)),
        }
    }

    fn from_wire(mechanism: u8, key: &[u8]) -> Self {
        match (mechanism, key) {
            (CMA, &[stable @ (0 | 1)]) => Some(Self::Cma { stable: stable == 1 }),
            (MAP, key) => postcard::take_from_bytes(key)
                .ok()
                .filter(|(_, rest)| rest.is_empty())
                .map(|((memfd, offset), _)| Self::Map { memfd, offset }),
            _ => None,
        }
        .unwrap_or_else(|| Self::Other { mechanism, key: key.into() })
    }
}

#[derive(Serialize, Deserialize)]
struct Wire<'a>(u8, #[serde(borrow)] Cow<'a, [u8]>);

impl Serialize for Reach {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (mechanism, key) = self.wire();
        Wire(mechanism, key).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Reach {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire(mechanism, key) = Wire::deserialize(deserializer)?;
        Ok(Self::from_wire(mechanism, &key))
    }
}

// postcard's own form of a u64, without its error path.
fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests;
