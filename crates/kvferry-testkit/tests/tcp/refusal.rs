//! Connections that cannot come about say why, and where they were tried.

use std::net::{Ipv4Addr, TcpListener};

use kvferry_proto::{Blob, Endpoint};
use kvferry_testkit::harness::{Memory, Request, Worker, link};

use crate::{launch, worker};

#[test]
fn a_wrong_token_is_named() {
    let agents = [
        (Some("right"), Some("wrong"), "both have KVFERRY_TOKEN set, to different values"),
        (Some("right"), None, "KVFERRY_TOKEN is set here and not there"),
        (None, Some("right"), "KVFERRY_TOKEN is set there and not here"),
    ];
    for (ours, theirs, story) in agents {
        let with = |name: &str, token: Option<&str>| {
            let launch = launch(name);
            token.map_or_else(|| launch.clone(), |token| launch.clone().env("KVFERRY_TOKEN", token)).start()
        };
        let (a, b) = (with("a", ours), with("b", theirs));
        a.load(&b).unwrap();
        let failure = a.connect("b").unwrap_err();
        assert_eq!(failure.code, "connect.unauthorized", "{failure:?}");
        assert!(failure.text.contains(story), "no {story:?} in {}", failure.text);
        for secret in ["right", "wrong"] {
            assert!(!failure.text.contains(&format!("\"{secret}\"")), "{failure:?}");
        }
        // The right one works, against the same target.
        let good = with("good", theirs);
        link(&good, &b);
    }
}

#[test]
fn a_port_range_that_is_used_up_is_named() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let range = format!("{port}-{port}");
    let late = launch("late").env("KVFERRY_PORT_RANGE", &range).try_start().unwrap();
    let failure = late.ask::<()>(&Request::Build { name: "late".into() }).expect_err("the port is taken");
    for part in ["127.0.0.1", &range] {
        assert!(failure.text.contains(part), "no {part:?} in {failure:?}");
    }
    drop(taken);
    // Once it is free, it is taken, and told to peers.
    let lucky = launch("lucky").env("KVFERRY_PORT_RANGE", &range).start();
    assert!(tcp_endpoint(&lucky).1 == port, "another port than {port}");
    // The next one finds nothing left; one with room in its range does.
    let next = launch("next").env("KVFERRY_PORT_RANGE", &range).try_start().unwrap();
    next.ask::<()>(&Request::Build { name: "next".into() }).expect_err("the port is taken");
    let a = worker("a");
    link(&a, &lucky);
}

#[test]
fn a_closed_port_is_named() {
    let (a, b) = (worker("a"), worker("b"));
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let metadata = with_endpoint(&b, "127.0.0.1", closed);
    a.ask::<String>(&Request::Load { metadata }).unwrap();
    let failure = a.connect("b").unwrap_err();
    assert_eq!(failure.code, "connect.unreachable", "{failure:?}");
    assert!(failure.text.contains(&format!("127.0.0.1:{closed}")), "no address in {}", failure.text);
    // The right metadata takes its place.
    a.expect::<()>(&Request::Remove { peer: "b".into() });
    link(&a, &b);
}

#[test]
fn the_port_of_another_agent_is_no_way_in() {
    let (a, b, c) = (worker("a"), worker("b"), worker("c"));
    let (address, port) = tcp_endpoint(&c);
    a.ask::<String>(&Request::Load { metadata: with_endpoint(&b, &address, port) }).unwrap();
    let failure = a.connect("b").unwrap_err();
    let codes = ["connect.restarted", "connect.unauthorized"];
    assert!(codes.contains(&failure.code.as_str()), "{failure:?}");
}

#[test]
fn a_peer_that_forbids_tcp_is_no_peer_over_tcp() {
    let a = launch("a").env("KVFERRY_FORBID", "tcp").start();
    let b = worker("b");
    a.load(&b).unwrap();
    let failure = a.connect("b").unwrap_err();
    assert!(failure.code.starts_with("connect."), "{failure:?}");
    for part in ["tcp", "KVFERRY_FORBID"] {
        assert!(failure.text.contains(part), "no {part:?} in {failure:?}");
    }
    // It serves nobody but itself, and that well.
    a.registered(Memory::Private, 1 << 20);
}

fn tcp_endpoint(worker: &Worker) -> (String, u16) {
    let blob = Blob::decode(&from_hex(&worker.metadata())).unwrap();
    let tcp = blob.endpoints.into_iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp { addr, port } => Some((addr, port)),
        _ => None,
    });
    tcp.expect("an agent that listens")
}

/// A worker's metadata with another address.
fn with_endpoint(worker: &Worker, addr: &str, port: u16) -> String {
    let mut blob = Blob::decode(&from_hex(&worker.metadata())).unwrap();
    blob.endpoints = vec![Endpoint::Tcp { addr: addr.into(), port }];
    blob.encode().unwrap().iter().map(|b| format!("{b:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
