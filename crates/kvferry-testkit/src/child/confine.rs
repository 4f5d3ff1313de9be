//! Giving up rights, before there is an agent.

use std::io;

use crate::harness::Confinement;

/// Lets the kernel kill this process when the thread that started it ends.
pub(super) fn die_with_parent() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Takes the process where it is asked to be. Only while it has one thread.
pub(super) fn confine(confinement: &Confinement) -> Result<(), String> {
    if confinement.pid_namespace {
        enter_pid_namespace().map_err(|e| format!("PID namespace: {e}"))?;
    }
    if let Some(user) = confinement.user {
        become_user(user).map_err(|e| format!("user {user}: {e}"))?;
    }
    if confinement.user_namespace {
        // SAFETY: changes what this process is, not its memory.
        check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }).map_err(|e| format!("user namespace: {e}"))?;
    }
    if confinement.seccomp {
        deny_cross_memory_attach().map_err(|e| format!("seccomp: {e}"))?;
    }
    if confinement.undumpable {
        kvferry_sys::set_dumpable(false).map_err(|e| format!("dumpable: {e}"))?;
    }
    Ok(())
}

/// Goes on as the first process of a new namespace; the present one stays behind and ends when that one does.
fn enter_pid_namespace() -> io::Result<()> {
    // SAFETY: the next child lives in the new namespace.
    check(unsafe { libc::unshare(libc::CLONE_NEWPID) })?;
    // SAFETY: this process has one thread, so the child's copy of memory is whole.
    let child = unsafe { libc::fork() };
    check(child)?;
    if child == 0 {
        die_with_parent();
        return Ok(());
    }
    let mut status = 0;
    loop {
        // SAFETY: our child; the kernel writes one integer.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited == child {
            break;
        }
        if waited < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 };
    // SAFETY: ends the process; what it shares with its child is the child's to close.
    unsafe { libc::_exit(code) }
}

fn become_user(user: u32) -> io::Result<()> {
    // SAFETY: no pointers but a null list of no groups; this process has one thread.
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(user, user, user))?;
        check(libc::setresuid(user, user, user))?;
    }
    // The change of user has taken both back.
    die_with_parent();
    kvferry_sys::set_dumpable(true)
}

/// A filter that answers EPERM to process_vm_readv and process_vm_writev.
fn deny_cross_memory_attach() -> io::Result<()> {
    let step = |code: u32, jump: (u8, u8), k: u32| libc::sock_filter {
        code: code as u16,
        jt: jump.0,
        jf: jump.1,
        k,
    };
    let load_number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0);
    let is = |number: libc::c_long, there| {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (there, 0), number as u32)
    };
    let answer = |value| step(libc::BPF_RET | libc::BPF_K, (0, 0), value);
    let mut steps = [
        load_number,
        is(libc::SYS_process_vm_readv, 2),
        is(libc::SYS_process_vm_writev, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program and its steps outlive the calls; the kernel copies them.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))?;
    }
    Ok(())
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
