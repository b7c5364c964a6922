//! What can be asked for, and what is made of it.

use crate::codec::{self, Codec, Held};
use crate::link::Link;
use crate::path::{self, Conditions, Run};
use crate::picture::canvas::Size;
use crate::picture::{Kind, Picture};
use crate::server::{self, Server, session};
use crate::vmaf::Vmaf;
use crate::{logs, matched, row, table};
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vsteer_core::display::advise::{Wanted, advise};
use vsteer_core::display::row::Row;
use vsteer_core::{Fault, FaultKind};

/// Codecs of a quick run: one of each kind.
const QUICK: &[&str] = &["jpeg", "png", "tiles", "h264", "h265"];
const QUICK_TARGETS: &[u32] = &[1000, 10_000];
const QUICK_SIZE: &str = "720p";
const QUICK_S: u64 = 2;
/// Those of the seed.
const TARGETS: &[u32] = &[1000, 3000, 5000, 10_000];
/// Frames that are kept of a run; raw, they are 8 MB each at 1080p.
const SAMPLES: usize = 12;
/// A codec holds a little less than its link.
const RATE_OF_LINK: f64 = 0.9;

/// A run that was interrupted before is not one.
const LASTS_LEAST: Duration = Duration::from_secs(1);
/// A clock that is further off than this was set; adjtime(3) moves it by 500 ppm at most.
const CLOCK_MOVES_S: f64 = 0.1;
const CLOCK_DRIFTS: f64 = 500e-6;

/// Which codec should a remote display use when its CPUs are busy and its picture moves? Measured on this machine, end to end; a frame
/// counts if it can be read
#[derive(Debug, Parser)]
#[command(name = "vsteer-display", bin_name = "vsteer display", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a moving picture through codecs and a link, and say what came of it. Interrupting it keeps what was measured
    Run(RunOptions),
    /// The codecs, and whether this build has them
    Codecs {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Other people's servers that can be run, and whether they are there
    Servers {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write one frame of a picture as PNG
    Show(ShowOptions),
    /// Say which codec to take, by what `run --json` measured, and what would change that
    Advise(AdviseOptions),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages
    Man {
        /// Where to; the folder is made
        folder: PathBuf,
    },
}

/// `completions SHELL`.
pub fn completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "vsteer-display", &mut std::io::stdout());
}

/// `man FOLDER`.
///
/// # Errors
/// When the folder cannot be written.
pub fn man(folder: &Path) -> Result<(), Fault> {
    let failed = |e: &std::io::Error| Fault::io(format!("writing manual pages to {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    // Pages are named after the program that is there, whichever way it was called.
    clap_mangen::generate_to(Cli::command().bin_name("vsteer-display"), folder).map_err(|e| failed(&e))
}

#[derive(Debug, Args)]
pub struct PictureOptions {
    /// What is on the screen
    #[arg(long, value_enum, default_value = "targets")]
    picture: Kind,
    /// WIDTHxHEIGHT, 720p, 1080p, or 3x1080p for three monitors side by side [default: 1080p]
    #[arg(long)]
    size: Option<String>,
    /// Decides what is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
pub struct RunOptions {
    #[command(flatten)]
    picture: PictureOptions,
    /// How many targets, a run for each [default: 1000,3000,5000,10000]
    #[arg(long, value_delimiter = ',')]
    targets: Vec<u32>,
    /// Codecs by name (see `codecs`) [default: all that this build has in software; none where servers are named]
    #[arg(long = "codec", value_delimiter = ',')]
    codecs: Vec<String>,
    /// Other people's servers by name or family (see `servers`), behind the same link
    #[arg(long = "server", value_delimiter = ',')]
    servers: Vec<String>,
    /// Write the last frame that was kept of each run, as its viewer saw it, to NAME-TARGETS.png in this folder, which is made
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Frames per second that the application draws, if it can
    #[arg(long, default_value_t = 60)]
    fps: u32,
    /// Threads that draw [default: as many as there are CPUs]
    #[arg(long)]
    draw_threads: Option<usize>,
    /// The link's rate: 20M, 500k, 0; codecs that hold a rate are given nine tenths of it [default: none]
    #[arg(long, value_parser = bits)]
    rate: Option<u64>,
    /// Give each codec that can choose the coarsest quantizer at which the picture still has this structural similarity (0.5 to 0.999): all
    /// are then compared at one quality. A link's rate is then nothing that codecs know of
    #[arg(long, value_parser = similarity)]
    match_ssim: Option<f64>,
    /// Codecs that hold a rate divide it among so many frames a second [default: as many as go in the first second]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=240))]
    rate_fps: Option<u32>,
    /// The link's delay each way, ms
    #[arg(long, default_value_t = 0.0)]
    delay_ms: f64,
    /// What may wait for the link's rate, kB
    #[arg(long, default_value_t = 64)]
    queue_kb: usize,
    /// Datagrams that the link loses, percent; for servers that send such
    #[arg(long, default_value_t = 0.0)]
    loss_percent: f64,
    /// For how long each run is counted, s [default: 10]
    #[arg(long)]
    seconds: Option<u64>,
    /// A minute's run: 720p, two numbers of targets, five codecs, 2 s each
    #[arg(long)]
    quick: bool,
    /// Performance counters of VMware's Horizon or Citrix as Windows logs them (CSV of typeperf, relog, Export-Counter), to be told beside the runs at
    /// whose time they were; may be given more than once. Untried on a real one
    #[arg(long = "logs", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Score the frames that were kept by VMAF, too, with this ffmpeg: one that has the filter libvmaf. A secondary measure, for its model learnt from natural video
    #[arg(long, value_name = "FFMPEG")]
    vmaf: Option<PathBuf>,
    /// Print a line for each frame as it is presented, too: `frame`, when (s since 1970), how long after it was to be drawn (s)
    #[arg(long, conflicts_with_all = ["json", "servers"])]
    tell: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct AdviseOptions {
    /// What `run --json` printed; `-` for standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Legible frames per second, at least
    #[arg(long, default_value_t = 20.0)]
    fps: f64,
    /// Of the server's CPU, in percent of one, at most
    #[arg(long, default_value_t = 100.0)]
    cpu_percent: f64,
    /// Performance counters of VMware's Horizon or Citrix as Windows logs them (CSV of typeperf, relog, Export-Counter), to be told beside the runs at
    /// whose time they were; may be given more than once. Untried on a real one
    #[arg(long = "logs", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub struct ShowOptions {
    #[command(flatten)]
    picture: PictureOptions,
    /// How many targets
    #[arg(long, default_value_t = 1000)]
    targets: u32,
    /// Which frame
    #[arg(long, default_value_t = 0)]
    frame: u32,
    /// As the viewer of this codec sees it, once it was sent a second of frames
    #[arg(long)]
    codec: Option<String>,
    /// The rate that the codec holds
    #[arg(long, value_parser = bits, requires = "codec")]
    rate: Option<u64>,
    /// The file
    #[arg(short, long)]
    output: PathBuf,
}

fn bits(text: &str) -> Result<u64, String> {
    let (number, scale) = match text.char_indices().next_back() {
        Some((at, 'k')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let value: f64 = number.parse().map_err(|_| format!("{text:?} is no rate: 20M, 500k, bit/s"))?;
    if (0.0..=1e12).contains(&value) {
        Ok((value * scale) as u64)
    } else {
        Err(format!("{text:?} is no link's rate"))
    }
}

fn similarity(text: &str) -> Result<f64, String> {
    let ssim = text.parse().ok().filter(|ssim| (0.5..=0.999).contains(ssim));
    ssim.ok_or_else(|| format!("{text:?} is no similarity from 0.5 to 0.999"))
}

fn size(text: &str) -> Result<Size, Fault> {
    let size = match text {
        "720p" => Some(Size { width: 1280, height: 720 }),
        "1080p" => Some(Size { width: 1920, height: 1080 }),
        "3x1080p" => Some(Size { width: 5760, height: 1080 }),
        _ => text
            .split_once('x')
            .and_then(|(w, h)| Some(Size { width: w.parse().ok()?, height: h.parse().ok()? })),
    };
    size.ok_or_else(|| {
        Fault::new(FaultKind::BadInput, format!("{text:?} is no size"))
            .way_out("WIDTHxHEIGHT, 720p, 1080p or 3x1080p")
    })
}

impl PictureOptions {
    fn size(&self, otherwise: &str) -> Result<Size, Fault> {
        size(self.size.as_deref().unwrap_or(otherwise))
    }
}

/// Who is measured.
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
            // Those in hardware may be built in and still not be there.
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

    /// Runs all.
    ///
    /// # Errors
    /// What cannot be; a run that could not begin, after the others' rows.
    pub fn run(&self) -> Result<(), Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let told = |e| Fault::io("watching for an interrupt".to_owned(), &e);
            // The second one ends it as it is; servers end with it.
            let code = FaultKind::Interrupted.exit_code().into();
            signal_hook::flag::register_conditional_shutdown(signal, code, stop.clone()).map_err(told)?;
            signal_hook::flag::register(signal, stop.clone()).map_err(told)?;
        }
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
                .way_out("1 to 3600 s, 1 to 240 frames per second, 0 to 10000 ms, 0 to 100 %"));
        }
        let targets = match (&self.targets[..], self.picture.picture, self.quick) {
            (_, Kind::Text | Kind::Sheet | Kind::Video | Kind::Idle, _) => &[0][..],
            ([], _, true) => QUICK_TARGETS,
            ([], _, false) => TARGETS,
            (some, _, _) => some,
        };
        let threads = self.draw_threads.or(std::thread::available_parallelism().ok().map(Into::into));
        let link = Link {
            rate_bit_s: self.rate,
            delay_ms: self.delay_ms,
            queue_bytes: self.queue_kb << 10,
            loss_percent: self.loss_percent,
        };
        if let Some(who) = who.iter().find(|who| self.loss_percent != 0.0 && !who.is_datagrams()) {
            let what = format!("{} over a link that loses {} %", who.name(), self.loss_percent);
            return Err(Fault::new(FaultKind::BadInput, what)
                .because("its stream loses nothing, for what is lost is sent again")
                .way_out("a server that sends datagrams (gstreamer), or a narrower link"));
        }
        // What cannot be is told before anything is run for it.
        let vmaf = self.vmaf.as_deref().map(Vmaf::by).transpose()?;
        if let Some(folder) = &self.keep {
            std::fs::create_dir_all(folder)
                .map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
        }
        let pictures: Vec<(u32, Picture)> = targets
            .iter()
            .map(|n| Ok((*n, Picture::new(self.picture.picture, size, *n, self.picture.seed)?)))
            .collect::<Result<_, Fault>>()?;
        let mut rows = Vec::new();
        let mut kinds = Vec::new();
        let mut interrupted = None;
        let runs = pictures.iter().flat_map(|(n, picture)| who.iter().map(move |who| (*n, picture, *who)));
        let all = targets.len() * who.len();
        for (i, (n, picture, who)) in runs.enumerate() {
            if stop.load(Ordering::Relaxed) {
                interrupted = Some(i);
                break;
            }
            let under = Conditions {
                picture,
                fps: self.fps,
                draw_threads: threads.unwrap_or(1).max(1),
                link,
                length: Duration::from_secs(seconds),
                samples: SAMPLES,
                tell: self.tell,
                stop: &stop,
            };
            let of = if n > 0 { format!(" of {n} targets") } else { String::new() };
            eprintln!("vsteer-display: {} of {all}: {}{of}", i + 1, who.name());
            match self.one(who, &under, n, vmaf.as_ref()) {
                Ok(row) => rows.push(row),
                Err(why) if why.kind == FaultKind::Interrupted => {
                    interrupted = Some(i);
                    break;
                }
                Err(why) => {
                    eprintln!("vsteer-display: {why}");
                    kinds.push(why.kind);
                }
            }
        }
        // What was measured is told, whatever becomes of others' logs.
        let mut logged = Vec::new();
        for file in &self.logs {
            match logs::read(file, &rows) {
                Ok(log) => logged.push(log),
                Err(why) => {
                    eprintln!("vsteer-display: {why}");
                    kinds.push(why.kind);
                }
            }
        }
        if self.json {
            let said = json!({ "rows": rows, "seed": self.picture.seed, "fps": self.fps, "link": link, "logs": logged,
                "interrupted": stop.load(Ordering::Relaxed) });
            println!("{}", serde_json::to_string_pretty(&said).expect("rows are plain data"));
        } else if !(rows.is_empty() && logged.is_empty()) {
            print!("{}{}", table::of(&rows), logs::table(&logged));
        }
        if stop.load(Ordering::Relaxed) {
            let done = interrupted.unwrap_or(rows.len());
            return Err(Fault::new(
                FaultKind::Interrupted,
                format!("interrupted: {done} of {all} runs are told"),
            ));
        }
        // Each was told when it happened.
        let told = |kind: &FaultKind| {
            let what = format!("{} of what was asked for could not be had, as is told above", kinds.len());
            Err(Fault::new(*kind, what))
        };
        kinds.first().map_or(Ok(()), told)
    }

    /// One run.
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
        // What was measured is told, whatever becomes of its picture.
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

/// Lists codecs.
///
/// # Errors
/// None.
pub fn codecs(json: bool) -> Result<(), Fault> {
    if json {
        let all: Vec<_> = codec::ALL
            .iter()
            .map(|c| {
                let (encoder, there) = c.built_in();
                json!({ "name": c.name, "doc": c.doc, "encoder": encoder, "built_in": there, "lossless": c.lossless,
                        "holds_rate": c.holds_rate, "hardware": c.in_hardware })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&all).expect("plain data"));
        return Ok(());
    }
    for c in codec::ALL {
        let (encoder, there) = c.built_in();
        println!(
            "{:<14} {:<14} {:<9} {}",
            c.name,
            encoder,
            if there { "built in" } else { "missing" },
            c.doc
        );
    }
    Ok(())
}

/// Lists other people's servers.
///
/// # Errors
/// None.
pub fn servers(json: bool) -> Result<(), Fault> {
    if json {
        let one = |s: &Server| {
            let missing: Vec<_> = s
                .missing()
                .iter()
                .map(|(program, package)| json!({ "program": program, "package": package }))
                .collect();
            json!({ "name": s.name, "doc": s.doc, "program": s.program, "package": s.package, "there": missing.is_empty(), "missing": missing })
        };
        let all: Vec<_> = server::ALL.iter().map(one).collect();
        println!("{}", serde_json::to_string_pretty(&all).expect("plain data"));
        return Ok(());
    }
    for s in server::ALL {
        let packages: Vec<&str> = s.missing().iter().map(|(_, package)| *package).collect();
        let there =
            if packages.is_empty() { "there".to_owned() } else { format!("missing: {}", packages.join(" ")) };
        println!("{:<17} {:<18} {there:<9} {}", s.name, s.program, s.doc);
    }
    Ok(())
}

impl AdviseOptions {
    /// Says it.
    ///
    /// # Errors
    /// A file or log that cannot be read or holds no rows; numbers that nobody can want.
    pub fn advise(&self) -> Result<(), Fault> {
        let wanted = Wanted { fps: self.fps, cpu_percent: self.cpu_percent };
        if !(0.0..=1000.0).contains(&wanted.fps) || !(0.0..=1e5).contains(&wanted.cpu_percent) {
            let what = format!("{} frames per second for {} % of a CPU", wanted.fps, wanted.cpu_percent);
            return Err(
                Fault::new(FaultKind::BadInput, what).way_out("0 to 1000 frames per second, 0 to 100000 %")
            );
        }
        let mut rows = Vec::new();
        for file in &self.files {
            let told = |e| Fault::io(format!("reading {}", file.display()), &e);
            let text = if file.as_os_str() == "-" {
                std::io::read_to_string(std::io::stdin()).map_err(told)?
            } else {
                std::fs::read_to_string(file).map_err(told)?
            };
            let said: Said = serde_json::from_str(&text).map_err(|e| {
                Fault::new(
                    FaultKind::BadInput,
                    format!("{}: not what `vsteer display run --json` prints", file.display()),
                )
                .because(e)
            })?;
            rows.extend(said.rows);
        }
        let advice = advise(&rows, wanted);
        let logged: Vec<_> =
            self.logs.iter().map(|file| logs::read(file, &rows)).collect::<Result<_, _>>()?;
        if self.json {
            println!(
                "{}",
                serde_json::to_string_pretty(&json!({ "wanted": wanted, "advice": advice, "logs": logged }))
                    .expect("plain data")
            );
        } else {
            print!("{}{}", table::advice(&advice, wanted), logs::table(&logged));
        }
        Ok(())
    }
}

/// What a run printed, as far as advice wants it.
#[derive(Deserialize)]
struct Said {
    rows: Vec<Row>,
}

impl ShowOptions {
    /// Writes the frame.
    ///
    /// # Errors
    /// What cannot be drawn or encoded; a file that cannot be written.
    pub fn show(&self) -> Result<(), Fault> {
        const FPS: u32 = 60;
        let size = self.picture.size("1080p")?;
        let picture = Picture::new(self.picture.picture, size, self.targets, self.picture.seed)?;
        let mut pixels = vec![0; size.bytes()];
        picture.draw(self.frame, &mut pixels, 1);
        if let Some(name) = &self.codec {
            let codec = codec::find(name)?;
            let (mut encoder, mut decoder) =
                (codec.encoder(size, FPS, self.rate.into())?, codec.decoder(size)?);
            for frame in self.frame.saturating_sub(FPS - 1)..=self.frame {
                picture.draw(frame, &mut pixels, 1);
                let mut bytes = Vec::new();
                encoder.convert(&pixels)?;
                encoder.encode(&mut bytes)?;
                decoder.decode(&bytes)?;
            }
            decoder.present(&mut pixels)?;
        }
        write_png(&self.output, size, &pixels)
    }
}

fn write_png(file: &Path, size: Size, pixels: &[u8]) -> Result<(), Fault> {
    let mut png = codec::find("png")?.encoder(size, 1, Held::Quality)?;
    let mut bytes = Vec::new();
    png.convert(pixels)?;
    png.encode(&mut bytes)?;
    std::fs::write(file, bytes).map_err(|e| Fault::io(format!("writing {}", file.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_are_read() {
        assert_eq!((bits("20M"), bits("500k"), bits("0")), (Ok(20_000_000), Ok(500_000), Ok(0)));
        assert!(bits("fast").is_err() && bits("-1M").is_err() && bits("").is_err());
        assert_eq!(size("3x1080p").unwrap(), Size { width: 5760, height: 1080 });
        assert!(size("wide").is_err());
    }
}
