use std::{net::SocketAddr, sync::Arc};

use kvferry_proto::ChannelKey;

use super::{
    TcpTransport,
    link::{Parts, TcpLink},
    message::{VERSION, Wire},
};
use crate::{
    error::ConnectError,
    transport::{Attach, AttachContext, Attached, Message},
};

/// Data streams of a link.
const STREAMS: u8 = 2;

/// The two ends of a TCP channel open their data streams.
///
/// ```text
///   initiator                            target
///            <--------------- Offer(link)
///     hello on each stream ------------->
///            <------------------ Complete
///     ready                                ready
/// ```
pub(super) struct TcpAttach {
    context: AttachContext,
    transport: TcpTransport,
    key: ChannelKey,
    /// Where the streams lead.
    address: Option<SocketAddr>,
    link: Option<Arc<TcpLink>>,
}

impl TcpAttach {
    pub(super) fn new(
        transport: TcpTransport,
        context: AttachContext,
        address: Option<SocketAddr>,
    ) -> Result<Self, ConnectError> {
        let Some(key) = context.key.clone() else {
            let reason = "the control channel has no key".into();
            return Err(ConnectError::Refused { peer: context.peer, reason });
        };
        Ok(Self { context, transport, key, address, link: None })
    }

    fn link(&self, id: [u8; 16]) -> Arc<TcpLink> {
        TcpLink::new(Parts {
            id,
            peer: self.context.peer.clone(),
            initiator: self.context.initiator,
            streams: STREAMS,
            key: self.key.clone(),
            address: self.address,
            control: self.context.control.clone(),
            outbox: self.context.outbox.clone(),
            registry: self.transport.registry.clone(),
            settings: self.context.settings.clone(),
            board: self.transport.board.clone(),
            threads: self.transport.threads.clone(),
        })
    }

    fn refused(&self, reason: impl Into<String>) -> ConnectError {
        ConnectError::Refused { peer: self.context.peer.clone(), reason: reason.into() }
    }
}

impl Attach for TcpAttach {
    fn start(&mut self) -> Result<Attached, ConnectError> {
        if let Some(reason) = self.context.settings.refusal("tcp", "stream") {
            let peer = self.context.peer.clone();
            let why_not = vec![crate::WhyNot { way: "tcp", reason }];
            return Err(ConnectError::NoPath { peer, why_not });
        }
        if self.context.initiator {
            return Ok(Attached::Pending);
        }
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|e| self.refused(format!("no random numbers: {e}")))?;
        let link = self.link(id);
        self.transport.register(&link);
        self.context.outbox.send(Wire::Offer { link: id, version: VERSION }.encode(), Vec::new());
        Ok(Attached::Ready(link))
    }

    fn message(&mut self, message: Message) -> Result<Attached, ConnectError> {
        match Wire::decode(&message.body).map_err(|e| self.refused(e))? {
            Wire::Offer { version, .. } if version != VERSION => {
                Err(self.refused(format!("its data frames have version {version}, ours {VERSION}")))
            }
            Wire::Offer { link, .. } if self.context.initiator && self.link.is_none() => {
                let Some(address) = self.address else {
                    return Err(self.refused("nobody said where the data streams lead"));
                };
                let link = self.link(link);
                self.link = Some(link.clone());
                link.open_streams(address).map_err(|tried| ConnectError::Unreachable {
                    peer: self.context.peer.clone(),
                    tried: vec![tried],
                })?;
                Ok(Attached::Pending)
            }
            Wire::Complete => match self.link.take() {
                Some(link) => Ok(Attached::Ready(link)),
                None => Err(self.refused("an attach message out of place")),
            },
            _ => Err(self.refused("an unexpected attach message")),
        }
    }
}

impl Drop for TcpAttach {
    fn drop(&mut self) {
        // Given up before it was ready: the streams that were opened go.
        if let Some(link) = self.link.take() {
            self.transport.threads.close(link.id);
        }
    }
}
