use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::process::{getgid, getpid, getuid};
use rustix::time::Timespec;

use super::*;
use crate::testing::{Peer, role, tell};

/// A name that no other test and no other process uses.
fn unique_name(what: &str) -> Vec<u8> {
    format!("kvferry-sys-test-{}-{what}", std::process::id()).into_bytes()
}

fn pair(what: &str) -> (OwnedFd, OwnedFd) {
    let name = unique_name(what);
    let listener = listen_abstract(&name).unwrap();
    let client = connect_abstract(&name).unwrap();
    (client, accept(&listener).unwrap())
}

fn assert_kind<T: std::fmt::Debug>(result: io::Result<T>, kind: ErrorKind) {
    assert_eq!(result.unwrap_err().kind(), kind);
}

#[test]
fn sockets_wait_for_nothing_and_do_not_survive_exec() {
    let name = unique_name("flags");
    let listener = listen_abstract(&name).unwrap();
    assert_kind(accept(&listener), ErrorKind::WouldBlock);
    let client = connect_abstract(&name).unwrap();
    let server = accept(&listener).unwrap();
    assert_kind(recv_with_fds(&server, &mut [0; 8], &mut Vec::new()), ErrorKind::WouldBlock);
    for socket in [&listener, &client, &server] {
        assert!(rustix::io::fcntl_getfd(socket).unwrap().contains(FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(socket).unwrap().contains(OFlags::NONBLOCK));
    }
}

#[test]
fn a_path_works_as_well_as_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = listen_path(&path).unwrap();
    assert_kind(listen_path(&path), ErrorKind::AddrInUse);
    let client = connect_path(&path).unwrap();
    let server = accept(&listener).unwrap();
    assert_eq!(send_with_fds(&client, b"hello", &[]).unwrap(), 5);
    let mut bytes = [0; 16];
    assert_eq!(recv_with_fds(&server, &mut bytes, &mut Vec::new()).unwrap(), 5);
    assert_eq!(&bytes[..5], b"hello");
}

#[test]
fn nobody_there_is_an_error_at_once() {
    assert_kind(connect_abstract(&unique_name("nobody")), ErrorKind::ConnectionRefused);
    assert_kind(connect_path(Path::new("/nonexistent/socket")), ErrorKind::NotFound);
    assert!(listen_abstract(&[b'x'; 200]).is_err());
}

#[test]
fn descriptors_go_along_with_bytes() {
    let (client, server) = pair("descriptors");
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"through the socket").unwrap();
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    assert_eq!(send_with_fds(&client, b"ab", &[file.as_fd(), pipe.as_fd()]).unwrap(), 2);
    let (mut bytes, mut fds) = ([0; 16], Vec::new());
    assert_eq!(recv_with_fds(&server, &mut bytes, &mut fds).unwrap(), 2);
    assert_eq!(fds.len(), 2);
    assert!(fds.iter().all(|fd| rustix::io::fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC)));
    let mut received = File::from(fds.remove(0));
    let mut text = String::new();
    received.rewind().unwrap();
    received.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through the socket");
}

#[test]
fn as_many_descriptors_as_allowed_and_not_one_more() {
    let (client, server) = pair("many");
    let file = tempfile::tempfile().unwrap();
    let (mut bytes, mut fds) = ([0; 16], Vec::new());
    send_with_fds(&client, b"x", &[file.as_fd(); MAX_FDS]).unwrap();
    recv_with_fds(&server, &mut bytes, &mut fds).unwrap();
    assert_eq!(fds.len(), MAX_FDS);
    assert_kind(send_with_fds(&client, b"x", &[file.as_fd(); MAX_FDS + 1]), ErrorKind::InvalidInput);
    assert_kind(send_with_fds(&client, b"", &[file.as_fd()]), ErrorKind::InvalidInput);
}

#[test]
fn too_many_descriptors_are_an_error_and_we_keep_none() {
    let (client, server) = pair("closed");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let fds = [writer.as_fd(); MAX_FDS + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS + 1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    net::sendmsg(&client, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();
    let mut received = Vec::new();
    assert_kind(recv_with_fds(&server, &mut [0; 16], &mut received), ErrorKind::InvalidData);
    assert!(received.is_empty());
    drop(writer);
    // All writing ends are closed, so the reader comes to the end. A child that another test forks at this moment
    // may hold one a little longer.
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&patience)), Ok(1), "a writer is left");
    assert_eq!(rustix::io::read(&reader, &mut [0u8; 1]), Ok(0));
}

#[test]
fn a_closed_peer_is_an_end_or_an_error_and_no_signal() {
    let (client, server) = pair("closed-peer");
    drop(client);
    assert_eq!(recv_with_fds(&server, &mut [0; 8], &mut Vec::new()).unwrap(), 0);
    assert_kind(send_with_fds(&server, b"x", &[]), ErrorKind::BrokenPipe);
}

#[test]
fn a_full_socket_does_not_wait() {
    let (client, _server) = pair("full");
    let block = [0; 65_536];
    let last = loop {
        match send_with_fds(&client, &block, &[]) {
            Ok(sent) => assert!(sent > 0),
            Err(error) => break error,
        }
    };
    assert_eq!(last.kind(), ErrorKind::WouldBlock);
}

#[test]
fn the_kernel_tells_who_connected() {
    let name = String::from_utf8(unique_name("who")).unwrap();
    if let Some(name) = role() {
        let socket = connect_abstract(name.as_bytes()).unwrap();
        tell("connected");
        // Until the first process lets go.
        crate::testing::hear();
        drop(socket);
        std::process::exit(0);
    }
    let listener = listen_abstract(name.as_bytes()).unwrap();
    let mut peer = Peer::start("socket::tests::the_kernel_tells_who_connected", &name);
    assert_eq!(peer.hear(), "connected");
    let server = accept(&listener).unwrap();
    let credentials = peer_credentials(&server).unwrap();
    let expected = PeerCredentials { pid: peer.pid().get(), uid: getuid().as_raw(), gid: getgid().as_raw() };
    assert_eq!(credentials, expected);
    assert_ne!(credentials.pid, getpid().as_raw_pid());

    let pidfd = peer_pidfd(&server).expect("pidfds are older than any kernel that this runs on");
    rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).unwrap();
    assert!(!peer.wait().success());
}

#[test]
fn what_is_no_socket_has_no_peer() {
    let file = tempfile::tempfile().unwrap();
    assert!(peer_credentials(&file).is_err());
    assert!(peer_pidfd(&file).is_none());
}
