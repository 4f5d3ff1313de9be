use super::*;
use crate::cma::CmaError;
use crate::probe::{NonceWord, probe};
use crate::testing::{Peer, hear, role, tell};

/// A process as it is on an ordinary machine.
fn ordinary(pid: i32) -> Facts {
    Facts {
        pid,
        uid: 1000,
        euid: 1000,
        gid: 1000,
        pid_ns: 10,
        user_ns: 20,
        net_ns: 30,
        dumpable: true,
        seccomp: 0,
        no_new_privs: false,
        yama_scope: None,
        cap_sys_ptrace: false,
    }
}

fn explain(ours: &Facts, theirs: &Facts) -> DenialCause {
    explain_denial(Errno::PERM, ours, theirs, true, theirs.pid)
}

#[test]
fn each_cause_is_found() {
    let (ours, theirs) = (ordinary(1), ordinary(2));
    let with = |change: fn(&mut Facts)| {
        let mut facts = ordinary(2);
        change(&mut facts);
        facts
    };
    assert_eq!(explain(&ours, &theirs), DenialCause::Unknown(Errno::PERM));
    for scope in 1..=3 {
        let ours = Facts { yama_scope: Some(scope), ..ordinary(1) };
        assert_eq!(explain(&ours, &theirs), DenialCause::Yama { scope });
    }
    let yama_off = Facts { yama_scope: Some(0), ..ordinary(1) };
    assert_eq!(explain(&yama_off, &theirs), DenialCause::Unknown(Errno::PERM));
    assert_eq!(explain(&ours, &with(|facts| facts.user_ns = 21)), DenialCause::UserNamespace);
    assert_eq!(explain(&ours, &with(|facts| facts.dumpable = false)), DenialCause::NotDumpable);
    let other = with(|facts| (facts.uid, facts.euid) = (7, 7));
    assert_eq!(explain(&ours, &other), DenialCause::OtherUser { ours: 1000, theirs: 7 });
    let other = with(|facts| facts.gid = 7);
    assert_eq!(explain(&ours, &other), DenialCause::OtherUser { ours: 1000, theirs: 1000 });
    assert_eq!(explain_denial(Errno::PERM, &ours, &theirs, false, 2), DenialCause::Seccomp);
    assert_eq!(explain_denial(Errno::NOSYS, &ours, &theirs, true, 2), DenialCause::Seccomp);
    assert_eq!(explain_denial(Errno::SRCH, &ours, &theirs, true, 2), DenialCause::ProcessGone);
    assert_eq!(explain_denial(Errno::PERM, &ours, &theirs, true, 0), DenialCause::PidNamespace);
    let other = with(|facts| facts.pid_ns = 11);
    assert_eq!(explain_denial(Errno::SRCH, &ours, &other, true, 2), DenialCause::PidNamespace);
    let unknown = with(|facts| facts.user_ns = 0);
    assert_eq!(explain(&ours, &unknown), DenialCause::Unknown(Errno::PERM), "unknown is not different");
}

#[test]
fn a_capability_leaves_only_what_it_does_not_outweigh() {
    let able = Facts { cap_sys_ptrace: true, yama_scope: Some(2), ..ordinary(1) };
    let theirs = Facts { uid: 7, euid: 7, dumpable: false, ..ordinary(2) };
    assert_eq!(explain(&able, &theirs), DenialCause::Unknown(Errno::PERM));
    let able = Facts { yama_scope: Some(3), ..able };
    assert_eq!(explain(&able, &theirs), DenialCause::Yama { scope: 3 });
    let theirs = Facts { user_ns: 21, ..theirs };
    assert_eq!(explain(&able, &theirs), DenialCause::UserNamespace);
}

#[test]
fn every_cause_reads_as_a_sentence_and_has_a_remedy() {
    let causes = [
        DenialCause::Yama { scope: 1 },
        DenialCause::Yama { scope: 2 },
        DenialCause::Yama { scope: 3 },
        DenialCause::Seccomp,
        DenialCause::UserNamespace,
        DenialCause::PidNamespace,
        DenialCause::NotDumpable,
        DenialCause::OtherUser { ours: 1, theirs: 2 },
        DenialCause::OtherUser { ours: 1, theirs: 1 },
        DenialCause::ProcessGone,
        DenialCause::Unknown(Errno::PERM),
    ];
    for cause in causes {
        for text in [cause.to_string(), cause.remedy().to_owned()] {
            assert!(text.len() > 15 && !text.ends_with('.') && !text.contains("  "), "{text}");
        }
    }
    assert!(DenialCause::Yama { scope: 1 }.remedy().contains("KVFERRY_PTRACER"));
    assert_ne!(DenialCause::Yama { scope: 1 }.remedy(), DenialCause::Yama { scope: 2 }.remedy());
}

#[test]
fn telling_yama_works_where_there_is_none() {
    for ptracer in [Ptracer::Any, Ptracer::Process(Pid::own()), Ptracer::None] {
        set_ptracer(ptracer).unwrap();
    }
}

/// Unprivileged user ids of the two processes of a real case.
const USER: u32 = 60_123;
const OTHER_USER: u32 = 60_124;

/// Gives up root for good, and with it the right to reach every process.
fn become_user(user: u32) {
    // SAFETY: plain calls of the C library, which changes the ids of all threads.
    unsafe {
        assert_eq!(libc::setgroups(0, core::ptr::null()), 0);
        assert_eq!(libc::setresgid(USER, USER, USER), 0);
        assert_eq!(libc::setresuid(user, user, user), 0);
    }
    // Changing ids makes a process undumpable, as it should; the cases here say themselves what they are.
    crate::process::set_dumpable(true).unwrap();
}

/// A process that holds a word as `USER`, in the state that its role names, and one that tries to reach it.
fn play(role: &str) -> ! {
    let word = NonceWord::new(5);
    match role.split_once(' ') {
        None => {
            match role {
                "other-user" => become_user(OTHER_USER),
                "not-dumpable" => {
                    become_user(USER);
                    crate::process::set_dumpable(false).unwrap();
                }
                _ => become_user(USER),
            }
            let theirs = Facts::gather().unwrap();
            tell(format_args!("{} {} {}", word.addr(), theirs.dumpable, theirs.euid));
        }
        Some((pid, rest)) => {
            become_user(USER);
            let mut numbers = rest.split(' ');
            let addr = numbers.next().unwrap().parse().unwrap();
            let (ours, theirs) = (Facts::gather().unwrap(), Facts::gather().unwrap());
            let dumpable = numbers.next().unwrap().parse().unwrap();
            let euid = numbers.next().unwrap().parse().unwrap();
            let theirs = Facts { dumpable, uid: euid, euid, ..theirs };
            let pid: i32 = pid.parse().unwrap();
            match probe(Pid::new(pid).unwrap(), addr, 5, 6) {
                Ok(()) => tell("reached"),
                Err(CmaError::Denied(errno)) => {
                    let works = crate::self_cma_works();
                    tell(format_args!("{:?}", explain_denial(errno, &ours, &theirs, works, pid)));
                }
                Err(error) => tell(error),
            }
        }
    }
    hear();
    std::process::exit(0)
}

/// What one unprivileged process says of reaching another in the state `state`.
fn try_to_reach(test: &str, state: &str) -> Option<String> {
    if let Some(role) = role() {
        play(&role);
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become two other users");
        return None;
    }
    let test = format!("denial::tests::{test}");
    let mut peer = Peer::start(&test, state);
    let told = peer.hear();
    let mut ours = Peer::start(&test, &format!("{} {told}", peer.pid()));
    Some(ours.hear())
}

#[test]
fn an_ordinary_peer_of_the_same_user_is_reached() {
    let said = try_to_reach("an_ordinary_peer_of_the_same_user_is_reached", "plain");
    if let Some(said) = said {
        assert!(said == "reached" || said.starts_with("Yama"), "{said}");
    }
}

#[test]
fn a_peer_of_another_user_is_named() {
    if let Some(said) = try_to_reach("a_peer_of_another_user_is_named", "other-user") {
        assert_eq!(said, "OtherUser { ours: 60123, theirs: 60124 }");
    }
}

#[test]
fn a_peer_that_is_not_dumpable_is_named() {
    if let Some(said) = try_to_reach("a_peer_that_is_not_dumpable_is_named", "not-dumpable") {
        assert_eq!(said, "NotDumpable");
    }
}
