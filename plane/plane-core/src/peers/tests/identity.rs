//! Identities against the vectors. Source: vectors/wire-identity.json.

use super::{
    super::{keypair_from_file_bytes, new_identity_bytes, parse_peer_id, peer_id_of},
    bytes,
};

/// Key file, peer ID, the same as CIDv1.
const VECTORS: [(&str, &str, &str); 3] = [
    (
        "0801124000000000000000000000000000000000000000000000000000000000000000003b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29",
        "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN",
        "bafzaajaiaejcao3ke66m5nvefvrkhkgqfjxq243fgikxohpciotdvqciugfvtwrj",
    ),
    (
        "08011240000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8",
        "12D3KooWA4Xop1JaT3MHxwYMkCepYsv4iPVopMXwCz5iHYdBfeSB",
        "bafzaajaiaejcaa5ba677htqqxyoxbxiy45f4bglh4tldbg5fbvpr3xegmqjfkmny",
    ),
    (
        "080112409d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "12D3KooWQK1wnefoLrcVHbbnf5tLzbopUd3K3bFAoJpA7YJgL5pV",
        "bafzaajaiaejcbv22taayfmikw7kux7wtzfsaooqo4fzphwvgems26aq2nd3qoui2",
    ),
];

#[test]
fn the_key_files_of_the_vectors_give_their_peer_ids() {
    for (file, peer_id, _) in VECTORS {
        assert_eq!(peer_id_of(&bytes(file)).unwrap(), peer_id);
        let keypair = keypair_from_file_bytes(&bytes(file)).unwrap();
        assert_eq!(keypair.to_protobuf_encoding().unwrap(), bytes(file));
    }
}

#[test]
fn a_peer_id_is_read_in_both_forms_and_written_in_one() {
    for (_, peer_id, cid) in VECTORS {
        assert_eq!(parse_peer_id(peer_id).unwrap(), peer_id);
        assert_eq!(parse_peer_id(cid).unwrap(), peer_id);
    }
}

#[test]
fn text_that_is_no_peer_id_is_refused() {
    let cid = VECTORS[0].2;
    let cut = &cid[..cid.len() - 1];
    let upper = cid.to_uppercase();
    let long = "1".repeat(4096);
    for text in [
        "",
        "b",
        "baf",
        "agent-1",
        "12D3KooW",
        cut,
        &upper,
        &long,
        "bafybeigdyrzt5sfp7udm7h",
    ] {
        assert!(parse_peer_id(text).is_err(), "{text:?} was accepted");
    }
}

#[test]
fn a_new_identity_is_a_whole_file_and_never_the_same() {
    let (one, other) = (new_identity_bytes(), new_identity_bytes());
    assert_eq!(one.len(), 68);
    assert_eq!(one[..4], [0x08, 0x01, 0x12, 0x40]);
    assert_ne!(one, other);
    assert!(peer_id_of(&one).unwrap().starts_with("12D3KooW"));
}

#[test]
fn a_corrupt_file_is_refused_without_showing_it() {
    let mut mismatched = bytes(VECTORS[1].0);
    mismatched[67] ^= 1;
    for file in [b"junk".to_vec(), Vec::new(), mismatched] {
        let text = peer_id_of(&file).unwrap_err().to_string();
        assert!(text.contains("is corrupt"), "{text}");
        assert!(!text.contains("junk"));
    }
}
