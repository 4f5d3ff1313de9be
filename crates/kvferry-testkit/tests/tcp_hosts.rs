//! Two network namespaces with a cable between them, as two hosts: every packet size, a slow and a lossy way, a cable that is
//! pulled out.

use std::time::Duration;

use kvferry_testkit::{
    harness::{
        Buffer, Chance, Launch, Memory, PATIENCE, Request, State, Worker, eventually, link, now_ns, skip,
    },
    hosts::{ADDRESSES, ADDRESSES_V6, DEVICE, Hosts},
};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

const BYTES: u64 = 16 << 20;
const BLOCK: u64 = 64 << 10;
const BLOCKS: u32 = (BYTES / BLOCK) as u32;

/// Two agents on two hosts.
struct Rig {
    a: Worker,
    b: Worker,
    near: Buffer,
    far: Buffer,
    hosts: Hosts,
}

impl Rig {
    /// With what `configure` sets. None where this machine has no namespaces for us, which it says.
    fn new(mtu: u32, addresses: [&str; 2], configure: impl Fn(Launch) -> Launch) -> Option<Self> {
        let hosts = Hosts::new(mtu).map_err(skip).ok()?;
        Some(Self::over(hosts, addresses, configure))
    }

    fn over(hosts: Hosts, addresses: [&str; 2], configure: impl Fn(Launch) -> Launch) -> Self {
        let start = |host: usize, name| {
            // Memory that only the kernel's own means could reach is out of the question: hosts are told apart by nothing here.
            let launch = Launch::new(CHILD, name).env("KVFERRY_FORBID", "same_host");
            let launch = configure(launch.env("KVFERRY_ADDRESS", addresses[host]));
            hosts.on(host, || launch.start())
        };
        let (a, b) = (start(0, "a"), start(1, "b"));
        let near = a.registered(Memory::Private, BYTES).buffer;
        let far = b.registered(Memory::Private, BYTES).buffer;
        link(&a, &b);
        Self { a, b, near, far, hosts }
    }

    fn written(&self) -> u64 {
        self.b.poison(self.far);
        let spec = self.a.write(self.near, &self.b, self.far).in_blocks_of(BLOCK);
        let transfer = self.a.transfer(&spec).unwrap_or_else(|e| panic!("{e:?}"));
        self.a.post(transfer).unwrap();
        transfer
    }

    /// Shuffled blocks go there and back.
    #[track_caller]
    fn round_trip(&self, seed: u64) {
        let mut chance = Chance::seeded();
        self.a.fill(self.near, seed);
        self.b.poison(self.far);
        let pairs = chance.pairs(BLOCKS);
        let spec = self.a.write(self.near, &self.b, self.far).in_blocks_of(BLOCK).paired(&pairs);
        let written = self.a.run(&spec.notifying("there"));
        assert_eq!(self.b.notifications(1)[0].payload, "there");
        self.b.expect_blocks(self.far, seed, BLOCK, &pairs);
        let measured = self.a.measured(written);
        assert_eq!((measured.path.as_str(), measured.bytes), ("tcp", BYTES));

        self.b.fill(self.far, seed + 1);
        self.a.poison(self.near);
        let read = self.a.run(&self.a.read(self.near, &self.b, self.far).in_blocks_of(BLOCK));
        self.a.expect_filled(self.near, seed + 1);
        for transfer in [written, read] {
            self.a.release(transfer).unwrap();
        }
    }
}

fn plain(launch: Launch) -> Launch {
    launch
}

#[test]
fn packets_of_1500_bytes() {
    let Some(rig) = Rig::new(1500, ADDRESSES, plain) else { return };
    rig.round_trip(1);
    rig.round_trip(2);
}

#[test]
fn packets_of_9000_bytes() {
    let Some(rig) = Rig::new(9000, ADDRESSES, plain) else { return };
    rig.round_trip(3);
}

#[test]
fn ipv6() {
    let hosts = match Hosts::new(1500) {
        Ok(hosts) => hosts,
        Err(reason) => return skip(reason),
    };
    if hosts.ip(0, &format!("-6 route get {}", ADDRESSES_V6[1])).is_err() {
        return skip("this kernel has no IPv6");
    }
    Rig::over(hosts, ADDRESSES_V6, plain).round_trip(4);
}

#[test]
fn the_address_of_a_device_that_is_named() {
    let hosts = match Hosts::new(1500) {
        Ok(hosts) => hosts,
        Err(reason) => return skip(reason),
    };
    let start = |host, name| {
        let launch = Launch::new(CHILD, name).env("KVFERRY_FORBID", "same_host");
        hosts.on(host, || launch.env("KVFERRY_NET_DEVICES", DEVICE).start())
    };
    let (a, b) = (start(0, "a"), start(1, "b"));
    link(&a, &b);
    // The other way as well: each has told its own address.
    link(&b, &a);
    let nowhere = Launch::new(CHILD, "nowhere").env("KVFERRY_NET_DEVICES", "no-such0");
    let nowhere = hosts.on(0, || nowhere.try_start()).unwrap();
    let failure = nowhere.ask::<()>(&Request::Build { name: "nowhere".into() }).expect_err("no device");
    for part in ["no-such0", DEVICE] {
        assert!(failure.text.contains(part), "no {part:?} in {failure:?}");
    }
}

#[test]
fn a_slow_way() {
    slow("rate 400mbit burst 128kb latency 50ms", 5);
}

#[test]
fn a_slow_way_that_drops_what_does_not_fit() {
    // A queue of a few packets: whatever comes in a burst is lost.
    slow("rate 400mbit burst 16kb limit 32kb", 6);
}

fn slow(filter: &str, seed: u64) {
    let hosts = match Hosts::new(1500) {
        Ok(hosts) => hosts,
        Err(reason) => return skip(reason),
    };
    for host in 0..2 {
        if let Err(reason) = hosts.tc(host, &format!("qdisc add dev {DEVICE} root tbf {filter}")) {
            return skip(reason);
        }
    }
    let rig = Rig::over(hosts, ADDRESSES, plain);
    let begun = now_ns();
    rig.round_trip(seed);
    println!("segments sent again: {}", rig.hosts.retransmitted(0));
    let took = Duration::from_nanos(now_ns() - begun);
    println!("2 x 16 MiB in {took:.1?}, 0.7 s at that rate");
    assert!(took > Duration::from_millis(500), "faster than the way: {took:?}");
    // What is cancelled in the queue of a slow way is quiet all the same.
    for _ in 0..3 {
        let transfer = rig.written();
        std::thread::sleep(Duration::from_millis(30));
        rig.a.cancel(transfer).unwrap_or_else(|e| panic!("{e:?}"));
        let before = rig.b.scan(rig.far, seed + 1);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(rig.b.scan(rig.far, seed + 1), before, "memory changed after a cancel");
        rig.a.release(transfer).unwrap();
    }
}

#[test]
fn one_packet_in_fifty_is_lost() {
    let hosts = match Hosts::new(1500) {
        Ok(hosts) => hosts,
        Err(reason) => return skip(reason),
    };
    for host in 0..2 {
        if let Err(reason) = hosts.lose(host, 50) {
            return skip(reason);
        }
    }
    let rig = Rig::over(hosts, ADDRESSES, plain);
    rig.round_trip(7);
    let again = [0, 1].map(|host| rig.hosts.retransmitted(host));
    println!("segments sent again: {again:?}");
    assert!(again[0] > 0 && again[1] > 0, "nothing was lost: {again:?}");
}

#[test]
fn a_cable_pulled_out_for_long_is_a_peer_lost_by_silence() {
    let hasty = |l: Launch| l.env("KVFERRY_PEER_TIMEOUT", "300ms").env("KVFERRY_CANCEL_TIMEOUT", "300ms");
    let Some(rig) = Rig::new(1500, ADDRESSES, hasty) else { return };
    rig.round_trip(8);
    let transfer = rig.written();
    let pulled = now_ns();
    rig.hosts.cable(false);
    for (worker, peer) in [(&rig.a, "b"), (&rig.b, "a")] {
        let lost = worker.event("lost", peer).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(lost.cause, "it was silent for longer than the peer time-out");
        let after = Duration::from_nanos(lost.stamp.saturating_sub(pulled));
        assert!(after < Duration::from_millis(1_500), "lost after {after:?} only");
    }
    let ended = rig.a.wait(transfer, 5_000).unwrap();
    if ended != State::Done {
        assert_eq!(ended.code(), "peer.lost", "{ended:?}");
        assert_eq!(rig.a.release(transfer).unwrap_err().code, "cancel.fenced");
    }
    assert!(!rig.a.expect::<bool>(&Request::Check { peer: "b".into() }), "its metadata stays");
    rig.hosts.cable(true);
    std::thread::sleep(Duration::from_millis(20));
    let settled = rig.b.scan(rig.far, 9);
    link(&rig.a, &rig.b);
    assert_eq!(rig.b.scan(rig.far, 9), settled, "what was lost has landed");
    rig.round_trip(10);
}

#[test]
fn a_cable_pulled_out_for_a_moment_is_no_loss() {
    let Some(rig) = Rig::new(1500, ADDRESSES, plain) else { return };
    rig.round_trip(11);
    for _ in 0..3 {
        let transfer = rig.written();
        rig.hosts.cable(false);
        std::thread::sleep(Duration::from_millis(200));
        rig.hosts.cable(true);
        // The kernel sends again what was lost; how soon, it decides by itself.
        let ended = rig.a.wait(transfer, 15_000).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(ended == State::Done || ended.code() == "link.lost", "{ended:?}");
        rig.a.release(transfer).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(rig.a.expect::<bool>(&Request::Check { peer: "b".into() }), "its metadata went");
    }
    assert!(eventually(PATIENCE, || rig.a.connect("b").is_ok()));
    rig.round_trip(12);
}

#[test]
fn an_address_without_a_host_is_a_timeout_or_unreachable_and_named() {
    let hasty = |l: Launch| l.env("KVFERRY_CONNECT_TIMEOUT", "500ms");
    let Some(rig) = Rig::new(1500, ADDRESSES, hasty) else { return };
    rig.a.expect::<()>(&Request::Remove { peer: "b".into() });
    rig.hosts.cable(false);
    rig.a.load(&rig.b).unwrap();
    let begun = now_ns();
    let failure = rig.a.connect("b").unwrap_err();
    let took = Duration::from_nanos(now_ns() - begun);
    assert!(took < Duration::from_secs(2), "after {took:?} only");
    assert!(["connect.unreachable", "connect.timeout"].contains(&failure.code.as_str()), "{failure:?}");
    assert!(failure.text.contains(ADDRESSES[1]), "no address in {failure:?}");
}
