use std::sync::Arc;

use kvferry_sys::{CmaError, DenialCause, Errno, Facts, LinkPage, NonceWord, Pid, Side};

use super::{
    link::{Parts, SameHostLink},
    message::{Denial, LAYOUT, Who, Wire},
    pool::CopyPool,
    route::Router,
};
use crate::{
    error::ConnectError,
    path::Path,
    registry::Registry,
    settings::Ptracer,
    transport::{Attach, AttachContext, Attached, Message},
};

/// Two processes of one host get to know each other: the link page goes over, and each side really reads and writes a word
/// of the other.
///
/// ```text
///   initiator                                   target
///     Attach(who, page) ----------------------->  probes the initiator
///     probes the target  <--- Attached(who), Probed
///     Probed ------------------------------------>
///     ready                                       ready
/// ```
pub(super) struct SameHostAttach {
    context: AttachContext,
    pool: Arc<CopyPool>,
    registry: Arc<Registry>,
    page: Option<Arc<LinkPage>>,
    facts: Facts,
    nonce: NonceWord,
    ours: Option<Result<(), Denial>>,
}

impl SameHostAttach {
    pub(super) fn new(
        context: AttachContext,
        pool: Arc<CopyPool>,
        registry: Arc<Registry>,
    ) -> Result<Self, ConnectError> {
        let resources = |what, source: std::io::Error| ConnectError::Resources {
            peer: context.peer.clone(),
            what,
            source: Arc::new(source),
        };
        let facts = Facts::gather().map_err(|e| resources("facts about this process", e))?;
        let mut word = [0; 8];
        getrandom::fill(&mut word).map_err(|e| resources("random numbers", std::io::Error::other(e)))?;
        Ok(Self {
            context,
            pool,
            registry,
            page: None,
            facts: crate::testing::facts(facts),
            nonce: NonceWord::new(u64::from_ne_bytes(word)),
            ours: None,
        })
    }

    fn side(&self) -> Side {
        if self.context.initiator { Side::Initiator } else { Side::Target }
    }

    fn pid(&self) -> Option<Pid> {
        Pid::new(self.context.pid)
    }

    fn send(&self, message: &Wire) {
        self.context.outbox.send(message.encode(), Vec::new());
    }

    fn who(&self) -> Who {
        let f = &self.facts;
        Who {
            pid_ns: f.pid_ns,
            user_ns: f.user_ns,
            net_ns: f.net_ns,
            uid: f.uid,
            gid: f.gid,
            dumpable: f.dumpable,
            nonce_addr: self.nonce.addr(),
            nonce: self.nonce.load(),
            layout: LAYOUT,
        }
    }

    /// Lets the peer reach us where Yama asks for it.
    fn allow(&self) {
        let ptracer = match (self.context.settings.ptracer, self.pid()) {
            (Ptracer::Peer, Some(pid)) => kvferry_sys::Ptracer::Process(pid),
            (Ptracer::Any, _) => kvferry_sys::Ptracer::Any,
            _ => return,
        };
        if let Err(error) = kvferry_sys::set_ptracer(ptracer) {
            tracing::debug!(target: "kvferry::path", peer = %self.context.peer, "PR_SET_PTRACER: {error}");
        }
    }

    /// Reads and writes the peer's word; what keeps us from it, in words.
    fn probe(&mut self, them: &Who) {
        let reached = match self.pid() {
            None => Err(DenialCause::PidNamespace),
            Some(pid) => crate::testing::probe(pid, them.nonce_addr, them.nonce, them.nonce.wrapping_add(1))
                .map_err(|error| {
                    let errno = match error {
                        CmaError::Denied(errno) | CmaError::Other(errno) => errno,
                        // What answers under that number is not the peer: it lives under another one, elsewhere.
                        CmaError::Mismatch | CmaError::Fault { .. } => return DenialCause::PidNamespace,
                        _ => Errno::SRCH,
                    };
                    let theirs = them.facts(self.context.pid);
                    let works = kvferry_sys::self_cma_works();
                    kvferry_sys::explain_denial(errno, &self.facts, &theirs, works, pid.get())
                }),
        };
        self.ours = Some(reached.map_err(|cause| {
            let denial = Denial { cause: cause.to_string(), remedy: cause.remedy().into() };
            tracing::info!(target: "kvferry::path", peer = %self.context.peer, "no cma: {denial}");
            denial
        }));
    }

    fn ready(&mut self, theirs: Result<(), Denial>) -> Result<Attached, ConnectError> {
        let (Some(page), Some(ours)) = (self.page.clone(), self.ours.clone()) else {
            return Err(self.refused("the attach messages came out of order"));
        };
        let own_process = self.context.pid == Pid::own().get();
        let path = if own_process { Path::SameProcess } else { Path::SameHost };
        let router = Router { path, ours, theirs, settings: self.context.settings.clone() };
        if let Err(why_not) = router.check() {
            let peer = self.context.peer.clone();
            let settings = &self.context.settings;
            return Err(if settings.require.is_empty() {
                ConnectError::NoPath { peer, why_not }
            } else {
                ConnectError::PathRequired { peer, required: settings.require.to_string(), why_not }
            });
        }
        Ok(Attached::Ready(SameHostLink::new(Parts {
            peer: self.context.peer.clone(),
            side: self.side(),
            page,
            pid: self.pid(),
            process: self.context.process.clone(),
            router,
            pool: self.pool.clone(),
            registry: self.registry.clone(),
            settings: self.context.settings.clone(),
            outbox: self.context.outbox.clone(),
        })))
    }

    fn refused(&self, reason: impl Into<String>) -> ConnectError {
        ConnectError::Refused { peer: self.context.peer.clone(), reason: reason.into() }
    }

    fn check_layout(&self, them: &Who) -> Result<(), ConnectError> {
        if them.layout == LAYOUT {
            return Ok(());
        }
        Err(self.refused(format!("its same-host messages have version {}, ours {LAYOUT}", them.layout)))
    }
}

impl Attach for SameHostAttach {
    fn start(&mut self) -> Result<Attached, ConnectError> {
        self.allow();
        if self.context.initiator {
            let resources = |source| ConnectError::Resources {
                peer: self.context.peer.clone(),
                what: "the link page",
                source: Arc::new(source),
            };
            let page = Arc::new(LinkPage::create().map_err(resources)?);
            let fd = page.fd().try_clone_to_owned().map_err(resources)?;
            self.context.outbox.send(Wire::Attach(self.who()).encode(), vec![Arc::new(fd)]);
            self.page = Some(page);
        }
        Ok(Attached::Pending)
    }

    fn message(&mut self, message: Message) -> Result<Attached, ConnectError> {
        let wire = Wire::decode(&message.body).map_err(|e| self.refused(e))?;
        match (wire, self.context.initiator) {
            (Wire::Attach(them), false) => {
                self.check_layout(&them)?;
                let fd = message
                    .fds
                    .into_iter()
                    .next()
                    .ok_or_else(|| self.refused("the link page did not come along"))?;
                let page = LinkPage::import(fd).map_err(|e| self.refused(crate::error_chain(&e)))?;
                self.page = Some(Arc::new(page));
                self.probe(&them);
                self.send(&Wire::Attached(self.who()));
                if let Some(reach) = self.ours.clone() {
                    self.send(&Wire::Probed { reach });
                }
                Ok(Attached::Pending)
            }
            (Wire::Attached(them), true) => {
                self.check_layout(&them)?;
                self.probe(&them);
                if let Some(reach) = self.ours.clone() {
                    self.send(&Wire::Probed { reach });
                }
                Ok(Attached::Pending)
            }
            (Wire::Probed { reach }, _) => self.ready(reach),
            _ => Err(self.refused("an unexpected attach message")),
        }
    }
}

impl Who {
    fn facts(&self, pid: i32) -> Facts {
        Facts {
            pid,
            uid: self.uid,
            euid: self.uid,
            gid: self.gid,
            pid_ns: self.pid_ns,
            user_ns: self.user_ns,
            net_ns: self.net_ns,
            dumpable: self.dumpable,
            seccomp: 0,
            no_new_privs: false,
            yama_scope: None,
            cap_sys_ptrace: false,
        }
    }
}
