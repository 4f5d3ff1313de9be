//! Where an agent can be met.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest name or path of a Unix socket: what the kernel's address holds, less one byte.
pub const MAX_UNIX_NAME: usize = 107;

/// The longest TCP address, in bytes: what a name in the DNS may have.
const MAX_TCP_ADDR: usize = 253;

const ABSTRACT: u8 = 1;
const PATH: u8 = 2;
const TCP: u8 = 3;

/// One place where an agent listens.
///
/// On the wire each is a number and a byte string, so that a version which doesn't know a kind of
/// place, or a new form of one, keeps it as [`Endpoint::Other`] and goes on.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// A Unix socket with a name in the abstract namespace, without the leading zero byte; 1 to
    /// [`MAX_UNIX_NAME`] bytes.
    AbstractUnix(Vec<u8>),
    /// A Unix socket with a path; 1 to [`MAX_UNIX_NAME`] bytes, none of them zero.
    PathUnix(Vec<u8>),
    /// A TCP port.
    Tcp {
        /// An IP address or a name to resolve.
        addr: String,
        /// The port; not zero.
        port: u16,
    },
    /// A kind of place that this version doesn't know, kept as it came.
    Other {
        /// The kind's number.
        kind: u8,
        /// What it says.
        data: Box<[u8]>,
    },
}

impl Endpoint {
    /// Whether it keeps to the limits of its kind. One that does not would come back as
    /// [`Endpoint::Other`].
    pub(crate) fn is_valid(&self) -> bool {
        let (kind, data) = self.wire();
        Self::from_wire(kind, &data) == *self
    }

    fn wire(&self) -> (u8, Cow<'_, [u8]>) {
        match self {
            Self::AbstractUnix(name) => (ABSTRACT, Cow::Borrowed(name)),
            Self::PathUnix(path) => (PATH, Cow::Borrowed(path)),
            Self::Tcp { addr, port } => (TCP, Cow::Owned([&port.to_le_bytes(), addr.as_bytes()].concat())),
            Self::Other { kind, data } => (*kind, Cow::Borrowed(data)),
        }
    }

    fn from_wire(kind: u8, data: &[u8]) -> Self {
        let unix = (1..=MAX_UNIX_NAME).contains(&data.len());
        match kind {
            ABSTRACT if unix => Some(Self::AbstractUnix(data.into())),
            PATH if unix && !data.contains(&0) => Some(Self::PathUnix(data.into())),
            TCP => tcp(data),
            _ => None,
        }
        .unwrap_or_else(|| Self::Other { kind, data: data.into() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AbstractUnix(name) => write!(f, "unix:@{}", name.escape_ascii()),
            Self::PathUnix(path) => write!(f, "unix:{}", path.escape_ascii()),
            Self::Tcp { addr, port } if addr.contains(':') => write!(f, "tcp:[{addr}]:{port}"),
            Self::Tcp { addr, port } => write!(f, "tcp:{addr}:{port}"),
            Self::Other { kind, .. } => write!(f, "endpoint of unknown kind {kind}"),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

fn tcp(data: &[u8]) -> Option<Endpoint> {
    let (port, addr) = data.split_first_chunk()?;
    let port = u16::from_le_bytes(*port);
    let addr = str::from_utf8(addr).ok()?;
    // Whoever prints it must not be led astray by control characters.
    let fit = (1..=MAX_TCP_ADDR).contains(&addr.len()) && !addr.contains(|c: char| c.is_control());
    (fit && port != 0).then(|| Endpoint::Tcp { addr: addr.into(), port })
}

#[derive(Serialize, Deserialize)]
struct Wire<'a>(u8, #[serde(borrow)] Cow<'a, [u8]>);

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, data) = self.wire();
        Wire(kind, data).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire(kind, data) = Wire::deserialize(deserializer)?;
        Ok(Self::from_wire(kind, &data))
    }
}

#[cfg(test)]
mod tests;
