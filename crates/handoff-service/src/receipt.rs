//! The signature of a receipt: Ed25519 by the node's own key.

use ed25519_dalek::{Signature, VerifyingKey};
use handoff_protocol::TransferId;
use handoff_protocol::node::{Receipt, receipt_message};

use crate::error::ServiceError;

/// A node's key: 32 bytes as lower-case hexadecimal, and a point that a signature can be verified with.
pub(crate) fn public_key(text: &str) -> Result<[u8; 32], ServiceError> {
    let key = hexadecimal::<32>(text);
    let usable = |key: &[u8; 32]| VerifyingKey::from_bytes(key).is_ok_and(|key| !key.is_weak());
    key.filter(usable).ok_or_else(|| ServiceError::InvalidArgument {
        field: "public_key",
        why: "it is no Ed25519 key of 32 bytes in lower-case hexadecimal".to_owned(),
    })
}

/// Whether this node signed this receipt of this transfer.
pub(crate) fn is_signed(key: &[u8; 32], transfer: TransferId, receipt: &Receipt) -> bool {
    let (Ok(key), Some(signature)) = (VerifyingKey::from_bytes(key), hexadecimal::<64>(&receipt.signature))
    else {
        return false;
    };
    let message = receipt_message(transfer, receipt.generation, receipt.node_id, receipt.digest);
    key.verify_strict(&message, &Signature::from_bytes(&signature)).is_ok()
}

fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};
    use handoff_protocol::{Digest, NodeId};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn signed(key: &SigningKey, transfer: TransferId) -> Receipt {
        let (node_id, digest) = (NodeId::from_u128(2), Digest::of(b"snapshot"));
        let signature = key.sign(&receipt_message(transfer, 1, node_id, digest));
        Receipt {
            request_id: "r".parse().expect("an id"),
            node_id,
            generation: 1,
            digest,
            bytes_fetched: 0,
            bytes_total: 0,
            missing_references: Vec::new(),
            signature: hex(&signature.to_bytes()),
        }
    }

    #[test]
    fn only_the_nodes_own_signature_over_exactly_this_counts() {
        let (key, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let public = key.verifying_key().to_bytes();
        let transfer = TransferId::from_u128(1);
        let receipt = signed(&key, transfer);
        assert!(is_signed(&public, transfer, &receipt));
        assert!(!is_signed(&public, TransferId::from_u128(9), &receipt));
        assert!(!is_signed(&public, transfer, &Receipt { generation: 2, ..receipt.clone() }));
        assert!(!is_signed(&public, transfer, &Receipt { digest: Digest::of(b"other"), ..receipt.clone() }));
        assert!(!is_signed(&public, transfer, &signed(&other, transfer)));
        for signature in ["", "00", &receipt.signature.to_uppercase(), &"g".repeat(128)] {
            assert!(!is_signed(
                &public,
                transfer,
                &Receipt { signature: signature.to_owned(), ..receipt.clone() }
            ));
        }
    }

    #[test]
    fn a_key_is_a_point_that_can_verify() {
        let key = SigningKey::from_bytes(&[1; 32]).verifying_key();
        assert_eq!(public_key(&hex(key.as_bytes())).ok(), Some(key.to_bytes()));
        for bad in ["", &"0".repeat(64), &"f".repeat(62), &hex(key.as_bytes()).to_uppercase()] {
            assert!(public_key(bad).is_err(), "{bad}");
        }
    }
}
