//! Tests that data from a real server decodes to the picture that was shown, and that broken data is refused.
//!
//! `captured/*.bin` is what TigerVNC 1.12.0 (Debian 12's Xtigervnc) sent in one session each to this client:
//! `run --server tigervnc-… --size 352x64 --targets 8 --fps 1`, the first bytes of it. The tests draw the
//! shown picture again from its number, so no screen needed to be captured.

use super::*;
use crate::picture::{Kind, Picture, number};
use crate::quality::score::psnr_rgb;
use proptest::prelude::*;

const CAPTURED: [(Encoding, &[u8], &str); 3] = [
    (Encoding::Tight(Some(8)), include_bytes!("captured/jpeg.bin"), "Tight JPEG"),
    (Encoding::Tight(None), include_bytes!("captured/tight.bin"), "Tight copy"),
    (Encoding::Zrle, include_bytes!("captured/zrle.bin"), "ZRLE"),
];

/// Every numbered picture of a session, and how it ended.
fn play<'a>(encoding: Encoding, bytes: &'a [u8], mut seen: impl FnMut(&Client<&'a [u8], Vec<u8>>)) -> Fault {
    let mut client = match Client::start(bytes, Vec::new(), encoding) {
        Ok(client) => client,
        Err(why) => return why,
    };
    loop {
        match client.next() {
            Ok(Said::Update) => seen(&client),
            Ok(Said::Other) => {}
            Err(why) => return why,
        }
    }
}

#[test]
fn what_tigervnc_sent_is_what_was_shown() {
    let size = Size { width: 352, height: 64 };
    let picture = Picture::new(Kind::Targets, size, 8, 1).unwrap();
    let mut shown = vec![0; size.bytes()];
    for (encoding, bytes, kind) in CAPTURED {
        let (mut frames, mut told) = (Vec::new(), String::new());
        let why = play(encoding, bytes, |client| {
            let screen = client.screen();
            if let Some((frame, at)) = number::read(screen.pixels(), screen.size()) {
                picture.draw(frame, &mut shown, 1);
                let psnr = psnr_rgb(&shown, screen.pixels());
                let lossy = matches!(encoding, Encoding::Tight(Some(_)));
                assert!(if lossy { psnr > 25.0 } else { psnr.is_infinite() }, "{kind}: {frame}: {psnr} dB");
                assert_eq!(at, [0, 0]);
                frames.push(frame);
            }
            assert_eq!(client.otherwise().filter(|part| *part > 0.0), None);
            told = client.negotiated();
        });
        frames.dedup();
        assert!(frames.len() >= 2 && frames.is_sorted(), "{kind}: {frames:?}");
        assert!(told.contains(kind) && told.contains("continuous updates"), "{told}");
        // The capture ends inside a message, as a broken connection does.
        assert!(why.to_string().contains("hearing"), "{why}");
    }
}

#[test]
fn another_encoding_than_was_asked_for_is_seen() {
    let mut otherwise = None;
    let (_, bytes, _) = CAPTURED[0];
    play(Encoding::Tight(None), bytes, |client| otherwise = client.otherwise());
    assert!(otherwise.unwrap() > 0.5, "{otherwise:?}");
}

/// The data that a server sends before its first update.
fn greeting(width: u16, height: u16) -> Vec<u8> {
    let mut says = b"RFB 003.008\n".to_vec();
    says.extend([1, 1, 0, 0, 0, 0]);
    says.extend([width, height].iter().flat_map(|v| v.to_be_bytes()));
    says.extend([0; 16]);
    says.extend([0, 0, 0, 1, b'x']);
    says
}

fn rect(at: [u16; 4], encoding: i32) -> Vec<u8> {
    at.iter().flat_map(|v| v.to_be_bytes()).chain(encoding.to_be_bytes()).collect()
}

fn updated(rects: &[Vec<u8>]) -> Vec<u8> {
    let mut says = greeting(8, 4);
    says.extend([0, 0, 0, rects.len() as u8]);
    says.extend(rects.concat());
    says
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() * 2 + 64);
    flate2::Compress::new(flate2::Compression::fast(), true)
        .compress_vec(bytes, &mut out, flate2::FlushCompress::Sync)
        .unwrap();
    out
}

#[test]
fn pixels_by_hand() {
    let pixel = |says: Vec<u8>, encoding, x: usize, y: usize| {
        let mut seen = None;
        let why = play(encoding, &says, |c| {
            seen = Some(c.screen().part([x, y], Size { width: 1, height: 1 }).unwrap()[..3].to_vec());
        });
        seen.unwrap_or_else(|| panic!("{why}"))
    };
    // Raw, then moved by two pixels.
    let raw = [rect([0, 0, 1, 1], RAW), vec![3, 2, 1, 0]].concat();
    let copy = [rect([2, 1, 1, 1], COPY_RECT), vec![0, 0, 0, 0]].concat();
    assert_eq!(pixel(updated(&[raw, copy]), Encoding::Raw, 2, 1), [3, 2, 1]);
    // Tight, one colour: red, green, blue.
    let fill = [rect([0, 0, 8, 4], TIGHT), vec![0x80, 1, 2, 3]].concat();
    assert_eq!(pixel(updated(&[fill]), Encoding::Tight(None), 7, 3), [3, 2, 1]);
    // Tight, two pixels predicted from their left neighbour: too few bytes for compression. 10 + 5, and 250 +
    // 10 as a byte.
    let gradient = [rect([0, 0, 2, 1], TIGHT), vec![0x40, 2, 10, 250, 0, 5, 10, 0]].concat();
    assert_eq!(pixel(updated(&[gradient]), Encoding::Tight(None), 1, 0), [0, 4, 15]);
    // Tight, a palette of two, one bit each: 0b0100_0000 is the second at 1.
    let palette = [rect([0, 0, 8, 1], TIGHT), vec![0x40, 1, 1, 9, 9, 9, 1, 2, 3, 0x40]].concat();
    assert_eq!(pixel(updated(std::slice::from_ref(&palette)), Encoding::Tight(None), 1, 0), [3, 2, 1]);
    assert_eq!(pixel(updated(&[palette]), Encoding::Tight(None), 2, 0), [9, 9, 9]);
    // ZRLE: runs of a palette, 31 of the second and one of the first.
    let tile = compressed(&[130, 9, 9, 9, 3, 2, 1, 0x81, 30, 0]);
    let zrle = [rect([0, 0, 8, 4], ZRLE), (tile.len() as u32).to_be_bytes().to_vec(), tile].concat();
    assert_eq!(pixel(updated(std::slice::from_ref(&zrle)), Encoding::Zrle, 6, 3), [3, 2, 1]);
    assert_eq!(pixel(updated(&[zrle]), Encoding::Zrle, 7, 3), [9, 9, 9]);
}

#[test]
fn what_is_broken_is_refused_and_told() {
    let long = compressed(&[128, 1, 1, 1, 40]);
    let long = [rect([0, 0, 8, 4], ZRLE), (long.len() as u32).to_be_bytes().to_vec(), long].concat();
    let refused = [
        (b"HTTP/1.1 400 Bad".to_vec(), "not a VNC server"),
        ([&b"RFB 003.008\n"[..], &[1, 2]].concat(), "password"),
        ([&b"RFB 003.008\n"[..], &[0, 0, 0, 0, 4], b"full"].concat(), "full"),
        (greeting(0, 4), "0x4"),
        (updated(&[rect([4, 0, 8, 4], RAW)]), "outside"),
        (updated(&[rect([0, 0, 1, 1], 5)]), "not asked for"),
        (updated(&[[rect([0, 0, 1, 1], ZRLE), vec![255; 4]].concat()]), "bytes for"),
        (updated(&[[rect([0, 0, 1, 1], TIGHT), vec![0xa0]].concat()]), "not asked for"),
        (updated(&[long]), "longer than its tile"),
    ];
    for (says, word) in &refused {
        let why = play(Encoding::Tight(None), says, |_| {}).to_string();
        assert!(why.contains(word), "{why} names no {word:?}");
    }
}

proptest! {
    /// Any data is decoded or refused; a false length allocates no memory.
    #[test]
    fn nothing_that_comes_ends_the_program(which in 0..3usize, flips in prop::collection::vec((0..40_000usize, any::<u8>()), 1..20)) {
        let (encoding, bytes, _) = CAPTURED[which];
        let mut bytes = bytes.to_vec();
        for (at, to) in flips {
            // The first update begins about here; the bytes before are the greeting.
            let at = at % bytes.len();
            bytes[at] = to;
        }
        play(encoding, &bytes, |_| {});
    }

    #[test]
    fn nor_does_any_rectangle(tail in prop::collection::vec(any::<u8>(), 0..400), kind in prop::sample::select(vec![RAW, COPY_RECT, TIGHT, ZRLE, 5]), size in (0..9u16, 0..5u16)) {
        let says = updated(&[[rect([0, 0, size.0, size.1], kind), tail].concat()]);
        play(Encoding::Tight(Some(8)), &says, |_| {});
    }

    /// Tiles with arbitrary bytes, compressed correctly.
    #[test]
    fn nor_any_tile(tile in prop::collection::vec(any::<u8>(), 0..600)) {
        let tile = compressed(&tile);
        let says = updated(&[[rect([0, 0, 8, 4], ZRLE), (tile.len() as u32).to_be_bytes().to_vec(), tile].concat()]);
        play(Encoding::Zrle, &says, |_| {});
    }
}
