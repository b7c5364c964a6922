//! Stand-ins for the tools, in a folder of their own; Debian's own update-grub is under the lab's case.

use super::*;
use std::path::Path;

fn program(at: &Path, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(at, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).unwrap();
    at.to_string_lossy().into_owned()
}

fn names() -> Vec<String> {
    vec!["mitigations".to_owned(), "amd_pstate".to_owned()]
}

/// Set, read, put back, put back again.
fn there_and_back(loader: &Loader, look: impl Fn() -> String) {
    let (n, before) = (names(), look());
    let from = read(loader, &n).unwrap();
    let kept = Former { files: former(loader).unwrap(), ..Former::default() };
    for to in ["amd_pstate=active", "amd_pstate=active mitigations=auto", ""] {
        set(loader, &n, to).unwrap();
        assert_eq!(read(loader, &n).unwrap(), to, "{loader}");
        restore(loader, &n, &from, to, &kept).unwrap();
        assert_eq!(
            (read(loader, &n).unwrap(), look()),
            (from.clone(), before.clone()),
            "{loader}, from {to:?}"
        );
        restore(loader, &n, &from, to, &kept).unwrap();
        assert_eq!(look(), before);
    }
    assert_eq!(set(loader, &n, "a=\"; reboot").unwrap_err().kind, FaultKind::BadInput);
}

fn grub(dir: &Path) -> Loader {
    let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
    std::fs::write(
        at("grub"),
        "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet mitigations=auto\"\nGRUB_CMDLINE_LINUX=\"\"\n",
    )
    .unwrap();
    let update = program(
        &dir.join("update-grub"),
        &format!(
            ". {}; echo \"linux /vmlinuz ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT\" > {}",
            at("grub"),
            at("menu")
        ),
    );
    shell::ask(&update, None, LIMIT).unwrap();
    Loader::Grub { files: vec![at("grub")], update, menu: at("menu") }
}

#[test]
fn by_grubs_files() {
    let dir = tempfile::tempdir().unwrap();
    let loader = grub(dir.path());
    there_and_back(&loader, || std::fs::read_to_string(dir.path().join("grub")).unwrap());
}

#[test]
fn what_somebody_else_edited_meanwhile_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (loader, n, file) = (grub(dir.path()), names(), dir.path().join("grub"));
    let kept = Former { files: former(&loader).unwrap(), ..Former::default() };
    set(&loader, &n, "amd_pstate=active").unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}GRUB_TIMEOUT=9\n")).unwrap();
    restore(&loader, &n, "mitigations=auto", "amd_pstate=active", &kept).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("GRUB_TIMEOUT=9") && text.contains("quiet mitigations=auto"), "{text}");
}

#[test]
fn by_grubby_and_kernelstub() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    // What they do to their words, by what they are told: names out, words in.
    let change = format!(
        "f={}; for n in $out; do sed -i -E \"s/ $n(=[^ ]*)?( |\\$)/\\2/\" $f; done; if [ -n \"$in\" ]; then sed -i \"s/\\$/ $in/\" $f; fi",
        at("words")
    );
    std::fs::write(at("words"), "ro quiet mitigations=auto\n").unwrap();
    let grubby = program(
        &dir.path().join("grubby"),
        &format!(
            "out=; in=; for a; do case \"$a\" in --info=*) sed 's/.*/args=\"&\"/' {}; exit;; --remove-args=*) out=${{a#*=}};; --args=*) in=${{a#*=}};; esac; done\n{change}",
            at("words")
        ),
    );
    there_and_back(&Loader::Grubby { program: grubby }, || std::fs::read_to_string(at("words")).unwrap());
    let show = format!(
        "{{ printf '{{ \"user\": {{ \"kernel_options\": ['; sed 's/ /\", \"/g; s/.*/\"&\"/' {} | tr -d '\\n'; printf '] }} }}'; }} > {}",
        at("words"),
        at("configuration")
    );
    let stub = program(
        &dir.path().join("kernelstub"),
        &format!(
            "out=; in=; case \"$1\" in --delete-options) out=$2;; --add-options) in=$2;; esac\n{change}\n{show}"
        ),
    );
    shell::ask(&stub, None, LIMIT).unwrap();
    there_and_back(&Loader::Kernelstub { program: stub, configuration: at("configuration") }, || {
        std::fs::read_to_string(at("words")).unwrap()
    });
}

#[test]
fn which_tool_there_is_is_told_by_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str| {
        let file = dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    };
    let found = || detect(&Root::open(dir.path()).unwrap());
    assert_eq!(found(), None);
    [
        "/etc/default/grub",
        "/usr/sbin/update-grub",
        "/etc/default/grub.d/50-b.cfg",
        "/etc/default/grub.d/10-a.cfg",
        "/etc/default/grub.d/README",
    ]
    .into_iter()
    .for_each(put);
    let Some(Loader::Grub { files, .. }) = found() else { panic!("{:?}", found()) };
    assert_eq!(files, ["/etc/default/grub", "/etc/default/grub.d/10-a.cfg", "/etc/default/grub.d/50-b.cfg"]);
    put("/usr/sbin/grubby");
    assert!(matches!(found(), Some(Loader::Grubby { .. })));
    ["/usr/bin/kernelstub", "/etc/kernelstub/configuration"].into_iter().for_each(put);
    assert!(matches!(found(), Some(Loader::Kernelstub { .. })));
}
