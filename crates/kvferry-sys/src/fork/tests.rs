use super::*;

/// What a child forked right here sees; the child makes no call but to end.
fn seen_by_a_child(guard: &ForkGuard) -> bool {
    // SAFETY: the child only looks at the guard and ends.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(guard.forked())),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert!(libc::WIFEXITED(status));
                libc::WEXITSTATUS(status) == 1
            }
        }
    }
}

#[test]
fn a_child_is_told_and_the_parent_is_not() {
    let guard = ForkGuard::new().unwrap();
    assert!(!guard.forked());
    assert!(seen_by_a_child(&guard));
    assert!(!guard.forked());
}

#[test]
fn a_child_is_told_without_the_kernels_help() {
    let guard = ForkGuard { page: None, creator: getpid() };
    assert!(!guard.forked());
    assert!(seen_by_a_child(&guard));
}
