use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    super::{Attach, AttachContext, Attached, Link, Message, tcp::TcpTransport},
    link::JointLink,
    message::Wire,
};
use crate::error::ConnectError;

/// Most characters of a peer's reason.
const MAX_REASON: usize = 1024;

/// The near attachment first, as ever; then the initiator, which knows what is missing, asks for data streams or does not.
///
/// ```text
///   initiator                                  target
///            <---- the near attachment ---->
///     Enough ---------------------------------> ready
///     ready
///   or
///     Ask ------------------------------------>
///            <--------------------- Open, Far(Offer)
///            hello on each stream ------------> ready
///            <------------------------ Far(Complete)
///     ready
/// ```
///
/// Streams that do not come about are a reason in the path report and in the error of who needs them, and keep nobody from
/// what can be reached without.
pub(super) struct JointAttach {
    near: Box<dyn Attach>,
    tcp: TcpTransport,
    /// Where our data streams are met.
    address: Option<SocketAddr>,
    context: AttachContext,
    ready: Option<Arc<dyn Link>>,
    far: Option<Box<dyn Attach>>,
    /// Until when the initiator waits for the streams.
    deadline: Option<Instant>,
}

impl JointAttach {
    pub(super) fn new(
        near: Box<dyn Attach>,
        tcp: TcpTransport,
        address: Option<SocketAddr>,
        context: AttachContext,
    ) -> Self {
        Self { near, tcp, address, context, ready: None, far: None, deadline: None }
    }

    /// How long the initiator waits for data streams: the near way must not be lost over it.
    fn patience(&self) -> Duration {
        self.context.settings.connect_timeout / 2
    }

    fn send(&self, wire: &Wire) {
        self.context.outbox.send(wire.encode(), Vec::new());
    }

    fn refused(&self, reason: impl Into<String>) -> ConnectError {
        ConnectError::Refused { peer: self.context.peer.clone(), reason: reason.into() }
    }

    /// The near attachment has come so far.
    fn near(&mut self, attached: Attached) -> Attached {
        let Attached::Ready(near) = attached else { return Attached::Pending };
        if !self.context.initiator {
            // The initiator says what is to come.
            self.ready = Some(near);
            return Attached::Pending;
        }
        let complete = near.report(&[], &[]).iter().all(|pair| pair.route.is_some());
        if complete {
            self.send(&Wire::Enough);
            return Attached::Ready(near);
        }
        self.ready = Some(near);
        if let Some(reason) = self.context.settings.refusal("tcp", "stream") {
            self.send(&Wire::Enough);
            return self.without(reason);
        }
        self.deadline = Some(Instant::now() + self.patience());
        self.send(&Wire::Ask);
        Attached::Pending
    }

    /// Goes on without streams.
    fn without(&mut self, reason: String) -> Attached {
        let Some(near) = self.ready.take() else { return Attached::Pending };
        tracing::info!(target: "kvferry::path", peer = %self.context.peer, "some memory is out of reach: no data streams: {reason:?}");
        Attached::Ready(JointLink::new(self.context.initiator, near, Err(reason)))
    }

    fn far(&mut self, attached: Result<Attached, ConnectError>) -> Attached {
        match attached {
            Ok(Attached::Pending) => Attached::Pending,
            Ok(Attached::Ready(far)) => match self.ready.take() {
                Some(near) => Attached::Ready(JointLink::new(self.context.initiator, near, Ok(far))),
                None => Attached::Pending,
            },
            Err(error) => {
                self.far = None;
                if self.context.initiator {
                    self.send(&Wire::Enough);
                }
                self.without(error.to_string())
            }
        }
    }

    fn begin_far(&mut self, address: Option<SocketAddr>) -> Attached {
        let context = AttachContext { outbox: self.context.outbox.far(), ..self.context.clone() };
        let attached = self.tcp.attach_to(context, address).and_then(|mut far| {
            let attached = far.start()?;
            self.far = Some(far);
            Ok(attached)
        });
        self.far(attached)
    }

    /// The target is asked for data streams.
    fn asked(&mut self) -> Attached {
        let address = match (self.context.settings.refusal("tcp", "stream"), self.address) {
            (None, Some(address)) => address,
            (refusal, _) => {
                let reason = refusal.unwrap_or_else(|| "it listens on no TCP port".into());
                self.send(&Wire::Declined { reason: format!("on its side: {reason}") });
                return self.without(reason);
            }
        };
        self.send(&Wire::Open { address });
        self.begin_far(None)
    }
}

impl Attach for JointAttach {
    fn start(&mut self) -> Result<Attached, ConnectError> {
        let attached = self.near.start()?;
        Ok(self.near(attached))
    }

    fn message(&mut self, message: Message) -> Result<Attached, ConnectError> {
        let Some(wire) = Wire::decode(&message.body) else {
            let attached = self.near.message(message)?;
            return Ok(self.near(attached));
        };
        let out_of_place = "a message about data streams out of place";
        match wire.map_err(|e| self.refused(e))? {
            _ if self.ready.is_none() => Err(self.refused(out_of_place)),
            Wire::Enough if !self.context.initiator => {
                self.ready.take().map(Attached::Ready).ok_or_else(|| self.refused(out_of_place))
            }
            Wire::Ask if !self.context.initiator => Ok(self.asked()),
            Wire::Open { address } if self.context.initiator && self.far.is_none() => {
                Ok(self.begin_far(Some(address)))
            }
            Wire::Declined { reason } if self.context.initiator && self.far.is_none() => {
                Ok(self.without(in_one_line(&reason)))
            }
            Wire::Far(body) => match &mut self.far {
                Some(far) => {
                    let attached = far.message(Message { body, fds: Vec::new() });
                    Ok(self.far(attached))
                }
                None => Err(self.refused(out_of_place)),
            },
            _ => Err(self.refused(out_of_place)),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn do_without(&mut self, detail: &str) -> Option<Attached> {
        self.deadline?;
        self.deadline = None;
        self.far = None;
        // What it hears of our streams from now on is their end.
        self.send(&Wire::Enough);
        Some(self.without(detail.to_owned()))
    }
}

/// What a peer says, as it may stand in a report and in a log.
fn in_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests;
