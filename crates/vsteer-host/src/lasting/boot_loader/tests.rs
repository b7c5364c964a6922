//! Stand-ins for the tools, in a folder of their own; Debian's own update-grub is under the lab's case.

use super::*;
use std::path::Path;

const HERE: Place<'_> = Place(None);

fn program(at: &Path, text: &str) -> String {
    crate::stand_in::script(at, text);
    at.to_string_lossy().into_owned()
}

fn names() -> Vec<String> {
    vec!["mitigations".to_owned(), "amd_pstate".to_owned()]
}

/// Set, read, put back, put back again.
fn there_and_back(loader: &Loader, look: impl Fn() -> String) {
    let (n, before) = (names(), look());
    let from = read(loader, &n, HERE).unwrap();
    let kept = Former { files: former(loader, HERE).unwrap(), ..Former::default() };
    for to in ["amd_pstate=active", "amd_pstate=active mitigations=auto", ""] {
        set(loader, &n, to, HERE).unwrap();
        assert_eq!(read(loader, &n, HERE).unwrap(), to, "{loader}");
        restore(loader, &n, (&from, to), &kept, HERE).unwrap();
        assert_eq!(
            (read(loader, &n, HERE).unwrap(), look()),
            (from.clone(), before.clone()),
            "{loader}, from {to:?}"
        );
        restore(loader, &n, (&from, to), &kept, HERE).unwrap();
        assert_eq!(look(), before);
    }
    assert_eq!(set(loader, &n, "a=\"; reboot", HERE).unwrap_err().kind, FaultKind::BadInput);
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
    HERE.ask(&command(&[&update]).unwrap(), LIMIT).unwrap();
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
    let kept = Former { files: former(&loader, HERE).unwrap(), ..Former::default() };
    set(&loader, &n, "amd_pstate=active", HERE).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}GRUB_TIMEOUT=9\n")).unwrap();
    restore(&loader, &n, ("mitigations=auto", "amd_pstate=active"), &kept, HERE).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("GRUB_TIMEOUT=9") && text.contains("quiet mitigations=auto"), "{text}");
}

#[test]
fn by_grubby_and_kernelstub() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    // The stand-ins edit the parameters as asked: remove these names, add these words.
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
    HERE.ask(&Argv::parse(&stub).unwrap(), LIMIT).unwrap();
    there_and_back(&Loader::Kernelstub { program: stub, configuration: at("configuration") }, || {
        std::fs::read_to_string(at("words")).unwrap()
    });
}

#[test]
fn which_tool_there_is_is_told_by_its_files() {
    let mut there: Vec<String> = Vec::new();
    assert_eq!(of_files(&there), None);
    let grub = [
        "/etc/default/grub",
        "/usr/sbin/update-grub",
        "/etc/default/grub.d/50-b.cfg",
        "/etc/default/grub.d/10-a.cfg",
    ];
    there.extend(grub.map(str::to_owned));
    let Some(Loader::Grub { files, .. }) = of_files(&there) else { panic!("{:?}", of_files(&there)) };
    assert_eq!(files, ["/etc/default/grub", "/etc/default/grub.d/10-a.cfg", "/etc/default/grub.d/50-b.cfg"]);
    there.push("/usr/sbin/grubby".into());
    assert!(matches!(of_files(&there), Some(Loader::Grubby { .. })));
    there.extend(["/usr/bin/kernelstub", "/etc/kernelstub/configuration"].map(str::to_owned));
    assert!(matches!(of_files(&there), Some(Loader::Kernelstub { .. })));
    // What the machine's shell finds, patterns too, and nothing that is not there.
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    ["a", "1.cfg", "2.cfg", "README"].iter().for_each(|name| std::fs::write(at(name), "").unwrap());
    let found = HERE.of(&[&at("a"), &at("b"), &at("*.cfg"), &at("*.none")]).unwrap();
    assert_eq!(found, [at("a"), at("1.cfg"), at("2.cfg")]);
}
