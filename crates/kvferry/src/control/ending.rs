use std::{sync::Arc, time::Instant};

use kvferry_proto::{
    ByeReason, ChannelLoss, Command as Order, Identity, Loss, LostCause as Over, Refusal, RevokeScope,
};
use kvferry_sys::Liveness as Word;

use super::{
    Control, MAX_PARKED,
    channel::{Attempt, Channel},
};
use crate::{
    error::{ConnectError, FaultCause, LostCause},
    path::WhyNot,
    peer::{LinkState, Peer},
    queue::Event,
};

impl Control {
    /// A session is over: takes its channel apart and sees what that means for the peer.
    pub(super) fn channel_over(&mut self, id: u64, over: Over) {
        let Some(mut channel) = self.channels.remove(&id) else { return };
        // A goodbye or a refusal may still want to go out.
        let _ = channel.flush();
        self.poller.remove(&channel.fd);
        self.watch.remove(id);
        let was_up = channel.up;
        let identity = channel.session.peer().cloned();
        let died = self.has_died(&channel, &over);
        let cause = lost_cause(&channel, &over, died);
        if let Some(link) = &channel.link {
            if let Some(liveness) = link.liveness() {
                self.holder.release(&liveness.page, liveness.ours);
            }
            let name = identity.as_ref().map(|i| i.name.clone()).unwrap_or_default();
            // The peer may still be in a copy: what this link reached stays in view until that is over.
            let epoch = link.revoke(RevokeScope::all());
            self.shared.links.lost(id, epoch);
            link.lost(if !died && over.may_reconnect() {
                let detail = channel.broken_by.clone().unwrap_or_else(|| over.to_string());
                if let Some(peer) = &channel.peer {
                    peer.keep_former(link.clone());
                }
                FaultCause::LinkLost { peer: name, detail }
            } else {
                FaultCause::PeerLost { peer: name, cause: cause.clone() }
            });
        }
        let peer = channel.peer.take();
        let attempt = std::mem::take(&mut channel.attempt);
        let connected = !channel.is_connecting();
        let broken_by = channel.broken_by.take();
        let dropped = std::mem::take(&mut channel.dropped);
        let attach_error = channel.attach_error.take();
        let (sender, receiver) = channel.session.into_notify();
        if let (Some(receiver), Some(identity)) = (receiver, &identity)
            && !died
            && self.parked.len() < MAX_PARKED
        {
            self.parked.insert(identity.clone(), receiver);
        }
        match peer {
            Some(peer) => {
                if let Some(sender) = sender {
                    peer.put_sender(sender);
                }
                if was_up {
                    self.outbound_over(&peer, &over, broken_by, cause, died);
                } else if died {
                    self.peer_lost(&peer, cause, true);
                } else {
                    let settings = &self.shared.settings;
                    let shown = &attempt.shown;
                    let error = attach_error.unwrap_or_else(|| {
                        connect_error(settings, &peer, &over, shown, broken_by.as_deref())
                    });
                    self.not_connected(&peer, attempt, connected, error);
                }
            }
            None => {
                if let Some(identity) = identity.filter(|i| was_up || self.up.contains(i)) {
                    self.inbound_over(identity, &over, cause, died);
                }
            }
        }
        // Those that somebody still holds have failed with the peer or the link by now; the others fail here.
        dropped.iter().for_each(|token| token.lost("it is not known whether the peer has the notification"));
    }

    /// The channel that we opened is over, after it was up.
    fn outbound_over(
        &mut self,
        peer: &Arc<Peer>,
        over: &Over,
        broken_by: Option<String>,
        cause: LostCause,
        died: bool,
    ) {
        if peer.gone().is_some() {
            // Removed, disconnected or replaced by us: all that was said when it happened.
            let identity = Identity { name: peer.name.clone(), incarnation: peer.incarnation };
            self.no_longer_up(identity, cause);
            return;
        }
        if !died && over.may_reconnect() && !self.stopping {
            let detail = broken_by.unwrap_or_else(|| over.to_string());
            tracing::info!(target: "kvferry::peer", peer = %peer.name, "link lost: {detail}; connecting again");
            peer.set_link(LinkState::Connecting);
            peer.fail_transfers(&FaultCause::LinkLost { peer: peer.name.clone(), detail });
            self.connect(peer, Attempt { again: true, ..Attempt::default() });
            return;
        }
        self.peer_lost(peer, cause, died || matches!(over, Over::Bye { reason: ByeReason::Closed, .. }));
    }

    /// The peer is lost for good: its metadata goes, its transfers fail.
    pub(super) fn peer_lost(&mut self, peer: &Arc<Peer>, cause: LostCause, dead: bool) {
        let identity = Identity { name: peer.name.clone(), incarnation: peer.incarnation };
        let loss = if dead { Loss::Dead } else { Loss::Presumed };
        self.shared.forget_peer(peer, loss);
        tracing::info!(target: "kvferry::peer", peer = %peer.name, incarnation = %peer.incarnation, "lost: {cause}");
        if matches!(
            cause,
            LostCause::Died | LostCause::Closed | LostCause::Disconnected | LostCause::Unreachable(_)
        ) {
            peer.supersede_former();
        }
        let fault = FaultCause::PeerLost { peer: peer.name.clone(), cause: cause.clone() };
        peer.go(fault, ConnectError::Lost { peer: peer.name.clone(), cause: cause.clone() });
        if dead {
            self.bar_inbound(&identity);
        }
        self.not_up(identity, cause);
    }

    /// A life is over, and what it opened to us will be: we may be copying for it, which ends now. What it has said, and is not
    /// read yet, still counts.
    fn bar_inbound(&self, identity: &Identity) {
        let theirs = |c: &&Channel| c.peer.is_none() && c.session.peer() == Some(identity);
        for link in self.channels.values().filter(theirs).filter_map(|c| c.link.as_ref()) {
            link.revoke(RevokeScope::all());
        }
    }

    /// A channel that was opened to us is over.
    fn inbound_over(&mut self, identity: Identity, over: &Over, cause: LostCause, died: bool) {
        if died {
            self.shared.peers().table.lost(&identity, Loss::Dead);
            let known = self.shared.peers().get(&identity);
            if let Some(peer) = known {
                return self.peer_lost(&peer, cause, true);
            }
        }
        // One that takes its place is on the way; if it does not come up, that is when the peer is lost.
        if !matches!(over, Over::Channel(ChannelLoss::Superseded)) {
            self.no_longer_up(identity, cause);
        }
    }

    fn no_longer_up(&mut self, identity: Identity, cause: LostCause) {
        // One that is being connected again decides for itself.
        let counts = |c: &Channel| c.up || c.attempt.again;
        let elsewhere = self.channels.values().any(|c| counts(c) && c.session.peer() == Some(&identity));
        if !elsewhere {
            self.not_up(identity, cause);
        }
    }

    fn not_up(&mut self, identity: Identity, cause: LostCause) {
        if self.up.remove(&identity) {
            self.shared.counters.peer_lost();
            let Identity { name: peer, incarnation } = identity;
            self.shared.publish(&Event::PeerLost { peer, incarnation, cause });
        }
    }

    fn has_died(&self, channel: &Channel, over: &Over) -> bool {
        let by_word = channel.link.as_ref().and_then(|l| l.liveness()).is_some_and(|l| {
            let word = l.page.liveness(l.ours.other()).load(std::sync::atomic::Ordering::SeqCst);
            Word::of(word) == Word::Dead
        });
        let gone = || channel.process.as_ref().is_some_and(crate::process::has_ended);
        channel.died
            || by_word
            || matches!(over, Over::Channel(ChannelLoss::Died))
            || (matches!(over, Over::Channel(_)) && gone())
    }

    /// Says goodbye to everybody.
    pub(super) fn shut_down(&mut self) {
        self.stopping = true;
        for peer in self.shared.close_peers() {
            peer.go(FaultCause::Closed, ConnectError::Closed);
        }
        for id in self.channels.keys().copied().collect::<Vec<_>>() {
            self.order(id, Order::Close { reason: ByeReason::Closed, text: String::new() });
            self.act(id);
        }
    }

    /// The thread is about to end: lets go of what is left.
    pub(super) fn abandon(&mut self) {
        let now = Instant::now();
        for id in self.channels.keys().copied().collect::<Vec<_>>() {
            if let Some(channel) = self.channels.get_mut(&id) {
                channel.session.handle_timeout(now + super::CLOSE_TIMEOUT);
                channel.session.channel_lost(ChannelLoss::Broken);
            }
            self.act(id);
        }
    }
}

fn lost_cause(channel: &Channel, over: &Over, died: bool) -> LostCause {
    if died {
        return LostCause::Died;
    }
    if let Some(detail) = &channel.violation {
        return LostCause::Protocol(detail.clone());
    }
    match over {
        Over::Bye { reason: ByeReason::Disconnected, .. } => LostCause::Disconnected,
        Over::Bye { reason: ByeReason::Closed, .. } => LostCause::Closed,
        Over::Closed(ByeReason::Closed | ByeReason::Disconnected) => LostCause::DisconnectedByUs,
        Over::Violation(violation) => LostCause::Protocol(violation.to_string()),
        Over::Silent => LostCause::Silent,
        other => LostCause::Unreachable(other.to_string()),
    }
}

fn connect_error(
    settings: &crate::Settings,
    peer: &Peer,
    over: &Over,
    endpoint: &str,
    broken_by: Option<&str>,
) -> ConnectError {
    let name = peer.name.clone();
    let ours = settings.token.is_some();
    match over {
        Over::Refused(Refusal::Unauthorized { token_in_force: theirs })
        | Over::Rejected(Refusal::Unauthorized { token_in_force: theirs }) => {
            ConnectError::Unauthorized { peer: name, detail: token_story(ours, *theirs).into() }
        }
        Over::Refused(Refusal::WrongIncarnation { .. })
        | Over::Rejected(Refusal::WrongIncarnation { .. }) => ConnectError::Restarted { peer: name },
        Over::Refused(Refusal::Version { newest, .. }) => ConnectError::Version {
            peer: name,
            ours: kvferry_proto::PROTOCOL_VERSION.into(),
            theirs: (*newest).into(),
        },
        Over::HandshakeTimeout => {
            ConnectError::Timeout { peer: name, after: settings.connect_timeout, tried: Vec::new() }
        }
        Over::Channel(loss) => ConnectError::Unreachable {
            peer: name,
            tried: vec![match broken_by {
                Some(detail) => format!("{endpoint}: {detail}"),
                None => format!("{endpoint}: the connection ended in the handshake: {loss}"),
            }],
        },
        Over::Bye { reason: ByeReason::NoPath | ByeReason::PathRequired, text } => {
            let why_not = vec![WhyNot { way: "possible on its side", reason: text.clone() }];
            ConnectError::NoPath { peer: name, why_not }
        }
        other => ConnectError::Refused { peer: name, reason: other.to_string() },
    }
}

fn token_story(ours: bool, theirs: bool) -> &'static str {
    match (ours, theirs) {
        (true, true) => {
            "both have KVFERRY_TOKEN set, to different values, or the metadata is not that agent's"
        }
        (true, false) => "KVFERRY_TOKEN is set here and not there",
        (false, true) => "KVFERRY_TOKEN is set there and not here",
        (false, false) => "no token is set on either side: the metadata is not that agent's",
    }
}
