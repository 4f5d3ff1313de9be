//! A transport that fails when it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvferry::transport::{AttachContext, Backlog, OpReport, Outbox};
use kvferry::{ConnectError, FaultCause};

use crate::tapped::{Report, Tap, TappedOp, TappedSink};

/// When an operation fails.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Before it has copied anything; quiet at once.
    AtOnce(FaultCause),
    /// After it has copied everything: it reports the fault in place of done.
    AtTheEnd(FaultCause),
    /// There is no room for it.
    Backlog,
}

/// Fails operations, refuses to attach, loses links: whatever the test asks for. Without being asked it changes nothing.
#[derive(Debug, Default)]
pub struct Faulty {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// For the next submissions, in order; `None` lets one pass.
    faults: VecDeque<Option<Fault>>,
    /// What the running attempts are to report in place of done, by attempt.
    at_the_end: Vec<(usize, u32, FaultCause)>,
    /// Why nobody is attached, if nobody is.
    refusal: Option<String>,
    links: Vec<(String, Outbox)>,
}

impl Faulty {
    /// The next submission that has no fault yet gets this one.
    pub fn fail_next(&self, fault: Fault) {
        self.state().faults.push_back(Some(fault));
    }

    /// The next submission that has no fault yet passes.
    pub fn spare_next(&self) {
        self.state().faults.push_back(None);
    }

    /// Refuses all attachments for this reason, those that the agent starts and those that its peers start, which come in
    /// any order.
    pub fn refuse_attachments(&self, reason: impl Into<String>) {
        self.state().refusal = Some(reason.into());
    }

    /// Lets attachments pass again.
    pub fn admit_attachments(&self) {
        self.state().refusal = None;
    }

    /// Breaks all links to and from `peer`, as if their connection were gone.
    pub fn lose_links(&self, peer: &str) {
        for outbox in self.take_links(peer) {
            outbox.link_lost("the test broke it");
        }
    }

    /// Tells the engine that `peer` died.
    pub fn declare_dead(&self, peer: &str) {
        for outbox in self.take_links(peer) {
            outbox.peer_died();
        }
    }

    fn take_links(&self, peer: &str) -> Vec<Outbox> {
        let mut state = self.state();
        let (gone, left) = std::mem::take(&mut state.links).into_iter().partition(|(name, _)| name == peer);
        state.links = left;
        let gone: Vec<(String, Outbox)> = gone;
        gone.into_iter().map(|(_, outbox)| outbox).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tap for Faulty {
    fn attach(&self, context: &AttachContext) -> Result<(), ConnectError> {
        match self.state().refusal.clone() {
            Some(reason) => Err(ConnectError::Refused { peer: context.peer.clone(), reason }),
            None => Ok(()),
        }
    }

    fn ready(&self, peer: &str, outbox: &Outbox) {
        self.state().links.push((peer.to_owned(), outbox.clone()));
    }

    fn submit(&self, op: &Arc<TappedOp<Self>>, attempt: u32) -> Result<(), Backlog> {
        let fault = self.state().faults.pop_front().flatten();
        match fault {
            None => op.pass(attempt),
            Some(Fault::Backlog) => Err(Backlog),
            Some(Fault::AtOnce(cause)) => {
                op.sink().forward(attempt, Report::Failed(cause));
                op.sink().forward(attempt, Report::Quiet);
                Ok(())
            }
            Some(Fault::AtTheEnd(cause)) => {
                self.state().at_the_end.push((Arc::as_ptr(op.sink()) as usize, attempt, cause));
                op.pass(attempt)
            }
        }
    }

    fn report(&self, sink: &Arc<TappedSink<Self>>, attempt: u32, report: Report) {
        let key = (Arc::as_ptr(sink) as usize, attempt);
        let fault = match report {
            Report::Failed(_) => None,
            _ => {
                let mut state = self.state();
                let at = state.at_the_end.iter().position(|(sink, attempt, _)| (*sink, *attempt) == key);
                at.map(|at| state.at_the_end.remove(at).2)
            }
        };
        match (fault, report) {
            (Some(cause), Report::Done(OpReport { .. })) => {
                sink.forward(attempt, Report::Failed(cause));
                sink.forward(attempt, Report::Quiet);
            }
            (_, report) => sink.forward(attempt, report),
        }
    }
}
