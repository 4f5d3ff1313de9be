//! A client that speaks the protocol and obeys nothing.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

use kvferry_proto::{
    Action, Blob, ChannelKey, Command, Endpoint, Frame, FrameReader, Identity, Incarnation, NotifySender,
    ProofKey, RemoteRegion, STREAM_HEADER, Session, SessionConfig, StreamHeader, StreamHello, StreamKind,
    StreamSegment,
};
use kvferry_testkit::harness::{Chance, PATIENCE, Worker, now_ns};

/// How often a waiting client looks around.
const TICK: Duration = Duration::from_millis(5);

/// Streams of a link, as the engine has them.
pub(crate) const STREAMS: u8 = 2;

/// What an agent tells those who may reach it.
pub(crate) fn blob(worker: &Worker) -> Blob {
    let text = worker.metadata();
    let bytes: Vec<u8> =
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect();
    Blob::decode(&bytes).unwrap()
}

/// A connection to the port of an agent, over which nothing was said.
pub(crate) fn dial(blob: &Blob) -> TcpStream {
    let port = blob.endpoints.iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    });
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port.expect("a port"))).unwrap();
    socket.set_read_timeout(Some(TICK)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// Waits until the other end has closed; what it says before is passed over.
#[track_caller]
pub(crate) fn expect_closed(mut socket: &TcpStream, what: &str) {
    let (begun, mut buffer) = (Instant::now(), [0; 4096]);
    while begun.elapsed() < Duration::from_secs(5) {
        match socket.read(&mut buffer) {
            Ok(0) => return,
            Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
            _ => {}
        }
    }
    panic!("{what}: still open after {:?}", begun.elapsed());
}

pub(crate) fn identity(name: &str) -> Identity {
    let mut chance = Chance::new(now_ns());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&chance.next_u64().to_ne_bytes());
    bytes[8..].copy_from_slice(&chance.next_u64().to_ne_bytes());
    Identity { name: name.into(), incarnation: Incarnation(bytes) }
}

/// A client that has the capability: its handshake is in order, and its link is up.
pub(crate) struct Client {
    pub(crate) control: TcpStream,
    pub(crate) streams: Vec<TcpStream>,
    pub(crate) link: [u8; 16],
    key: Option<ChannelKey>,
    session: Session,
    reader: FrameReader,
}

impl Client {
    /// Opens the link as the protocol wants it.
    pub(crate) fn open(blob: &Blob, name: &str) -> Self {
        let mut client = Self::offered(blob, name);
        for stream in 0..STREAMS {
            let mut socket = dial(blob);
            let hello = StreamHello { link: client.link, stream, streams: STREAMS };
            socket.write_all(&hello.encode(client.key())).unwrap();
            client.streams.push(socket);
        }
        let begun = Instant::now();
        let mut complete = false;
        while !client.session.is_up() {
            assert!(begun.elapsed() < PATIENCE, "a good client is not let in");
            if client.turn().iter().any(|message| message.first() == Some(&1)) && !complete {
                complete = true;
                client.session.command(Instant::now(), Command::Attached).unwrap();
            }
        }
        client
    }

    /// Goes as far as the offer of a link, without any data stream.
    pub(crate) fn offered(blob: &Blob, name: &str) -> Self {
        let mut nonce = [0; 32];
        nonce[..8].copy_from_slice(&now_ns().to_ne_bytes());
        let config = SessionConfig {
            own: identity(name),
            key: ProofKey::derive(&blob.capability.as_ref().unwrap().secret.0, None),
            token_in_force: false,
            nonce,
            handshake_timeout: PATIENCE,
            close_timeout: Duration::from_millis(100),
            silence_timeout: None,
        };
        let session = Session::initiator(Instant::now(), config, blob.identity.clone(), NotifySender::new());
        let mut client = Self {
            control: dial(blob),
            streams: Vec::new(),
            link: [0; 16],
            key: None,
            session,
            reader: FrameReader::new(),
        };
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "a good client is offered no link");
            let offers = client.turn();
            if let Some(offer) = offers.iter().find(|message| message.first() == Some(&0)) {
                client.link.copy_from_slice(&offer[1..17]);
                client.key = client.session.channel_key().cloned();
                return client;
            }
        }
    }

    /// What both ends share.
    pub(crate) fn key(&self) -> &ChannelKey {
        self.key.as_ref().expect("a proven channel")
    }

    /// Sends what the session wants, hears what has come; returns the messages of the transport.
    fn turn(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let Some(action) = self.session.poll() {
            match action {
                Action::Send(frame) => self.say(&frame),
                Action::Transport { bytes, .. } => messages.push(bytes),
                Action::Lost(cause) => panic!("a good client was turned away: {cause}"),
                _ => {}
            }
        }
        let mut buffer = [0; 4096];
        if let Ok(n) = self.control.read(&mut buffer) {
            let mut rest = &buffer[..n];
            while !rest.is_empty() {
                rest = &rest[self.reader.push(rest)..];
                while let Ok(Some(frame)) = self.reader.pop() {
                    self.session.handle_frame(Instant::now(), frame);
                }
            }
        }
        messages
    }

    /// A frame of the control channel.
    pub(crate) fn say(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode_into(&mut bytes).unwrap();
        let _ = self.control.write_all(&bytes);
    }

    /// The first frame that comes on a data stream, with its text; none if the stream ends first.
    pub(crate) fn answer(&mut self) -> Option<(StreamHeader, Vec<u8>)> {
        let mut header = [0; STREAM_HEADER];
        let stream = &mut self.streams[0];
        read_all(stream, &mut header)?;
        let header = StreamHeader::decode(&header).expect("a good header");
        let mut text = vec![0; header.payload as usize];
        read_all(stream, &mut text)?;
        Some((header, text))
    }
}

fn read_all(socket: &mut TcpStream, bytes: &mut [u8]) -> Option<()> {
    let (begun, mut got) = (Instant::now(), 0);
    while got < bytes.len() {
        assert!(begun.elapsed() < PATIENCE, "neither an answer nor an end");
        match socket.read(&mut bytes[got..]) {
            Ok(0) => return None,
            Ok(n) => got += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return None,
        }
    }
    Some(())
}

/// A request that names segments, without a payload.
pub(crate) fn request(kind: StreamKind, segments: &[StreamSegment], payload: u32) -> Vec<u8> {
    let mut names = Vec::new();
    StreamSegment::encode(segments, &mut names);
    named(kind, segments.len() as u16, &names, payload)
}

/// A request that says what it likes about its segments.
pub(crate) fn named(kind: StreamKind, segments: u16, names: &[u8], payload: u32) -> Vec<u8> {
    let names_len = names.len() as u32;
    let header =
        StreamHeader { kind, code: 0, segments, names: names_len, payload, op: 1, attempt: 1, chunk: 1 };
    [&header.encode()[..], names].concat()
}

/// The first page of a region.
pub(crate) fn segment(region: &RemoteRegion) -> StreamSegment {
    StreamSegment { region: region.id, key: region.key, offset: 0, len: 4096 }
}
