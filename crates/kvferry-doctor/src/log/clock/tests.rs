use super::*;

#[test]
fn the_times_of_all_loggers_are_read() {
    let local = Clock::read(b"2026-08-21 10:11:12 NIXL INFO    _api.py:361 up").local;
    assert_eq!(local, Some((212 + 21) * DAY + 36_672));
    for line in [
        &b"[2026-08-21 10:11:12 TP0] up"[..],
        b"[2026-08-21 10:11:12] up",
        b"(Worker_TP0 pid=4121) ERROR 08-21 10:11:12 [core.py:1] up",
        b"I0821 10:11:12.652441   31369 nixl_agent.cpp:1000] up",
        b"I20260821 10:11:12.652441   31369 a.cpp:1] up",
        b"Aug 21 10:11:12 host kernel: up",
        b"2026/08/21 10:11:12 main.go:61: up",
        b"2026-08-21T10:11:12.123 up",
    ] {
        assert_eq!(Clock::read(line), Clock { local, utc: None }, "{}", String::from_utf8_lossy(line));
    }
    for line in [
        &b"2026-08-21T10:11:12.788089Z  INFO up"[..],
        b"2026-08-21T18:11:12.788089+08:00 INFO up",
        b"2026-08-21 10:11:12 UTC up",
        b"[1787307072.678901] [gpu-a:4711 :0] ib_md.c:291  UCX  ERROR up",
    ] {
        assert_eq!(Clock::read(line), Clock { local: None, utc: local }, "{}", String::from_utf8_lossy(line));
    }
    let both = Clock::read(b"2026-08-21T08:11:12Z stderr F [2026-08-21 10:11:12 TP0] up");
    assert_eq!((both.local, both.utc.map(|utc| utc + 7200)), (local, local));
}

#[test]
fn what_is_no_time_is_none() {
    for line in [
        &b""[..],
        b"up",
        b"10:11:12 up",
        b"x-99 10:11:12",
        b"fe80:11:12:13",
        b"2026-13-21 10:11:12",
        b"T10:11:12",
    ] {
        assert_eq!(Clock::read(line), Clock::default(), "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn times_of_unknown_zone_compare_with_their_like_only() {
    let [early, late] =
        [b"[2026-08-21 10:11:12] a", b"[2026-08-21 10:11:13] a"].map(|line| Clock::read(line));
    let utc = Clock::read(b"2026-08-21T10:11:13Z a");
    assert_eq!(early.compare(late), Some(Ordering::Less));
    assert_eq!(early.compare(utc), None);
    assert_eq!(early.min(late), early);
    assert_eq!(early.max(late).max(utc), Clock { utc: utc.utc, ..late });
}
