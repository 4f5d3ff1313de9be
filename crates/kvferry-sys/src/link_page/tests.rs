use rustix::fs;

use super::*;

fn pair() -> (LinkPage, LinkPage) {
    let ours = LinkPage::create().unwrap();
    let theirs = LinkPage::import(ours.fd().try_clone_to_owned().unwrap()).unwrap();
    (ours, theirs)
}

#[test]
fn both_sides_see_the_same_words_and_no_two_words_are_one() {
    let (ours, theirs) = pair();
    let mut value = 0;
    let mut next = || {
        value += 1;
        value
    };
    for side in [Side::Initiator, Side::Target] {
        ours.epoch(side).store(next(), Ordering::Relaxed);
        ours.liveness(side).store(next() as u32, Ordering::Relaxed);
        for word in ours.busy(side) {
            word.store(next(), Ordering::Relaxed);
        }
    }
    value = 0;
    let mut next = || {
        value += 1;
        value
    };
    for side in [Side::Initiator, Side::Target] {
        assert_eq!(theirs.epoch(side).load(Ordering::Relaxed), next());
        assert_eq!(u64::from(theirs.liveness(side).load(Ordering::Relaxed)), next());
        for word in theirs.busy(side) {
            assert_eq!(word.load(Ordering::Relaxed), next());
        }
    }
}

#[test]
fn a_new_page_is_at_rest() {
    let (_, page) = pair();
    for side in [Side::Initiator, Side::Target] {
        assert_eq!(page.epoch(side).load(Ordering::Relaxed), 0);
        assert_eq!(page.liveness(side).load(Ordering::Relaxed), 0);
        assert!(crate::is_quiet(page.busy(side), 1));
        assert_eq!(side.other().other(), side);
    }
}

#[test]
fn busy_words_share_no_cache_line() {
    let (page, _) = pair();
    let at = |index: usize| page.busy(Side::Target)[index].as_ptr() as usize;
    assert!(at(0).is_multiple_of(64));
    assert_eq!(at(1) - at(0), 64);
    assert_eq!(size_of_val(page.busy(Side::Target)), COPIERS * 64);
}

#[test]
fn list_nodes_lie_a_page_before_their_words_and_not_in_the_shared_part() {
    let (page, theirs) = pair();
    for side in [Side::Initiator, Side::Target] {
        let node = page.robust_node(side).as_ptr();
        assert_eq!(node as usize + page_size(), page.liveness(side).as_ptr() as usize);
        // SAFETY: inside the private page; nothing else uses it here.
        unsafe { node.cast::<u64>().write(u64::MAX) };
    }
    let mut shared = vec![0; FILE_LEN];
    rustix::io::pread(theirs.fd(), &mut shared, 0).unwrap();
    assert!(shared[64..].iter().all(|&byte| byte == 0), "what is written to a node reaches no peer");
}

#[test]
fn other_files_are_refused() {
    let memory = |len: u64| SharedMemory::create("test", len).unwrap();
    let refused = LinkPage::import(memory(FILE_LEN as u64).into_fd());
    assert!(matches!(refused, Err(LinkPageError::NotLinkPage)));
    let refused = LinkPage::import(memory(4096).into_fd());
    assert!(matches!(refused, Err(LinkPageError::Memory(ImportError::WrongSize { actual: 4096, .. }))));
    let unsealed = fs::memfd_create("test", fs::MemfdFlags::CLOEXEC).unwrap();
    assert!(matches!(LinkPage::import(unsealed), Err(LinkPageError::Memory(ImportError::NotSealed))));

    let (page, _) = pair();
    page.layout().header.version.store(9, Ordering::Relaxed);
    let refused = LinkPage::import(page.fd().try_clone_to_owned().unwrap());
    assert!(matches!(refused, Err(LinkPageError::Version { actual: 9 })));
}

#[test]
fn a_page_full_of_noise_is_only_noise() {
    let (page, theirs) = pair();
    let noise: Vec<u8> = (0..FILE_LEN).map(|index| (index * 151 + 7) as u8 | 1).collect();
    rustix::io::pwrite(theirs.fd(), &noise, 0).unwrap();
    for side in [Side::Initiator, Side::Target] {
        let epoch = crate::revoke(page.epoch(side));
        let _ = crate::is_quiet(page.busy(side), epoch);
        drop(crate::enter(page.epoch(side), &page.busy(side)[0], epoch));
        assert_eq!(page.busy(side)[0].load(Ordering::Relaxed), 0);
        let _ = crate::Liveness::of(page.liveness(side).load(Ordering::Relaxed));
    }
    let refused = LinkPage::import(theirs.fd().try_clone_to_owned().unwrap());
    assert!(matches!(refused, Err(LinkPageError::NotLinkPage)));
}
