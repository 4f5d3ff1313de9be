use std::fmt;

/// Where the two ends of a pair of regions stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Path {
    /// Both agents live in this process.
    SameProcess,
    /// Two processes of one host.
    SameHost,
    /// A wire transport over TCP.
    Tcp,
    /// A wire transport over RDMA.
    Rdma,
    /// A transport that was added from outside the crate.
    Other(&'static str),
}

impl Path {
    /// The name used in settings, logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameProcess => "same_process",
            Self::SameHost => "same_host",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How bytes move along a [`Path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mechanism {
    /// Loads and stores: one end is shared memory that the copier has mapped (or lives in its own process).
    Map,
    /// Cross-memory attach: vectored `process_vm_readv` and `process_vm_writev`.
    Cma,
    /// A stream of frames.
    Stream,
    /// A transport that was added from outside the crate.
    Other(&'static str),
}

impl Mechanism {
    /// The name used in settings, logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Cma => "cma",
            Self::Stream => "stream",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which side's threads copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executor {
    /// The agent that posted the transfer.
    Initiator,
    /// Its peer, on the initiator's behalf.
    Target,
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initiator => "initiator",
            Self::Target => "target",
        })
    }
}

/// A chosen way between a local and a remote region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where the two ends stand.
    pub path: Path,
    /// How bytes move.
    pub mechanism: Mechanism,
    /// Who copies.
    pub executor: Executor,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.mechanism)?;
        match self.executor {
            Executor::Initiator => Ok(()),
            Executor::Target => f.write_str(" by the target"),
        }
    }
}

/// A way that is not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNot {
    /// The way, such as `map`, `cma` or `rdma`.
    pub way: &'static str,
    /// The cause, in words, with the remedy where there is one.
    pub reason: String,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.way, self.reason)
    }
}

/// How one kind of pair of regions reaches a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The local memory, such as `private memory` or `shared memory`.
    pub local: &'static str,
    /// The peer's memory.
    pub remote: &'static str,
    /// The route that transfers between the two take, or `None` where there is no way.
    pub route: Option<Route>,
    /// Better ways that are not taken, and why.
    pub why_not: Vec<WhyNot>,
}

impl PathReport {
    /// The report of a peer without a link.
    pub(crate) fn unconnected(reason: String) -> Self {
        let why_not = vec![WhyNot { way: "connected", reason }];
        Self { local: "any memory", remote: "any memory", route: None, why_not }
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}: ", self.local, self.remote)?;
        match &self.route {
            Some(route) => write!(f, "{route}")?,
            None => f.write_str("no way")?,
        }
        for (i, why) in self.why_not.iter().enumerate() {
            write!(f, "{}{why}", if i == 0 { " (" } else { "; " })?;
        }
        if self.why_not.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}
