//! The command line of vsteer-display, and its short commands.

mod run;

use crate::codec::{self, Held};
use crate::picture::canvas::Size;
use crate::picture::{Kind, Picture};
use crate::quality::advise::{Wanted, advise};
use crate::quality::row::Row;
use crate::server::{self, Server};
use crate::{logs, table};
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};

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
/// If the folder cannot be written.
pub fn man(folder: &Path) -> Result<(), Fault> {
    let failed = |e: &std::io::Error| Fault::io(format!("writing manual pages to {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    // The pages have the program's name, however it was called.
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
    let value: f64 = number.parse().map_err(|_| format!("{text:?} is not a rate: 20M, 500k, bit/s"))?;
    if (0.0..=1e12).contains(&value) {
        Ok((value * scale) as u64)
    } else {
        Err(format!("{text:?} is not the rate of a link"))
    }
}

fn similarity(text: &str) -> Result<f64, String> {
    let ssim = text.parse().ok().filter(|ssim| (0.5..=0.999).contains(ssim));
    ssim.ok_or_else(|| format!("{text:?} is not a similarity from 0.5 to 0.999"))
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
        Fault::new(FaultKind::BadInput, format!("{text:?} is not a size"))
            .help("WIDTHxHEIGHT, 720p, 1080p or 3x1080p")
    })
}

impl PictureOptions {
    fn size(&self, otherwise: &str) -> Result<Size, Fault> {
        size(self.size.as_deref().unwrap_or(otherwise))
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
    /// Prints the advice.
    ///
    /// # Errors
    /// A file or log that cannot be read or has no rows; impossible requirements.
    pub fn advise(&self) -> Result<(), Fault> {
        let wanted = Wanted { fps: self.fps, cpu_percent: self.cpu_percent };
        if !(0.0..=1000.0).contains(&wanted.fps) || !(0.0..=1e5).contains(&wanted.cpu_percent) {
            let what = format!("{} frames per second for {} % of a CPU", wanted.fps, wanted.cpu_percent);
            return Err(
                Fault::new(FaultKind::BadInput, what).help("0 to 1000 frames per second, 0 to 100000 %")
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

/// The parts of a run's output that the advice needs.
#[derive(Deserialize)]
struct Said {
    rows: Vec<Row>,
}

impl ShowOptions {
    /// Writes the frame.
    ///
    /// # Errors
    /// A picture that cannot be drawn or encoded; a file that cannot be written.
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
