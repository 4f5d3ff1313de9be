//! What an agent tells of itself, and what others make of it.

use std::time::Duration;

use kvferry::{
    Agent, Blocks, Code, Event, LostCause, MemoryKind, MetadataError, Op, RegionId, Settings, Status, Token,
    TransferOptions,
};
use kvferry_proto::{Blob, Endpoint, MAX_BLOB, Reach, RemoteRegion};
use kvferry_testkit::hook::{Pause, Point, unpaused};
use kvferry_testkit::{
    MemoryClass, Pair, Pattern, Pool, PrivateMemory, Rng, Side, agent, agent_with, eventually, run,
    unique_name,
};

const SOON: Duration = Duration::from_secs(10);

/// Another life of an agent: the same name.
fn reborn(name: &str) -> Agent {
    Agent::builder(name).settings(Settings::default()).build().expect("an agent")
}

#[track_caller]
fn refused(agent: &Agent, metadata: &[u8], code: &str) -> MetadataError {
    let error = agent.load_remote(metadata).expect_err("metadata that is not taken");
    assert_eq!(error.code(), code, "{error}");
    assert_eq!(error.remedy(), Code::find(code).expect("a code of the catalogue").remedy);
    assert!(error.to_string().contains(code), "{error}");
    error
}

fn covers(agent: &Agent, peer: &str, pool: &Pool) -> bool {
    let block = [pool.block(0, pool.len())];
    agent.check_remote(peer, Some((MemoryKind::Dram, Blocks::Flat(&block))))
}

/// Takes events until one fits.
#[track_caller]
fn await_event(events: &kvferry::CompletionQueue, fits: impl Fn(&Event) -> bool) -> Event {
    let deadline = std::time::Instant::now() + SOON;
    let mut seen = Vec::new();
    while let Some(event) = events.wait(deadline.saturating_duration_since(std::time::Instant::now())) {
        if fits(&event) {
            return event;
        }
        seen.push(event);
    }
    panic!("the event did not come; these did: {seen:?}");
}

#[test]
fn metadata_loads_and_names_its_agent() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 1 << 16);
    let (left, right) = (&pair.left.agent, &pair.right.agent);
    assert!(covers(left, right.name(), &pair.right.pool));
    assert!(!covers(left, right.name(), &pair.left.pool));
    assert!(!left.check_remote("nobody", None));
    // The same again changes nothing.
    assert_eq!(left.load_remote(&right.metadata()).expect("the same"), right.name());
    run(&pair.left.one_block(Op::Write, &pair.right, 0, 100, TransferOptions::default()));
}

#[test]
fn an_agents_own_metadata_is_refused_and_so_is_its_name() {
    let _unpaused = unpaused();
    let agent = agent("own");
    let error = refused(&agent, &agent.metadata(), "metadata.self");
    assert!(matches!(error, MetadataError::Own));
    let other = reborn(agent.name());
    refused(&agent, &other.metadata(), "metadata.stale");
}

#[test]
fn bytes_that_are_no_metadata_are_refused_whole() {
    let _unpaused = unpaused();
    let left = agent("left");
    let right = Side::new(agent("right"), MemoryClass::Private, 1 << 16);
    let good = right.agent.metadata();
    refused(&left, b"", "metadata.malformed");
    refused(&left, b"nixlSerDes|not ours", "metadata.malformed");
    refused(&left, &vec![0; 1000], "metadata.malformed");
    refused(&left, &vec![b'K'; MAX_BLOB + 1], "metadata.too_large");
    for end in 0..good.len() {
        let error = left.load_remote(&good[..end]).expect_err("a part of it");
        assert!(["metadata.malformed", "metadata.checksum"].contains(&error.code()), "{end}: {error}");
    }
    let mut longer = good.clone();
    longer.push(0);
    refused(&left, &longer, "metadata.malformed");
    let mut other_version = good.clone();
    other_version[8] ^= 2;
    refused(&left, &other_version, "metadata.version");
    let mut damaged = good.clone();
    *damaged.last_mut().expect("a byte") ^= 1;
    refused(&left, &damaged, "metadata.checksum");
    assert!(!left.check_remote(right.name(), None), "nothing of all that was taken");
    left.meet(&good, &right);
}

trait Meet {
    fn meet(&self, metadata: &[u8], side: &Side);
}

impl Meet for Agent {
    /// Loads metadata and moves something to show that it is good.
    fn meet(&self, metadata: &[u8], side: &Side) {
        assert_eq!(self.load_remote(metadata).expect("good metadata"), side.name());
        assert!(covers(self, side.name(), &side.pool));
        let own = Side::new(self.clone(), MemoryClass::Private, 4096);
        run(&own.one_block(Op::Read, side, 0, 4096, TransferOptions::default()));
    }
}

#[test]
fn ten_thousand_mutations_do_no_harm() {
    let _unpaused = unpaused();
    let left = agent("left");
    let right = Side::new(agent("right"), MemoryClass::Private, 1 << 16);
    let good = right.agent.metadata();
    let mut rng = Rng::new(50);
    for _ in 0..10_000 {
        let mut bytes = good.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(5) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.bits() as u8,
                2 => bytes.truncate(at.max(1)),
                3 => bytes.insert(at, rng.bits() as u8),
                _ => drop(bytes.splice(at..at, rng.bits().to_le_bytes())),
            }
        }
        if bytes != good {
            let error = left.load_remote(&bytes).expect_err("the checksum covers every byte");
            assert!(error.code().starts_with("metadata."), "{error}");
        }
    }
    left.meet(&good, &right);
}

/// Well-formed metadata with strange content: what a hostile peer could send.
#[test]
fn strange_but_well_formed_metadata_does_no_harm() {
    let _unpaused = unpaused();
    let left = agent("left");
    let right = Side::new(agent("right"), MemoryClass::Private, 1 << 16);
    let good = right.agent.metadata();
    let template = Blob::decode(&good).expect("good metadata");
    let mut rng = Rng::new(51);
    for n in 0..1000 {
        let mut blob = template.clone();
        blob.identity.name = unique_name("stranger");
        blob.identity.incarnation.0[0] = n as u8;
        blob.generation = rng.bits();
        blob.endpoints = vec![
            Endpoint::AbstractUnix(rng.bits().to_le_bytes().into()),
            Endpoint::PathUnix(b"/nowhere/at/all".into()),
            Endpoint::AbstractUnix(vec![0]),
        ];
        blob.regions = (0..rng.below(20))
            .map(|id| {
                let mut region: RemoteRegion = template.regions[0].clone();
                region.id = RegionId(id);
                region.desc.addr = rng.bits();
                region.desc.len = rng.bits() >> rng.below(64);
                region.reach = vec![
                    Reach::Map { memfd: rng.bits(), offset: rng.bits() },
                    Reach::Other { mechanism: 77, key: vec![1; rng.below(100) as usize].into() },
                ];
                region
            })
            .filter(|region| region.desc.check().is_ok())
            .collect();
        let Ok(bytes) = blob.encode() else { continue };
        let name = left.load_remote(&bytes).expect("well-formed metadata");
        for region in &blob.regions {
            let block = [kvferry::Block { addr: region.desc.addr, len: region.desc.len, device: 0 }];
            assert!(left.check_remote(&name, Some((MemoryKind::Dram, Blocks::Flat(&block)))));
        }
        let error = left.connect(&name, SOON).expect_err("nobody is there");
        assert_eq!(error.code(), "connect.unreachable", "{error}");
        left.remove_remote(&name).expect("a known name");
    }
    left.meet(&good, &right);
}

#[test]
fn a_newer_full_blob_replaces_and_an_older_one_changes_nothing() {
    let _unpaused = unpaused();
    let left = agent("left");
    let right = Side::new(agent("right"), MemoryClass::Private, 1 << 16);
    let first = right.agent.metadata();
    let second = Side::new(right.agent.clone(), MemoryClass::Private, 1 << 16);
    let both = right.agent.metadata();
    left.load_remote(&both).expect("metadata");
    assert!(covers(&left, right.name(), &right.pool) && covers(&left, right.name(), &second.pool));
    // Handed out with an object each, loaded in whatever order those are wanted.
    assert_eq!(left.load_remote(&first).expect("older metadata"), right.name());
    assert!(covers(&left, right.name(), &right.pool) && covers(&left, right.name(), &second.pool));
    let gone = [right.pool.block(0, right.pool.len())];
    right.pool.deregister().expect("nobody uses it");
    left.load_remote(&right.agent.metadata()).expect("newer metadata");
    for old in [&both, &first, &both] {
        assert!(covers(&left, second.name(), &second.pool), "what lives stays known");
        let back = left.check_remote(second.name(), Some((MemoryKind::Dram, Blocks::Flat(&gone))));
        assert!(!back, "what was taken back stays gone");
        left.load_remote(old).expect("older metadata");
    }
    assert!(covers(&left, second.name(), &second.pool));
    assert!(!left.check_remote(second.name(), Some((MemoryKind::Dram, Blocks::Flat(&gone)))));
}

#[test]
fn partial_blobs_add_up_and_a_full_one_replaces_them() {
    let _unpaused = unpaused();
    let left = agent("left");
    let first = Side::new(agent("right"), MemoryClass::Private, 1 << 16);
    let second = Side::new(first.agent.clone(), MemoryClass::Private, 1 << 16);
    let third = Side::new(first.agent.clone(), MemoryClass::Private, 1 << 16);
    let (right, name) = (&first.agent, first.name());
    let part = |side: &Side, connection| right.partial_metadata(side.pool.ids(), connection).expect("a part");

    // Without connection information there is nowhere to connect to.
    assert_eq!(left.load_remote(&part(&first, false)).expect("a part"), name);
    assert!(covers(&left, name, &first.pool) && !covers(&left, name, &second.pool));
    let error = left.connect(name, SOON).expect_err("nowhere to connect to");
    assert_eq!(error.code(), "connect.unreachable");
    assert!(error.to_string().contains("partial"), "{error}");
    // Connection information alone is a part as well.
    left.load_remote(&right.partial_metadata(&[], true).expect("a part")).expect("a part");
    left.connect(name, SOON).expect("now there is");
    left.load_remote(&part(&second, true)).expect("a part");
    assert!(covers(&left, name, &first.pool) && covers(&left, name, &second.pool));
    let own = Side::new(left.clone(), MemoryClass::Private, 4096);
    for side in [&first, &second] {
        run(&own.one_block(Op::Write, side, 0, 4096, TransferOptions::default()));
    }
    left.load_remote(&right.metadata()).expect("all of it");
    assert!([&first, &second, &third].iter().all(|side| covers(&left, name, &side.pool)));

    let unknown = RegionId(u64::MAX);
    let error = right.partial_metadata(&[first.pool.ids()[0], unknown], true).expect_err("no such region");
    assert_eq!(error.code(), "metadata.unknown_region");
}

#[test]
fn a_region_deregistered_before_its_metadata_is_loaded_stays_out() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 1 << 16);
    let (left, right) = (&pair.left.agent, &pair.right.agent);
    left.connect(right.name(), SOON).expect("a link");
    let second = Side::new(right.clone(), MemoryClass::Private, 1 << 16);
    let (full, part) = (right.metadata(), right.partial_metadata(second.pool.ids(), true).expect("a part"));
    let gone = second.pool.deregister().expect("nobody uses it");
    gone.fill(Pattern::POISON);
    // The peer hears of it in order with this.
    right.connect(left.name(), SOON).expect("a link");
    run(&pair.left.one_block(Op::Write, &pair.right, 0, 4096, TransferOptions::default().notify("after")));
    for metadata in [part, full] {
        left.load_remote(&metadata).expect("metadata from before");
        eventually("the region stays out", || !covers(left, right.name(), &gone));
        let block = [gone.block(0, 4096)];
        let error =
            left.prepare_remote(right.name(), MemoryKind::Dram, &block[..]).expect_err("no such region");
        assert_eq!(error.code(), "prepare.bounds", "{error}");
    }
    gone.verify(Pattern::POISON);
}

#[test]
fn another_life_that_is_out_of_reach_does_not_replace_one_that_is_alive() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 1 << 16);
    let (left, right) = (&pair.left.agent, &pair.right.agent);
    left.connect(right.name(), SOON).expect("a link");
    let other = reborn(right.name());
    let metadata = other.metadata();
    drop(other);
    let error = refused(left, &metadata, "metadata.stale");
    assert!(error.to_string().contains("is alive"), "{error}");
    run(&pair.left.one_block(Op::Write, &pair.right, 0, 4096, TransferOptions::default()));
    assert!(covers(left, right.name(), &pair.right.pool));
}

#[test]
fn another_life_within_reach_replaces_the_old_one_and_ends_its_transfers() {
    let pause = Pause::at(Point::BeforeCopy);
    let pair = Pair::new(MemoryClass::Private, 1 << 20);
    let (left, name) = (&pair.left.agent, pair.right.name().to_owned());
    let events = left.events().expect("a queue");
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, 1 << 20, TransferOptions::default());
    transfer.post().expect("a post");
    pause.await_arrivals(1);

    let new = Side::new(reborn(&name), MemoryClass::Private, 1 << 20);
    assert_eq!(left.load_remote(&new.agent.metadata()).expect("another life"), name);
    let Ok(Status::Failed(fault)) = transfer.wait(SOON) else { panic!("{:?}", transfer.status()) };
    assert_eq!(fault.code(), "peer.restarted");
    assert!(fault.to_string().contains("peer restarted"), "{fault}");
    let incarnation = new.agent.incarnation();
    await_event(
        &events,
        |event| matches!(event, Event::PeerRestarted { peer, incarnation: new } if (peer, new) == (&name, &incarnation)),
    );
    pause.open();
    assert_eq!(left.stats().peers_restarted, 1);
    let error = transfer.post().expect_err("the peer of this transfer is no more");
    assert_eq!(error.code(), "peer.restarted");
    run(&pair.left.one_block(Op::Write, &new, 0, 1 << 20, TransferOptions::default()));
    // The old life, although it lives, is refused from now on.
    refused(left, &pair.right.agent.metadata(), "metadata.stale");
}

#[test]
fn another_life_replaces_one_that_was_never_reached() {
    let _unpaused = unpaused();
    let left = Side::new(agent("left"), MemoryClass::Private, 4096);
    let events = left.agent.events().expect("a queue");
    let name = unique_name("right");
    let old = Side::new(reborn(&name), MemoryClass::Private, 4096);
    let metadata = old.agent.metadata();
    drop(old);
    left.agent.load_remote(&metadata).expect("metadata of somebody who is gone");
    left.agent.connect(&name, SOON).expect_err("nobody answers");
    let new = Side::new(reborn(&name), MemoryClass::Private, 4096);
    left.meet(&new);
    let restarted = await_event(&events, |event| matches!(event, Event::PeerRestarted { .. }));
    let Event::PeerRestarted { peer, incarnation } = restarted else { unreachable!() };
    assert_eq!((peer, incarnation), (name, new.agent.incarnation()));
    run(&left.one_block(Op::Write, &new, 0, 4096, TransferOptions::default()));
    refused(&left.agent, &metadata, "metadata.stale");
    let stats = left.agent.stats();
    assert_eq!((stats.peers_up, stats.peers_lost, stats.peers_restarted), (1, 0, 1));
}

#[test]
fn a_peer_that_closed_is_forgotten_and_welcome_again_as_another() {
    let _unpaused = unpaused();
    let Pair { left, right } = Pair::new(MemoryClass::Private, 1 << 16);
    let name = right.name().to_owned();
    let events = left.agent.events().expect("a queue");
    let transfer = left.one_block(Op::Write, &right, 0, 4096, TransferOptions::default());
    run(&transfer);
    let (old, old_metadata) = (right.agent.incarnation(), right.agent.metadata());
    let Side { agent, pool } = right;
    pool.deregister().expect("nobody uses it");
    drop(agent);
    let lost = await_event(&events, |event| matches!(event, Event::PeerLost { .. }));
    let Event::PeerLost { peer, incarnation, cause } = lost else { unreachable!() };
    assert_eq!((&peer, incarnation, cause), (&name, old, LostCause::Closed));
    assert!(!left.agent.check_remote(&name, None));
    let error = transfer.post().expect_err("nobody is there");
    assert_eq!(error.code(), "peer.lost");
    assert_eq!(left.agent.stats().peers_lost, 1);
    refused(&left.agent, &old_metadata, "metadata.stale");

    let new = Side::new(reborn(&name), MemoryClass::Private, 1 << 16);
    left.meet(&new);
    run(&left.one_block(Op::Write, &new, 0, 4096, TransferOptions::default()));
    let up = await_event(&events, |event| matches!(event, Event::PeerUp { .. }));
    let Event::PeerUp { peer, incarnation } = up else { unreachable!() };
    assert_eq!((peer, incarnation), (name, new.agent.incarnation()));
}

#[test]
fn the_last_sixteen_lives_are_remembered_as_dead() {
    let _unpaused = unpaused();
    let left = agent("left");
    let name = unique_name("phoenix");
    let mut lives = Vec::new();
    for _ in 0..17 {
        let life = reborn(&name);
        let metadata = life.metadata();
        left.load_remote(&metadata).expect("another life");
        left.connect(&name, SOON).expect("a link");
        drop(life);
        eventually("it is forgotten", || !left.check_remote(&name, None));
        lives.push(metadata);
    }
    for metadata in &lives[1..] {
        refused(&left, metadata, "metadata.stale");
    }
}

#[test]
fn a_removed_peer_can_be_loaded_again() {
    let _unpaused = unpaused();
    let pair = Pair::new(MemoryClass::Private, 1 << 16);
    let (left, right) = (&pair.left.agent, &pair.right.agent);
    let transfer = pair.left.one_block(Op::Write, &pair.right, 0, 4096, TransferOptions::default());
    run(&transfer);
    left.remove_remote(right.name()).expect("a known peer");
    let error = left.remove_remote(right.name()).expect_err("nobody of that name");
    assert_eq!((error.code(), error.remedy().is_empty()), ("peer.unknown", false));
    assert!(!left.check_remote(right.name(), None));
    assert_eq!(transfer.post().expect_err("the peer is removed").code(), "peer.lost");
    for error in [
        left.notify(right.name(), b"hello").expect_err("unknown").code(),
        left.connect(right.name(), SOON).expect_err("unknown").code(),
        left.path(right.name()).expect_err("unknown").code(),
        left.prepare_remote(right.name(), MemoryKind::Dram, &[pair.right.pool.block(0, 1)][..])
            .expect_err("unknown")
            .code(),
    ] {
        assert_eq!(error, "peer.unknown");
    }
    assert_eq!(left.disconnect("nobody").expect_err("unknown").code(), "peer.unknown");
    pair.meet();
    run(&pair.left.one_block(Op::Write, &pair.right, 0, 4096, TransferOptions::default()));
}

#[test]
fn a_peer_that_is_not_there_is_loaded_and_cannot_be_reached() {
    let _unpaused = unpaused();
    let left = Side::new(agent("left"), MemoryClass::Private, 4096);
    let gone = Side::new(agent("gone"), MemoryClass::Private, 4096);
    let (name, metadata, block) = (gone.name().to_owned(), gone.agent.metadata(), gone.pool.block(0, 4096));
    drop(gone);
    left.agent.load_remote(&metadata).expect("good metadata");
    let error = left.agent.connect(&name, SOON).expect_err("nobody answers");
    assert_eq!(error.code(), "connect.unreachable");
    assert!(error.to_string().contains(&name) && error.to_string().contains("kvferry-"), "{error}");
    let kind = MemoryKind::Dram;
    let (local, remote) = ([left.pool.block(0, 4096)], [block]);
    let transfer = left.agent.transfer_flat(
        Op::Write,
        (kind, &local),
        &name,
        (kind, &remote),
        TransferOptions::default(),
    );
    assert_eq!(transfer.expect_err("nobody answers").code(), "connect.unreachable");
    assert_eq!(left.agent.notify(&name, b"hello").expect_err("nobody answers").code(), "connect.unreachable");
    let reports = left.agent.path(&name).expect("a known peer");
    assert!(reports.iter().all(|report| report.route.is_none() && !report.why_not.is_empty()), "{reports:?}");
}

#[test]
fn both_sides_need_the_same_token() {
    let _unpaused = unpaused();
    let with = |stem, token: Option<&str>| {
        let token = token.map(Token::new);
        agent_with(stem, Settings { token, ..Settings::default() })
    };
    for (ours, theirs, text) in [
        (Some("one"), Some("two"), "different values"),
        (Some("one"), None, "set here and not there"),
        (None, Some("two"), "set there and not here"),
    ] {
        let (left, right) = (with("left", ours), with("right", theirs));
        left.load_remote(&right.metadata()).expect("metadata");
        let error = left.connect(right.name(), SOON).expect_err("another capability");
        assert_eq!(error.code(), "connect.unauthorized", "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let (left, right) = (with("left", Some("one")), with("right", Some("one")));
    left.load_remote(&right.metadata()).expect("metadata");
    left.connect(right.name(), SOON).expect("one capability");

    // Somebody who knows where an agent listens, but not its secret.
    let right = agent("right");
    let mut blob = Blob::decode(&right.metadata()).expect("metadata");
    blob.capability.as_mut().expect("a capability").secret.0[0] ^= 1;
    let left = agent("left");
    left.load_remote(&blob.encode().expect("metadata")).expect("metadata");
    assert_eq!(left.connect(right.name(), SOON).expect_err("a guess").code(), "connect.unauthorized");
}

#[test]
fn metadata_of_an_agent_without_regions_is_enough_to_notify() {
    let _unpaused = unpaused();
    let (left, right) = (agent("left"), agent("right"));
    left.load_remote(&right.metadata()).expect("metadata");
    left.notify(right.name(), b"hello").expect("room");
    eventually("the notification", || right.notifications().iter().any(|note| note.payload == b"hello"));
    let memory = PrivateMemory::new(4096);
    let block = [kvferry::Block { addr: memory.addr(), len: 1, device: 0 }];
    let error = left.prepare_remote(right.name(), MemoryKind::Dram, &block[..]).expect_err("no region");
    assert_eq!(error.code(), "prepare.bounds");
    assert!(error.to_string().contains("there is none of DRAM device 0"), "{error}");
}
