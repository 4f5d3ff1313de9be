//! How an agent behaves: one struct, each field also an environment variable.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::SettingsError;

mod check;
mod document;
mod environment;
mod paths;
mod token;
mod value;

pub use document::SettingDoc;
pub use paths::{PathName, PathSet};
pub use token::Token;

use value::{show_duration, show_size};

/// How an agent behaves.
///
/// Each field is also an environment variable, read by [`Settings::from_env`]; `docs/config.md` and
/// [`Settings::documentation`] list them. Displayed as the one line that an agent logs at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `KVFERRY_ADDRESS`: the host name or IP address that peers on other hosts are told, without a port.
    /// `None` is the address of the default route.
    pub address: Option<String>,
    /// `KVFERRY_NET_DEVICES`: the network devices to use; empty is all.
    pub net_devices: Vec<String>,
    /// `KVFERRY_PORT_RANGE`: first and last TCP port to listen on; `None` is any that is free.
    pub port_range: Option<(u16, u16)>,
    /// `KVFERRY_SOCKET_DIR`: a directory for a Unix socket with a path, for peers of this host in another
    /// network namespace. `None` offers only the abstract socket.
    pub socket_dir: Option<PathBuf>,
    /// `KVFERRY_PEER_TIMEOUT`: silence after which a peer counts as lost.
    pub peer_timeout: Duration,
    /// `KVFERRY_CONNECT_TIMEOUT`: the longest that connecting to a peer may take.
    pub connect_timeout: Duration,
    /// `KVFERRY_CANCEL_TIMEOUT`: the longest that cancel, release, deregister and disconnect wait for quiet.
    pub cancel_timeout: Duration,
    /// `KVFERRY_THREADS`: copy threads of the agent, 1 to 32.
    pub threads: usize,
    /// `KVFERRY_INLINE_LIMIT`: bytes that `post` may copy itself when nothing is queued to the peer; 0
    /// forbids it.
    pub inline_limit: u64,
    /// `KVFERRY_SPIN`: how long a thread looks again for what follows a small transfer over TCP before it sleeps.
    pub spin: Duration,
    /// `KVFERRY_QUEUE_DEPTH`: transfers to one peer that may be posted and unfinished.
    pub queue_depth: usize,
    /// `KVFERRY_COLLAPSE`: whether memory from `alloc` is put on huge pages.
    pub collapse: bool,
    /// `KVFERRY_PTRACER`: whom this process allows to reach its memory under Yama's ptrace scope 1.
    pub ptracer: Ptracer,
    /// `KVFERRY_TOKEN`: the secret that both sides must share; without one the secret in the metadata alone
    /// decides.
    pub token: Option<Token>,
    /// `KVFERRY_REQUIRE`: the only paths and mechanisms to use; empty is any.
    pub require: PathSet,
    /// `KVFERRY_FORBID`: paths and mechanisms not to use.
    pub forbid: PathSet,
}

/// Whom this process allows to reach its memory where the kernel asks (Yama's ptrace scope 1, Ubuntu's
/// default).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Ptracer {
    /// The process of the peer that connected last, and no other: Yama remembers one process.
    Peer,
    /// Any process of the same user, as on a machine without Yama.
    #[default]
    Any,
    /// Nobody: the process keeps what it has set itself.
    Never,
}

impl Settings {
    /// The settings of this process's environment; what is not set has its default.
    ///
    /// # Errors
    /// The first variable whose value is not allowed, with what is.
    pub fn from_env() -> Result<Self, SettingsError> {
        environment::warn_of_misspelt(std::env::vars_os());
        environment::read(std::env::var_os)
    }

    /// The settings of the variables that `lookup` finds, which may take some from elsewhere than the environment.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn from_lookup(
        lookup: impl Fn(&'static str) -> Option<std::ffi::OsString>,
    ) -> Result<Self, SettingsError> {
        environment::read(lookup)
    }

    /// Checks the values, as [`Settings::from_env`] does with those of the environment.
    ///
    /// # Errors
    /// The first setting whose value is not allowed, with what is.
    pub fn check(&self) -> Result<(), SettingsError> {
        check::all(self)
    }

    /// What each setting is: variable, default, allowed values, meaning. `docs/config.md` is this table.
    pub fn documentation() -> &'static [SettingDoc] {
        document::TABLE
    }

    /// Why the settings rule out a path with its mechanism, by their names; `None` if they allow it.
    ///
    /// `require` has two halves: if it names paths, the path must be one of them; if it names mechanisms, the
    /// mechanism must be one of them. A name that is none of [`PathName::ALL`] can be neither required nor
    /// forbidden.
    pub fn refusal(&self, path: &str, mechanism: &str) -> Option<String> {
        if self.forbid.has(path) || self.forbid.has(mechanism) {
            return Some(format!("KVFERRY_FORBID={} rules it out", self.forbid));
        }
        let (paths, mechanisms) = (self.require.paths(), self.require.mechanisms());
        let path_fits = paths.is_empty() || paths.has(path);
        let mechanism_fits = mechanisms.is_empty() || mechanisms.has(mechanism);
        (!path_fits || !mechanism_fits).then(|| format!("KVFERRY_REQUIRE={} asks for another", self.require))
    }
}

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Self {
            address: None,
            net_devices: Vec::new(),
            port_range: None,
            socket_dir: None,
            peer_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(5),
            cancel_timeout: Duration::from_secs(1),
            threads: cores.min(2),
            inline_limit: 16 << 10,
            spin: if cores > 1 { Duration::from_micros(50) } else { Duration::ZERO },
            queue_depth: 1024,
            collapse: false,
            ptracer: Ptracer::Any,
            token: None,
            require: PathSet::EMPTY,
            forbid: PathSet::EMPTY,
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = match self.net_devices.as_slice() {
            [] => "all".to_owned(),
            names => names.join(","),
        };
        let ports =
            self.port_range.map_or_else(|| "any".to_owned(), |(first, last)| format!("{first}-{last}"));
        let directory = self
            .socket_dir
            .as_deref()
            .map_or_else(|| "none".to_owned(), |directory| directory.display().to_string());
        write!(
            f,
            "address={} net_devices={devices} port_range={ports} socket_dir={directory}",
            self.address.as_deref().unwrap_or("auto"),
        )?;
        write!(
            f,
            " peer_timeout={} connect_timeout={} cancel_timeout={}",
            show_duration(self.peer_timeout),
            show_duration(self.connect_timeout),
            show_duration(self.cancel_timeout),
        )?;
        write!(
            f,
            " threads={} inline_limit={} spin={} queue_depth={} collapse={} ptracer={} token={}",
            self.threads,
            show_size(self.inline_limit),
            show_duration(self.spin),
            self.queue_depth,
            self.collapse,
            self.ptracer,
            if self.token.is_some() { "set" } else { "unset" },
        )?;
        write!(f, " require={} forbid={}", self.require, self.forbid)
    }
}

impl fmt::Display for Ptracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Any => "any",
            Self::Never => "never",
        })
    }
}

#[cfg(test)]
mod tests;
