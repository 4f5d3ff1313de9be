use std::{
    net::{IpAddr, SocketAddr},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    sync::Arc,
    time::Instant,
};

use kvferry_proto::{
    ChannelLoss, Endpoint, Identity, ProofKey, STREAM_HELLO, Session, SessionConfig, StreamHello,
};
use rustix::net::RecvFlags;

use super::{
    CLOSE_TIMEOUT, Control, MAX_CHANNELS, Token,
    channel::{Attempt, Channel, Wire},
};
use crate::{
    error::{ConnectError, LostCause},
    path::WhyNot,
    peer::{LinkState, Peer},
};

/// A connection to our port that has not said yet what it is.
pub(super) struct Newcomer {
    fd: OwnedFd,
    deadline: Instant,
}

impl Newcomer {
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Control {
    /// Takes the connections that wait at a listener.
    pub(super) fn accept(&mut self, number: usize) {
        for _ in 0..64 {
            let listener = &self.listeners[number];
            let accepted = if listener.tcp {
                kvferry_sys::accept_tcp(&listener.fd)
            } else {
                kvferry_sys::accept(&listener.fd)
            };
            let tcp = listener.tcp;
            let fd = match accepted {
                Ok(fd) => fd,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(target: "kvferry::control", "a connection cannot be accepted: {error}");
                    return;
                }
            };
            if self.stopping || self.channels.len() + self.newcomers.len() >= MAX_CHANNELS {
                continue;
            }
            if tcp {
                self.greet(fd);
            } else {
                self.admit(fd, Wire::Unix);
            }
        }
    }

    fn admit(&mut self, fd: OwnedFd, wire: Wire) -> Option<u64> {
        let config = self.config(&self.shared.secret, wire)?;
        let session = Session::target(Instant::now(), config);
        self.adopt(Channel::new(fd, wire, session, None))
    }

    /// A TCP connection may become a control channel or a data stream: its first bytes tell.
    fn greet(&mut self, fd: OwnedFd) {
        self.last_channel += 1;
        let id = self.last_channel;
        // Its bytes stay in the socket until it is clear whose they are: to be told of them once is enough.
        if self.poller.add_edge(&fd, Token::Channel(id)).is_ok() {
            let deadline = Instant::now() + self.shared.settings.connect_timeout;
            self.newcomers.insert(id, Newcomer { fd, deadline });
        }
    }

    /// A newcomer has said something.
    pub(super) fn listen_to(&mut self, id: u64) {
        let Some(newcomer) = self.newcomers.get(&id) else { return };
        let mut hello = [0; STREAM_HELLO];
        let heard = rustix::net::recv(&newcomer.fd, &mut hello, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let is_stream = match heard {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) | Ok((_, 0)) => {
                self.dismiss(id);
                return;
            }
            // Too little to tell, or a part of a hello.
            Ok((_, n)) if n < 8 || (n < hello.len() && StreamHello::is_one(&hello)) => return,
            Ok(_) => StreamHello::is_one(&hello),
        };
        let Some(fd) = self.dismiss(id) else { return };
        if !is_stream {
            if let Some(id) = self.admit(fd, Wire::Tcp { connecting: false }) {
                self.serve(id);
            }
            return;
        }
        let taken = rustix::net::recv(&fd, &mut hello, RecvFlags::DONTWAIT);
        if let (Ok((_, STREAM_HELLO)), Some(tcp)) = (taken, &self.shared.tcp) {
            tcp.stream(fd, &hello);
        }
    }

    pub(super) fn dismiss(&mut self, id: u64) -> Option<OwnedFd> {
        let newcomer = self.newcomers.remove(&id)?;
        self.poller.remove(&newcomer.fd);
        Some(newcomer.fd)
    }

    /// Opens a channel to a peer over the next of its endpoints that answers, or notes why none does.
    pub(super) fn connect(&mut self, peer: &Arc<Peer>, mut attempt: Attempt) {
        if peer.gone().is_some() {
            return;
        }
        let contact = peer.contact.read().unwrap_or_else(|e| e.into_inner()).clone();
        let Some(secret) = contact.secret else {
            attempt.tried.push("its metadata has no connection information (it is partial)".into());
            return self.connect_failed(peer, attempt, None);
        };
        let here = contact.host.as_ref().is_none_or(|h| h.boot_id == self.shared.host.boot_id);
        while let Some(endpoint) = contact.endpoints.get(attempt.next) {
            attempt.next += 1;
            attempt.shown = endpoint.to_string();
            let (fd, wire) = match self.open(endpoint, here) {
                Ok(opened) => opened,
                Err(error) => {
                    attempt.tried.push(format!("{endpoint}: {error}"));
                    continue;
                }
            };
            let Some(config) = self.config(&secret, wire) else { continue };
            let identity = Identity { name: peer.name.clone(), incarnation: peer.incarnation };
            let sender = peer.take_sender().unwrap_or_default();
            peer.set_credit(sender.credit());
            let session = Session::initiator(Instant::now(), config, identity, sender);
            let mut channel = Channel::new(fd, wire, session, Some(peer.clone()));
            channel.attempt = attempt;
            if let Some(id) = self.adopt(channel) {
                self.act(id);
            }
            return;
        }
        self.connect_failed(peer, attempt, None);
    }

    fn open(&self, endpoint: &Endpoint, here: bool) -> Result<(OwnedFd, Wire), String> {
        let text = |e: std::io::Error| e.to_string();
        match endpoint {
            Endpoint::AbstractUnix(_) | Endpoint::PathUnix(_) if !here => Err("on another host".into()),
            Endpoint::AbstractUnix(name) => {
                Ok((kvferry_sys::connect_abstract(name).map_err(text)?, Wire::Unix))
            }
            Endpoint::PathUnix(path) => {
                let path = Path::new(std::ffi::OsStr::from_bytes(path));
                Ok((kvferry_sys::connect_path(path).map_err(text)?, Wire::Unix))
            }
            Endpoint::Tcp { addr, port } => {
                if let Some(reason) = self.shared.settings.refusal("tcp", "stream") {
                    return Err(reason);
                }
                if self.shared.tcp.is_none() {
                    return Err("this agent has a transport of its own only".into());
                }
                let ip: IpAddr = addr.parse().map_err(|_| "no IP address".to_owned())?;
                let fd = kvferry_sys::connect_tcp(SocketAddr::new(ip, *port)).map_err(text)?;
                Ok((fd, Wire::Tcp { connecting: true }))
            }
            _ => Err("of a kind that this build does not know".into()),
        }
    }

    /// A TCP connection stands, or does not.
    pub(super) fn connecting(&mut self, id: u64) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        match kvferry_sys::connected(&channel.fd) {
            Ok(None) => {}
            Ok(Some(())) => {
                channel.wire = Wire::Tcp { connecting: false };
                self.flush(id);
            }
            Err(error) => {
                channel.broken_by = Some(error.to_string());
                channel.session.channel_lost(ChannelLoss::Broken);
                self.act(id);
            }
        }
    }

    /// A channel that never was up is over: the next endpoint may do, unless the peer itself has refused.
    pub(super) fn not_connected(
        &mut self,
        peer: &Arc<Peer>,
        mut attempt: Attempt,
        connected: bool,
        error: ConnectError,
    ) {
        match error {
            ConnectError::NoPath { why_not, .. } | ConnectError::PathRequired { why_not, .. } => {
                attempt.why_not.extend(why_not);
            }
            ConnectError::Unreachable { tried, .. } => attempt.tried.extend(tried),
            ConnectError::Timeout { after, .. } => {
                attempt.tried.push(format!("{}: no answer within {after:?}", attempt.shown));
                attempt.unanswered = true;
                attempt.timed_out |= connected;
            }
            error => return self.connect_failed(peer, attempt, Some(error)),
        }
        self.connect(peer, attempt);
    }

    /// What a try to connect that led nowhere means.
    fn connect_failed(&mut self, peer: &Arc<Peer>, attempt: Attempt, error: Option<ConnectError>) {
        let Attempt { again, tried, mut why_not, timed_out, unanswered, .. } = attempt;
        let error = error.unwrap_or_else(|| {
            let name = peer.name.clone();
            if why_not.is_empty() && timed_out {
                // Somebody was there: that says more than who was not.
                let after = self.shared.settings.connect_timeout;
                return ConnectError::Timeout { peer: name, after, tried };
            }
            if why_not.is_empty() {
                return ConnectError::Unreachable { peer: name, tried };
            }
            if !tried.is_empty() {
                why_not.push(WhyNot { way: "tcp", reason: tried.join("; ") });
            }
            let settings = &self.shared.settings;
            if settings.require.is_empty() {
                ConnectError::NoPath { peer: name, why_not }
            } else {
                ConnectError::PathRequired { peer: name, required: settings.require.to_string(), why_not }
            }
        });
        tracing::debug!(target: "kvferry::peer", peer = %peer.name, "not connected: {error}");
        if again {
            // No answer is no proof that nobody is there.
            let cause =
                if unanswered { LostCause::Silent } else { LostCause::Unreachable(error.to_string()) };
            self.peer_lost(peer, cause, false);
        } else {
            peer.set_link(LinkState::Failed(error));
        }
    }

    fn adopt(&mut self, channel: Channel) -> Option<u64> {
        self.last_channel += 1;
        let id = self.last_channel;
        if let Err(error) = self.poller.add(&channel.fd, Token::Channel(id)) {
            tracing::warn!(target: "kvferry::control", "a connection cannot be watched: {error}");
            if let Some(peer) = &channel.peer {
                let tried = vec![error.to_string()];
                peer.set_link(LinkState::Failed(ConnectError::Unreachable {
                    peer: peer.name.clone(),
                    tried,
                }));
            }
            return None;
        }
        self.channels.insert(id, channel);
        Some(id)
    }

    fn config(&self, secret: &kvferry_proto::Secret, wire: Wire) -> Option<SessionConfig> {
        let settings = &self.shared.settings;
        let mut nonce = [0; 32];
        if let Err(error) = getrandom::fill(&mut nonce) {
            tracing::error!(target: "kvferry::control", "no random numbers for a handshake: {error}");
            return None;
        }
        Some(SessionConfig {
            own: self.shared.identity.clone(),
            key: ProofKey::derive(&secret.0, settings.token.as_ref().map(|t| t.secret())),
            token_in_force: settings.token.is_some(),
            nonce,
            handshake_timeout: settings.connect_timeout,
            close_timeout: CLOSE_TIMEOUT,
            // On one host a stopped process is no dead one, and the kernel tells of death.
            silence_timeout: (wire != Wire::Unix).then_some(settings.peer_timeout),
        })
    }
}
