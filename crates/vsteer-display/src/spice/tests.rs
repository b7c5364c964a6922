//! Tests that data from a real server decodes to the picture that was shown, and that broken data is refused.
//!
//! `captured/*.main.bin` and `*.display.bin` are what QEMU 7.2 with libspice-server 0.15.1 (Debian 12) sent
//! on each channel in one session each to this client: `run --server spice-… --size 352x64 --targets 8 --fps
//! 1`, the first bytes of it. The tests draw the shown picture again from its number, so no screen needed to
//! be captured.

use super::*;
use crate::picture::{Kind, Picture, number};
use crate::quality::score::psnr_rgb;
use proptest::prelude::*;

/// The request, the data of both channels, and the received kind.
type Captured = (Compression, &'static [u8], &'static [u8], &'static str);

macro_rules! captured {
    ($compression:ident, $name:literal, $kind:literal) => {
        (
            Compression::$compression,
            include_bytes!(concat!("captured/", $name, ".main.bin")),
            include_bytes!(concat!("captured/", $name, ".display.bin")),
            $kind,
        )
    };
}

const CAPTURED: [Captured; 4] = [
    captured!(Raw, "raw", "raw"),
    captured!(Lz, "lz", "LZ"),
    captured!(Glz, "glz", "GLZ"),
    captured!(GlzZlib, "glz-zlib", "GLZ and zlib"),
];

type Session<'a> = Client<&'a [u8], Vec<u8>>;

/// Calls `seen` each time that the screen is complete, and at the end, where it may not be. Returns how the
/// session ended.
fn play<'a>(
    compression: Compression,
    main: &'a [u8],
    display: &'a [u8],
    mut seen: impl FnMut(&Session<'a>, bool),
) -> Fault {
    let mut client = match Client::start((main, Vec::new()), (display, Vec::new()), compression) {
        Ok(client) => client,
        Err(why) => return why,
    };
    loop {
        match client.next() {
            Ok(Said::Begins) => seen(&client, true),
            Ok(_) => {}
            Err(why) => {
                seen(&client, false);
                return why;
            }
        }
    }
}

#[test]
fn what_qemu_sent_is_what_was_shown() {
    let size = Size { width: 352, height: 64 };
    let picture = Picture::new(Kind::Targets, size, 8, 1).unwrap();
    let mut shown = vec![0; size.bytes()];
    for (compression, main, display, kind) in CAPTURED {
        let (mut frames, mut told) = (Vec::new(), String::new());
        let why = play(compression, main, display, |client, whole| {
            if !whole {
                return;
            }
            let screen = client.screen().unwrap();
            if let Some((frame, at)) = number::read(screen.pixels(), screen.size()) {
                picture.draw(frame, &mut shown, 1);
                let psnr = psnr_rgb(&shown, screen.pixels());
                assert!(psnr.is_infinite(), "{kind}: {frame}: {psnr} dB");
                assert_eq!(at, [0, 0]);
                frames.push(frame);
            }
            assert!(client.otherwise().is_none_or(|part| part < 0.1), "{}", client.negotiated());
            told = client.negotiated();
        });
        frames.dedup();
        assert!(frames.len() >= 2 && frames.is_sorted(), "{kind}: {frames:?}");
        assert!(told.contains(kind), "{told}");
        // The capture ends inside a message or after one, as a broken connection does.
        assert!(why.to_string().contains("hearing"), "{why}");
    }
}

#[test]
fn another_compression_than_was_asked_for_is_seen() {
    let mut otherwise = None;
    let (_, main, display, _) = CAPTURED[1];
    play(Compression::Raw, main, display, |client, _| otherwise = client.otherwise());
    assert!(otherwise.unwrap() > 0.9, "{otherwise:?}");
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(body.len() as u32).to_le_bytes(), body].concat()
}

/// The data of each channel before its first message.
fn linked(result: u32) -> Vec<u8> {
    let key = [ticket::BEFORE, &[0xff; ticket::TICKET], ticket::AFTER].concat();
    let caps = words(&[0b1011, 0]);
    let reply = [words(&[0]), key, words(&[1, 1, 178]), caps].concat();
    [b"REDQ".to_vec(), words(&[2, 2, reply.len() as u32]), reply, words(&[result])].concat()
}

fn main_channel() -> Vec<u8> {
    [linked(0), message(MAIN_INIT, &words(&[7, 1, 1, 1, 0, 10, 0, 0]))].concat()
}

/// A display of 8x4, and its further messages.
fn display(then: &[Vec<u8>]) -> Vec<u8> {
    [linked(0), message(SURFACE_CREATE, &words(&[0, 8, 4, 32, 1])), then.concat()].concat()
}

/// Draws an image of this kind, size and data at this place.
fn drawn([x, y, width, height]: [u32; 4], kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut body = words(&[0, y, x, y + height, x + width]);
    body.push(0);
    body.extend(words(&[57, 0, 0, height, width]));
    body.extend([8, 0, 0]);
    body.push(0);
    body.extend(words(&[0, 0, 0]));
    body.extend([1, 0, 0, 0, 0, 0, 0, 0, kind, 0]);
    body.extend(words(&[width, height]));
    body.extend(bytes);
    message(DRAW_COPY, &body)
}

fn raw([width, height]: [u32; 2], format: u8, flags: u8, pixels: &[u8]) -> Vec<u8> {
    let stride = width * if format == 7 { 3 } else { 4 };
    [vec![format, flags], words(&[width, height, stride, 0]), pixels.to_vec()].concat()
}

fn big(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|w| w.to_be_bytes()).collect()
}

fn sized_data(bytes: Vec<u8>) -> Vec<u8> {
    [words(&[bytes.len() as u32]), bytes].concat()
}

fn lz([width, height]: [u32; 2], coded: &[u8]) -> Vec<u8> {
    let head = big(&[lz::MAGIC, lz::VERSION, lz::RGB32, width, height, width * 4, 1]);
    sized_data([head, coded.to_vec()].concat())
}

fn glz([width, height]: [u32; 2], number: u32, back: u32, coded: &[u8]) -> Vec<u8> {
    let mut head = big(&[lz::MAGIC, lz::VERSION]);
    head.push(16 | lz::RGB32 as u8);
    head.extend(big(&[width, height, width * 4, 0, number, back]));
    sized_data([head, coded.to_vec()].concat())
}

/// A row of the screen after all messages: blue of each pixel.
fn row(then: &[Vec<u8>], y: usize) -> Vec<u8> {
    let (main, display) = (main_channel(), display(then));
    let mut blue = Vec::new();
    let why = play(Compression::Raw, &main, &display, |client, _| {
        let part = client.screen().unwrap().part([0, y], Size { width: 8, height: 1 }).unwrap();
        blue = part.chunks_exact(4).map(|p| p[0]).collect();
    });
    assert!(why.to_string().contains("hearing a message"), "{why}");
    blue
}

#[test]
fn kinds_of_images_are_decoded_as_their_format_has_it() {
    let pixels = [[1, 0, 0, 9], [2, 0, 0, 9], [3, 0, 0, 9], [4, 0, 0, 9]].concat();
    // Rows from the top, and from the bottom.
    assert_eq!(row(&[drawn([1, 0, 2, 2], 0, &raw([2, 2], 8, 4, &pixels))], 0), [0, 1, 2, 0, 0, 0, 0, 0]);
    assert_eq!(row(&[drawn([1, 0, 2, 2], 0, &raw([2, 2], 8, 0, &pixels))], 0), [0, 3, 4, 0, 0, 0, 0, 0]);
    let short = [1, 0, 0, 2, 0, 0];
    assert_eq!(row(&[drawn([0, 0, 2, 1], 0, &raw([2, 1], 7, 4, &short))], 0)[..3], [1, 2, 0]);
    // Two literals; a copy of three from two back; then a run of seven and four more.
    let coded = [1, 5, 0, 0, 6, 0, 0, 3 << 5, 1, 7 << 5, 4, 0];
    let all = drawn([0, 0, 8, 2], 101, &lz([8, 2], &coded));
    assert_eq!(row(std::slice::from_ref(&all), 0), [5, 6, 5, 6, 5, 5, 5, 5]);
    assert_eq!(row(&[all], 1), [5; 8]);
    // The first image. The second one has two pixels copied from the first one's second pixel on, and a
    // literal.
    let first = drawn([0, 0, 3, 1], 102, &glz([3, 1], 0, 0, &[2, 1, 0, 0, 2, 0, 0, 3, 0, 0]));
    let second = drawn([0, 1, 3, 1], 102, &glz([3, 1], 1, 1, &[2 << 5 | 1, 0, 1, 0, 9, 0, 0]));
    assert_eq!(row(&[first.clone(), second], 1)[..3], [2, 3, 9]);
    // A long offset into the same image: 1 back, which gives a run.
    let run = drawn([0, 1, 3, 1], 102, &glz([3, 1], 1, 1, &[0, 4, 0, 0, 2 << 5 | 16, 0, 0]));
    assert_eq!(row(&[first, run], 1)[..3], [4, 4, 4]);
}

#[test]
fn pictures_are_whole_where_another_begins() {
    let pixel = |x: u32, blue: u8| drawn([x, 0, 1, 1], 0, &raw([1, 1], 8, 4, &[blue, 0, 0, 0]));
    let looks = |then: &[Vec<u8>]| {
        let (main, display) = (main_channel(), display(then));
        let mut seen = Vec::new();
        play(Compression::Raw, &main, &display, |client, _| {
            let pixels = client.screen().unwrap().pixels();
            seen.push([pixels[0], pixels[4], pixels[8]]);
        });
        seen
    };
    // Recognised by an overlap.
    assert_eq!(looks(&[pixel(0, 1), pixel(1, 7), pixel(0, 2)]), [[1, 7, 0], [2, 7, 0]]);
    // The second check begins where the first drew nothing. The order shows it.
    let second = [pixel(0, 2), pixel(1, 2), pixel(2, 2)];
    let all = [&[pixel(1, 1), pixel(2, 1)], &second[..], &[pixel(0, 3)]].concat();
    assert_eq!(looks(&all), [[0, 1, 1], [2, 2, 2], [3, 2, 2]]);
}

#[test]
fn a_clip_hides_what_lies_outside_of_it() {
    let mut body = words(&[0, 0, 0, 1, 3]);
    body.push(1);
    body.extend(words(&[1, 0, 1, 1, 2]));
    body.extend(words(&[77, 0, 0, 1, 3]));
    body.extend([8, 0, 0, 0]);
    body.extend(words(&[0, 0, 0]));
    body.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    body.extend(words(&[3, 1]));
    body.extend(raw([3, 1], 8, 4, &[[4, 0, 0, 0], [5, 0, 0, 0], [6, 0, 0, 0]].concat()));
    assert_eq!(row(&[message(DRAW_COPY, &body)], 0)[..4], [0, 5, 0, 0]);
}

#[test]
fn pings_are_answered_and_messages_acknowledged() {
    let ping = message(4, &[words(&[5, 6, 7]), vec![0; 40]].concat());
    let says = [linked(0), message(3, &words(&[9, 2])), ping, message(102, &[])].concat();
    let mut channel = Channel::open(&says[..], Vec::new(), Of::Display, 1, 0).unwrap();
    let before = channel.told().len();
    while channel.next().is_ok() {}
    let answers = [message(1, &words(&[9])), message(3, &words(&[5, 6, 7])), message(2, &[])].concat();
    assert_eq!(channel.told()[before..], answers);
}

#[test]
fn what_is_broken_or_not_read_is_refused_and_told() {
    let main = main_channel();
    let of = |then: Vec<u8>| play(Compression::Lz, &main, &display(&[then]), |_, _| {}).to_string();
    let draws = |kind: u8, bytes: &[u8]| of(drawn([0, 0, 8, 4], kind, bytes));
    let mut masked = drawn([0, 0, 8, 4], 0, &[]);
    masked[6 + 53] = 1;
    for (why, word) in [
        (draws(1, &[0; 40]), "image of QUIC (1)"),
        (draws(109, &[0; 40]), "image-compression=lz, glz"),
        (draws(103, &[]), "FROM_CACHE"),
        (draws(0, &raw([8, 4], 5, 4, &[0; 128])), "format 5"),
        (draws(0, &raw([8, 4], 8, 4, &[0; 127])), "too early"),
        (draws(0, &raw([7, 4], 8, 4, &[0; 128])), "rows of"),
        (draws(101, &lz([8, 4], &[7 << 5, 255, 255, 0, 0])), "beyond its end"),
        (draws(101, &lz([8, 4], &[1 << 5, 9])), "before an image"),
        (draws(101, &lz([9, 4], &[0])), "not [8, 4]"),
        (draws(102, &glz([8, 4], 5, 0, &[1 << 5, 0, 3])), "3th image"),
        (draws(107, &[words(&[u32::MAX, 4]), vec![0; 4]].concat()), "bytes for"),
        (draws(107, &[words(&[40, 4]), vec![0; 4]].concat()), "broken"),
        (of(drawn([4, 0, 8, 4], 0, &[])), "outside"),
        (of(masked), "mask true"),
        (of(message(302, &[])), "message 302"),
        (of(message(SURFACE_CREATE, &words(&[0, 70_000, 4, 32, 1]))), "70000x4"),
        (of(message(SURFACE_CREATE, &words(&[1, 8, 4, 32, 1]))), "surface 1"),
        (of(message(STREAM_DATA, &words(&[3, 0, 0]))), "stream 3"),
        (of([&DRAW_COPY.to_le_bytes()[..], &[255; 4]].concat()), "bytes long"),
        (play(Compression::Lz, b"HTTP/1.1 400 Bad", &[], |_, _| {}).to_string(), "not a SPICE server"),
        (play(Compression::Lz, &linked(7), &[], |_, _| {}).to_string(), "password"),
        (
            play(Compression::Lz, &[linked(0), message(6, &[0; 12])].concat(), &[], |_, _| {}).to_string(),
            "ends",
        ),
    ] {
        assert!(why.contains(word), "{why} names no {word:?}");
    }
}

proptest! {
    /// Any data is decoded or refused; a false length allocates no memory.
    #[test]
    fn nothing_that_comes_ends_the_program(which in 0..CAPTURED.len(), flips in prop::collection::vec((0..200_000usize, any::<u8>()), 1..20)) {
        let (compression, main, display, _) = CAPTURED[which];
        let mut display = display.to_vec();
        for (at, to) in flips {
            let at = at % display.len();
            display[at] = to;
        }
        play(compression, main, &display, |_, _| {});
    }

    #[test]
    fn nor_does_any_image(tail in prop::collection::vec(any::<u8>(), 0..400), kind in prop::sample::select(vec![0u8, 101, 102, 105, 107]), at in (0..9u32, 0..5u32, 0..9u32, 0..5u32)) {
        let main = main_channel();
        play(Compression::Lz, &main, &display(&[drawn([at.0, at.1, at.2, at.3], kind, &tail)]), |_, _| {});
    }

    /// Arbitrary codes of LZ and GLZ with valid headers.
    #[test]
    fn nor_any_code(coded in prop::collection::vec(any::<u8>(), 0..200), back in 0..3u32) {
        let main = main_channel();
        let images = [
            drawn([0, 0, 8, 4], 101, &lz([8, 4], &coded)),
            drawn([0, 0, 8, 4], 102, &glz([8, 4], 1, back, &coded)),
            drawn([0, 0, 8, 4], 102, &glz([8, 4], 2, back, &coded)),
        ];
        for image in images {
            play(Compression::Lz, &main, &display(&[image]), |_, _| {});
        }
    }

    #[test]
    fn nor_any_message(kind in prop::sample::select(vec![3u16, 4, 6, 122, 123, 124, 125, 126, 304, 314, 316]), body in prop::collection::vec(any::<u8>(), 0..200)) {
        let main = main_channel();
        play(Compression::Streams, &main, &display(&[message(kind, &body)]), |_, _| {});
    }
}
