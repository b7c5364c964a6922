//! Files that make vsteer act: journals, and the logs of experiments. Who may have written them?
//!
//! vsteer often runs as root, on hosts that others use too. A journal names commands that a rollback runs. So the file,
//! its folder and the folders above belong to root, to this user, or to who called sudo, and nobody else may write
//! them; as sudo demands of its own files. A folder that anybody may write is accepted above the first one if it is
//! sticky (`/tmp`): there a user can rename and remove only his own files.
//!
//! New folders get mode 0700 and new files 0600, whatever the umask. So only this user can open a journal, and nobody
//! else can hold the lock that an undo waits for. A symbolic link in the last component is never followed.

use crate::files;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};

const OTHERS_WRITE: u32 = 0o022;
const OTHERS_READ: u32 = 0o007;
const STICKY: u32 = 0o1000;

fn failed(what: &str, path: &Path, e: &io::Error) -> Fault {
    Fault::io(format!("{what} {}", path.display()), e)
}

/// Does vsteer obey this user: root, itself, or who called it by sudo?
pub fn obeys(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw() || caller() == Some(uid)
}

/// The user who called vsteer by sudo. Only root's environment can say that.
pub fn caller() -> Option<u32> {
    let number = |text: String| -> Option<u32> {
        text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    };
    rustix::process::geteuid().is_root().then(|| std::env::var("SUDO_UID").ok().and_then(number)).flatten()
}

fn refused(path: &Path, why: String) -> Fault {
    Fault::new(FaultKind::NoPrivilege, format!("vsteer does not trust {}", path.display())).because(why).help(
        "use a folder that belongs to you and that only you can write (chmod go-w), or check who made it",
    )
}

/// Refuses what another user owns or may write.
fn check(path: &Path, of: &Metadata) -> Result<(), Fault> {
    if !obeys(of.uid()) {
        return Err(refused(path, format!("it belongs to the user with the number {}", of.uid())));
    }
    if of.mode() & OTHERS_WRITE != 0 {
        return Err(refused(path, format!("others may write it (mode {:04o})", of.mode() & 0o7777)));
    }
    Ok(())
}

/// Checks a folder and those above it.
///
/// # Errors
/// `NoPrivilege` where somebody else may have put something into it; `NothingThere`.
pub fn folder(path: &Path) -> Result<(), Fault> {
    let own = fs::symlink_metadata(path).map_err(|e| failed("cannot open the folder", path, &e))?;
    if own.is_symlink() {
        return Err(refused(path, "it is a symbolic link".to_owned()));
    }
    if !own.is_dir() {
        return Err(refused(path, "it is not a folder".to_owned()));
    }
    check(path, &own)?;
    let real = fs::canonicalize(path).map_err(|e| failed("cannot open the folder", path, &e))?;
    for above in real.ancestors().skip(1) {
        let of = fs::metadata(above).map_err(|e| failed("cannot open the folder", above, &e))?;
        let sticky = of.mode() & STICKY != 0 && obeys(of.uid());
        if !sticky {
            check(above, &of)?;
        }
    }
    Ok(())
}

/// Opens a file that a plan names, to read it or to change it (`flags`).
///
/// A plan can name any file, and other users can replace their own files and folders by links at any time. So the path
/// is walked component by component. In `/proc`, `/sys` and cgroups only the kernel makes links, so from there on it is
/// opened as it is. Anywhere else, links and the file must belong to root or to the user who runs vsteer, and to change a file
/// nobody else may write it or a folder on the way. A link in the last component is then never followed.
///
/// # Errors
/// `BadInput` for what is not an ordinary file: a pipe would block, a device may act. `NoPrivilege` as [`folder`].
pub fn open_named(path: &Path, what: &str, flags: OFlags) -> Result<File, Fault> {
    let changes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
    walk(path, what, flags, Rules { alone: changes, last_link: !changes })
}

/// Opens a file whose settings count for this process.
///
/// Root's settings decide what root does, so for root the file and each folder on the way must be safe from all others, as
/// in [`open_named`] for a change. A link may lead to the file, as configuration systems make them, but not from a folder
/// that others may write. For other users, the file is their own choice.
///
/// # Errors
/// As [`open_named`].
pub fn open_settings(path: &Path) -> Result<File, Fault> {
    open_safe("read the configuration", path)
}

/// As [`open_settings`], for any other file of which root's doings depend; `what` stands in faults, before the path.
///
/// # Errors
/// As [`open_named`].
pub fn open_safe(what: &str, path: &Path) -> Result<File, Fault> {
    if rustix::process::geteuid().is_root() {
        return walk(path, what, OFlags::RDONLY, Rules { alone: true, last_link: true });
    }
    let failed = |e: io::Error| Fault::io(format!("cannot {what} {}", path.display()), &e);
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let found = found.map(File::from).map_err(|e| failed(e.into()))?;
    opened_again(&found, OFlags::RDONLY).map_err(failed)
}

/// The bytes of such a file.
///
/// # Errors
/// As [`open_safe`]; `BadInput` for a large file.
pub fn safe_bytes(path: &Path) -> Result<Vec<u8>, Fault> {
    let file = open_safe("read", path)?;
    files::within(file, limits::TEXT_FILE).map_err(|e| failed("cannot read", path, &e))
}

/// Does this open file belong to root, and can nobody else write it? Then root wrote what it says.
pub fn is_roots(file: &File) -> bool {
    file.metadata().is_ok_and(|of| of.uid() == 0 && of.mode() & OTHERS_WRITE == 0)
}

/// The text of a file that holds a secret, such as a token or a key. [`open_safe`] must accept the file. Its owner must be a
/// user that vsteer obeys, and only the owner and the group may read the file. Keys of certificates often have a group.
///
/// # Errors
/// As [`open_safe`]; `NoPrivilege` if others can read it; `BadInput` if it is large, or not text.
pub fn secret_text(path: &Path) -> Result<String, Fault> {
    let file = open_safe("read the secret", path)?;
    let of = file.metadata().map_err(|e| failed("cannot read", path, &e))?;
    let not_used = |why: String, help: String| {
        let what = format!("vsteer does not use the secret in {}", path.display());
        Err(Fault::new(FaultKind::NoPrivilege, what).because(why).help(help))
    };
    if !obeys(of.uid()) {
        let why = format!("it belongs to the user with the number {}", of.uid());
        return not_used(why, "use a file of your own".to_owned());
    }
    if of.mode() & OTHERS_READ != 0 {
        let why = format!("every user can read it (mode {:04o})", of.mode() & 0o7777);
        return not_used(why, format!("chmod 600 {}", path.display()));
    }
    let bytes = files::within(file, limits::TEXT_FILE).map_err(|e| failed("cannot read", path, &e))?;
    String::from_utf8(bytes).map_err(|_| {
        Fault::new(FaultKind::BadInput, format!("cannot read {}", path.display()))
            .because("it is not UTF-8 text")
    })
}

/// What a walk to a file demands.
#[derive(Clone, Copy)]
struct Rules {
    /// Nobody else may write the file or a folder on the way.
    alone: bool,
    /// The last component may be a link.
    last_link: bool,
}

fn walk(path: &Path, what: &str, flags: OFlags, rules: Rules) -> Result<File, Fault> {
    let failed = |e: io::Error| Fault::io(format!("cannot {what} {}", path.display()), &e);
    let mut left = std::path::absolute(path).map_err(failed)?;
    'walk: for _ in 0..LINKS_MOST {
        let mut at = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|e| failed(e.into()))?;
        let mut walked = PathBuf::from("/");
        let parts: Vec<std::path::Component<'_>> = left.components().skip(1).collect();
        for (n, part) in parts.iter().enumerate() {
            let last = n + 1 == parts.len();
            if is_the_kernels(&at) {
                let rest: PathBuf = parts[n..].iter().collect();
                return opened_as_is(&at, &rest, flags).map_err(failed);
            }
            let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = rustix::fs::openat(&at, part.as_os_str(), step, Mode::empty())
                .map(File::from)
                .map_err(|e| failed(e.into()))?;
            let of = next.metadata().map_err(failed)?;
            walked.push(part);
            if of.is_symlink() {
                // Anybody who may write the folder can put a link of root's there, by a hard link.
                let shared = rules.alone && last && at.metadata().map_err(failed)?.mode() & OTHERS_WRITE != 0;
                if !obeys(of.uid()) || (last && !rules.last_link) || shared {
                    return Err(refused(&walked, "it is a symbolic link".to_owned()));
                }
                // Of the link that was checked: its folder's owner may have put another one there.
                let to = rustix::fs::readlinkat(&next, "", Vec::new()).map_err(|e| failed(e.into()))?;
                let to = std::ffi::OsString::from_vec(to.into_bytes());
                walked.pop();
                left = parts[n + 1..].iter().fold(walked.join(to), |path, part| path.join(part));
                continue 'walk;
            }
            let sticky = of.is_dir() && of.mode() & STICKY != 0 && obeys(of.uid());
            if rules.alone && !sticky && !is_the_kernels(&next) {
                check(&walked, &of)?;
            }
            at = next;
        }
        return opened_again(&at, flags).map_err(failed);
    }
    Err(refused(path, "it leads through too many links".to_owned()))
}

/// As many links as Linux follows in one path.
const LINKS_MOST: usize = 40;

/// Opens what the open descriptor is, if it is an ordinary file. The kind is checked first, because opening a device can
/// have an effect.
fn opened_again(at: &File, flags: OFlags) -> io::Result<File> {
    if !at.metadata()?.is_file() {
        let why = "it is not an ordinary file or a file of the kernel";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(at));
    Ok(rustix::fs::open(own, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?.into())
}

/// Opens a file beneath a folder of the kernel.
fn opened_as_is(at: &File, rest: &Path, flags: OFlags) -> io::Result<File> {
    let found = File::from(rustix::fs::openat(at, rest, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !is_the_kernels(&found) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it leads out of the kernel's files"));
    }
    opened_again(&found, flags)
}

/// Does the kernel itself make this file?
fn is_the_kernels(file: &impl std::os::fd::AsFd) -> bool {
    // linux/magic.h: proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs.
    const KERNELS: [u32; 7] =
        [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x7363_6673];
    rustix::fs::fstatfs(file).is_ok_and(|fs| KERNELS.contains(&(fs.f_type as u32)))
}

/// Makes a folder, and those above it that are missing, for this user alone; then as [`folder`].
///
/// # Errors
/// As [`folder`]; `NoSpace`, `NoPrivilege` where it cannot be made.
pub fn make_folder(path: &Path) -> Result<(), Fault> {
    let mut missing: Vec<PathBuf> = Vec::new();
    let mut at = Some(path);
    while let Some(one) = at.filter(|p| !p.as_os_str().is_empty() && fs::symlink_metadata(p).is_err()) {
        missing.push(one.to_owned());
        at = one.parent();
    }
    for one in missing.iter().rev() {
        match DirBuilder::new().mode(0o700).create(one) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("cannot create the folder", one, &e));
            }
            _ => {}
        }
    }
    folder(path)
}

/// As [`make_folder`]; and if the folder belongs to this user, takes all access from others: an earlier version made it
/// with mode 0755.
///
/// # Errors
/// As [`make_folder`].
pub fn make_private_folder(path: &Path) -> Result<(), Fault> {
    make_folder(path)?;
    let of = fs::metadata(path).map_err(|e| failed("cannot open the folder", path, &e))?;
    if of.mode() & 0o077 != 0 && of.uid() == rustix::process::geteuid().as_raw() {
        let closed = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        closed.map_err(|e| failed("cannot close the folder", path, &e))?;
    }
    Ok(())
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    // A pipe in the file's place must not hang the process.
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from).map_err(io::Error::from)
}

fn checked(path: &Path, file: File) -> Result<File, Fault> {
    let of = file.metadata().map_err(|e| failed("cannot read", path, &e))?;
    if !of.is_file() {
        return Err(refused(path, "it is not an ordinary file".to_owned()));
    }
    check(path, &of)?;
    Ok(file)
}

fn opened(path: &Path, flags: OFlags) -> Result<File, Fault> {
    let file = open_with(path, flags).map_err(|e| match rustix::io::Errno::from_io_error(&e) {
        Some(rustix::io::Errno::LOOP) => refused(path, "it is a symbolic link".to_owned()),
        _ => failed("cannot open", path, &e),
    })?;
    checked(path, file)
}

/// Opens a file to read it.
///
/// # Errors
/// As [`folder`], of the file alone.
pub fn open(path: &Path) -> Result<File, Fault> {
    opened(path, OFlags::RDONLY)
}

/// Opens a file to read it and to append to it.
///
/// # Errors
/// As [`open`].
pub fn open_to_append(path: &Path) -> Result<File, Fault> {
    opened(path, OFlags::RDWR | OFlags::APPEND)
}

/// Makes a file, to read it and append to it, for this user alone.
///
/// # Errors
/// As the system says: `Changed` where there is one.
pub fn create(path: &Path) -> Result<File, Fault> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
    open_with(path, flags).map_err(|e| failed("cannot create", path, &e))
}

/// Makes a file in place of the one that may be there.
///
/// # Errors
/// As [`create`].
pub fn create_again(path: &Path) -> Result<File, Fault> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("cannot replace", path, &e)),
        _ => {}
    }
    create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What another user can put on the way to a file that a plan names. Only root can give files away.
    #[test]
    fn a_named_file_is_changed_only_on_a_trusted_way() {
        use std::os::unix::fs::{chown, symlink};
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let open = |name: &str, flags| open_named(&path(name), "change", flags);
        fs::write(path("own"), "1").unwrap();
        symlink(path("own"), path("link")).unwrap();
        assert!(open("own", OFlags::WRONLY).is_ok() && open("link", OFlags::RDONLY).is_ok());
        let said = open("link", OFlags::WRONLY).unwrap_err().to_string();
        assert!(said.contains("it is a symbolic link"), "{said}");
        // The kernel's own links and files.
        assert!(open_named(Path::new("/proc/self/comm"), "change", OFlags::WRONLY).is_ok());
        assert_eq!(
            open_named(Path::new("/dev/null"), "read", OFlags::RDONLY).unwrap_err().kind,
            FaultKind::BadInput
        );
        fs::create_dir(path("theirs")).unwrap();
        fs::write(path("theirs/file"), "1").unwrap();
        // Links of theirs: to a file of the kernel, and to a folder on the way.
        symlink("/proc/self/comm", path("theirs/kernel")).unwrap();
        symlink(dir.path(), path("theirs/up")).unwrap();
        if chown(path("theirs"), Some(65_534), None).is_err() {
            return;
        }
        for name in ["kernel", "up", "file"] {
            std::os::unix::fs::lchown(path("theirs").join(name), Some(65_534), None).unwrap();
        }
        for name in ["theirs/file", "theirs/kernel", "theirs/up/own"] {
            let said = open(name, OFlags::WRONLY).unwrap_err();
            assert_eq!(said.kind, FaultKind::NoPrivilege, "{name}: {said}");
        }
        assert_eq!(open("theirs/up/own", OFlags::RDONLY).unwrap_err().kind, FaultKind::NoPrivilege);
        assert!(open("theirs/file", OFlags::RDONLY).is_ok());
    }

    /// Settings that another user could have written do not count for root.
    #[test]
    #[ignore = "needs root"]
    fn settings_of_root_come_from_what_only_root_can_write() {
        use std::os::unix::fs::{chown, lchown, symlink};
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("etc")).unwrap();
        give(&path("etc"), 0o755);
        fs::write(path("etc/a"), "").unwrap();
        symlink(path("etc/a"), path("etc/link")).unwrap();
        let refused =
            |name: &str| open_settings(&path(name)).is_err_and(|f| f.kind == FaultKind::NoPrivilege);
        assert!(open_settings(&path("etc/a")).is_ok() && open_settings(&path("etc/link")).is_ok());
        for mode in [0o666, 0o664] {
            give(&path("etc/a"), mode);
            assert!(refused("etc/a") && refused("etc/link"), "{mode:o}");
        }
        give(&path("etc/a"), 0o644);
        // A folder that others may write: nothing in it counts. In a sticky one, a link does not.
        give(&path("etc"), 0o775);
        assert!(refused("etc/a"));
        give(&path("etc"), 0o1777);
        assert!(open_settings(&path("etc/a")).is_ok() && refused("etc/link"));
        give(&path("etc"), 0o755);
        lchown(path("etc/link"), Some(65534), None).unwrap();
        assert!(refused("etc/link"));
        chown(path("etc/a"), Some(65534), None).unwrap();
        assert!(refused("etc/a"));
        chown(path("etc/a"), Some(0), None).unwrap();
        chown(path("etc"), Some(65534), None).unwrap();
        assert!(refused("etc/a"));
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn give(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_made_is_for_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        make_folder(&inner).unwrap();
        assert_eq!((mode(&dir.path().join("a")), mode(&inner)), (0o700, 0o700));
        let file = inner.join("x.journal");
        drop(create(&file).unwrap());
        assert_eq!(mode(&file), 0o600);
        assert!(create(&file).is_err() && create_again(&file).is_ok() && open(&file).is_ok());
        give(&inner, 0o755);
        make_private_folder(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);
    }

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, file) = (dir.path().join("a/b"), dir.path().join("a/b/x"));
        make_folder(&inner).unwrap();
        drop(create(&file).unwrap());
        for (path, bad) in [(inner.clone(), 0o770), (dir.path().join("a"), 0o777)] {
            let was = mode(&path);
            give(&path, bad);
            let fault = folder(&inner).unwrap_err();
            assert!(
                fault.kind == FaultKind::NoPrivilege && fault.to_string().contains("others may write"),
                "{fault}"
            );
            give(&path, was);
            folder(&inner).unwrap();
        }
        // A sticky folder above is fine: nobody else can replace what is in it. The folder itself is not.
        give(&dir.path().join("a"), 0o1777);
        folder(&inner).unwrap();
        assert!(folder(&dir.path().join("a")).is_err());
        give(&file, 0o666);
        assert_eq!(open(&file).unwrap_err().kind, FaultKind::NoPrivilege);
    }

    #[test]
    fn links_and_pipes_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        for opened in [open(&link), open_to_append(&link), create(&link)] {
            assert!(opened.is_err());
        }
        drop(create_again(&link).unwrap());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        let (folder_link, pipe) = (dir.path().join("folder"), dir.path().join("pipe"));
        std::os::unix::fs::symlink(dir.path(), &folder_link).unwrap();
        assert!(folder(&folder_link).is_err());
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(open(&pipe).unwrap_err().to_string().contains("not an ordinary file"));
    }

    #[test]
    #[ignore = "needs root"]
    fn what_belongs_to_another_user_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, file) = (dir.path().join("theirs"), dir.path().join("x"));
        make_folder(&inner).unwrap();
        drop(create(&file).unwrap());
        for path in [&inner, &file] {
            std::os::unix::fs::chown(path, Some(65534), None).unwrap();
        }
        let fault = folder(&inner).unwrap_err();
        assert!(fault.to_string().contains("65534"), "{fault}");
        assert_eq!(open(&file).unwrap_err().kind, FaultKind::NoPrivilege);
    }
}
