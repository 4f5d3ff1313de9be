use super::*;

fn is_blocked(signal: libc::c_int) -> bool {
    let mut set = MaybeUninit::uninit();
    // SAFETY: only asks; the set is written if the call succeeds.
    unsafe {
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), set.as_mut_ptr()), 0);
        libc::sigismember(set.as_ptr(), signal) == 1
    }
}

#[test]
fn it_takes_no_signal_but_its_own_faults() {
    let thread = spawn_quiet("kvferry-test", || {
        assert_eq!(std::thread::current().name(), Some("kvferry-test"));
        [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGSEGV, libc::SIGBUS]
            .map(is_blocked)
    });
    assert_eq!(thread.unwrap().join().unwrap(), [true, true, true, true, false, false]);
}

#[test]
fn the_spawning_thread_keeps_its_mask() {
    spawn_quiet("kvferry-test", || ()).unwrap().join().unwrap();
    assert!(!is_blocked(libc::SIGUSR1));
}

#[test]
fn a_name_with_a_nul_is_an_error_and_no_panic() {
    let error = spawn_quiet("a\0b", || ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
