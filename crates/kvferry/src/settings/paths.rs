//! Names of paths and mechanisms, and sets of them.

use std::fmt;
use std::str::FromStr;

/// The name of a path or of a mechanism, as `KVFERRY_REQUIRE` and `KVFERRY_FORBID` take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathName {
    /// Path: both agents in one process.
    SameProcess,
    /// Path: both processes on one host.
    SameHost,
    /// Path: over TCP.
    Tcp,
    /// Path: over an RDMA network.
    Rdma,
    /// Mechanism of one host: memory from `alloc`, mapped by the peer.
    Map,
    /// Mechanism of one host: cross-memory attach, `process_vm_readv` and `process_vm_writev`.
    Cma,
    /// Mechanism of one host: GPU memory shared by CUDA.
    CudaIpc,
}

/// A set of path and mechanism names. Displayed with commas, or as `none`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PathSet(u8);

/// A name that is none of [`PathName::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a path nor a mechanism; the names are {all}", all = PathSet::ALL)]
pub struct UnknownPathName(pub String);

impl PathName {
    /// All names: the paths, then the mechanisms of `same_host`.
    pub const ALL: [Self; 7] =
        [Self::SameProcess, Self::SameHost, Self::Tcp, Self::Rdma, Self::Map, Self::Cma, Self::CudaIpc];

    /// The name in text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameProcess => "same_process",
            Self::SameHost => "same_host",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Map => "map",
            Self::Cma => "cma",
            Self::CudaIpc => "cuda_ipc",
        }
    }

    /// Whether it names a mechanism, not a path.
    pub const fn is_mechanism(self) -> bool {
        matches!(self, Self::Map | Self::Cma | Self::CudaIpc)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for PathName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PathName {
    type Err = UnknownPathName;

    fn from_str(text: &str) -> Result<Self, UnknownPathName> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| UnknownPathName(text.to_owned()))
    }
}

impl PathSet {
    /// The set of none.
    pub const EMPTY: Self = Self(0);
    /// The set of all.
    pub const ALL: Self = Self((1 << PathName::ALL.len()) - 1);

    /// Whether `name` is in the set.
    pub const fn contains(self, name: PathName) -> bool {
        self.0 & name.bit() != 0
    }

    /// Whether the name in text is in the set.
    pub fn has(self, name: &str) -> bool {
        name.parse().is_ok_and(|name| self.contains(name))
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// This set with `name` in it.
    #[must_use]
    pub const fn with(self, name: PathName) -> Self {
        Self(self.0 | name.bit())
    }

    /// The names in the set, paths first.
    pub fn iter(self) -> impl Iterator<Item = PathName> {
        PathName::ALL.into_iter().filter(move |name| self.contains(*name))
    }

    /// The paths in the set.
    #[must_use]
    pub fn paths(self) -> Self {
        self.iter().filter(|name| !name.is_mechanism()).collect()
    }

    /// The mechanisms in the set.
    #[must_use]
    pub fn mechanisms(self) -> Self {
        self.iter().filter(|name| name.is_mechanism()).collect()
    }
}

impl FromIterator<PathName> for PathSet {
    fn from_iter<I: IntoIterator<Item = PathName>>(names: I) -> Self {
        names.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Display for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (position, name) in self.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            f.write_str(name.as_str())?;
        }
        Ok(())
    }
}

impl fmt::Debug for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromStr for PathSet {
    type Err = UnknownPathName;

    /// Names separated by commas; blanks around them do not matter, and an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, UnknownPathName> {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(PathName::from_str).collect()
    }
}
