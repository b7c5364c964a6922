//! Computes VMAF scores of the kept frames after a run, with the user's FFmpeg that has the filter `libvmaf`.
//! The FFmpeg that this program is linked with may lack the filter.
//!
//! VMAF is a secondary measure. Its model (vmaf_v0.6.1) comes from people's judgement of compressed natural
//! video, not of letters and symbols, so it does not influence legibility. Kept frames are not consecutive,
//! so its motion feature is set to zero. Source: FFmpeg's documentation of libvmaf; Z. Li et al., "Toward a
//! practical perceptual video quality metric" (2016). Left out: other models, VMAF of whole sessions.

use crate::picture::Picture;
use crate::picture::canvas::Size;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vsteer_core::{Fault, FaultKind};

/// The filter graph for two inputs: the received frames and the shown ones.
const FILTER: &str = r"[0:v]format=yuv420p[came];[1:v]format=yuv420p[shown];[came][shown]libvmaf=model=version=vmaf_v0.6.1\\:motion.motion_force_zero=true:log_fmt=json:log_path=vmaf.json";

/// An FFmpeg with the filter.
pub struct Vmaf(PathBuf);

impl Vmaf {
    /// Checks this FFmpeg.
    ///
    /// # Errors
    /// It cannot be run, or lacks the filter.
    pub fn by(program: &Path) -> Result<Vmaf, Fault> {
        // The program runs in another folder, so its path must be absolute.
        let program = if program.components().count() > 1 {
            std::path::absolute(program).unwrap_or_else(|_| program.to_owned())
        } else {
            program.to_owned()
        };
        let said = Command::new(&program)
            .args(["-hide_banner", "-filters"])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Fault::io(format!("running {}", program.display()), &e))?;
        let has = String::from_utf8_lossy(&said.stdout).split_whitespace().any(|word| word == "libvmaf");
        if has {
            return Ok(Vmaf(program));
        }
        Err(Fault::new(FaultKind::Unsupported, format!("{} has no filter libvmaf", program.display()))
            .help("an ffmpeg that is built with --enable-libvmaf, such as the one in PyPI's imageio-ffmpeg"))
    }

    /// The mean over kept frames, by number, 0 to 100; `None` without kept frames.
    ///
    /// # Errors
    /// Files cannot be written, or FFmpeg fails.
    pub fn of(&self, picture: &Picture, kept: &[(u32, Vec<u8>)]) -> Result<Option<f64>, Fault> {
        if kept.is_empty() {
            return Ok(None);
        }
        let folder = Folder::new()?;
        let size = picture.size();
        let mut shown = vec![0; size.bytes()];
        let [came, source] = ["came", "shown"].map(|name| folder.0.join(name));
        let told = |e| Fault::io(format!("writing frames to {}", folder.0.display()), &e);
        let (mut came, mut source) =
            (std::fs::File::create(came).map_err(told)?, std::fs::File::create(source).map_err(told)?);
        for (frame, pixels) in kept {
            picture.draw(*frame, &mut shown, 1);
            came.write_all(pixels).map_err(told)?;
            source.write_all(&shown).map_err(told)?;
        }
        drop((came, source));
        self.run(&folder.0, size).map(Some)
    }

    fn run(&self, folder: &Path, size: Size) -> Result<f64, Fault> {
        let size = format!("{}x{}", size.width, size.height);
        let input = |name| ["-f", "rawvideo", "-pix_fmt", "bgr0", "-s", &size, "-r", "1", "-i", name];
        let said = Command::new(&self.0)
            .current_dir(folder)
            // On Ctrl-C, this program ends only after its FFmpeg has finished.
            .process_group(0)
            .args(["-hide_banner", "-nostdin", "-loglevel", "error"])
            .args(input("came"))
            .args(input("shown"))
            .args(["-lavfi", FILTER, "-f", "null", "-"])
            .output()
            .map_err(|e| Fault::io(format!("running {}", self.0.display()), &e))?;
        let log = std::fs::read_to_string(folder.join("vmaf.json")).unwrap_or_default();
        mean(&log).filter(|_| said.status.success()).ok_or_else(|| {
            let words = String::from_utf8_lossy(&said.stderr);
            let last = words.lines().next_back().unwrap_or("it said nothing").to_owned();
            Fault::new(FaultKind::Failed, format!("{} with libvmaf", self.0.display())).because(last)
        })
    }
}

/// The mean score in its log.
fn mean(log: &str) -> Option<f64> {
    let log: serde_json::Value = serde_json::from_str(log).ok()?;
    log["pooled_metrics"]["vmaf"]["mean"].as_f64()
}

/// A temporary folder for its files, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Fault> {
        let path = std::env::temp_dir().join(format!("vsteer-display-vmaf-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| Fault::io(format!("making {}", path.display()), &e))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Kind;

    #[test]
    fn one_without_the_filter_is_told_of_by_the_filters_name() {
        for (program, word) in [("true", "libvmaf"), ("/nowhere/ffmpeg", "/nowhere/ffmpeg")] {
            let why = Vmaf::by(Path::new(program)).err().unwrap().to_string();
            assert!(why.contains(word), "{why}");
        }
    }

    /// The stand-in for FFmpeg checks its files and writes the log of a real one (9.0, shortened).
    #[test]
    fn frames_are_given_as_they_came_and_were_shown_and_the_mean_is_read() {
        let size = Size { width: 352, height: 64 };
        let picture = Picture::new(Kind::Targets, size, 8, 1).unwrap();
        let frames = |n: &[u32]| -> Vec<(u32, Vec<u8>)> {
            n.iter()
                .map(|n| {
                    let mut pixels = vec![0; size.bytes()];
                    picture.draw(*n, &mut pixels, 1);
                    (*n, pixels)
                })
                .collect()
        };
        let home = std::env::temp_dir().join(format!("vsteer-display-vmaf-test-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let program = home.join("ffmpeg");
        let script = r#"#!/bin/sh
case "$2" in -filters) echo " .. libvmaf           VV->V      Calculate"; exit ;; esac
cmp -s came shown || { echo "other frames" >&2; exit 1; }
echo '{"version": "86da14d", "frames": [], "pooled_metrics": {"vmaf": {"min": 92.435782, "max": 92.680116, "mean": 92.572985}}}' > vmaf.json
"#;
        // A process of its own writes it: one that another test starts meanwhile could inherit this one's open file, and
        // then the kernel refuses to run it ("Text file busy").
        let mut writer = Command::new("sh")
            .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
            .arg(&program)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut writer.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        let vmaf = Vmaf::by(&program).unwrap();
        assert_eq!(vmaf.of(&picture, &frames(&[3, 9])).unwrap(), Some(92.572985));
        assert_eq!(vmaf.of(&picture, &[]).unwrap(), None);
        let mut wrong = frames(&[3]);
        wrong[0].0 = 4;
        assert!(vmaf.of(&picture, &wrong).unwrap_err().to_string().contains("other frames"));
        std::fs::remove_dir_all(&home).unwrap();
    }
}
