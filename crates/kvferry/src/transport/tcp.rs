//! Peers on other hosts, over TCP: bytes go straight from memory into a socket, and out of one into memory.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, Weak},
};

use kvferry_proto::{Reach, STREAM_HELLO, StreamHello};

use super::{Attach, AttachContext, Transport, same_host::Board};
use crate::{error::ConnectError, path::Path, region::LocalRegion, registry::Registry};

mod address;
mod attach;
mod frame;
mod input;
mod interest;
mod io;
mod link;
mod message;
mod op;
mod receiving;
mod sending;
mod stream;

pub(crate) use address::{AddressError, choose as choose_address};
use io::IoThreads;
use link::TcpLink;

/// Moves memory over TCP.
#[derive(Clone)]
pub(crate) struct TcpTransport {
    registry: Arc<Registry>,
    board: Arc<Board>,
    threads: Arc<IoThreads>,
    /// Links whose streams may come, by name.
    links: Arc<Mutex<HashMap<[u8; 16], Weak<TcpLink>>>>,
}

impl TcpTransport {
    pub(crate) fn new(registry: Arc<Registry>, board: Arc<Board>) -> Self {
        Self { registry, threads: IoThreads::new(board.clone()), board, links: Arc::default() }
    }

    fn register(&self, link: &Arc<TcpLink>) {
        let mut links = crate::lock(&self.links);
        links.retain(|_, l| l.strong_count() > 0);
        links.insert(link.id, Arc::downgrade(link));
    }

    /// Takes a data stream that has come to the agent's port, after its hello.
    pub(crate) fn stream(&self, fd: OwnedFd, bytes: &[u8; STREAM_HELLO]) {
        let Some(hello) = StreamHello::decode(bytes) else { return };
        let link = crate::lock(&self.links).get(&hello.link).and_then(Weak::upgrade);
        if let Some(link) = link {
            link.stream_arrived(fd, &hello, bytes);
        }
    }

    /// Begins to attach to a peer whose data streams are met at `address`.
    pub(super) fn attach_to(
        &self,
        context: AttachContext,
        address: Option<SocketAddr>,
    ) -> Result<Box<dyn Attach>, ConnectError> {
        Ok(Box::new(attach::TcpAttach::new(self.clone(), context, address)?))
    }

    pub(crate) fn stop(&self) {
        self.threads.stop();
    }
}

impl Transport for TcpTransport {
    fn path(&self) -> Path {
        Path::Tcp
    }

    fn reach(&self, _: &LocalRegion) -> Vec<Reach> {
        // Whatever is registered can be read into and sent from; its key stands in the blob.
        Vec::new()
    }

    fn attach(&self, context: AttachContext) -> Result<Box<dyn Attach>, ConnectError> {
        // The streams lead where the control channel leads.
        let address = kvferry_sys::remote_address(&context.control.fd).ok();
        self.attach_to(context, address)
    }
}

impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpTransport").field("threads", &self.threads).finish_non_exhaustive()
    }
}
