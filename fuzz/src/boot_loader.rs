//! Any text is a boot menu, what `grubby` prints, or a file of `kernelstub`, or is refused.

use vsteer_core::setting::lasting::{of_grubby, of_kernelstub, of_menu};

const GRUB: &str = "menuentry 'a' {\n\tlinux /boot/vmlinuz root=/dev/vda1 ro quiet mitigations=off\n}\n";

pub fn run(bytes: &[u8]) -> bool {
    let text = crate::text(bytes);
    let names = ["mitigations".to_owned(), "isolcpus".to_owned()];
    let read = [of_menu(text, &names), of_grubby(text, &names), of_kernelstub(text, &names)];
    read.iter().any(Result::is_ok)
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        GRUB,
        "index=0\nkernel=\"/boot/vmlinuz\"\nargs=\"ro quiet mitigations=off\"\n",
        "{\"user\": {\"kernel_options\": [\"quiet\", \"mitigations=off\"]}}",
    ])
}
