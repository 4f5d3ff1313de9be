use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::Instant};

use kvferry_proto::{Endpoint, Identity, ProofKey, Session, SessionConfig};

use super::{CLOSE_TIMEOUT, Control, MAX_CHANNELS, Token, channel::Channel};
use crate::{
    error::ConnectError,
    peer::{LinkState, Peer},
};

impl Control {
    /// Takes the connections that wait at a listener.
    pub(super) fn accept(&mut self, listener: usize) {
        for _ in 0..64 {
            let fd = match kvferry_sys::accept(&self.listeners[listener]) {
                Ok(fd) => fd,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(target: "kvferry::control", "a connection cannot be accepted: {error}");
                    return;
                }
            };
            if self.stopping || self.channels.len() >= MAX_CHANNELS {
                continue;
            }
            let Some(config) = self.config(&self.shared.secret) else { continue };
            let session = Session::target(Instant::now(), config);
            self.adopt(Channel::new(fd, session, None));
        }
    }

    /// Opens a channel to a peer, or notes why that is not possible.
    pub(super) fn connect(&mut self, peer: &Arc<Peer>, again: bool) {
        match self.open(peer) {
            Ok(mut channel) => {
                channel.again = again;
                if let Some(id) = self.adopt(channel) {
                    self.act(id);
                }
            }
            Err(error) => self.connect_failed(peer, error, again),
        }
    }

    fn open(&self, peer: &Arc<Peer>) -> Result<Channel, ConnectError> {
        let contact = peer.contact.read().unwrap_or_else(|e| e.into_inner()).clone();
        let name = peer.name.clone();
        let mut tried = Vec::new();
        let same_host = contact.host.as_ref().is_none_or(|h| h.boot_id == self.shared.host.boot_id);
        let Some(secret) = contact.secret else {
            tried.push("its metadata has no connection information (it is partial)".into());
            return Err(ConnectError::Unreachable { peer: name, tried });
        };
        for endpoint in &contact.endpoints {
            let (shown, connected) = match endpoint {
                Endpoint::AbstractUnix(name) if same_host => {
                    (format!("abstract socket {}", name.escape_ascii()), kvferry_sys::connect_abstract(name))
                }
                Endpoint::PathUnix(path) if same_host => {
                    let path = Path::new(std::ffi::OsStr::from_bytes(path));
                    (format!("socket {}", path.display()), kvferry_sys::connect_path(path))
                }
                Endpoint::AbstractUnix(_) | Endpoint::PathUnix(_) => {
                    tried.push("its Unix sockets are on another host".into());
                    continue;
                }
                _ => {
                    tried.push("its TCP endpoint: this build has no TCP transport".into());
                    continue;
                }
            };
            match connected {
                Ok(fd) => {
                    let Some(config) = self.config(&secret) else {
                        return Err(ConnectError::Closed);
                    };
                    let identity = Identity { name: peer.name.clone(), incarnation: peer.incarnation };
                    let sender = peer.take_sender().unwrap_or_default();
                    peer.set_credit(sender.credit());
                    let session = Session::initiator(Instant::now(), config, identity, sender);
                    return Ok(Channel::new(fd, session, Some(peer.clone())));
                }
                Err(error) => tried.push(format!("{shown}: {error}")),
            }
        }
        Err(ConnectError::Unreachable { peer: name, tried })
    }

    /// What a try to connect that led nowhere means.
    pub(super) fn connect_failed(&mut self, peer: &Arc<Peer>, error: ConnectError, again: bool) {
        tracing::debug!(target: "kvferry::peer", peer = %peer.name, "not connected: {error}");
        if again {
            self.peer_lost(peer, crate::error::LostCause::Unreachable(error.to_string()), false);
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

    fn config(&self, secret: &kvferry_proto::Secret) -> Option<SessionConfig> {
        let token = self.shared.settings.token.as_ref();
        let mut nonce = [0; 32];
        if let Err(error) = getrandom::fill(&mut nonce) {
            tracing::error!(target: "kvferry::control", "no random numbers for a handshake: {error}");
            return None;
        }
        Some(SessionConfig {
            own: self.shared.identity.clone(),
            key: ProofKey::derive(&secret.0, token.map(|t| t.secret())),
            token_in_force: token.is_some(),
            nonce,
            handshake_timeout: self.shared.settings.connect_timeout,
            close_timeout: CLOSE_TIMEOUT,
            // A stopped process is no dead one on this host, and the kernel tells of death.
            silence_timeout: None,
        })
    }
}
