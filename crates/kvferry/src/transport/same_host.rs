//! Peers on this host: one copy, by whoever can reach both ends.

use std::sync::Arc;

use kvferry_proto::Reach;
use kvferry_sys::Touch;

use super::{Attach, AttachContext, Transport};
use crate::{
    error::ConnectError,
    path::Path,
    region::{Backing, LocalRegion},
    registry::Registry,
};

mod attach;
mod board;
mod copy;
mod delegate;
mod link;
mod message;
mod op;
mod pool;
mod route;
mod routes;
mod served;

pub(crate) use board::Board;
pub(crate) use pool::{CopyPool, WIRE_SLOTS};

/// Moves memory between processes of one host, by shared mappings and cross-memory attach.
#[derive(Debug)]
pub(crate) struct SameHost {
    pool: Arc<CopyPool>,
    registry: Arc<Registry>,
}

impl SameHost {
    pub(crate) fn new(pool: Arc<CopyPool>, registry: Arc<Registry>) -> Self {
        Self { pool, registry }
    }
}

impl Transport for SameHost {
    fn path(&self) -> Path {
        Path::SameHost
    }

    fn reach(&self, region: &LocalRegion) -> Vec<Reach> {
        match region.backing() {
            Backing::Shared { memfd, offset, .. } => vec![Reach::Map { memfd: *memfd, offset: *offset }],
            Backing::Private { touch } => vec![Reach::Cma { stable: *touch == Touch::LoadStore }],
        }
    }

    fn attach(&self, context: AttachContext) -> Result<Box<dyn Attach>, ConnectError> {
        let attach = attach::SameHostAttach::new(context, self.pool.clone(), self.registry.clone())?;
        Ok(Box::new(attach))
    }
}
