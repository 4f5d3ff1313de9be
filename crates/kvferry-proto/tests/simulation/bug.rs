//! Mistakes that an engine could make, one at a time, to see that the simulator would notice.

/// What this engine does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Copiers don't compare the owner's epoch before they copy.
    SkipEpochCheck,
    /// Copiers look at the marks of revoked regions before they load the epoch under which they run.
    CheckBeforeEpoch,
    /// The control thread lets copiers run under a new epoch before it has marked what was revoked.
    AcknowledgeBeforeMarking,
    /// Owners take an acknowledgement for quiet, although chunks run that had begun before.
    TrustAcknowledgements,
    /// Owners forget a page as soon as its connection breaks.
    ForgetOldPages,
    /// Targets don't tell new connections which regions are gone.
    NoLiveRegions,
    /// Targets forget what they have received when a connection breaks.
    ForgetReceiver,
    /// Targets give credit when a notification comes in, not when it is taken out.
    EarlyCredit,
    /// Transfers are done when their notification is sent.
    DoneWhenSent,
    /// Cancel returns without waiting for what runs.
    CancelWithoutWaiting,
    /// A dead peer is forgotten like one that was removed.
    ForgetDeaths,
}

/// All of them, with the words in which the observer must object.
pub(crate) const BUGS: [(Bug, &str); 11] = [
    (Bug::SkipEpochCheck, "after deregister returned Ok"),
    (Bug::CheckBeforeEpoch, "after deregister returned Ok"),
    (Bug::AcknowledgeBeforeMarking, "after deregister returned Ok"),
    (Bug::TrustAcknowledgements, "after deregister returned Ok"),
    (Bug::ForgetOldPages, "after deregister returned Ok"),
    (Bug::NoLiveRegions, "after deregister returned Ok"),
    (Bug::ForgetReceiver, "was delivered twice"),
    (Bug::EarlyCredit, "holds more than its bound"),
    (Bug::DoneWhenSent, "its notification was not delivered"),
    (Bug::CancelWithoutWaiting, "landed after cancel or release returned Ok"),
    (Bug::ForgetDeaths, "is dead and was not refused"),
];
