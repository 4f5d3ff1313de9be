//! The secret that both sides share.

use std::fmt;

/// The value of `KVFERRY_TOKEN`. It never crosses the wire and is never printed: `Debug` hides it, and there
/// is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

impl Token {
    /// A token of these bytes. An empty one counts as a token of its own, not as none.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into().into_boxed_slice())
    }

    /// The secret itself, for deriving keys.
    pub(crate) fn secret(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}
