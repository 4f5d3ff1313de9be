//! Proof of the capability: that a side holds the secret of the target's metadata, and the token if there is one,
//! without sending either.
//!
//! The key is derived from secret and token. Each side sends a keyed hash over its role, both nonces and both
//! identities, so that a proof fits one handshake, one direction and one pair of incarnations.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::frame::{Nonce, PROTOCOL_VERSION};
use crate::peers::Identity;
use crate::stream::ChannelKey;

const KEY_CONTEXT: &str = "kvferry 2025-11 control channel capability";

/// The two ends of a directed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that loaded the other's metadata and starts transfers.
    Initiator,
    /// The side whose metadata was loaded.
    Target,
}

/// What proves the capability of one target. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct ProofKey([u8; 32]);

impl ProofKey {
    /// From the secret in the target's metadata and the token of this process; no token and an empty one are the same.
    pub fn derive(secret: &[u8; 32], token: Option<&[u8]>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(KEY_CONTEXT);
        // The secret has a fixed length, so the token's bytes can't be mistaken for it.
        hasher.update(secret);
        hasher.update(token.unwrap_or_default());
        Self(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(..)")
    }
}

/// One handshake, as both sides saw it.
#[derive(Clone, Copy, Debug)]
pub struct Transcript<'a> {
    /// Who opened the connection.
    pub initiator: &'a Identity,
    /// Who answered.
    pub target: &'a Identity,
    /// The initiator's nonce.
    pub initiator_nonce: &'a Nonce,
    /// The target's nonce.
    pub target_nonce: &'a Nonce,
}

impl Transcript<'_> {
    /// The proof that the side in `role` sends.
    pub fn prove(&self, key: &ProofKey, role: Role) -> [u8; 32] {
        *self.hash(key, role).as_bytes()
    }

    /// Whether `proof` is what the side in `role` must have sent; takes the same time wherever they differ.
    pub fn verify(&self, key: &ProofKey, role: Role, proof: &[u8; 32]) -> bool {
        // `blake3::Hash` compares in constant time.
        self.hash(key, role) == blake3::Hash::from_bytes(*proof)
    }

    /// What both ends share after this handshake: the key of whatever else belongs to the channel.
    pub fn channel_key(&self, key: &ProofKey) -> ChannelKey {
        ChannelKey(*self.labelled(key, b"channel--").as_bytes())
    }

    fn hash(&self, key: &ProofKey, role: Role) -> blake3::Hash {
        self.labelled(
            key,
            match role {
                Role::Initiator => b"initiator",
                Role::Target => b"target---",
            },
        )
    }

    fn labelled(&self, key: &ProofKey, label: &[u8; 9]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        hasher.update(label);
        hasher.update(&PROTOCOL_VERSION.to_le_bytes());
        hasher.update(self.initiator_nonce);
        hasher.update(self.target_nonce);
        for identity in [self.initiator, self.target] {
            hasher.update(&identity.incarnation.0);
            hasher.update(&(identity.name.len() as u64).to_le_bytes());
            hasher.update(identity.name.as_bytes());
        }
        hasher.finalize()
    }
}
