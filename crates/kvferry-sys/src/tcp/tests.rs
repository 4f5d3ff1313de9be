use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::*;
use crate::gather::Gather;

fn until<T>(mut ask: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        assert!(Instant::now() < deadline, "nothing came");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn accept(listener: &OwnedFd) -> OwnedFd {
    until(|| match accept_tcp(listener) {
        Ok(fd) => Ok(Some(fd)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    })
    .unwrap()
}

fn meet(address: SocketAddr) {
    let listener = listen_tcp(address).unwrap();
    let address = local_address(&listener).unwrap();
    assert_ne!(address.port(), 0);
    let ours = connect_tcp(address).unwrap();
    let theirs = accept(&listener);
    until(|| connected(&ours)).unwrap();
    assert_eq!(remote_address(&ours).unwrap(), address);
    assert_eq!(local_address(&ours).unwrap(), remote_address(&theirs).unwrap());
    Gather::new().send(&ours, b"seven b", [], b"").unwrap();
    until(|| Ok((rustix::io::ioctl_fionread(&theirs)? == 7).then_some(()))).unwrap();
}

#[test]
fn two_ends_meet_over_ipv4() {
    meet((Ipv4Addr::LOCALHOST, 0).into());
}

#[test]
fn two_ends_meet_over_ipv6() {
    if listen_tcp((Ipv6Addr::LOCALHOST, 0).into()).is_err() {
        return eprintln!("skipped: no IPv6 loopback on this machine");
    }
    meet((Ipv6Addr::LOCALHOST, 0).into());
}

#[test]
fn a_closed_port_refuses() {
    let listener = listen_tcp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = local_address(&listener).unwrap();
    drop(listener);
    let refused = connect_tcp(address).and_then(|socket| until(|| connected(&socket)));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn packets_to_loopback_leave_from_it() {
    let from = source_address((Ipv4Addr::new(127, 0, 0, 9), 9).into()).unwrap();
    assert!(from.ip().is_loopback(), "{from}");
}
