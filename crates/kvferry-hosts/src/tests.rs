use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

#[test]
fn two_hosts_reach_each_other_and_nobody_else() {
    let hosts = match Hosts::new(1500) {
        Ok(hosts) => hosts,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let listener = hosts.on(1, || TcpListener::bind((ADDRESSES[1], 0))).expect("a listener on the far host");
    let port = listener.local_addr().expect("its address").port();
    assert!(TcpListener::bind((ADDRESSES[1], 0)).is_err(), "its address is known here");
    let talk = std::thread::spawn(move || {
        let (mut socket, from) = listener.accept().expect("a connection");
        socket.write_all(b"there").expect("words");
        from.ip().to_string()
    });
    let mut socket = hosts.on(0, || TcpStream::connect((ADDRESSES[1], port))).expect("a connection");
    let mut words = String::new();
    socket.read_to_string(&mut words).expect("words");
    assert_eq!((words.as_str(), talk.join().expect("a talk").as_str()), ("there", ADDRESSES[0]));
}

#[test]
fn what_a_tool_says_comes_back() {
    let hosts = match Hosts::new(1500) {
        Ok(hosts) => hosts,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let error = hosts.ip(0, "link show no-such0").expect_err("no such device");
    assert!(error.contains("no-such0") && error.contains("does not exist"), "{error}");
    let missing = hosts.tool(0, "no-such-program", "x").expect_err("no such program");
    assert_eq!(missing, "the program `no-such-program` is missing: install iproute2");
}
