//! Strangers, and worse: peers that hold the capability and break every rule. They are refused, touch nothing, cost little, and
//! hinder nobody.

mod client;

use std::{
    io::Write,
    net::TcpStream,
    time::{Duration, Instant},
};

use kvferry_proto::{
    Blob, FRAME_HEADER, Frame, Hello, MAX_FRAME_BODY, MAX_STREAM_NAMES, MAX_STREAM_PAYLOAD,
    MAX_STREAM_SEGMENTS, PROTOCOL_VERSION, RegionId, RegionKey, RemoteRegion, STREAM_HEADER, STREAM_HELLO,
    StreamHeader, StreamHello, StreamKind, StreamSegment,
};
use kvferry_testkit::harness::{
    Buffer, Chance, Holdings, Launch, Memory, PATIENCE, Registered, Worker, eventually, link, rounds,
};

use client::{Client, STREAMS, blob, dial, expect_closed, identity, named, request, segment};

const CHILD: &str = env!("CARGO_BIN_EXE_kvferry-test-child");

/// Bytes of the memory that must not change.
const BYTES: u64 = 4 << 20;

/// What strangers may cost, and what the allocator keeps.
const SPARE: u64 = 32 << 20;

/// How long a stranger has to say who it is.
const HANDSHAKE: &str = "500ms";

/// An agent under attack, and one that means well.
struct Scene {
    target: Worker,
    honest: Worker,
    blob: Blob,
    /// Memory of the target that nobody has any business with.
    pool: Registered,
    region: RemoteRegion,
    source: Buffer,
    landing: Buffer,
    before: Holdings,
}

impl Scene {
    fn new() -> Self {
        let start = |name: &str| {
            let launch = Launch::new(CHILD, name).env("KVFERRY_ADDRESS", "127.0.0.1");
            launch.env("KVFERRY_FORBID", "same_host").env("KVFERRY_CONNECT_TIMEOUT", HANDSHAKE).start()
        };
        let (target, honest) = (start("target"), start("honest"));
        let pool = target.registered(Memory::Private, BYTES);
        target.poison(pool.buffer);
        let landing = target.registered(Memory::Private, BYTES).buffer;
        let source = honest.registered(Memory::Private, BYTES).buffer;
        honest.fill(source, 1);
        link(&honest, &target);
        let blob = blob(&target);
        let region = blob.regions.iter().find(|r| r.id.0 == pool.region).expect("the pool").clone();
        let before = target.holdings();
        let scene = Self { target, honest, blob, pool, region, source, landing, before };
        scene.expect_served();
        scene
    }

    /// The honest one is served, old link and new.
    #[track_caller]
    fn expect_served(&self) {
        let begun = Instant::now();
        link(&self.honest, &self.target);
        self.target.poison(self.landing);
        let write = self.honest.write(self.source, &self.target, self.landing).in_blocks_of(64 << 10);
        let transfer = self.honest.run(&write);
        self.honest.release(transfer).unwrap();
        self.target.expect_filled(self.landing, 1);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(2), "an honest peer waited for {took:?}");
    }

    /// Nothing was written, the honest one is served, and nothing is kept.
    #[track_caller]
    fn expect_unharmed(&self, what: &str) {
        let scan = self.target.scan(self.pool.buffer, 1);
        assert_eq!(scan.poison, scan.words, "{what}: memory was written: {scan:?}");
        self.expect_served();
        let mut now = Holdings::default();
        let settled = eventually(PATIENCE / 6, || {
            now = self.target.holdings();
            now.fds <= self.before.fds + 4 && now.resident <= self.before.resident + SPARE
        });
        assert!(settled, "{what}: {:?} then, {now:?} now", self.before);
    }
}

#[test]
fn what_is_no_handshake_is_cut_off() {
    let scene = Scene::new();
    let mut chance = Chance::seeded();
    let hello = encoded(&Frame::Hello(Hello {
        version: PROTOCOL_VERSION,
        name: "stranger".into(),
        incarnation: identity("stranger").incarnation,
        target: scene.blob.identity.incarnation,
        nonce: [7; 32],
        token_in_force: false,
    }));
    let stream = stranger_stream(&scene);
    let garbage: Vec<u8> = (0..4096).map(|_| chance.next_u64() as u8).collect();
    let openings: [(&str, &[u8]); 10] = [
        ("nothing", b""),
        ("one byte", b"x"),
        ("random bytes", &garbage),
        ("zeros", &[0; 4096]),
        ("ones", &[0xff; 4096]),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
        ("half a hello", &hello[..hello.len() / 2]),
        ("a hello and nothing more", &hello),
        ("half a stream's hello", &stream[..STREAM_HELLO / 2]),
        ("a stream's hello for no link", &stream),
    ];
    for (what, opening) in openings {
        let mut sockets: Vec<TcpStream> = (0..8).map(|_| dial(&scene.blob)).collect();
        for socket in &mut sockets {
            // It may be cut off already.
            let _ = socket.write_all(opening);
        }
        sockets.iter().for_each(|socket| expect_closed(socket, what));
        scene.expect_unharmed(what);
    }
}

#[test]
fn frames_without_end_are_bounded() {
    let scene = Scene::new();
    let header = |len: u32, kind: u8| {
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend([kind, 0, 0, 0]);
        bytes
    };
    let largest = MAX_FRAME_BODY as u32;
    assert_eq!(header(largest, 1).len(), FRAME_HEADER);
    for (what, opening) in [
        ("a frame of 4 GiB", header(u32::MAX, 1)),
        ("a frame one byte too long", header(largest + 1, 1)),
        ("the longest frame, and again", header(largest, 1)),
        ("a frame that may be skipped, and again", header(largest, 0xfe)),
    ] {
        let mut sockets: Vec<TcpStream> = (0..4).map(|_| dial(&scene.blob)).collect();
        let body = vec![0; MAX_FRAME_BODY];
        let begun = Instant::now();
        for socket in &mut sockets {
            socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            for _ in 0..16 {
                if begun.elapsed() > Duration::from_secs(2)
                    || socket.write_all(&opening).and_then(|()| socket.write_all(&body)).is_err()
                {
                    break;
                }
            }
        }
        let resident = scene.target.holdings().resident;
        assert!(resident <= scene.before.resident + SPARE, "{what}: {resident} bytes resident");
        sockets.iter().for_each(|socket| expect_closed(socket, what));
        scene.expect_unharmed(what);
    }
}

#[test]
fn without_the_secret_there_is_no_way_in() {
    let scene = Scene::new();
    let hello = Frame::Hello(Hello {
        version: PROTOCOL_VERSION,
        name: "honest".into(),
        incarnation: identity("honest").incarnation,
        target: scene.blob.identity.incarnation,
        nonce: [7; 32],
        token_in_force: false,
    });
    for early in [false, true] {
        let mut socket = dial(&scene.blob);
        socket.write_all(&encoded(&hello)).unwrap();
        if !early {
            // Time for the challenge to come, which without the secret is good for nothing.
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = socket.write_all(&encoded(&Frame::Proof([7; 32])));
        // As if all were well: a message of the transport, and a revocation of everything.
        let _ = socket.write_all(&encoded(&Frame::Ready));
        let _ = socket.write_all(&encoded(&Frame::Notify { seq: 1, payload: b"from nobody".to_vec() }));
        expect_closed(&socket, "a wrong proof");
    }
    scene.expect_unharmed("a wrong proof");
    let told: Vec<kvferry_testkit::harness::Received> =
        scene.target.expect(&kvferry_testkit::harness::Request::Notifications);
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_stream_that_does_not_belong_to_its_link_is_turned_away() {
    let scene = Scene::new();
    let other = Client::offered(&scene.blob, "other");
    // Link, stream and streams, where they are not what they should be.
    let hellos = [
        ("the key of another link", None, 0, STREAMS),
        ("an unknown link", Some([1; 16]), 0, STREAMS),
        ("a stream beyond the last", None, STREAMS, STREAMS),
        ("too few streams", None, 0, 1),
        ("too many streams", None, 0, 255),
        ("no streams", None, 0, 0),
    ];
    for (what, link, stream, streams) in hellos {
        let client = Client::offered(&scene.blob, "client");
        let key = if what == "the key of another link" { other.key() } else { client.key() };
        let hello = StreamHello { link: link.unwrap_or(client.link), stream, streams };
        let mut socket = dial(&scene.blob);
        socket.write_all(&hello.encode(key)).unwrap();
        let write = request(StreamKind::Write, &[segment(&scene.region)], 4096);
        let _ = socket.write_all(&write).and_then(|()| socket.write_all(&[0; 4096]));
        expect_closed(&socket, what);
    }
    // Nor does one that is there already come twice.
    let client = Client::open(&scene.blob, "twice");
    let mut again = dial(&scene.blob);
    let hello = StreamHello { link: client.link, stream: 1, streams: STREAMS };
    again.write_all(&hello.encode(client.key())).unwrap();
    expect_closed(&again, "a stream that is there");
    drop((client, other));
    scene.expect_unharmed("streams");
}

#[test]
fn memory_that_was_not_given_is_refused() {
    let scene = Scene::new();
    let good = segment(&scene.region);
    let len = scene.region.desc.len;
    let foreign = RegionId(good.region.0 + 1_000);
    let cases: [(&str, StreamSegment); 8] = [
        ("a foreign region", StreamSegment { region: foreign, ..good }),
        ("a wrong key", StreamSegment { key: RegionKey(good.key.0 ^ 1), ..good }),
        ("no key", StreamSegment { key: RegionKey(0), ..good }),
        ("a byte beyond the end", StreamSegment { offset: len - 4095, ..good }),
        ("far beyond the end", StreamSegment { offset: 1 << 40, ..good }),
        ("an offset that wraps", StreamSegment { offset: u64::MAX - 2048, ..good }),
        ("before the beginning", StreamSegment { offset: 0_u64.wrapping_sub(4096), ..good }),
        ("no bytes, and some beyond the end", StreamSegment { offset: len, ..good }),
    ];
    for (what, segment) in cases {
        for kind in [StreamKind::Write, StreamKind::Read] {
            let mut client = Client::open(&scene.blob, "thief");
            // A good segment beside the bad one does not help.
            for segments in [vec![segment], vec![good, segment]] {
                let payload = if kind == StreamKind::Write { 4096 * segments.len() as u32 } else { 0 };
                client.streams[0].write_all(&request(kind, &segments, payload)).unwrap();
                client.streams[0].write_all(&vec![0; payload as usize]).unwrap();
                let (header, text) = client.answer().unwrap_or_else(|| panic!("{what}: no answer"));
                assert_eq!(header.kind, StreamKind::Fail, "{what}: {}", String::from_utf8_lossy(&text));
            }
        }
        scene.expect_unharmed(what);
    }
}

#[test]
fn frames_that_break_a_bound_end_the_link() {
    let scene = Scene::new();
    let good = segment(&scene.region);
    let plain = |kind, segments, payload| named(kind, segments, &[], payload);
    let announced = |segments, names| {
        let kind = StreamKind::Read;
        StreamHeader { kind, code: 0, segments, names, payload: 0, op: 1, attempt: 1, chunk: 1 }
            .encode()
            .to_vec()
    };
    let huge = StreamSegment { len: u32::MAX, ..good };
    // One segment in the form that `form` says, with `count` in the place of its number.
    let forged = |count: u16, form: u8, shift: u8, rest: &[u8]| {
        let mut names = request(StreamKind::Read, &[good], 0).split_off(STREAM_HEADER);
        names[24..26].copy_from_slice(&count.to_le_bytes());
        (names[26], names[27]) = (form, shift);
        names.extend_from_slice(rest);
        named(StreamKind::Read, 1, &names, 0)
    };
    let mut wrong_check = plain(StreamKind::Read, 1, 0);
    wrong_check[28] ^= 1;
    let mut no_kind = wrong_check.clone();
    no_kind[0] = 77;
    let whole = StreamSegment { len: MAX_STREAM_PAYLOAD, ..good };
    let two = request(StreamKind::Read, &[good, good], 0).split_off(STREAM_HEADER);
    let cases: [(&str, Vec<u8>); 24] = [
        ("a header that does not fit together", wrong_check),
        ("an unknown kind", no_kind),
        ("a write of nothing", plain(StreamKind::Write, 0, 0)),
        ("a write to nowhere", plain(StreamKind::Write, 0, 4096)),
        ("a read of nothing", plain(StreamKind::Read, 0, 0)),
        ("too many segments", plain(StreamKind::Read, MAX_STREAM_SEGMENTS + 1, 0)),
        ("the most segments there are", plain(StreamKind::Write, u16::MAX, 4096)),
        ("a payload that is too long", plain(StreamKind::Write, 1, MAX_STREAM_PAYLOAD + 1)),
        ("the longest payload there is", plain(StreamKind::Write, 1, u32::MAX)),
        ("data from the wrong side", plain(StreamKind::Data, 0, 4096)),
        ("an answer from the wrong side", plain(StreamKind::Ack, 0, 0)),
        ("a failure from the wrong side", plain(StreamKind::Fail, 0, 8)),
        ("a length of 4 GiB", request(StreamKind::Read, &[huge, good], 0)),
        ("names without end", announced(1, MAX_STREAM_NAMES + 1)),
        ("4 GiB of names", announced(1, u32::MAX)),
        ("names of nothing", announced(0, 32)),
        ("more names than segments", named(StreamKind::Read, 1, &two, 0)),
        ("more segments than names", named(StreamKind::Read, 3, &two, 0)),
        ("a group of nothing", forged(0, 0, 0, &[])),
        ("a group of 65,535", forged(u16::MAX, 0, 0, &[])),
        ("a run of 65,535", forged(1, 3, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])),
        ("an unknown form in units of 2^255", forged(1, 200, 255, &[])),
        ("less payload than segments", request(StreamKind::Write, &[good], 4095)),
        ("1 GiB in one read", request(StreamKind::Read, &[whole; MAX_STREAM_SEGMENTS as usize], 0)),
    ];
    for (what, bytes) in cases {
        let mut client = Client::open(&scene.blob, "breaker");
        client.streams[0].write_all(&bytes).unwrap();
        let _ = client.streams[0].write_all(&[0; 8192]);
        // The epoch dies as a whole, and with it the link.
        client.streams.iter().for_each(|stream| expect_closed(stream, what));
        expect_closed(&client.control, what);
    }
    scene.expect_unharmed("broken bounds");
}

#[test]
fn who_asks_without_end_and_hears_nothing_costs_little() {
    let scene = Scene::new();
    let good = segment(&scene.region);
    let refused = StreamSegment { key: RegionKey(good.key.0 ^ 1), ..good };
    let (wide, short) = (StreamSegment { len: MAX_STREAM_PAYLOAD, ..good }, 1 << 20);
    let floods = [
        ("refused reads", request(StreamKind::Read, &[refused], 0), short),
        ("reads of a MiB", request(StreamKind::Read, &[wide], 0), 4096),
        ("ends of what never began", request(StreamKind::Drop, &[], 0), short),
    ];
    for (what, frame, count) in floods {
        let mut client = Client::open(&scene.blob, "flood");
        let stream = &mut client.streams[0];
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let batch: Vec<u8> = frame.iter().copied().cycle().take(frame.len() * 1024).collect();
        let begun = Instant::now();
        for _ in 0..count / 1024 {
            if begun.elapsed() > Duration::from_secs(3) || stream.write_all(&batch).is_err() {
                break;
            }
        }
        let resident = scene.target.holdings().resident;
        assert!(
            resident <= scene.before.resident + SPARE,
            "{what}: {} MiB more are resident",
            resident.saturating_sub(scene.before.resident) >> 20
        );
        scene.expect_served();
        drop(client);
        scene.expect_unharmed(what);
    }
}

#[test]
fn many_slow_strangers_hinder_nobody() {
    let scene = Scene::new();
    let stream = stranger_stream(&scene);
    let mut sockets: Vec<Option<TcpStream>> = Vec::new();
    for turn in 0..20 {
        for (i, slot) in sockets.iter_mut().enumerate() {
            let byte = if i % 2 == 0 { 0 } else { stream[turn % STREAM_HELLO] };
            if slot.as_mut().is_some_and(|socket| socket.write_all(&[byte]).is_err()) {
                *slot = None;
            }
        }
        // Whoever is cut off comes again.
        sockets.retain(Option::is_some);
        sockets.extend((sockets.len()..200).map(|_| Some(dial(&scene.blob))));
        std::thread::sleep(Duration::from_millis(50));
        if turn % 5 == 4 {
            scene.expect_served();
        }
    }
    drop(sockets);
    scene.expect_unharmed("slow strangers");
}

#[test]
fn strangers_that_have_said_too_little_do_not_keep_it_busy() {
    let scene = Scene::new();
    let stream = stranger_stream(&scene);
    let beginnings: [&[u8]; 4] = [b"", b"x", &stream[..8], &stream[..STREAM_HELLO - 1]];
    for beginning in beginnings {
        let mut sockets: Vec<TcpStream> = (0..50).map(|_| dial(&scene.blob)).collect();
        sockets.iter_mut().for_each(|socket| socket.write_all(beginning).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        // Well before their time is over.
        let (cpu, begun) = (cpu_seconds(&scene.target), Instant::now());
        std::thread::sleep(Duration::from_millis(300));
        let share = (cpu_seconds(&scene.target) - cpu) / begun.elapsed().as_secs_f64();
        println!("50 strangers with {} bytes each: {share:.2} of a core", beginning.len());
        assert!(
            share < 0.2,
            "50 strangers with {} bytes each keep {share:.2} of a core busy",
            beginning.len()
        );
        drop(sockets);
    }
}

/// The hello of a stream that belongs to no link.
fn stranger_stream(scene: &Scene) -> [u8; STREAM_HELLO] {
    let hello = StreamHello { link: [9; 16], stream: 0, streams: STREAMS };
    hello.encode(Client::offered(&scene.blob, "stranger").key())
}

/// The processor time of a process so far.
fn cpu_seconds(worker: &Worker) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid())).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}

#[test]
fn memory_taken_back_from_one_who_stalls_stays_as_it_is() {
    let scene = Scene::new();
    let whole = StreamSegment { len: MAX_STREAM_PAYLOAD, ..segment(&scene.region) };
    let client = Client::open(&scene.blob, "stalling");
    let mut stream = &client.streams[0];
    stream.write_all(&request(StreamKind::Write, &[whole], MAX_STREAM_PAYLOAD)).unwrap();
    stream.write_all(&vec![0xaa; MAX_STREAM_PAYLOAD as usize / 2]).unwrap();
    let landed = || scene.target.scan(scene.pool.buffer, 1).poison < BYTES / 8;
    assert!(eventually(PATIENCE, landed), "half a frame does not land");
    scene.target.deregister(scene.pool.region).unwrap_or_else(|e| panic!("{e:?}"));
    scene.target.poison(scene.pool.buffer);
    stream.write_all(&vec![0xaa; MAX_STREAM_PAYLOAD as usize / 2]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    scene.expect_unharmed("memory that was taken back");
}

#[test]
fn memory_is_given_back_though_a_reader_stalls() {
    let scene = Scene::new();
    let whole = StreamSegment { len: MAX_STREAM_PAYLOAD, ..segment(&scene.region) };
    let mut client = Client::open(&scene.blob, "stalling");
    for _ in 0..64 {
        client.streams[0].write_all(&request(StreamKind::Read, &[whole], 0)).unwrap();
    }
    // It takes the first answer to come, and stops.
    let (header, _) = client.answer().expect("an answer");
    assert_eq!((header.kind, header.payload), (StreamKind::Data, MAX_STREAM_PAYLOAD));
    let begun = Instant::now();
    scene.target.deregister(scene.pool.region).unwrap_or_else(|e| panic!("{e:?}"));
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(500), "a stalling peer held memory for {took:?}");
    scene.expect_unharmed("a reader that stalls");
}

#[test]
fn random_bytes_on_a_stream_are_no_harm() {
    let scene = Scene::new();
    let mut chance = Chance::seeded();
    for round in 0..rounds(60) {
        let mut client = Client::open(&scene.blob, "fuzz");
        let mut bytes = Vec::new();
        for _ in 0..1 + chance.below(8) {
            match chance.below(3) {
                0 => (0..chance.below(200)).for_each(|_| bytes.push(chance.next_u64() as u8)),
                1 => bytes.extend(mangled(&scene.region, &mut chance, false)),
                _ => bytes.extend(mangled(&scene.region, &mut chance, true)),
            }
        }
        let stream = &mut client.streams[chance.below(2) as usize];
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let _ = stream.write_all(&bytes);
        if round % 10 == 9 {
            scene.expect_served();
        }
    }
    scene.expect_unharmed("random bytes");
}

/// A frame whose header is in order, or nearly; its segments name no memory that it has the key of.
fn mangled(region: &RemoteRegion, chance: &mut Chance, flip: bool) -> Vec<u8> {
    let kinds = [
        StreamKind::Write,
        StreamKind::Read,
        StreamKind::Data,
        StreamKind::Ack,
        StreamKind::Fail,
        StreamKind::Drop,
    ];
    let segments: Vec<StreamSegment> = (0..chance.below(4))
        .map(|_| StreamSegment {
            region: RegionId(chance.below(4)),
            key: RegionKey(!region.key.0),
            offset: chance.next_u64() >> chance.below(64),
            len: (chance.next_u64() as u32) >> chance.below(32),
        })
        .collect();
    let payload = (chance.next_u64() as u32) >> chance.below(32);
    let mut bytes = request(kinds[chance.below(6) as usize], &segments, payload);
    bytes.extend(std::iter::repeat_n(0xaa, payload.min(64 << 10) as usize));
    if flip {
        let at = chance.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << chance.below(8);
    }
    bytes
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode_into(&mut bytes).unwrap();
    bytes
}
