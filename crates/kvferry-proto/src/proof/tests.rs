use super::*;
use crate::region::Incarnation;

fn identity(name: &str, tag: u8) -> Identity {
    Identity { name: name.to_owned(), incarnation: Incarnation([tag; 16]) }
}

fn prove(key: &ProofKey, role: Role, names: [&str; 2], tags: [u8; 4]) -> [u8; 32] {
    Transcript {
        initiator: &identity(names[0], tags[0]),
        target: &identity(names[1], tags[1]),
        initiator_nonce: &[tags[2]; 32],
        target_nonce: &[tags[3]; 32],
    }
    .prove(key, role)
}

#[test]
fn each_part_of_the_handshake_changes_the_proof() {
    let key = ProofKey::derive(&[1; 32], Some(b"token"));
    let names = ["prefill", "decode"];
    let mut proofs = vec![
        prove(&key, Role::Initiator, names, [1, 2, 3, 4]),
        prove(&key, Role::Target, names, [1, 2, 3, 4]),
        prove(&key, Role::Initiator, ["prefil", "ldecode"], [1, 2, 3, 4]),
    ];
    for changed in 0..4 {
        let mut tags = [1, 2, 3, 4];
        tags[changed] = 9;
        proofs.push(prove(&key, Role::Initiator, names, tags));
    }
    let count = proofs.len();
    proofs.sort_unstable();
    proofs.dedup();
    assert_eq!(proofs.len(), count);
}

#[test]
fn key_depends_on_secret_and_token() {
    let proof_of = |secret: u8, token: Option<&[u8]>| {
        let key = ProofKey::derive(&[secret; 32], token);
        prove(&key, Role::Target, ["a", "b"], [1, 2, 3, 4])
    };
    assert_ne!(proof_of(1, None), proof_of(2, None));
    assert_ne!(proof_of(1, None), proof_of(1, Some(b"t")));
    assert_ne!(proof_of(1, Some(b"t")), proof_of(1, Some(b"u")));
    assert_eq!(proof_of(1, None), proof_of(1, Some(b"")));
}

#[test]
fn only_the_exact_proof_of_the_right_role_verifies() {
    let key = ProofKey::derive(&[7; 32], None);
    let (initiator, target) = (identity("i", 1), identity("t", 2));
    let transcript = Transcript {
        initiator: &initiator,
        target: &target,
        initiator_nonce: &[3; 32],
        target_nonce: &[4; 32],
    };
    let proof = transcript.prove(&key, Role::Target);
    assert!(transcript.verify(&key, Role::Target, &proof));
    assert!(!transcript.verify(&key, Role::Initiator, &proof));
    assert!(!transcript.verify(&ProofKey::derive(&[8; 32], None), Role::Target, &proof));
    for bit in 0..256 {
        let mut flipped = proof;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!transcript.verify(&key, Role::Target, &flipped));
    }
}

#[test]
fn debug_of_a_key_shows_nothing() {
    let key = ProofKey::derive(&[7; 32], None);
    assert_eq!(format!("{key:?}"), "ProofKey(..)");
}
