//! The command as a process, beside the kernel's mount, btrfs-progs and GNU tar.

mod access_times;
mod by_ioctls;
mod callers;
mod check;
mod copies;
mod copies_in;
mod crafted;
mod edits;
mod errors;
mod imports;
mod kept_images;
mod listings;
mod live;
mod mapped;
mod mounted;
mod namespaces;
mod process;
mod progs_verbs;
mod shell;
mod stopped;
mod stored;
mod subvolumes;
#[path = "../../../../benches/transport/src/switch.rs"]
mod switch;
