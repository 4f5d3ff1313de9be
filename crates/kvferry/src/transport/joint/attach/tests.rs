use std::sync::atomic::AtomicBool;

use kvferry_proto::{Incarnation, RemoteRegion, RevokeScope};

use super::*;
use crate::{
    control::Mailbox,
    error::FaultCause,
    path::{Path, PathReport},
    region::LocalRegion,
    registry::Registry,
    settings::Settings,
    transport::{Acknowledge, AdmitError, ControlSocket, LinkOp, OpRequest, Outbox, same_host::CopyPool},
};

/// A near way that is ready at once, and reaches everything or not.
#[derive(Clone, Debug)]
struct Near {
    complete: bool,
}

impl Attach for Near {
    fn start(&mut self) -> Result<Attached, ConnectError> {
        Ok(Attached::Ready(Arc::new(self.clone())))
    }

    fn message(&mut self, _: Message) -> Result<Attached, ConnectError> {
        Ok(Attached::Pending)
    }
}

impl Link for Near {
    fn path(&self) -> Path {
        Path::SameHost
    }

    fn report(&self, _: &[Arc<LocalRegion>], _: &[RemoteRegion]) -> Vec<PathReport> {
        let route = self.complete.then_some(crate::path::Route {
            path: Path::SameHost,
            mechanism: crate::path::Mechanism::Cma,
            executor: crate::path::Executor::Initiator,
        });
        vec![PathReport { local: "private memory", remote: "private memory", route, why_not: Vec::new() }]
    }

    fn admit(&self, _: OpRequest) -> Result<Vec<Arc<dyn LinkOp>>, AdmitError> {
        Ok(Vec::new())
    }

    fn message(&self, _: Message) -> Result<(), String> {
        Ok(())
    }

    fn revoke(&self, _: RevokeScope) -> u64 {
        1
    }

    fn is_quiet(&self, _: u64) -> bool {
        true
    }

    fn acknowledge(&self, _: u64, _: &RevokeScope) -> Acknowledge {
        Acknowledge::Now
    }

    fn lost(&self, _: FaultCause) {}
}

fn attach(initiator: bool, complete: bool, address: Option<&str>) -> JointAttach {
    let (mailbox, _) = Mailbox::new().unwrap();
    let pool = CopyPool::new(1, Box::new(|| ())).unwrap();
    let context = AttachContext {
        ours: Incarnation([1; 16]),
        theirs: Incarnation([2; 16]),
        initiator,
        outbox: Outbox::new(mailbox, 1),
        pid: 1,
        process: None,
        control: ControlSocket {
            fd: Arc::new(std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap())),
            listening: Arc::new(AtomicBool::new(false)),
        },
        key: None,
        peer: "peer".into(),
        settings: Arc::new(Settings::default()),
    };
    let tcp = TcpTransport::new(Arc::new(Registry::default()), pool.board());
    let address = address.map(|a| a.parse().unwrap());
    JointAttach::new(Box::new(Near { complete }), tcp, address, context)
}

fn hear(attach: &mut JointAttach, wire: &Wire) -> Result<Attached, ConnectError> {
    attach.message(Message { body: wire.encode(), fds: Vec::new() })
}

#[track_caller]
fn why_no_streams(attached: Attached) -> String {
    let Attached::Ready(link) = attached else { panic!("not ready") };
    assert!(!link.has_streams());
    let report = link.report(&[], &[]).remove(0);
    assert_eq!(report.route, None);
    report.why_not[0].to_string()
}

#[test]
fn a_near_way_that_reaches_everything_is_enough() {
    let mut initiator = attach(true, true, None);
    assert!(matches!(initiator.start(), Ok(Attached::Ready(_))));
    let mut target = attach(false, true, None);
    assert!(matches!(target.start(), Ok(Attached::Pending)));
    assert!(matches!(hear(&mut target, &Wire::Enough), Ok(Attached::Ready(_))));
}

#[test]
fn streams_that_do_not_come_are_done_without() {
    let mut waiting = attach(true, false, None);
    assert!(matches!(waiting.start(), Ok(Attached::Pending)));
    let deadline = waiting.deadline().expect("an end of patience");
    assert!(deadline <= Instant::now() + Settings::default().connect_timeout / 2);
    let attached = waiting.do_without("no answer in time").expect("the near way");
    assert_eq!(why_no_streams(attached), "not tcp: no answer in time");

    let mut declined = attach(true, false, None);
    declined.start().unwrap();
    let attached = hear(&mut declined, &Wire::Declined { reason: "not today".into() }).unwrap();
    assert_eq!(why_no_streams(attached), "not tcp: not today");

    // Without a key of the channel no stream can be proven to belong to it.
    let mut keyless = attach(true, false, None);
    keyless.start().unwrap();
    let address = "127.0.0.1:1".parse().unwrap();
    let attached = hear(&mut keyless, &Wire::Open { address }).unwrap();
    assert!(why_no_streams(attached).contains("no key"));
}

#[test]
fn a_target_without_a_port_says_so() {
    let mut target = attach(false, false, None);
    target.start().unwrap();
    assert_eq!(why_no_streams(hear(&mut target, &Wire::Ask).unwrap()), "not tcp: it listens on no TCP port");
}

#[test]
fn messages_out_of_place_are_refused() {
    let address = "127.0.0.1:1".parse().unwrap();
    // Before the near way is ready.
    assert!(hear(&mut attach(false, false, None), &Wire::Ask).is_err());
    // What only the other end says.
    let mut initiator = attach(true, false, None);
    initiator.start().unwrap();
    assert!(hear(&mut initiator, &Wire::Ask).is_err());
    assert!(hear(&mut initiator, &Wire::Enough).is_err());
    assert!(hear(&mut initiator, &Wire::Far(vec![1])).is_err());
    let mut target = attach(false, false, Some("127.0.0.1:1"));
    target.start().unwrap();
    assert!(hear(&mut target, &Wire::Open { address }).is_err());
    assert!(hear(&mut target, &Wire::Declined { reason: String::new() }).is_err());
    assert!(target.message(Message { body: vec![0xff, 77], fds: Vec::new() }).is_err());
}
