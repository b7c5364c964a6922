//! Who sent this, and when? The signature of a message: HMAC-SHA256, by a secret that sender and receiver share.
//!
//! The form is that of Standard Webhooks (standardwebhooks.com): receivers find libraries that verify it. The signature covers
//! the id of the message, the time of the try, and the body. A receiver refuses old times, so nobody can send a message again.
//! A file with two secrets gives two signatures: so a secret is replaced without a gap.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use std::ops::RangeInclusive;
use std::path::Path;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::trusted;

/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// Bytes of a secret.
const LENGTHS: RangeInclusive<usize> = 24..=64;
/// Secrets in one file.
const MOST: usize = 4;

/// The secrets of a receiver.
pub struct Secrets(Vec<hmac::Key>);

impl Secrets {
    /// Reads a file with a secret on each line. Empty lines and comments (`#`) do not count.
    ///
    /// # Errors
    /// `NoPrivilege` if others can read the file; `BadInput` if it holds anything else than secrets.
    pub fn read(file: &Path) -> Result<Secrets, Fault> {
        let text = trusted::secret_text(file)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Option<Vec<hmac::Key>> = lines.map(key).collect();
        keys.filter(|keys| (1..=MOST).contains(&keys.len())).map(Secrets).ok_or_else(|| {
            let what = format!("{} does not hold one to {MOST} secrets", file.display());
            Fault::new(FaultKind::BadInput, what)
                .because("a secret is whsec_ and 24 to 64 bytes in base64")
                .help("make one: echo \"whsec_$(head -c 32 /dev/urandom | base64)\" > FILE")
        })
    }

    /// The header `webhook-signature` of a message that is sent now.
    pub fn signature(&self, id: &str, unix_s: u64, body: &[u8]) -> String {
        let signed = [format!("{id}.{unix_s}.").as_bytes(), body].concat();
        let one = |key: &hmac::Key| format!("v1,{}", STANDARD.encode(hmac::sign(key, &signed)));
        self.0.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

fn key(line: &str) -> Option<hmac::Key> {
    let bytes = STANDARD.decode(line.strip_prefix(PREFIX)?).ok()?;
    LENGTHS.contains(&bytes.len()).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, mode: u32) -> Result<Secrets, Fault> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Secrets::read(&file)
    }

    /// The example of the specification. `openssl dgst -sha256 -mac HMAC` computes the same.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n";
        let one = read(secret, 0o600).unwrap();
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let signed = one.signature(id, 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let two = read(&format!("# old\n{secret}\n# new\nwhsec_{}\n", "A".repeat(32)), 0o400).unwrap();
        let both = two.signature(id, 1_614_265_330, body);
        assert!(both.starts_with(&format!("{signed} v1,")) && both.len() == 2 * signed.len() + 1, "{both}");
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused() {
        let good = format!("whsec_{}\n", "A".repeat(32));
        let fault = |text: &str, mode| read(text, mode).err().map(|fault| fault.kind);
        assert_eq!(fault(&good, 0o644), Some(FaultKind::NoPrivilege));
        assert_eq!(fault(&good, 0o640), None, "its group may read it");
        assert_eq!(fault(&good, 0o604), Some(FaultKind::NoPrivilege));
        for bad in ["", "# none\n", "secret\n", "whsec_AAAA\n", "whsec_!\n", &good.repeat(5)] {
            assert_eq!(fault(bad, 0o600), Some(FaultKind::BadInput), "{bad:?}");
        }
        assert_eq!(fault(&good, 0o600), None);
    }
}
