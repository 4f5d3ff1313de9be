//! Many regions, many threads, and what the log says.

use super::*;

#[test]
fn ten_thousand_regions_are_registered_in_one_pass() {
    // Every other page is a mapping of its own, as with pools that were allocated one by one.
    const REGIONS: u64 = 10_000;
    let pages = Pages::new(2 * REGIONS as usize);
    for index in 0..REGIONS {
        pages.protect(2 * index + 1, MprotectFlags::READ);
    }
    let batch: Vec<RegionDesc> = (0..REGIONS).map(|i| dram(pages.page(2 * i), page_size() as u64)).collect();
    // In time of this thread, and the best of a few: other tests have the cores, too.
    let best = (0..8).map(|_| {
        let registry = Registry::default();
        let start = thread_time();
        let ids = register(&registry, &batch).expect("good");
        let taken = thread_time() - start;
        assert_eq!(ids.len(), batch.len());
        taken
    });
    let best = best.min().expect("eight");
    println!("10,000 regions in 10,000 mappings: {best:?}");
    assert!(best < Duration::from_millis(50), "{best:?}");
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn eight_threads_register_and_deregister_at_once() {
    let registry = Registry::default();
    let pages = Pages::new(1);
    let desc = pages.desc();
    let ids = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let batch = register(&registry, &[desc; 3]).expect("good");
                    assert!(registry.range_map().find(MemoryKind::Dram, 0, desc.addr, desc.len).is_some());
                    registry.begin_deregister(&batch).expect("known");
                    registry.finish_deregister(&batch);
                    ids.lock().expect("no panic").extend(batch);
                }
            });
        }
    });
    assert_eq!(ids.into_inner().expect("no panic").len(), 8 * 50 * 3);
    assert!(registry.regions().is_empty());
    assert_eq!(registry.generation(), 8 * 50 * 2);
}

#[test]
fn the_log_names_each_region() {
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let lines = Lines::default();
    let writer = lines.clone();
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(layer);
    let pages = Pages::new(3);
    // With one subscriber, another thread that comes upon these lines first settles that nobody listens; with
    // two, all are asked.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || {
        register(&Registry::default(), &[pages.desc(), dram(pages.addr, 4096)]).expect("good");
    });
    let text = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
    let expected = format!(
        "DEBUG kvferry::register: region index=0 id=1 address={:#x} length={} kind=DRAM device=0 backing=private",
        pages.addr, pages.len
    );
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains("region index=1 id=2 "), "{text}");
    assert!(
        text.contains("INFO kvferry::register: registered 2 regions, 16 KiB kind=DRAM count=2 bytes=16384"),
        "{text}"
    );
}
