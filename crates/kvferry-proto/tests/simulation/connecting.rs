//! How connections begin and end.

use std::time::Duration;

use kvferry_proto::{
    ByeReason, ChannelLoss, Command, Evidence, Identity, Loss, LostCause, NotifySender, ProofKey, Refusal,
    RevokeScope, Session, SessionConfig,
};

use crate::bug::Bug;
use crate::net::{Conn, INITIATOR};
use crate::process::Link;
use crate::world::{FOREVER, World};

impl World {
    pub(crate) fn on_lost(&mut self, pid: usize, li: usize, cause: &LostCause) {
        if let LostCause::Violation(violation) = cause {
            self.ledger.broken(format!("an honest peer violates the protocol: {violation}"));
        }
        if let LostCause::Bye { reason: ByeReason::Violation, text } = cause {
            self.ledger.broken(format!("an honest peer is accused: {text}"));
        }
        self.ledger.seen.silent += u64::from(*cause == LostCause::Silent);
        let link = &mut self.procs[pid].links[li];
        let Some(session) = link.session.take() else {
            return;
        };
        let (sender, receiver) = session.into_notify();
        link.up = false;
        link.closing = true;
        // Nothing is copied over this link any more, and the next connection tells what is gone.
        link.to_apply.clear();
        let (conn, side, peer) = (link.conn, link.side, link.peer.clone());
        self.conns[conn].closed[side] = true;
        // The connection is over, but a copier of the peer may be in the middle of a chunk.
        let quiet_at = match self.bug {
            Bug::ForgetOldPages => None,
            _ => self.revoke(pid, li, RevokeScope::all(), FOREVER),
        };
        if quiet_at.is_none() {
            self.procs[pid].links[li].retired = true;
        }
        for served in self.procs[pid].served.iter_mut().filter(|served| served.link == li) {
            served.revoked = true;
        }
        self.end_transfers(pid, li, quiet_at);
        let Some(peer) = peer else {
            return;
        };
        match receiver {
            Some(receiver) => {
                self.procs[pid].parked.insert(peer.clone(), receiver);
                if *cause == LostCause::Channel(ChannelLoss::Died) {
                    self.lose_peer(pid, &peer, Loss::Dead);
                }
            }
            None if side == INITIATOR => self.lost_as_initiator(pid, li, cause, &peer, sender),
            None => {}
        }
    }

    fn lost_as_initiator(
        &mut self,
        pid: usize,
        li: usize,
        cause: &LostCause,
        identity: &Identity,
        sender: Option<NotifySender>,
    ) {
        let reconnect_at = self.now + self.rng.range(10, 3000);
        let peer = self.procs[pid].peers.get_mut(&identity.name);
        let Some(peer) = peer.filter(|peer| peer.link == Some(li)) else {
            return self.ledger.sender_gone(pid, identity);
        };
        peer.link = None;
        if cause.may_reconnect() && !peer.reconnected {
            peer.reconnected = true;
            peer.sender = sender;
            peer.reconnect_at = Some(reconnect_at);
            return;
        }
        let dead = matches!(
            cause,
            LostCause::Channel(ChannelLoss::Died)
                | LostCause::Refused(Refusal::WrongIncarnation { .. })
                | LostCause::Rejected(Refusal::WrongIncarnation { .. })
        );
        self.lose_peer(pid, identity, if dead { Loss::Dead } else { Loss::Presumed });
    }

    /// The transfers of a link that is over, or will be, fail. What the target copies ends with `quiet_at`.
    pub(crate) fn end_transfers(&mut self, pid: usize, li: usize, quiet_at: Option<u64>) {
        for index in 0..self.procs[pid].transfers.len() {
            let transfer = &mut self.procs[pid].transfers[index];
            if transfer.link != li {
                continue;
            }
            if transfer.delegated && transfer.inflight > 0 {
                match quiet_at {
                    Some(epoch) => transfer.quiet_at = Some(epoch),
                    None => transfer.inflight = 0,
                }
            }
            self.fail_transfer(pid, index);
        }
    }

    /// The peer is gone: metadata, notifications and links go with it.
    pub(crate) fn lose_peer(&mut self, pid: usize, identity: &Identity, loss: Loss) {
        let process = &mut self.procs[pid];
        if loss == Loss::Dead {
            process.saw_die.insert(identity.clone());
        }
        let loss = if self.bug == Bug::ForgetDeaths { Loss::Presumed } else { loss };
        if process.table.lost(identity, loss) {
            self.forget_peer(pid, &identity.name, ByeReason::Closed);
        }
    }

    /// The outbound side of a peer that is lost, replaced or removed.
    pub(crate) fn forget_peer(&mut self, pid: usize, name: &str, reason: ByeReason) {
        let Some(peer) = self.procs[pid].peers.remove(name) else {
            return;
        };
        self.ledger.sender_gone(pid, &peer.identity);
        if let Some(li) = peer.link {
            self.close(pid, li, reason);
        }
    }

    pub(crate) fn close(&mut self, pid: usize, li: usize, reason: ByeReason) {
        self.procs[pid].links[li].closing = true;
        self.command(pid, li, Command::Close { reason, text: String::new() });
    }

    pub(crate) fn reconnect(&mut self, pid: usize) -> bool {
        let now = self.now;
        let due =
            self.procs[pid].peers.iter().find(|(_, peer)| peer.reconnect_at.is_some_and(|at| at <= now));
        let Some(name) = due.map(|(name, _)| name.clone()) else {
            return false;
        };
        self.ledger.seen.reconnects += 1;
        self.connect(pid, &name);
        true
    }

    /// Opens a connection to the peer of this name, as its metadata says.
    pub(crate) fn connect(&mut self, pid: usize, name: &str) {
        // An endpoint with a random name belongs to one incarnation, a path to whoever bound it last.
        let by_path = self.rng.once_in(2);
        let found = self.procs.iter().position(|process| {
            let identity = &self.procs[pid].peers[name].identity;
            process.is_alive()
                && (process.identity == *identity || (by_path && process.identity.name == *name))
        });
        let next = self.procs[pid].links.len();
        let Some(peer) = self.procs[pid].peers.get_mut(name) else {
            return;
        };
        peer.reconnect_at = None;
        let identity = peer.identity.clone();
        let Some(target) = found else {
            return self.lose_peer(pid, &identity, Loss::Presumed);
        };
        let sender = peer.sender.take().unwrap_or_default();
        peer.link = Some(next);
        self.procs[pid].credits.insert(name.to_owned(), sender.credit());
        let secret = self.secret_of(&identity);
        let now = self.instant();
        let session = Session::initiator(now, self.config(pid, &secret), identity.clone(), sender);
        let conn = self.conns.len();
        self.conns.push(Conn::new(pid, target));
        let evidence = self.evidence();
        self.procs[pid].links.push(Link::new(conn, session, Some(identity), evidence));

        let secret = self.procs[target].secret;
        let session = Session::target(now, self.config(target, &secret));
        self.procs[target].links.push(Link::new(conn, session, None, evidence));
        self.pump(pid, next);
    }

    fn config(&mut self, pid: usize, secret: &[u8; 32]) -> SessionConfig {
        SessionConfig {
            own: self.procs[pid].identity.clone(),
            key: ProofKey::derive(secret, None),
            token_in_force: false,
            nonce: self.rng.bytes(),
            handshake_timeout: Duration::from_millis(400),
            close_timeout: Duration::from_millis(50),
            silence_timeout: self.silence,
        }
    }

    fn evidence(&self) -> Evidence {
        if self.bug == Bug::TrustAcknowledgements { Evidence::Acks } else { Evidence::Words }
    }

    fn secret_of(&self, identity: &Identity) -> [u8; 32] {
        let process = self.procs.iter().find(|process| process.identity == *identity);
        process.expect("metadata comes from processes").secret
    }
}
