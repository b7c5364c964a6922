//! Asks the package archive without touching the system's own apt.
//!
//! This is a private apt with its own state, cache and sources (`man 5 apt.conf`). From the system's
//! configuration it uses only how to reach the archive (the `Acquire::` proxies and similar) and which keys
//! to trust. It does not use the system's hooks (`APT::Update::Post-Invoke`), because they change the system.
//! apt verifies the signature of the index and the checksum of downloads. Needs no privilege.

use super::sources::{self, Stanza, Wanted};
use crate::command;
use crate::files::{make_folder, write_file};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use vsteer_core::{Fault, FaultKind};

/// An older index is fetched again, because package versions leave the archive after some weeks.
const INDEX_FRESH: Duration = Duration::from_secs(24 * 3600);
/// Index and package downloads have some 10 MB each, which takes minutes on a slow line.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(900);
/// Time limit for queries to the local index.
const ASK_LIMIT: Duration = Duration::from_secs(60);

/// A file in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Where it is.
    pub uri: String,
    /// Its file name.
    pub file: String,
    /// `SHA256:...` or another checksum from the signed index.
    pub checksum: String,
}

/// A private apt with its own folder.
pub struct Apt {
    folder: PathBuf,
    wanted: Wanted,
    /// The error of the last refresh of the index.
    complaint: Option<String>,
}

impl Apt {
    /// Sets up the private folders. Refreshes the index if it is older than a day or if `refresh`.
    ///
    /// # Errors
    /// No apt, no entry in the system's sources, folder not writable. A source that did not answer is not an
    /// error yet, because the package may be in another one.
    pub fn open(folder: &Path, stanzas: &[Stanza], wanted: Wanted, refresh: bool) -> Result<Apt, Fault> {
        if command::find_program("apt-get").is_none() {
            return Err(Fault::new(FaultKind::Unsupported, "fetching packages: there is no apt-get")
                .help("the lab fetches a kernel by apt: run it on Debian or Ubuntu"));
        }
        if stanzas.is_empty() {
            return Err(Fault::new(FaultKind::NothingThere, "no package source is switched on in /etc/apt")
                .help("add your distribution's archive to /etc/apt/sources.list.d"));
        }
        let folder = folder.join(wanted.word());
        for part in ["state/lists/partial", "cache/archives/partial", "log", "etc/none.d"] {
            make_folder(&folder.join(part))?;
        }
        // Cases run in parallel, and apt refuses to refresh an index that another apt refreshes. After the
        // wait, the index is fresh.
        let _alone = super::alone(&folder)?;
        write_file(&folder.join("state/status"), "")?;
        let sources_text = sources::write(stanzas, wanted);
        let sources_file = folder.join("etc/lab.sources");
        let same_sources = std::fs::read_to_string(&sources_file).is_ok_and(|t| t == sources_text);
        // Another lab may be reading it.
        if !same_sources {
            write_file(&sources_file, &sources_text)?;
        }
        write_file(&folder.join("etc/apt.conf"), configuration(&folder, &transport_settings()?))?;
        let mut apt = Apt { folder, wanted, complaint: None };
        if refresh || !same_sources || !apt.index_is_fresh() {
            apt.update()?;
        }
        Ok(apt)
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join("state/updated")
    }

    fn index_is_fresh(&self) -> bool {
        let modified = self.stamp().metadata().and_then(|m| m.modified());
        modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < INDEX_FRESH))
    }

    fn update(&mut self) -> Result<(), Fault> {
        eprintln!("vsteer-lab: fetching the package index ({})", self.wanted.word());
        let finished = command::run(self.apt("apt-get").args(["-q", "update"]), DOWNLOAD_LIMIT)?;
        if finished.status.is_some_and(|s| s.success()) {
            write_file(&self.stamp(), "")?;
        } else {
            self.complaint = Some(command::last_words(&finished));
        }
        Ok(())
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.folder.join("etc/apt.conf")).env("LC_ALL", "C.UTF-8");
        command
    }

    /// Version and dependencies (only names, in order) of the version of `package` that apt would choose.
    ///
    /// # Errors
    /// The archive has no such package.
    pub fn show(&self, package: &str) -> Result<(String, Vec<String>), Fault> {
        let text = command::output(
            self.apt("apt-cache").args(["show", "--no-all-versions", "--", package]),
            ASK_LIMIT,
        );
        let text = text.map_err(|f| self.not_offered(package, f))?;
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        let version = field("Version:").ok_or_else(|| {
            self.not_offered(package, Fault::new(FaultKind::BadInput, "no version in its record"))
        })?;
        Ok((version.to_owned(), parse_depends(field("Depends:").unwrap_or_default())))
    }

    /// The names of all packages with this prefix, sorted.
    ///
    /// # Errors
    /// The local index cannot be queried or does not exist, with the reason if it could not be fetched.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        let text = command::output(self.apt("apt-cache").args(["pkgnames", prefix]), ASK_LIMIT)?;
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        if names.is_empty() {
            let none = Fault::new(FaultKind::NothingThere, "the index names none");
            return Err(self.not_offered(&format!("{prefix}*"), none));
        }
        Ok(names)
    }

    /// The files of the package, with the checksums of the signed index.
    ///
    /// # Errors
    /// The archive has no such package.
    pub fn offers(&self, package: &str) -> Result<Vec<Offer>, Fault> {
        let mut command = self.apt("apt-get");
        command.args(["-qq", "--print-uris"]);
        match self.wanted {
            Wanted::Binary => command.args(["download", package]),
            Wanted::Source => command.args(["source", "--download-only", package]),
            Wanted::Upstream => command.args(["source", "--download-only", "--tar-only", package]),
        };
        let text = command::output(&mut command, ASK_LIMIT).map_err(|f| self.not_offered(package, f))?;
        let offers = parse_offers(&text);
        if offers.is_empty() {
            return Err(self.not_offered(package, Fault::new(FaultKind::NothingThere, "nothing is offered")));
        }
        Ok(offers)
    }

    /// Downloads the package's files into `folder`; apt verifies them.
    ///
    /// # Errors
    /// The archive does not answer, or the download does not match the signed index.
    pub fn download(&self, package: &str, folder: &Path) -> Result<(), Fault> {
        let mut command = self.apt("apt-get");
        command.current_dir(folder).args(["-q"]);
        match self.wanted {
            Wanted::Binary => command.args(["download", package]),
            Wanted::Source => command.args(["source", "--download-only", package]),
            Wanted::Upstream => command.args(["source", "--download-only", "--tar-only", package]),
        };
        command::output(&mut command, DOWNLOAD_LIMIT).map(drop).map_err(|f| {
            let cause = f.cause.unwrap_or(f.what);
            Fault::new(f.kind, format!("downloading package {package}"))
                .because(cause)
                .help("check the network and the proxy in /etc/apt/apt.conf.d, then try again")
        })
    }

    fn not_offered(&self, package: &str, fault: Fault) -> Fault {
        if fault.kind == FaultKind::Interrupted {
            return fault;
        }
        let cause = fault.cause.unwrap_or(fault.what);
        let cause = match &self.complaint {
            Some(complaint) => format!("{cause}; refreshing the index failed: {complaint}"),
            None => cause,
        };
        let kind = if self.complaint.is_some() { FaultKind::Failed } else { FaultKind::NothingThere };
        Fault::new(kind, format!("the package archive does not offer {package} ({})", self.wanted.word()))
            .because(cause)
            .help("check the network and the entries in /etc/apt/sources.list(.d), or fetch with --refresh")
    }
}

/// How the system reaches its archive: proxies, time-outs, certificates.
fn transport_settings() -> Result<String, Fault> {
    let dump = command::output(Command::new("apt-config").arg("dump"), ASK_LIMIT)?;
    let of_transport =
        ["Acquire::http", "Acquire::https", "Acquire::ftp", "Acquire::Retries", "Acquire::Check-"];
    let keep = |l: &&str| of_transport.iter().any(|p| l.starts_with(p)) && !l.ends_with("\"\";");
    Ok(dump.lines().filter(keep).fold(String::new(), |text, line| text + line + "\n"))
}

/// The private apt.conf. apt reads it before the system's parts, whose paths it replaces.
fn configuration(folder: &Path, transport: &str) -> String {
    let f = folder.display();
    format!(
        "Dir::State \"{f}/state\";\nDir::State::status \"{f}/state/status\";\nDir::Cache \"{f}/cache\";\n\
         Dir::Log \"{f}/log\";\nDir::Etc::sourcelist \"{f}/etc/lab.sources\";\nDir::Etc::sourceparts \"-\";\n\
         Dir::Etc::parts \"{f}/etc/none.d\";\nDir::Etc::main \"{f}/etc/none\";\n\
         Dir::Etc::preferences \"{f}/etc/none\";\nDir::Etc::preferencesparts \"{f}/etc/none.d\";\n\
         // The private folders may be closed to the user that apt would become.\n\
         APT::Sandbox::User \"root\";\n\
         // Else it succeeds where no source answered, and an empty index counts as fresh.\n\
         APT::Update::Error-Mode \"any\";\nAcquire::Languages \"none\";\n{transport}"
    )
}

fn parse_depends(value: &str) -> Vec<String> {
    // For alternatives (`a | b`), apt would take the first.
    let name = |d: &str| d.split(['|', '(', ':']).next().unwrap_or_default().trim().to_owned();
    value.split(',').map(name).filter(|n| !n.is_empty()).collect()
}

/// Parses `--print-uris`: `'uri' file size checksum`.
fn parse_offers(text: &str) -> Vec<Offer> {
    let parse = |line: &str| {
        let (uri, rest) = line.strip_prefix('\'')?.split_once("' ")?;
        let mut words = rest.split_whitespace();
        let file = words.next()?.to_owned();
        Some(Offer { uri: uri.to_owned(), file, checksum: words.nth(1).unwrap_or_default().to_owned() })
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_by_name() {
        assert_eq!(
            parse_depends("linux-image-6.1.0-9-cloud-amd64 (= 6.1.9-1), kmod:any, a | b (>= 2), "),
            ["linux-image-6.1.0-9-cloud-amd64", "kmod", "a"]
        );
        assert!(parse_depends("").is_empty());
    }

    #[test]
    fn offers_with_their_checksums() {
        let text = "Reading...\n'http://m.example/pool/a_1_amd64.deb' a_1_amd64.deb 1504 SHA256:00be\n";
        let offers = parse_offers(text);
        assert_eq!(offers.len(), 1);
        assert_eq!(offers[0].uri, "http://m.example/pool/a_1_amd64.deb");
        assert_eq!((offers[0].file.as_str(), offers[0].checksum.as_str()), ("a_1_amd64.deb", "SHA256:00be"));
    }

    #[test]
    fn the_private_configuration_points_away_from_the_system() {
        let text = configuration(Path::new("/c"), "Acquire::http::Proxy \"http://p.example\";\n");
        for needed in [
            "Dir::Etc::parts \"/c/etc/none.d\"",
            "Dir::State \"/c/state\"",
            "Dir::Cache \"/c/cache\"",
            "p.example",
        ] {
            assert!(text.contains(needed), "{needed} is not in\n{text}");
        }
    }
}
