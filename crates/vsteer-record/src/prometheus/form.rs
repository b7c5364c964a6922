//! In which form is a page: compressed, with a byte order mark, text or protobuf?

use super::found::{Found, Odd};
use super::{protobuf, text};
use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::io::Read;
use vsteer_core::{Fault, FaultKind, limits};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const UTF_8: &[u8] = b"\xef\xbb\xbf";
const UTF_16: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];

/// Reads a page in any form.
///
/// # Errors
/// `BadInput` if it cannot be decompressed, is in another encoding, or has a wrong part that concerns the wanted
/// histogram.
pub(super) fn read(page: &[u8], found: &mut Found<'_>) -> Result<(), Fault> {
    let page = unpacked(page)?;
    let page = page.strip_prefix(UTF_8).unwrap_or(&page);
    if UTF_16.iter().any(|mark| page.starts_with(mark)) {
        return Err(Fault::new(FaultKind::BadInput, "cannot read the scrape")
            .because("it is UTF-16 text, but expositions are UTF-8")
            .help("save the bytes as the server sends them, for example with curl -o FILE URL"));
    }
    let read = if protobuf::is_protobuf(page) { protobuf::read } else { text::read };
    read(page, found).map_err(Odd::fault)
}

/// The page without its compression.
fn unpacked(page: &[u8]) -> Result<Cow<'_, [u8]>, Fault> {
    if !page.starts_with(&GZIP) {
        return Ok(Cow::Borrowed(page));
    }
    let fault = |why: String| Fault::new(FaultKind::BadInput, "cannot decompress the scrape").because(why);
    let mut bytes = Vec::new();
    MultiGzDecoder::new(page).take(limits::METRICS_PAGE + 1).read_to_end(&mut bytes).map_err(|e| {
        let cut = e.kind() == std::io::ErrorKind::UnexpectedEof;
        fault(if cut { "the compressed bytes were cut".to_owned() } else { e.to_string() })
            .help("save the scrape again")
    })?;
    if bytes.len() as u64 > limits::METRICS_PAGE {
        return Err(fault(format!("it grows to more than {} MiB", limits::METRICS_PAGE >> 20))
            .help("check that it is a page of metrics"));
    }
    Ok(Cow::Owned(bytes))
}
