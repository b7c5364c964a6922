//! Texts of boot loaders and profiles as distributions ship them, and any text.

use super::*;
use proptest::prelude::*;

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|n| (*n).to_owned()).collect()
}

/// Debian 12's, shortened, and a cloud image's drop-in.
const DEBIAN: &str = "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet mitigations=auto\"\nGRUB_CMDLINE_LINUX=\"\"\n# GRUB_CMDLINE_LINUX_DEFAULT=\"no\"\n";
const CLOUD: &str = "# Cloud\nGRUB_CMDLINE_LINUX_DEFAULT='console=tty1 console=ttyS0'\n";

fn files(texts: &[&str]) -> Vec<(String, String)> {
    texts.iter().enumerate().map(|(i, t)| (format!("/{i}"), (*t).to_owned())).collect()
}

#[test]
fn words_of_grub_are_changed_and_nothing_else() {
    let n = names(&["mitigations", "amd_pstate"]);
    let one = grub_with(&files(&[DEBIAN]), &n, "amd_pstate=active");
    assert_eq!(one[0].1, DEBIAN.replace("quiet mitigations=auto", "quiet amd_pstate=active"));
    // Where a drop-in is read after it, its words are those that count; a word that stands in both goes from both.
    let two = grub_with(&files(&[DEBIAN, CLOUD]), &n, "amd_pstate=active");
    assert_eq!(two[0].1, DEBIAN.replace("quiet mitigations=auto", "quiet"));
    assert_eq!(two[1].1, CLOUD.replace("ttyS0'", "ttyS0 amd_pstate=active'"));
    let bare = grub_with(&files(&["GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"]), &n, "amd_pstate=active");
    assert_eq!(bare[0].1, "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet amd_pstate=active\"\n");
    let none = grub_with(&files(&["GRUB_TIMEOUT=1"]), &n, "amd_pstate=active");
    assert_eq!(none[0].1, "GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX_DEFAULT=\"amd_pstate=active\"\n");
    assert_eq!(grub_with(&files(&[CLOUD]), &n, ""), files(&[CLOUD]));
}

#[test]
fn what_the_next_boot_is_given() {
    let n = names(&["mitigations"]);
    let menu = "menuentry 'Debian' {\n\tlinux\t/vmlinuz root=UUID=1 ro quiet mitigations=auto\n}\nmenuentry 'recovery' {\n\
                \tlinux\t/vmlinuz root=UUID=1 ro single\n}\n";
    assert_eq!(of_menu(menu, &n).as_deref(), Ok("mitigations=auto"));
    let differ = format!("{menu}\tlinux /old ro\n");
    assert!(of_menu(&differ, &n).unwrap_err().contains("different"));
    assert!(of_menu("set x=1\n", &n).is_err());
    // Two kernels, as grubby of Fedora 40 prints them.
    let told = "index=0\nkernel=\"/boot/a\"\nargs=\"ro rhgb mitigations=auto\"\nroot=\"UUID=1\"\nindex=1\nkernel=\"/boot/b\"\nargs=\"ro mitigations=auto\"\n";
    assert_eq!(of_grubby(told, &n).as_deref(), Ok("mitigations=auto"));
    let file = "{\n  \"default\": {\"kernel_options\": [\"quiet\"]},\n  \"user\": {\n    \"kernel_options\": [\n      \"quiet\",\n      \"mitigations=auto\"\n    ],\n    \"esp_path\": \"/boot/efi\"\n  }\n}";
    assert_eq!(of_kernelstub(file, &n).as_deref(), Ok("mitigations=auto"));
    assert!(of_kernelstub("{}", &n).is_err());
}

#[test]
fn a_profile_over_the_active_one() {
    let set = |path: &str, to: &str| Setting { path: path.into(), from: "x".into(), to: to.into() };
    let profile = Profile {
        name: "vsteer-x".into(),
        folder: "/etc/tuned/vsteer-x".into(),
        includes: "virtual-host powersave".into(),
        settings: vec![
            set("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
            set("/proc/sys/net/ipv4/conf/eth0.1/rp_filter", "0"),
        ],
        program: String::new(),
    };
    let text = profile.text();
    assert!(text.starts_with(MADE), "{text}");
    for line in [
        "include=virtual-host,powersave",
        "[sysctl]\nnet.ipv4.conf.eth0/1.rp_filter=0",
        "[sysfs]\n/sys/kernel/mm/transparent_hugepage/enabled=never",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(tuned_can("/sys/x/y", "1 2") && tuned_can("/proc/sys/vm/swappiness", "10"));
    for (path, value) in
        [("/etc/x", "1"), ("/sys/../etc/x", "1"), ("/sys/x", "1\n[main]"), ("/sys/x", ""), ("/sys/x", "${a}")]
    {
        assert!(!tuned_can(path, value), "{path} {value:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_edited_and_edited_back(text in "(GRUB_CMDLINE_LINUX(_DEFAULT)?=)?[\"' a-z=\\n]{0,30}", words in "[a-z]{1,4}(=[a-z]{1,3})?") {
        let n = names(&[word_name(&words)]);
        let new = grub_with(&files(&[&text, DEBIAN]), &n, &words);
        // Once in, it is there once; taken out, it is gone.
        let again = grub_with(&new, &n, &words);
        prop_assert_eq!(&again, &new);
        prop_assert_eq!(grub_with(&again, &n, ""), grub_with(&new, &n, ""));
        let _ = (of_menu(&text, &n), of_grubby(&text, &n), of_kernelstub(&text, &n));
    }
}
