//! What we know about a record beyond the published schema, which is strict: its cause, what decides between
//! causes, whether it is only a consequence.

use serde::{Deserialize, Serialize};

/// The additions to one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// The kind of cause; none when the text alone can't decide.
    pub kind: Option<String>,
    /// Cause or consequence.
    pub role: Role,
    /// What logs write before the message.
    pub family: Family,
    /// Rules beside the one that follows from the message: regular expressions on a line without its prefix.
    #[serde(default, rename = "match")]
    pub rules: Vec<String>,
    /// The same failure in the words of other programs; this counts on lines that fit no other rule.
    #[serde(default)]
    pub alike: Vec<Alike>,
    /// What decides between causes; the first that holds does.
    #[serde(default)]
    pub discriminators: Vec<Discriminator>,
    /// Candidates with what to look at, most likely first.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// Checks of the host that belong to it.
    #[serde(default)]
    pub checks: Vec<String>,
    /// Records that the other side's log shows as a consequence.
    #[serde(default)]
    pub peer: Vec<String>,
    /// What shows that the failure is over, by the names of `evidence.toml`: lines after it, of the same log or of
    /// another's.
    #[serde(default)]
    pub recovered: Vec<String>,
    /// Lines as a real log shows them.
    pub examples: Vec<String>,
}

/// A failure in other words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alike {
    /// A regular expression on a line without its prefix.
    pub rule: String,
    /// One on a frame of the traceback that the line ends, for lines that say too little by themselves.
    #[serde(default)]
    pub frame: Option<String>,
    /// The kind, if these words tell it; else what the record says of it.
    pub kind: Option<String>,
    /// Other kinds that the words leave possible, most likely first.
    #[serde(default)]
    pub or: Vec<String>,
    /// What shows that the failure is over, as [`Side::recovered`].
    #[serde(default)]
    pub recovered: Vec<String>,
}

/// Whether a message tells the cause or follows from something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// May be the cause.
    Primary,
    /// Gives way to any primary.
    Secondary,
}

/// The prefix of a family of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Family {
    /// None.
    Plain,
    /// `[time] [host:pid:tid] file.c:1 UCX ERROR`
    Ucx,
    /// `E0821 10:11:12.123456 123 file.cpp:1]`
    Glog,
    /// NIXL's, glog's form with a year.
    Nixl,
    /// The logging of Python, with or without a traceback.
    Python,
    /// tracing.
    Rust,
    /// `libfabric:pid:time:provider:area:function():line<level>`
    Libfabric,
    /// dmesg.
    Kernel,
    /// klog and logrus.
    Go,
}

/// A condition that decides the kind; all that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Discriminator {
    /// One of these errors stands in the line or right after it.
    #[serde(default)]
    pub errno: Vec<String>,
    /// The line matches this.
    pub line: Option<String>,
    /// Another line of the same logs matches this.
    pub near: Option<String>,
    /// The kind, then.
    pub kind: String,
    /// Other kinds that the condition leaves possible, most likely first.
    #[serde(default)]
    pub or: Vec<String>,
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The kind.
    pub kind: String,
    /// What to look at to confirm or refute it.
    pub look: String,
}
