//! Peers on this host of which not all memory can be reached there: what no copy here gets at goes over TCP.
//!
//! Both ends share one control channel, one sequence of revocations and one end: a transfer that takes both ways is one
//! transfer, with one completion and one notification.

use std::{net::SocketAddr, sync::Arc};

use kvferry_proto::Reach;

use super::{Attach, AttachContext, Transport, tcp::TcpTransport};
use crate::{error::ConnectError, path::Path, region::LocalRegion};

mod attach;
mod link;
mod message;

pub(super) use message::Wire;

/// A near transport, and TCP for the pairs of regions that it has no way for.
#[derive(Debug)]
pub(crate) struct Joint {
    near: Arc<dyn Transport>,
    far: TcpTransport,
    /// Where our data streams are met, if the settings allow any.
    address: Option<SocketAddr>,
}

impl Joint {
    pub(crate) fn new(near: Arc<dyn Transport>, far: TcpTransport, address: Option<SocketAddr>) -> Self {
        Self { near, far, address }
    }
}

impl Transport for Joint {
    fn path(&self) -> Path {
        self.near.path()
    }

    fn reach(&self, region: &LocalRegion) -> Vec<Reach> {
        self.near.reach(region)
    }

    fn attach(&self, context: AttachContext) -> Result<Box<dyn Attach>, ConnectError> {
        let near = self.near.attach(context.clone())?;
        Ok(Box::new(attach::JointAttach::new(near, self.far.clone(), self.address, context)))
    }
}
