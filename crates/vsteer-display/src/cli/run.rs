//! `run`: measures every requested codec and server on every picture, in turn.
//!
//! Anything impossible is reported before the first run. After that, all measured values are reported, even
//! if something else fails.

use super::{RunOptions, write_png};
use crate::codec::{self, Codec, Held};
use crate::link::Link;
use crate::path::{self, Conditions, Run};
use crate::picture::{Kind, Picture};
use crate::quality::row::Row;
use crate::server::{self, Server, session};
use crate::vmaf::Vmaf;
use crate::{logs, matched, row, table};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The codecs of a quick run: one of each kind.
const QUICK: &[&str] = &["jpeg", "png", "tiles", "h264", "h265"];
const QUICK_TARGETS: &[u32] = &[1000, 10_000];
const QUICK_SIZE: &str = "720p";
const QUICK_S: u64 = 2;
/// The numbers of targets in the paper that picture/targets.rs names.
const TARGETS: &[u32] = &[1000, 3000, 5000, 10_000];
/// How many frames of a run are kept; raw, they are 8 MB each at 1080p.
const SAMPLES: usize = 12;
/// A codec holds a little less than the link's rate.
const RATE_OF_LINK: f64 = 0.9;

/// A run that is interrupted earlier does not count.
const LASTS_LEAST: Duration = Duration::from_secs(1);
/// If a clock is off by more than this, somebody set it; adjtime(3) moves it by at most 500 ppm.
const CLOCK_MOVES_S: f64 = 0.1;
const CLOCK_DRIFTS: f64 = 500e-6;

/// What is measured.
#[derive(Clone, Copy)]
enum Who {
    Codec(&'static Codec),
    Server(&'static Server),
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Codec(codec) => codec.name,
            Who::Server(server) => server.name,
        }
    }

    fn is_datagrams(self) -> bool {
        matches!(self, Who::Server(server) if server.is_datagrams())
    }
}

/// The requested runs.
struct Asked {
    who: Vec<Who>,
    /// The pictures by their number of targets.
    pictures: Vec<(u32, Picture)>,
    link: Link,
    length: Duration,
    vmaf: Option<Vmaf>,
}

impl Asked {
    fn runs(&self) -> usize {
        self.pictures.len() * self.who.len()
    }
}

/// The results of the runs.
#[derive(Default)]
struct Ran {
    rows: Vec<Row>,
    /// The kinds of the failures.
    failed: Vec<FaultKind>,
    /// The run that the user interrupted.
    interrupted: Option<usize>,
}

impl Ran {
    fn fails(&mut self, why: Fault) {
        eprintln!("vsteer-display: {why}");
        self.failed.push(why.kind);
    }
}

/// Set by the first Ctrl-C. The second one ends this program at once, and servers with it.
fn interrupts() -> Result<Arc<AtomicBool>, Fault> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let told = |e| Fault::io("watching for an interrupt".to_owned(), &e);
        let code = FaultKind::Interrupted.exit_code().into();
        signal_hook::flag::register_conditional_shutdown(signal, code, stop.clone()).map_err(told)?;
        signal_hook::flag::register(signal, stop.clone()).map_err(told)?;
    }
    Ok(stop)
}

impl RunOptions {
    fn all(&self) -> Result<Vec<Who>, Fault> {
        let codecs =
            if self.codecs.is_empty() && !self.servers.is_empty() { Vec::new() } else { self.codecs()? };
        let mut all: Vec<Who> = codecs.into_iter().map(Who::Codec).collect();
        for name in &self.servers {
            all.extend(server::find(name)?.into_iter().map(Who::Server));
        }
        Ok(all)
    }

    fn codecs(&self) -> Result<Vec<&'static Codec>, Fault> {
        if self.codecs.is_empty() && self.quick {
            return QUICK.iter().map(|name| codec::find(name)).collect();
        }
        if self.codecs.is_empty() {
            // Hardware codecs may be in the build although the hardware is missing.
            let (there, missing): (Vec<_>, Vec<_>) =
                codec::ALL.iter().filter(|c| !c.in_hardware).partition(|c| c.built_in().1);
            if !missing.is_empty() {
                let names: Vec<String> =
                    missing.iter().map(|c| format!("{} ({})", c.name, c.built_in().0)).collect();
                eprintln!("vsteer-display: this build of FFmpeg lacks {}: left out", names.join(", "));
            }
            return Ok(there);
        }
        self.codecs.iter().map(|name| codec::find(name)).collect()
    }

    /// The requested runs, all of which are possible.
    ///
    /// # Errors
    /// Anything impossible, before the first run.
    fn asked(&self) -> Result<Asked, Fault> {
        let who = self.all()?;
        let size = self.picture.size(if self.quick { QUICK_SIZE } else { "1080p" })?;
        let seconds = self.seconds.unwrap_or(if self.quick { QUICK_S } else { 10 });
        if !(1..=3600).contains(&seconds)
            || !(1..=240).contains(&self.fps)
            || !(0.0..=10_000.0).contains(&self.delay_ms)
            || !(0.0..=100.0).contains(&self.loss_percent)
        {
            let what = format!(
                "{seconds} s at {} frames per second, {} ms of delay, {} % of loss",
                self.fps, self.delay_ms, self.loss_percent
            );
            return Err(Fault::new(FaultKind::BadInput, what)
                .help("1 to 3600 s, 1 to 240 frames per second, 0 to 10000 ms, 0 to 100 %"));
        }
        if let Some(who) = who.iter().find(|who| self.loss_percent != 0.0 && !who.is_datagrams()) {
            let what = format!("{} over a link that loses {} %", who.name(), self.loss_percent);
            return Err(Fault::new(FaultKind::BadInput, what)
                .because("its stream loses nothing, for what is lost is sent again")
                .help("a server that sends datagrams (gstreamer), or a narrower link"));
        }
        let vmaf = self.vmaf.as_deref().map(Vmaf::by).transpose()?;
        if let Some(folder) = &self.keep {
            std::fs::create_dir_all(folder)
                .map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
        }
        let targets = match (&self.targets[..], self.picture.picture, self.quick) {
            (_, Kind::Text | Kind::Sheet | Kind::Video | Kind::Idle, _) => &[0][..],
            ([], _, true) => QUICK_TARGETS,
            ([], _, false) => TARGETS,
            (some, _, _) => some,
        };
        let picture = |n: &u32| Ok((*n, Picture::new(self.picture.picture, size, *n, self.picture.seed)?));
        Ok(Asked {
            who,
            pictures: targets.iter().map(picture).collect::<Result<_, Fault>>()?,
            link: Link {
                rate_bit_s: self.rate,
                delay_ms: self.delay_ms,
                queue_bytes: self.queue_kb << 10,
                loss_percent: self.loss_percent,
            },
            length: Duration::from_secs(seconds),
            vmaf,
        })
    }

    /// Runs all requested runs.
    ///
    /// # Errors
    /// Anything impossible; a run that could not start, after the rows of the others.
    pub fn run(&self) -> Result<(), Fault> {
        let stop = interrupts()?;
        let asked = self.asked()?;
        let mut ran = self.each(&asked, &stop);
        // Measured values are reported, even if a log cannot be read.
        let mut logged = Vec::new();
        for file in &self.logs {
            match logs::read(file, &ran.rows) {
                Ok(log) => logged.push(log),
                Err(why) => ran.fails(why),
            }
        }
        let rows = &ran.rows;
        if self.json {
            let said = json!({ "rows": rows, "seed": self.picture.seed, "fps": self.fps, "link": asked.link, "logs": logged,
                "interrupted": stop.load(Ordering::Relaxed) });
            println!("{}", serde_json::to_string_pretty(&said).expect("rows are plain data"));
        } else if !(rows.is_empty() && logged.is_empty()) {
            print!("{}{}", table::of(rows), logs::table(&logged));
        }
        if stop.load(Ordering::Relaxed) {
            let (done, all) = (ran.interrupted.unwrap_or(rows.len()), asked.runs());
            return Err(Fault::new(
                FaultKind::Interrupted,
                format!("interrupted: {done} of {all} runs are told"),
            ));
        }
        // Each failure was reported when it happened.
        let told = |kind: &FaultKind| {
            let what =
                format!("{} of the requested comparisons failed; see the messages above", ran.failed.len());
            Err(Fault::new(*kind, what))
        };
        ran.failed.first().map_or(Ok(()), told)
    }

    /// Runs everything that was requested, until interrupted.
    fn each(&self, asked: &Asked, stop: &AtomicBool) -> Ran {
        let threads = self.draw_threads.or(std::thread::available_parallelism().ok().map(Into::into));
        let mut ran = Ran::default();
        let runs = asked
            .pictures
            .iter()
            .flat_map(|(n, picture)| asked.who.iter().map(move |who| (*n, picture, *who)));
        for (i, (n, picture, who)) in runs.enumerate() {
            if stop.load(Ordering::Relaxed) {
                ran.interrupted = Some(i);
                break;
            }
            let under = Conditions {
                picture,
                fps: self.fps,
                draw_threads: threads.unwrap_or(1).max(1),
                link: asked.link,
                length: asked.length,
                samples: SAMPLES,
                tell: self.tell,
                stop,
            };
            let of = if n > 0 { format!(" of {n} targets") } else { String::new() };
            eprintln!("vsteer-display: {} of {}: {}{of}", i + 1, asked.runs(), who.name());
            match self.one(who, &under, n, asked.vmaf.as_ref()) {
                Ok(row) => ran.rows.push(row),
                Err(why) if why.kind == FaultKind::Interrupted => {
                    ran.interrupted = Some(i);
                    break;
                }
                Err(why) => ran.fails(why),
            }
        }
        ran
    }

    /// Runs one codec or server on one picture.
    fn one(&self, who: Who, under: &Conditions, targets: u32, vmaf: Option<&Vmaf>) -> Result<Row, Fault> {
        let rate = self.rate.map(|r| (r as f64 * RATE_OF_LINK) as u64);
        let mut quantizer = None;
        let (outcome, encoder, codec_bit_s) = match who {
            Who::Codec(codec) => {
                let held = match self.match_ssim {
                    Some(ssim) => matched::held(codec, under.picture, self.fps, ssim, under.stop)?,
                    None => rate.into(),
                };
                let run = Run { under: *under, codec, held, rate_fps: self.rate_fps };
                let bit_s = if let Held::Rate(rate) = held { Some(rate) } else { None };
                quantizer = if let Held::Quantizer(q) = held { Some(q) } else { None };
                (path::run(&run)?, codec.built_in().0.to_owned(), bit_s.filter(|_| codec.holds_rate))
            }
            Who::Server(server) => {
                let rate = rate.filter(|_| server.holds_rate());
                let (outcome, version) = session::run(server, under, rate, self.picture.seed)?;
                (outcome, version, rate)
            }
        };
        let name = who.name();
        let mut notes = Vec::new();
        let lasted = Duration::from_nanos(outcome.until_ns - outcome.from_ns);
        if under.stop.load(Ordering::Relaxed) && lasted < under.length {
            if lasted < LASTS_LEAST {
                let what = format!("{name}: interrupted before it had lasted {} s", LASTS_LEAST.as_secs());
                return Err(Fault::new(FaultKind::Interrupted, what));
            }
            let asked_s = under.length.as_secs();
            notes.push(format!("interrupted after {:.1} of {asked_s} s", lasted.as_secs_f64()));
        }
        let moved_s = outcome.calendar.moved_s();
        if moved_s.abs() > CLOCK_MOVES_S + CLOCK_DRIFTS * lasted.as_secs_f64() {
            notes.push(format!("the calendar's clock was set by {moved_s:+.1} s meanwhile: logs of others may be of another time"));
        }
        // Measured values are reported, even if the picture cannot be written.
        if let (Some(folder), Some((_, pixels))) = (&self.keep, outcome.kept.last()) {
            let file = folder.join(format!("{name}-{targets}.png"));
            notes.extend(write_png(&file, under.picture.size(), pixels).err().map(|why| why.to_string()));
        }
        let vmaf = vmaf.and_then(|v| {
            v.of(under.picture, &outcome.kept).unwrap_or_else(|why| {
                notes.push(format!("no VMAF: {why}"));
                None
            })
        });
        let of = row::Of {
            under: *under,
            kind: self.picture.picture,
            targets,
            name,
            encoder,
            codec_bit_s,
            quantizer,
            vmaf,
            notes,
        };
        Ok(row::of(of, &outcome))
    }
}
