//! The smaller parts of a blob.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a process runs, as it sees itself.
///
/// Two processes with the same `boot_id` run on one kernel; the other numbers say in advance what
/// may stand between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's random number of this boot.
    pub boot_id: [u8; 16],
    /// Inode number of the PID namespace.
    pub pid_namespace: u64,
    /// Inode number of the network namespace.
    pub net_namespace: u64,
    /// Inode number of the user namespace.
    pub user_namespace: u64,
    /// Effective user id, in that user namespace.
    pub uid: u32,
}

/// 256 random bits that only holders of the blob know. `Debug` shows nothing of them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What lets a peer connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The part that travels in the blob.
    pub secret: Secret,
    /// Whether the agent also demands a token, which never travels.
    pub token: bool,
}
