use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Instant,
};

use kvferry_proto::{
    Action, ByeReason, ChannelLoss, Command as Order, Frame, INBOX_BYTES, Identity, Inbound, LiveRegions,
    NotifyReceiver, Refusal, RegionId, RevokeScope,
};

use super::{
    Command, Control,
    channel::{Attempt, Channel, Read, Wire},
};
use crate::{
    error::{ConnectError, FaultCause, LostCause},
    peer::LinkState,
    queue::Event,
    transfer::TransferCore,
    transport::{Acknowledge, AttachContext, Attached, ControlSocket, Message, Outbox},
};

impl Control {
    pub(super) fn command(&mut self, command: Command) {
        let now = Instant::now();
        match command {
            Command::Connect { peer } => self.connect(&peer, Attempt::default()),
            Command::Notify { peer, reservation, token } => {
                let to = |c: &Channel| c.peer.as_ref().is_some_and(|p| Arc::ptr_eq(p, &peer));
                let Some((&id, channel)) = self.channels.iter_mut().find(|(_, c)| to(c)) else {
                    return match token {
                        Some(token) => token.lost("the link was lost before the notification was sent"),
                        None => peer.issue_later(reservation),
                    };
                };
                let token = token.map(|token| channel.token(token));
                match channel.session.command(now, Order::Notify { reservation, token }) {
                    Ok(()) => self.shared.counters.notification_sent(),
                    Err(error) => {
                        if let Some(token) = token.and_then(|t| channel.tokens.remove(&t)) {
                            token.lost(&error.to_string());
                        }
                    }
                }
                self.act(id);
            }
            Command::Transport { channel: id, body, fds } => {
                let Some(channel) = self.channels.get_mut(&id) else { return };
                let count = fds.len() as u8;
                let sent = channel.session.command(now, Order::Transport { bytes: body, fds: count });
                if sent.is_ok() && count > 0 {
                    channel.sending_fds.push_back(fds);
                }
                self.act(id);
            }
            Command::Revoked { channel: id, epoch, scope } => {
                let Some(channel) = self.channels.get_mut(&id) else { return };
                if let Err(error) = channel.session.command(now, Order::Revoke { epoch, scope }) {
                    tracing::debug!(target: "kvferry::control", "a revocation was not told: {error}");
                }
                self.act(id);
            }
            Command::Applied { channel: id, epoch } => {
                self.order(id, Order::Applied { epoch });
                self.act(id);
            }
            Command::LinkLost { channel: id, detail, far } => self.transport_lost(id, detail, far),
            Command::Drained { from, bytes } => self.drained(&from, bytes),
            Command::PeerDied { channel: id } => {
                // What it has said before its death counts.
                self.serve(id);
                let Some(channel) = self.channels.get_mut(&id) else { return };
                channel.died = true;
                channel.session.channel_lost(ChannelLoss::Died);
                self.act(id);
            }
            Command::Close { channel: id, reason } => {
                let Some(channel) = self.channels.get_mut(&id) else { return };
                let _ = channel.session.command(now, Order::Close { reason, text: String::new() });
                self.act(id);
            }
            Command::Run(run) => run(),
            Command::Shutdown => self.shut_down(),
        }
    }

    /// Reads and writes what a channel is ready for.
    pub(super) fn serve(&mut self, id: u64) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if channel.is_connecting() {
            return self.connecting(id);
        }
        let listening = channel.listening.clone();
        listening.store(true, SeqCst);
        let came = channel.read(&mut self.buffer);
        for read in came {
            let Some(channel) = self.channels.get_mut(&id) else { break };
            match read {
                Read::Frame(frame, fds) => self.frame(id, frame, fds),
                Read::Malformed(error) => channel.session.handle_malformed(error),
                Read::Descriptors => self.violation(id, "descriptors that do not fit its frames"),
                Read::Ended => {
                    channel.note_end("closed by the other end");
                    channel.session.channel_lost(ChannelLoss::Ended);
                }
                Read::Broken(error) => {
                    tracing::debug!(target: "kvferry::control", "a control channel broke: {error}");
                    channel.note_end(&error.to_string());
                    channel.session.channel_lost(ChannelLoss::Broken);
                }
            }
            self.act(id);
        }
        listening.store(false, SeqCst);
        self.flush(id);
    }

    fn frame(&mut self, id: u64, frame: Frame, fds: Vec<OwnedFd>) {
        let now = Instant::now();
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.session.handle_frame(now, frame);
        if !fds.is_empty() {
            // A frame with descriptors is a transport's message: its action is the next, and takes them.
            channel.arrived_fds = fds;
        }
    }

    /// Carries out what a session wants, until it wants nothing more.
    pub(super) fn act(&mut self, id: u64) {
        while let Some(action) = self.channels.get_mut(&id).and_then(|c| c.session.poll()) {
            match action {
                Action::Lost(cause) => return self.channel_over(id, cause),
                action => self.action(id, action),
            }
        }
        self.flush(id);
    }

    fn action(&mut self, id: u64, action: Action) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        match action {
            Action::Send(frame) if channel.queue(&frame) => {}
            Action::Send(_) => self.violation(id, "it does not read what it is sent"),
            Action::Proven { peer } => self.proven(id, peer),
            Action::AttachTransport => self.attach(id),
            Action::Live(live) => {
                let Some(peer) = channel.peer.clone() else { return };
                let identity = Identity { name: peer.name.clone(), incarnation: peer.incarnation };
                let shared = self.shared.clone();
                let mut peers = shared.peers();
                if peers.table.live(&identity, &live).is_err() {
                    return self.violation(id, "too many holes in its region numbers");
                }
                peer.keep_only_live(&live, peers.table.incarnation(&peer.name) == Some(peer.incarnation));
            }
            Action::Up => self.link_up(id),
            Action::Deliver { payload, .. } => {
                if let Some(from) = channel.session.peer().cloned() {
                    self.shared.deliver(from, payload);
                }
            }
            Action::NotifyAcked { token } => {
                if let Some(token) = channel.tokens.remove(&token) {
                    token.acknowledged();
                }
            }
            Action::NotifyDropped { token } => {
                // Its transfer fails with the link, whose loss comes next and says why.
                channel.dropped.extend(channel.tokens.remove(&token));
            }
            Action::Revoked { epoch, scope } => self.revoked(id, epoch, &scope),
            Action::RevokeAcked { epoch } => {
                if let Some(link) = &channel.link {
                    link.revoke_acknowledged(epoch);
                }
            }
            Action::Transport { bytes, .. } => {
                let message = Message { body: bytes, fds: std::mem::take(&mut channel.arrived_fds) };
                self.transport_message(id, message);
            }
            _ => {}
        }
    }

    fn proven(&mut self, id: u64, peer: Identity) {
        let judged = self.shared.peers().table.inbound(&peer);
        if self.stopping || judged == Inbound::Dead {
            let refusal = if self.stopping { Refusal::Busy } else { Refusal::Dead };
            return self.order(id, Order::Refuse(refusal));
        }
        // An older channel of the same incarnation has to give back what it knows of the notifications first.
        let older = |(other, c): (&u64, &Channel)| {
            (*other != id && c.peer.is_none() && c.told_to.as_ref() == Some(&peer)).then_some(*other)
        };
        if let Some(older) = self.channels.iter().find_map(older) {
            if let Some(channel) = self.channels.get_mut(&older) {
                channel.session.channel_lost(ChannelLoss::Superseded);
            }
            self.act(older);
        }
        if !self.shared.links.await_streams(&peer.name) {
            return self.order(id, Order::Refuse(Refusal::Busy));
        }
        let receiver = self.parked.remove(&peer).unwrap_or_else(|| NotifyReceiver::new(INBOX_BYTES));
        let (below, ids) = self.shared.registry.live_ids();
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.told = ids.clone();
            channel.told_to = Some(peer);
        }
        self.order(id, Order::Admit { receiver, live: LiveRegions::new(below, ids) });
    }

    fn attach(&mut self, id: u64) {
        let shared = self.shared.clone();
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let Some(identity) = channel.session.peer().cloned() else { return };
        let context = AttachContext {
            ours: shared.identity.incarnation,
            theirs: identity.incarnation,
            initiator: channel.peer.is_some(),
            outbox: Outbox::new(shared.mailbox.clone(), id),
            pid: channel.pid,
            process: channel.process.clone(),
            control: ControlSocket { fd: channel.fd.clone(), listening: channel.listening.clone() },
            key: channel.session.channel_key().cloned(),
            peer: identity.name,
            settings: shared.settings.clone(),
        };
        let transport = shared.transport_of(channel.wire == Wire::Unix);
        let started = transport.attach(context).and_then(|mut attach| {
            let attached = attach.start()?;
            channel.attach = Some(attach);
            Ok(attached)
        });
        self.attached(id, started);
    }

    fn transport_message(&mut self, id: u64, message: Message) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        match (&channel.link, &mut channel.attach) {
            (Some(link), _) => {
                let link = link.clone();
                if let Err(detail) = link.message(message) {
                    self.violation(id, &detail);
                }
            }
            (None, Some(attach)) => {
                let attached = attach.message(message);
                self.attached(id, attached);
            }
            (None, None) => self.violation(id, "a transport message before its time"),
        }
    }

    /// A transport has lost, or waited in vain for, a connection of its own.
    pub(super) fn transport_lost(&mut self, id: u64, detail: String, far: bool) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        match channel.attach.as_mut().and_then(|attach| attach.do_without(&detail)) {
            Some(attached) => self.attached(id, Ok(attached)),
            // Streams that were given up: each says so by itself. Until the link is up, that is for the initiator to say.
            None if far && !channel.link.as_ref().is_some_and(|l| l.has_streams()) => return,
            None if far && !channel.up && channel.peer.is_none() => return,
            None => {
                tracing::debug!(target: "kvferry::control", "a transport lost its link: {detail}");
                channel.broken_by.get_or_insert(detail);
                channel.session.channel_lost(ChannelLoss::Broken);
            }
        }
        self.act(id);
    }

    fn attached(&mut self, id: u64, attached: Result<Attached, ConnectError>) {
        match attached {
            Ok(Attached::Pending) => {}
            Ok(Attached::Ready(link)) => {
                let Some(channel) = self.channels.get_mut(&id) else { return };
                channel.attach = None;
                if let Some(liveness) = link.liveness()
                    && let Err(error) = self.holder.hold(&liveness.page, liveness.ours)
                {
                    tracing::warn!(target: "kvferry::control", "the peer will learn of our death late: {error}");
                }
                channel.link = Some(link.clone());
                let name = channel.session.peer().map(|p| p.name.clone()).unwrap_or_default();
                self.shared.links.add(id, &name, channel.peer.is_none(), link.clone());
                // What was deregistered after the peer was told of it, and before there was a link to tell it by.
                let (_, live) = self.shared.registry.live_ids();
                let gone: Vec<RegionId> =
                    channel.told.iter().filter(|id| live.binary_search(id).is_err()).copied().collect();
                if !gone.is_empty() {
                    link.revoke(RevokeScope::regions(gone));
                }
                self.order(id, Order::Attached);
            }
            Err(error) => {
                let Some(channel) = self.channels.get_mut(&id) else { return };
                let reason = match error {
                    ConnectError::NoPath { .. } => ByeReason::NoPath,
                    ConnectError::PathRequired { .. } => ByeReason::PathRequired,
                    _ => ByeReason::Violation,
                };
                let text = error.to_string();
                tracing::info!(target: "kvferry::path", "not attached: {text}");
                channel.attach_error = Some(error);
                self.order(id, Order::Close { reason, text });
            }
        }
    }

    fn link_up(&mut self, id: u64) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let (Some(link), Some(identity)) = (channel.link.clone(), channel.session.peer().cloned()) else {
            return;
        };
        if let Some(liveness) = link.liveness() {
            self.watch.add(id, liveness);
        }
        channel.up = true;
        if channel.peer.as_ref().is_some_and(|p| p.gone().is_some()) {
            // Removed while we were connecting.
            return self.order(id, Order::Close { reason: ByeReason::Closed, text: String::new() });
        }
        // Whoever has used the link finds it counted, and whoever hears the event can use it.
        let first = self.up.insert(identity.clone());
        if first {
            self.shared.counters.peer_up();
        }
        if let Some(peer) = channel.peer.clone() {
            for report in link.report(&self.shared.registry.snapshot().1, &peer.regions()) {
                tracing::debug!(target: "kvferry::path", peer = %peer.name, "{report}");
            }
            // Whom it replaced is dead from now on: it is this incarnation that answers.
            self.shared.peers().table.reached(&identity);
            let again = channel.attempt.again;
            // It admits us anew only when it has closed what was before.
            peer.supersede_former();
            peer.set_parting(false);
            peer.set_link(LinkState::Up { link, channel: id });
            if again {
                // Not here: a link may have to wait for messages that only this thread can hear.
                let started = kvferry_sys::spawn_quiet("kvferry-admit", move || {
                    peer.transfers().iter().for_each(TransferCore::admit_anew);
                });
                if let Err(error) = started {
                    tracing::warn!(target: "kvferry::transfer", "no thread to make transfers ready: {error}");
                }
            }
        }
        if first {
            tracing::info!(target: "kvferry::peer", peer = %identity.name, incarnation = %identity.incarnation, "up");
            self.shared.publish(&Event::PeerUp { peer: identity.name, incarnation: identity.incarnation });
        }
    }

    fn revoked(&mut self, id: u64, epoch: u64, scope: &RevokeScope) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Some(peer) = channel.peer.clone() {
            if scope.all {
                // It parts with us; its goodbye is on the way. That, not the regions, is what transfers fail with, those too that
                // are posted only now.
                peer.set_parting(true);
                let cause = LostCause::Disconnected;
                peer.fail_transfers(&FaultCause::PeerLost { peer: peer.name.clone(), cause });
            }
            let identity = Identity { name: peer.name.clone(), incarnation: peer.incarnation };
            let shared = self.shared.clone();
            let mut peers = shared.peers();
            if peers.table.revoked(&identity, &scope.regions).is_err() {
                return self.violation(id, "too many holes in its region numbers");
            }
            let known = peers.table.incarnation(&peer.name) == Some(peer.incarnation);
            peer.revoke_regions(if scope.all { None } else { Some(&scope.regions) }, known);
        }
        let link = self.channels.get(&id).and_then(|c| c.link.clone());
        let acknowledged = link.map_or(Acknowledge::Now, |link| link.acknowledge(epoch, scope));
        if acknowledged == Acknowledge::Now {
            self.order(id, Order::Applied { epoch });
        }
    }

    fn drained(&mut self, from: &Arc<Identity>, bytes: u64) {
        let of = |c: &Channel| c.peer.is_none() && c.told_to.as_ref() == Some(&**from);
        match self.channels.iter().find(|(_, c)| of(c)).map(|(id, _)| *id) {
            Some(id) => {
                self.order(id, Order::Drained { bytes });
                self.act(id);
            }
            None => {
                if let Some(receiver) = self.parked.get_mut(&**from) {
                    let _ = receiver.drained(bytes);
                }
            }
        }
    }

    /// Gives an order to a session, in a state in which it is known to be possible.
    pub(super) fn order(&mut self, id: u64, order: Order) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if let Err(error) = channel.session.command(Instant::now(), order) {
            tracing::debug!(target: "kvferry::control", "{error}");
        }
    }

    /// The peer has broken the protocol in a way that its session cannot see.
    pub(super) fn violation(&mut self, id: u64, detail: &str) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.violation.get_or_insert_with(|| detail.to_owned());
        let text = detail.to_owned();
        self.order(id, Order::Close { reason: ByeReason::Violation, text });
    }

    pub(super) fn flush(&mut self, id: u64) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let done = channel.flush();
        if channel.wants_write == done {
            channel.wants_write = !done;
            let set = self.poller.set_writable(&channel.fd, super::Token::Channel(id), !done);
            if let Err(error) = set {
                tracing::warn!(target: "kvferry::control", "a control channel cannot be watched: {error}");
            }
        }
    }
}
