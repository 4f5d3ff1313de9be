//! A transport that remembers what it was asked and what it answered.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::tapped::{Call, Tap};

/// Records every call between the engine and a transport, and judges whether both keep the contract.
#[derive(Debug, Default)]
pub struct Recording {
    calls: Mutex<Vec<Call>>,
}

#[derive(Debug, Default)]
struct Attempt {
    /// Submissions without an end yet.
    open: usize,
    failed: bool,
    cancelled: bool,
}

impl Recording {
    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many calls are as `wanted` says.
    pub fn count(&self, wanted: impl Fn(&Call) -> bool) -> usize {
        self.calls().iter().filter(|call| wanted(call)).count()
    }

    /// Submissions that have not come to an end, and whose end the engine still waits for.
    pub fn open(&self) -> usize {
        self.walk().1.values().map(|attempt| attempt.open).sum()
    }

    /// What broke the contract of [`LinkOp`](kvferry::transport::LinkOp): an end without a submission or twice, done after
    /// failed, quiet for no reason, a new attempt before the old one has ended.
    pub fn violations(&self) -> Vec<String> {
        self.walk().0
    }

    fn walk(&self) -> (Vec<String>, BTreeMap<(u64, u32), Attempt>) {
        let mut bad = Vec::new();
        let mut attempts: BTreeMap<(u64, u32), Attempt> = BTreeMap::new();
        for (at, call) in self.calls().into_iter().enumerate() {
            let mut complain = |what: &str| bad.push(format!("call {at}, {call:?}: {what}"));
            match call {
                Call::Submit { request, attempt } => {
                    let older =
                        attempts.range((request, 0)..(request, attempt)).any(|(_, older)| older.open > 0);
                    if older {
                        complain("an earlier attempt has not ended");
                    }
                    attempts.entry((request, attempt)).or_default().open += 1;
                }
                Call::Refused { request, attempt } => {
                    attempts.entry((request, attempt)).or_default().open -= 1;
                }
                Call::Cancel { request } => {
                    let of_request = attempts.range_mut((request, 0)..=(request, u32::MAX));
                    if let Some((_, attempt)) = of_request.last() {
                        attempt.cancelled = true;
                    }
                }
                Call::Failed { request, attempt, .. } => {
                    attempts.entry((request, attempt)).or_default().failed = true;
                }
                Call::Done { request, attempt, .. } | Call::Quiet { request, attempt } => {
                    let done = matches!(call, Call::Done { .. });
                    let attempt = attempts.entry((request, attempt)).or_default();
                    match attempt.open.checked_sub(1) {
                        Some(left) => attempt.open = left,
                        None => complain("nothing was open"),
                    }
                    if !done && !attempt.failed && !attempt.cancelled {
                        complain("quiet, but neither failed nor cancelled");
                    }
                }
                // Which link it was is not recorded; what the engine fails with it may end without a word.
                Call::Lost { .. } => attempts.values_mut().for_each(|attempt| attempt.cancelled = true),
                Call::Dropped { request } => {
                    let of_request = attempts.range_mut((request, 0)..=(request, u32::MAX));
                    of_request.for_each(|(_, attempt)| attempt.open = 0);
                }
                _ => {}
            }
        }
        (bad, attempts)
    }
}

impl Tap for Recording {
    fn called(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}
