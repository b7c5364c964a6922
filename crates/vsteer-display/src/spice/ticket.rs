//! Makes the ticket for a SPICE server without a password. The server requires a ticket anyway: an empty one,
//! encrypted with the key that it sent for this connection (RSA of 1024 bits, OAEP with SHA-1). It refuses a
//! ticket that it cannot decrypt (libspice-server 0.15.1).
//!
//! The ticket protects no secret, because it is empty and the server belongs to this program. So the
//! padding's seed is zeros instead of random bytes, and nothing here runs in constant time. Never send a
//! password with this code.
//!
//! Source: RFC 8017, 7.1.1 and B.2.1. The key is a SubjectPublicKeyInfo (RFC 5280, 4.1), which always has the
//! same length for this size and an exponent of 65537. Left out: passwords, SASL.

use super::bad;
use num_bigint::BigUint;
use sha1_smol::Sha1;
use vsteer_core::Fault;

/// The length of the received key, bytes; and its parts before the modulus and after it (the exponent).
pub const KEY: usize = 162;
pub(super) const BEFORE: &[u8] = &[
    0x30, 0x81, 0x9f, 0x30, 0x0d, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0, 3, 0x81, 0x8d, 0,
    0x30, 0x81, 0x89, 2, 0x81, 0x81, 0,
];
pub(super) const AFTER: &[u8] = &[2, 3, 1, 0, 1];
const EXPONENT: u32 = 65_537;
/// The length of the modulus and so of the ticket, bytes.
pub const TICKET: usize = 128;
/// The length of SHA-1, bytes.
const HASH: usize = 20;
/// An empty password with its final zero.
const EMPTY: &[u8] = &[0];

/// The empty ticket for this key.
///
/// # Errors
/// It is not a key of that kind.
pub fn empty(key: &[u8; KEY]) -> Result<[u8; TICKET], Fault> {
    let modulus = key.strip_prefix(BEFORE).and_then(|k| k.strip_suffix(AFTER));
    let modulus = BigUint::from_bytes_be(
        modulus.ok_or_else(|| bad("a key for tickets that is not RSA's of 1024 bits"))?,
    );
    // A modulus of 0 cannot be a divisor.
    if modulus.bits() != 8 * TICKET as u64 {
        return Err(bad(format!("a key for tickets of {} bits, not 1024", modulus.bits())));
    }
    let padded = BigUint::from_bytes_be(&padded([0; HASH]));
    let encrypted = padded.modpow(&EXPONENT.into(), &modulus).to_bytes_be();
    let mut ticket = [0; TICKET];
    ticket[TICKET - encrypted.len()..].copy_from_slice(&encrypted);
    Ok(ticket)
}

/// OAEP: a zero, the seed under a mask of the block, the block (hash of no label, zeros, a one, the message) under a mask of the seed.
fn padded(seed: [u8; HASH]) -> [u8; TICKET] {
    let mut all = [0; TICKET];
    let (head, block) = all.split_at_mut(1 + HASH);
    block[..HASH].copy_from_slice(&Sha1::from([]).digest().bytes());
    let at = block.len() - EMPTY.len();
    block[at - 1] = 1;
    block[at..].copy_from_slice(EMPTY);
    mask(block, &seed);
    head[1..].copy_from_slice(&seed);
    mask(&mut head[1..], block);
    all
}

/// MGF1 of SHA-1: hashes of the seed and a count.
fn mask(bytes: &mut [u8], seed: &[u8]) {
    for (count, part) in bytes.chunks_mut(HASH).enumerate() {
        let mut hash = Sha1::from(seed);
        hash.update(&(count as u32).to_be_bytes());
        part.iter_mut().zip(hash.digest().bytes()).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openssl genrsa 1024` (3.0).
    const MODULUS: &str = "d17b4b669db545049c229779995825ea49b109d39dfc39cdb39741a8225ac5022900504d8396d823a8f072587d543a07a79abc443ab4e7f27d358f9b21fa02f0\
        f2bea671ee4c32c7c520bf2d1963e422a46adb4c290c37f1ed8019574749a9afcf63666f391aae3e5ad84a9b32e29f026ed5f5f226ecd3cc1c3bdd47f5b1340b";
    const PRIVATE: &str = "0884b3ff3b4088caf4326fe870f4e5adce4b55b3f643b0720df083a9fba3a7493c3398105ede7e718cc8224e38e278eda0c2290fb9376c0b2f4e4345b2af00f9\
        8a76deb9f2701a50c9fc08f9247dea82b2d5ad66c9229f4ddb73345cd5d73c1762330a0a4af68d040ce20313827a3b02f501eab1575551de27e9dea278d4a519";

    fn number(hex: &str) -> BigUint {
        BigUint::parse_bytes(hex.as_bytes(), 16).unwrap()
    }

    fn key() -> [u8; KEY] {
        [BEFORE, &number(MODULUS).to_bytes_be(), AFTER].concat().try_into().unwrap()
    }

    #[test]
    fn a_ticket_is_what_its_key_decrypts_to_the_empty_password() {
        let ticket = empty(&key()).unwrap();
        let decrypted = BigUint::from_bytes_be(&ticket).modpow(&number(PRIVATE), &number(MODULUS));
        let mut all = [0; TICKET];
        let bytes = decrypted.to_bytes_be();
        all[TICKET - bytes.len()..].copy_from_slice(&bytes);
        assert_eq!(all[0], 0);
        let (head, block) = all.split_at_mut(1 + HASH);
        mask(&mut head[1..], block);
        mask(block, &head[1..]);
        assert_eq!(block[..HASH], Sha1::from([]).digest().bytes());
        assert!(block[HASH..].ends_with(&[0, 0, 1, 0]));
    }

    #[test]
    fn what_is_no_such_key_is_refused() {
        assert!(empty(&[0; KEY]).unwrap_err().to_string().contains("not RSA's"));
        let zero = [BEFORE, &[0; TICKET], AFTER].concat().try_into().unwrap();
        assert!(empty(&zero).unwrap_err().to_string().contains("of 0 bits"));
    }
}
