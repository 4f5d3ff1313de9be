//! What the processes of a probe tell each other, one JSON object a line.

use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// From the target: its metadata, and where its memory is.
    Offer { metadata: Vec<u8>, addr: u64 },
    /// From the initiator: everything arrived.
    Moved(Moved),
    /// To the target: look at what was written.
    Compare,
    /// From the target: whether it is what should have been.
    Compared { equal: bool },
    /// From either: it can't be done.
    Refused(Refusal),
}

/// How bytes moved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) path: String,
    pub(super) mechanism: String,
    /// The side whose threads copied.
    pub(super) executor: String,
    /// Best of some passes, in 10^9 bytes a second.
    pub(super) write_gbps: f64,
    pub(super) read_gbps: f64,
}

/// Why they did not.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) cause: String,
    pub(super) remedy: String,
}

impl Refusal {
    /// What an error of the library says, with the remedy of its code.
    pub(super) fn new(code: &str, cause: impl ToString) -> Self {
        let remedy = kvferry::Code::find(code).map_or("", |code| code.remedy);
        Self { code: code.to_owned(), cause: cause.to_string(), remedy: remedy.to_owned() }
    }

    pub(super) fn wrong_bytes(what: &str) -> Self {
        Self {
            code: "probe.wrong_bytes".to_owned(),
            cause: format!("bytes that were {what} are not those that were sent"),
            remedy: "This is a fault of kvferry, the kernel or the machine's memory; please report it with `uname -a`."
                .to_owned(),
        }
    }
}
