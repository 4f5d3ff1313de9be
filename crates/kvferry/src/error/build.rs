//! Why an agent could not be built.

use std::io;

use super::SettingsError;
use crate::codes;

/// Why no agent was built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is empty or too long.
    #[error("an agent's name has 1 to {most} bytes, this one has {length} (agent.name_invalid)")]
    Name {
        /// Bytes of the name given.
        length: usize,
        /// The most that a name may have.
        most: usize,
    },
    /// A setting is not allowed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The system refused something that an agent needs.
    #[error("cannot get {what}: {source} (agent.resources)")]
    Resources {
        /// What the agent needs: a thread, a socket.
        what: &'static str,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
}

impl BuildError {
    /// The stable code, a key of the catalogue.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } => "agent.name_invalid",
            Self::Settings(error) => error.code(),
            Self::Resources { .. } => "agent.resources",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}
